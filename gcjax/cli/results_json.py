"""What `run`, `sweep` and `report` print with `--json` of the folder that they wrote or read."""

from pathlib import Path
from typing import Any

from gcjax import analysis, tables
from gcjax.analysis import summary, sweep_summary
from gcjax.analysis.store import Results
from gcjax.analysis.sweeps import Sweep, parameter_columns
from gcjax.analysis.table_cells import finite, mean_of_finite

_MEAN_COLUMNS = ("computing", "communicating", "waiting", "mean_staleness", "chunks", "numbers")


def folder_json(folder: Path, content: Results | Sweep | None, *, against: str | None = None) -> dict[str, Any]:
    """The folder, its files, the rows of `summary.md` as text, and the numbers of each scheme.

    Args:
      folder: of a run or sweep.
      content: what it holds, as `gcjax.analysis.sweeps.load_any` reads it. Of a comparison the numbers are `schemes`;
        of a sweep they are in each of `combinations`; None for another experiment, which has none.
      against: the scheme that the differences seed by seed are from; the best one if None.
    """
    # The page is not read where it can be made: in a folder that cannot be written it may have another reference.
    if content is None:
        page = _summary_page(folder)
    elif isinstance(content, Sweep):
        page = sweep_summary.markdown(content, against=against)
    else:
        page = summary.markdown(content, against=against)
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    visible_files = [path for path in files if not any(part.startswith(".") for part in path.parts)]
    return {
        "folder": str(folder.absolute()),
        "files": sorted(path.as_posix() for path in visible_files),
        "tables": tables.rows_of_tables(page),
        "schemes": _schemes_json(content) if isinstance(content, Results) else [],
        "combinations": _combinations_json(content) if isinstance(content, Sweep) else [],
    }


def _combinations_json(sweep: Sweep) -> list[dict[str, Any]]:
    """Each combination: its folder in that of the sweep, the value of each parameter, and its schemes."""
    values_of_parameters = parameter_columns(sweep)
    return [
        {
            "folder": combination.folder,
            "values": {name: values[index] for name, values in values_of_parameters.items()},
            "schemes": _schemes_json(combination.results),
        }
        for index, combination in enumerate(sweep.combinations)
    ]


def _schemes_json(results: Results) -> list[dict[str, Any]]:
    """The schemes of a comparison, in the order of the config."""
    return [_scheme_json(results, scheme) for scheme in results.schemes]


def _summary_page(folder: Path) -> str:
    """The text of `summary.md`; "" if there is none."""
    path = folder / "summary.md"
    return path.read_text() if path.is_file() else ""


def _scheme_json(results: Results, scheme: str) -> dict[str, Any]:
    """One scheme: seconds to the target of each seed (infinite: not reached), and means over seeds at the end.

    `final`: the target's metric at the end of each seed; the means are those of `_MEAN_COLUMNS`, over the seeds that
    have such a value (without a commit there is no staleness); `max_staleness` is the largest of all.
    """
    seeds = results.seeds(scheme)  # columns with a value for each evaluation
    target, times_to_target = results.facts["target"], analysis.reach_times(results, scheme)
    return {
        "scheme": scheme,
        "target": target,
        "time_to_target": times_to_target,
        **{
            f"{name}_to_target": summary.spent_until_target(seeds, times_to_target, name)
            for name in ("chunks", "numbers")
        },
        "final": [seed[target["metric"]][-1] for seed in seeds],
        "stalled": results.facts["schemes"][scheme]["stalled"],
        "unused_workers": results.facts["schemes"][scheme].get("unused_workers"),
        **{name: mean_of_finite([seed[name][-1] for seed in seeds]) for name in _MEAN_COLUMNS},
        "max_staleness": max(finite([seed["max_staleness"][-1] for seed in seeds]), default=float("nan")),
    }
