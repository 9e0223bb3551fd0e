"""A grid of settings of one config, run one after the other in one process, and one table of all of them."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gcjax import analysis, config, files, progress, saved_progress
from gcjax.analysis import summary
from gcjax.analysis.store import Columns
from gcjax.cli import sweep_folders
from gcjax.engine.identity import run_identity

_LONGEST_NAME = 200
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def run(path: str, bindings: Sequence[str], over: Sequence[str], out: Path, shown: progress.Progress) -> None:
    """Runs a config for all combinations of some values, each in a folder of its own, and writes what came out.

    What combinations have in common is compiled once. Besides the folders, `out` gets `summary.md`, a row a scheme and
    combination, and `sweep.parquet`, a row a seed, with a column for each parameter. A sweep that was ended early goes
    on: combinations that are done are not run again, and the one that was cut off goes on from its last checkpoint.

    Args:
      path: a config whose experiment writes `gcjax.analysis.Results`, as `compare` does.
      bindings: gin statements that win over the file, the same for all.
      over: `PARAMETER=VALUE,VALUE,...` each.
      out: the folder to write; empty, or that of the same sweep, not finished.
      shown: tells a person how far it is.

    Raises:
      ValueError: if the config cannot be read with one of the combinations, before any of them is run; if the folder
        is that of another sweep; or whatever the experiment objects to before it has results, or if it writes something
        else.
    """
    grid = combinations(over)
    for combination in grid:
        config.load(path, [*bindings, *combination])
    _check_folders([folder_name(combination) for combination in grid])
    sweep_folders.begin(out, _identity(path, bindings, over, grid[0]))
    parts, rows = [], []
    for i, combination in enumerate(grid):
        config.load(path, [*bindings, *combination])
        results = _results(
            out / folder_name(combination), _combination_progress(shown, ", ".join(combination), i, len(grid))
        )
        values = [binding.partition("=")[2].strip() for binding in combination]
        rows += [(*values, *row) for row in summary.rows(results)]
        parts.append(_columns(_names(combination), values, results))
    heads = [*_names(grid[0]), *summary.heads(results)]
    files.write_table(out / "sweep.parquet", analysis.stack(parts))
    keys = len(grid[0]) + 1
    table = analysis.markdown_table(heads, rows, keys=keys)
    files.write_text(out / "summary.md", f"# Sweep\n\n{table}\n\n{summary.NOTES}")
    shown.show(analysis.rich_table(f"All combinations of {path}", heads, rows, keys=keys))


def combinations(over: Sequence[str]) -> list[tuple[str, ...]]:
    """The bindings of every combination, the last parameter changing fastest.

    Args:
      over: `PARAMETER=VALUE,VALUE,...` each; commas inside of brackets and quotes belong to a value.

    Raises:
      ValueError: if one of them has no parameter or no value, or a parameter is there twice.
    """
    axes, names = [], []
    for text in over:
        name, equals, values = (part.strip() for part in text.partition("="))
        choices = [value.strip() for value in _split(values)]
        if not name or not equals or not all(choices):
            raise ValueError(f"--over needs PARAMETER=VALUE,VALUE,..., as 'ssp.staleness=0,1,3'; got {text!r}.")
        if name in names:
            raise ValueError(f"--over needs each parameter once; got {name} twice. List all its values together.")
        names.append(name)
        axes.append([f"{name} = {value}" for value in choices])
    return list(itertools.product(*axes))


def folder_name(combination: Sequence[str]) -> str:
    """A folder's name for a combination, for example "ssp.staleness=3, sgd.learning_rate=0.1"."""
    return analysis.file_name(", ".join(binding.replace(" = ", "=") for binding in combination))


def _check_folders(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--over needs each value once; got '{name}' twice.")
        if len(name.encode()) > _LONGEST_NAME:
            raise ValueError(
                f"a combination must fit into a folder's name ({_LONGEST_NAME} bytes); got '{name[:50]}...'."
            )


def _split(text: str) -> Iterator[str]:
    """The parts between commas that are in no bracket and no quotes."""
    part = ""
    expected: list[str] = []
    for letter in text:
        if expected and letter == expected[-1]:
            expected.pop()
        elif letter in "'\"" and not (expected and expected[-1] in "'\""):
            expected.append(letter)
        elif letter in _CLOSING and not (expected and expected[-1] in "'\""):
            expected.append(_CLOSING[letter])
        if letter == "," and not expected:
            yield part
            part = ""
        else:
            part += letter
    yield part


def _identity(path: str, bindings: Sequence[str], over: Sequence[str], first: Sequence[str]) -> str:
    """What all combinations depend on: the axes, and one of them."""
    config.load(path, [*bindings, *first])
    return run_identity("\n".join([*over, config.text()]))


def _results(folder: Path, shown: progress.Progress) -> analysis.Results:
    """What the config's experiment has written, or writes; that no scheme reaches the target is a result, too."""
    if not sweep_folders.is_done(folder):
        try:
            config.start(analysis.unfinished_folder(folder), shown)
        except ValueError:
            if not sweep_folders.is_done(folder):
                raise
        finally:
            saved_progress.forget()
    return analysis.load(folder)


def _names(combination: Sequence[str]) -> list[str]:
    return [binding.partition("=")[0].strip() for binding in combination]


def _combination_progress(shown: progress.Progress, combination: str, index: int, number: int) -> progress.Progress:
    """The progress of one combination among all of them; what it shows is in its folder."""

    def update(label: str, fraction: float, detail: str = "") -> None:
        shown.update(f"{combination}: {label}", (index + fraction) / number, detail)

    return progress.Progress(update, show=lambda _: None)


def _columns(names: Sequence[str], values: Sequence[str], results: analysis.Results) -> Columns:
    """A row for every seed of every scheme: when it reached the target, and what it had at the end."""
    parts = []
    for scheme in results.schemes:
        seeds = results.seeds(scheme)
        count = len(seeds)
        last: dict[str, Any] = {name: np.array([seed[name][-1] for seed in seeds]) for name in results.metrics}
        labels = {name: np.full(count, value, object) for name, value in zip(names, values, strict=True)}
        parts.append({**labels, **last, "time_to_target": analysis.reach_times(results, scheme)})
    return analysis.stack(parts)
