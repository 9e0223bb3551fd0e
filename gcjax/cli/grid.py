"""A grid of settings of one config, run one after the other in one process, and one table of all of them."""

import ast
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gcjax import analysis, config, files, saved_progress
from gcjax.analysis import seal, store, sweep_summary, sweeps
from gcjax.analysis.store import Columns
from gcjax.analysis.sweeps import Sweep
from gcjax.cli import sweep_folders
from gcjax.config import experiment_parts
from gcjax.engine.identity import run_identity
from gcjax.progress import Progress

_MAX_NAME_BYTES = 200  # of a folder; file systems take 255
_CLOSING_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def run(path: str, bindings: Sequence[str], over: Sequence[str], out: Path, progress: Progress) -> Sweep:
    """Runs a config for all combinations of some values, each in a folder of its own, and writes what came out.

    What combinations have in common is compiled once. Besides the folders, `out` gets `summary.md`, a row a scheme and
    combination, and `sweep.parquet`, a row a seed, with a column for each parameter. A sweep that was ended early goes
    on: combinations that are done are not run again, and the one that was cut off goes on from its last checkpoint.

    Args:
      path: a config whose experiment writes `gcjax.analysis.Results`, as `compare` does.
      bindings: gin statements that win over the file, the same for all.
      over: `PARAMETER=VALUE,VALUE,...` each.
      out: the folder to write; empty, or that of the same sweep, not finished.
      progress: tells a person how far it is.

    Returns:
      What was written.

    Raises:
      ValueError: if the config cannot be read with one of the combinations, or a factory in it refuses a value (beside
        the first values of the other parameters), before any of them is run; if the folder is that of another sweep,
        or has a finished run of another config in the place of a combination; or, when its turn comes, whatever the
        experiment objects to in a combination, or if it writes something else.
    """
    grid = combinations(over)
    config_digests = _checked_config_digests(path, bindings, grid)  # raises for any of them before the first is run
    folder_names = [folder_name(combination) for combination in grid]
    _check_folder_names(folder_names)
    sweep_folders.write_or_check_identity(out, _sweep_identity(path, bindings, over, grid[0]))
    for folder, config_digest in zip(folder_names, config_digests, strict=True):
        sweep_folders.check_is_of_config(out / folder, config_digest)
    parameters = tuple(binding.partition(" = ")[0] for binding in grid[0])
    run_combinations = []
    for index, (combination, folder) in enumerate(zip(grid, folder_names, strict=True)):
        config.load(path, [*bindings, *combination])
        combination_progress = _combination_progress(progress, ", ".join(combination), index, len(grid))
        try:
            with _combination_in_errors(combination):
                results = _combination_results(out / folder, combination_progress)
        except ValueError:
            sweep_folders.remove_identity_if_nothing_was_run(out)
            raise
        values = tuple(binding.partition(" = ")[2] for binding in combination)
        run_combinations.append(sweeps.Combination(folder, values, results))
    sweep = sweeps.Sweep(parameters, tuple(run_combinations))
    files.write_table(out / store.SWEEP_FILE, _seed_table(sweep))
    files.write_text(out / store.SUMMARY_FILE, sweep_summary.markdown(sweep))
    seal.write(out, sweeps.facts(sweep, out))
    progress.show(sweep_summary.table(sweep, f"All combinations of {path}"))
    return sweep


def combinations(over: Sequence[str]) -> list[tuple[str, ...]]:
    """The bindings of every combination, the last parameter changing fastest.

    Args:
      over: `PARAMETER=VALUE,VALUE,...` each; commas inside of brackets and quotes belong to a value.

    Raises:
      ValueError: if one of them has no parameter or no value, or a parameter is there twice.
    """
    bindings_by_parameter: dict[str, list[str]] = {}
    for over_option in over:
        name, equals_sign, comma_separated = (word.strip() for word in over_option.partition("="))
        values = [value.strip() for value in _split_at_commas(comma_separated)]
        if not name or not equals_sign or not all(values):
            raise ValueError(f"--over needs PARAMETER=VALUE,VALUE,..., as 'ssp.staleness=0,1,3'; got {over_option!r}.")
        if name in bindings_by_parameter:
            raise ValueError(f"--over needs each parameter once; got {name} twice. List all its values together.")
        _check_values_differ(name, values)
        bindings_by_parameter[name] = [f"{name} = {value}" for value in values]
    return list(itertools.product(*bindings_by_parameter.values()))


def _check_values_differ(name: str, values: Sequence[str]) -> None:
    """Checks that no two values of a parameter are the same, as 0.1 and 0.10 are, or raises `ValueError`."""
    text_of_value: dict[str, str] = {}
    for text in values:
        try:
            value = repr(ast.literal_eval(text))
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):  # a reference, or what gin refuses
            value = text
        if value in text_of_value:
            raise ValueError(f"--over needs each value of {name} once; got {text_of_value[value]} and {text}.")
        text_of_value[value] = text


def folder_name(combination: Sequence[str]) -> str:
    """The name of a combination's folder, for example "ssp.staleness=3, sgd.learning_rate=0.1".

    Args:
      combination: its bindings, `PARAMETER = VALUE` each.
    """
    bindings_without_spaces = (binding.replace(" = ", "=", 1) for binding in combination)
    return analysis.file_name(", ".join(bindings_without_spaces))


def _checked_config_digests(path: str, bindings: Sequence[str], grid: Sequence[Sequence[str]]) -> list[str]:
    """Of each combination of the grid the digest of its config, which is loaded, and its values tried.

    Raises:
      ValueError: if one cannot be read, or a factory refuses a value beside the first values of the other parameters.
    """
    digests = []
    for combination in grid:
        config.load(path, [*bindings, *combination])
        digests.append(config.digest())
        num_changed_values = sum(value != first_value for value, first_value in zip(combination, grid[0], strict=True))
        if num_changed_values <= 1:  # so each value once, which takes less than all combinations
            with _combination_in_errors(combination):
                experiment_parts.check_values()
    return digests


def _check_folder_names(names: Sequence[str]) -> None:
    """Checks that the names of all combinations' folders are short enough, or raises `ValueError`."""
    for name in names:
        if len(name.encode()) > _MAX_NAME_BYTES:
            raise ValueError(
                f"a combination must fit into a folder's name ({_MAX_NAME_BYTES} bytes); got '{name[:50]}...'."
            )


def _split_at_commas(text: str) -> Iterator[str]:
    """The pieces of a text between those of its commas that are outside of brackets and quotes."""
    piece = ""
    awaited_closers: list[str] = []  # of each open bracket or quote, the innermost last
    for character in text:
        is_in_quotes = bool(awaited_closers) and awaited_closers[-1] in "'\""
        if awaited_closers and character == awaited_closers[-1]:
            awaited_closers.pop()
        elif character in "'\"" and not is_in_quotes:
            awaited_closers.append(character)
        elif character in _CLOSING_BRACKETS and not is_in_quotes:
            awaited_closers.append(_CLOSING_BRACKETS[character])
        if character == "," and not awaited_closers:
            yield piece
            piece = ""
        else:
            piece += character
    yield piece


def _sweep_identity(path: str, bindings: Sequence[str], over: Sequence[str], first_combination: Sequence[str]) -> str:
    """A text of all that a sweep's bits depend on: the swept values, and the config of its first combination."""
    config.load(path, [*bindings, *first_combination])
    return run_identity("\n".join([*over, config.text()]))


def _combination_results(folder: Path, progress: Progress) -> analysis.Results:
    """The results in a combination's folder, after running the loaded config there unless that is done already.

    A run that was cut off there goes on. One that is refused leaves no folder.
    """
    if not store.has_finished_run(folder):
        try:
            config.run_loaded(analysis.resumable_or_new_folder(folder), progress)
        finally:
            saved_progress.forget_run()
            with contextlib.suppress(OSError):  # it holds something
                folder.rmdir()
    return analysis.load(folder)


@contextlib.contextmanager
def _combination_in_errors(combination: Sequence[str]) -> Iterator[None]:
    """In this block, a `ValueError` begins with the bindings of a combination."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{', '.join(combination)}: {error}") from error


def _combination_progress(sweep_progress: Progress, combination: str, index: int, num_combinations: int) -> Progress:
    """What combination `index` reports to, as its share of the sweep; what it would show is in its folder."""

    def update(label: str, fraction: float, detail: str = "") -> None:
        """Reports the fraction of this combination that is done as a fraction of the sweep."""
        sweep_progress.update(f"{combination}: {label}", (index + fraction) / num_combinations, detail)

    return Progress(update=update, show=lambda _: None)


def _seed_table(sweep: Sweep) -> Columns:
    """A row for every seed of every scheme of every combination, with a column for each parameter."""
    table = analysis.concatenate_tables(
        _with_same_columns([_seed_rows(sweep.parameters, combination) for combination in sweep.combinations])
    )
    # A metric of the same name takes the column of a parameter.
    return table | {name: sweeps.as_numbers(table[name]) for name in sweep.parameters if table[name].dtype == object}


def _seed_rows(parameters: Sequence[str], combination: sweeps.Combination) -> Columns:
    """A row for every seed of every scheme of a combination.

    Returns:
      A column for each parameter, those of `results.metrics` at the last evaluation, and `time_to_target` in seconds,
      inf if it was not reached.
    """
    results = combination.results
    rows_of_schemes = []
    for scheme in results.schemes:
        seeds = results.seeds(scheme)
        named_values = zip(parameters, combination.values, strict=True)
        parameter_columns = {name: np.full(len(seeds), value, object) for name, value in named_values}
        # Of each seed.
        last_values: dict[str, Any] = {name: np.array([seed[name][-1] for seed in seeds]) for name in results.metrics}
        rows_of_schemes.append(
            {**parameter_columns, **last_values, "time_to_target": analysis.reach_times(results, scheme)}
        )
    return analysis.concatenate_tables(rows_of_schemes)


def _with_same_columns(tables: Sequence[Columns]) -> list[Columns]:
    """The tables, each with the columns of all; NaN where a combination has no such metric."""
    names = dict.fromkeys(name for table in tables for name in table)
    return [{name: table.get(name, np.full(len(table["seed"]), np.nan)) for name in names} for table in tables]
