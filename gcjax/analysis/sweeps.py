"""The folder of a sweep: a comparison for each combination of some values, in a folder of its own, and one table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gcjax.analysis import seal, store
from gcjax.analysis.store import Columns, Results

_PARAMETERS, _COMBINATIONS = "parameters", "combinations"  # of `run.json`
_RUN_DIGEST = "sha256"  # of each combination; that of earlier versions is not known


class Combination(NamedTuple):
    """One combination of a sweep.

    Attributes:
      folder: its name in the folder of the sweep.
      values: of each parameter, as text of a config.
      results: what its comparison found.
    """

    folder: str
    values: tuple[str, ...]
    results: Results


class Sweep(NamedTuple):
    """What a sweep found.

    Attributes:
      parameters: those that differ, for example ("ssp.staleness",).
      combinations: in their order, the last parameter changing fastest.
    """

    parameters: tuple[str, ...]
    combinations: tuple[Combination, ...]


def of_comparison(results: Results) -> Sweep:
    """A comparison as a sweep over nothing, with one combination."""
    return Sweep((), (Combination("", (), results),))


def facts(sweep: Sweep, folder: Path) -> dict[str, Any]:
    """What the `run.json` of a sweep says, by which `load_sweep` finds its combinations in `folder` and knows them."""
    combinations = [
        {
            "folder": combination.folder,
            "values": list(combination.values),
            _RUN_DIGEST: seal.digest_of_run(folder / combination.folder, store.METRICS_FILE),
        }
        for combination in sweep.combinations
    ]
    return {_PARAMETERS: list(sweep.parameters), _COMBINATIONS: combinations}


def is_sweep(folder: Path) -> bool:
    """Whether this is the folder of a finished sweep; of one of an earlier version, only its table can be read.

    Raises:
      ValueError: if its `run.json` is damaged.
    """
    return (folder / store.SWEEP_FILE).is_file() and _COMBINATIONS in seal.run_facts(folder)


def load_sweep(path: str | Path) -> Sweep:
    """Reads the folder of a sweep, with the results of all its combinations, if all files are as they were written.

    Raises:
      ValueError: if the folder is not that of a finished sweep, or one of its files is damaged or missing, or it has
        another run in the place of a combination.
    """
    folder = Path(path)
    if not is_sweep(folder):
        is_old = (folder / store.SWEEP_FILE).is_file()
        reason = (
            "is of an earlier version, so that gcjax.analysis.load reads its combinations one by one"
            if is_old
            else f"has no {store.SWEEP_FILE}. Go on with a sweep that has not ended with its command and --resume; "
            "gcjax.analysis.load reads the folder of a run"
        )
        raise ValueError(f"A folder written by 'gcjax sweep' is needed; {folder} {reason}.")
    rebuilt_files = (store.SUMMARY_FILE, store.PAGE_FILE)
    run_facts = seal.read(folder, needed_files=(store.SWEEP_FILE,), rebuilt_files=rebuilt_files)
    combinations = []
    for facts_of_combination in run_facts[_COMBINATIONS]:
        name = facts_of_combination["folder"]
        results = store.load(folder / name)
        if _RUN_DIGEST in facts_of_combination:
            seal.check_is_run(folder / name, store.METRICS_FILE, facts_of_combination[_RUN_DIGEST])
        combinations.append(Combination(name, tuple(facts_of_combination["values"]), results))
    return Sweep(tuple(run_facts[_PARAMETERS]), tuple(combinations))


def load_any(folder: Path) -> Results | Sweep | None:
    """Reads the folder of a comparison or of a sweep; checks that of another experiment, which has only a page: None.

    Raises:
      ValueError: if the folder is none of them, or one of its files is damaged or missing.

    Warns:
      UnsealedWarning: if the folder is of an earlier version, without digests of its files.
    """
    if is_sweep(folder):
        return load_sweep(folder)
    if (folder / store.SUMMARY_FILE).exists() and not store.is_comparison(folder):
        seal.read(folder, rebuilt_files=(store.PAGE_FILE,))
        return None
    return store.load(folder)


def parameter_columns(sweep: Sweep) -> Columns:
    """Parameter -> [combinations], its values: numbers if all of them are, otherwise texts."""
    return {
        name: as_numbers([combination.values[index] for combination in sweep.combinations])
        for index, name in enumerate(sweep.parameters)
    }


def as_numbers(texts: Sequence[str] | np.ndarray) -> np.ndarray:
    """The values of a parameter as int64, or else as float64, if all are such numbers; otherwise what they are."""
    for number_type, array_type in ((int, np.int64), (float, np.float64)):
        try:
            return np.array([number_type(text) for text in texts], array_type)
        except (ValueError, TypeError, OverflowError):
            continue
    return np.array(texts, object)
