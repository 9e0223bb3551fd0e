"""The folder that a run leaves behind: read and written in one place.

`metrics.parquet` has a row for every evaluation of every seed of every scheme, with all that had been spent
by then; `timeline.parquet` the units of the first rounds, `commits.parquet` what these rounds committed; `run.json`
what the run was, and the digests of all files.
"""

import os
import shutil
import tempfile
import urllib.parse
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gcjax import config, files, locks
from gcjax.analysis import seal
from gcjax.analysis.seal import CHECKPOINTS

Columns = dict[str, np.ndarray]
SUMMARY_FILE = "summary.md"
REPORT_FILES = (SUMMARY_FILE, "loss_vs_time.png", "timeline.png")
"""What `gcjax report` makes from the others."""
PAGE_FILE = "report.html"
"""What `gcjax report --html` makes from the others."""
METRICS_FILE, TIMELINE_FILE, COMMITS_FILE = "metrics.parquet", "timeline.parquet", "commits.parquet"
SWEEP_FILE = "sweep.parquet"
"""The table of a sweep, a row for each seed of each scheme of each combination."""
CONFIG_DIGEST = "config_sha256"
"""Of `run.json`: the digest of the config that the run is of."""
_DROPPED_CHECKPOINTS = ".checkpoints-of-a-finished-run"


class Results(NamedTuple):
    """What a comparison found.

    Attributes:
      metrics: columns scheme, seed, commit, time (virtual seconds), one for every metric of the task, and
        those of `gcjax.analysis.Costs`, with `numbers` (that a worker has sent) instead of `messages`,
        and `server_numbers` (that servers of groups have sent, per worker) instead of `server_messages`.
      timeline: columns scheme, worker, unit, start, compute_start, compute_end, send_start, finish, failed;
        for the first seed, as far as the timeline is drawn.
      facts: what `run.json` says: the target, the schemes in order, seeds, versions.
      commits: columns scheme, commit, time, worker, unit, work, weight, version: the contributions to the commits
        of the first seed, as far as the timeline is drawn; None if they are not known, as in earlier versions.
    """

    metrics: Columns
    timeline: Columns
    facts: dict[str, Any]
    commits: Columns | None = None

    @property
    def schemes(self) -> list[str]:
        """The names of the schemes, in the order of the config."""
        return list(self.facts["schemes"])

    def seeds(self, scheme: str) -> list[Columns]:
        """The rows of one scheme, seed by seed."""
        rows = select_rows(self.metrics, self.metrics["scheme"] == scheme)
        return [select_rows(rows, rows["seed"] == seed) for seed in np.unique(rows["seed"])]


def select_rows(columns: Columns, rows: np.ndarray) -> Columns:
    """The rows for which a mask holds."""
    return {name: column[rows] for name, column in columns.items()}


def concatenate_tables(tables: Sequence[Columns]) -> Columns:
    """Tables with the same columns, one below the other."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def file_name(name: str) -> str:
    """A name for a file or folder: letters and digits stay, and different names stay different."""
    return urllib.parse.quote(name, safe=" ()=,") if name.strip(".") else name.replace(".", "%2E")


def make_empty_folder(path: str | Path) -> Path:
    """Makes a folder for a run.

    Raises:
      ValueError: if it exists and is not empty, so that no earlier result is ever overwritten; or nothing can be
        written to it.
    """
    folder = Path(path)
    with os_errors_as_value_error(folder):
        is_file = folder.exists() and not folder.is_dir()
        # The lock of the process that is about to write there does not count.
        if is_file or (folder.exists() and any(path.name != locks.LOCK_FILE for path in folder.iterdir())):
            has_unfinished_run = (folder / CHECKPOINTS).is_dir()
            or_resume = ", or go on with what was begun there with --resume" if has_unfinished_run else ""
            raise ValueError(
                f"The output folder must be new or empty; {folder} is not. Choose another one with --out{or_resume}."
            )
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # raises if the folder is read-only
            pass
    return folder


def check_not_finished(folder: Path) -> None:
    """Raises `ValueError` if a folder has a finished run, so that no result is ever overwritten."""
    if has_finished_run(folder):
        raise ValueError(
            f"The output folder must be new, or have a run that can go on; the run in {folder} is finished. Choose "
            "another one."
        )


def os_errors_as_value_error(folder: Path) -> AbstractContextManager[None]:
    """In its block, an error of the operating system is a `ValueError`: the output folder cannot be written."""
    return files.os_errors_as_value_error("The output folder must be one", folder, "Choose another one with --out.")


def resumable_or_new_folder(path: str | Path) -> Path:
    """The folder of a run that was stopped and can go on, or a new one.

    Raises:
      ValueError: if something else is in it, for example a finished run.
    """
    folder = Path(path)
    if has_finished_run(folder):
        raise ValueError(
            f"The run in {folder} is finished, so there is nothing to resume. For other values or more seeds choose "
            "another folder."
        )
    return folder if (folder / CHECKPOINTS).is_dir() else make_empty_folder(folder)


def has_finished_run(folder: Path) -> bool:
    """Whether a run has written everything to the folder, and has no checkpoints any more."""
    with os_errors_as_value_error(folder):
        return (folder / seal.RUN_JSON).exists() and not (folder / CHECKPOINTS).is_dir()


def is_comparison(folder: Path) -> bool:
    """Whether the run in a folder is a comparison, of which it has `Results`; other experiments have a summary only."""
    return (folder / METRICS_FILE).is_file()


def is_resumable(folder: Path) -> bool:
    """Whether there is a whole checkpoint that a run in this folder can go on from."""
    # Orbax names a checkpoint's folder after its step, and writes this file last.
    subfolders = os.walk(folder / CHECKPOINTS)
    return any(Path(path).name.isdigit() and "_CHECKPOINT_METADATA" in names for path, _, names in subfolders)


def is_complete(folder: Path) -> bool:
    """Whether a run has written everything to this folder and is deleting its checkpoints, its last step."""
    return (folder / _DROPPED_CHECKPOINTS).exists()


def drop_checkpoints(folder: Path) -> None:
    """Deletes the checkpoints of a run, when all that it was to write has been written.

    They are renamed first: half-deleted ones would look like damaged ones to a run that resumes.
    """
    if (folder / CHECKPOINTS).exists():
        os.replace(folder / CHECKPOINTS, folder / _DROPPED_CHECKPOINTS)
        shutil.rmtree(folder / _DROPPED_CHECKPOINTS)


def save(results: Results, folder: Path) -> None:
    """Writes the tables and `run.json`, with the digests of the loaded config and of all that is in the folder.

    Results that were read from a folder keep the digest of their own config.
    """
    files.write_table(folder / METRICS_FILE, results.metrics)
    files.write_table(folder / TIMELINE_FILE, results.timeline)
    if results.commits is not None:
        files.write_table(folder / COMMITS_FILE, results.commits)
    seal.write(folder, {CONFIG_DIGEST: config.digest(), **results.facts})


def load(path: str | Path) -> Results:
    """Reads what `save` wrote, if all files of the folder are as they were written.

    Raises:
      ValueError: if the folder is not that of a finished run, or one of its files is damaged or missing.

    Warns:
      UnsealedWarning: if the folder is of an earlier version, without digests of its files.
    """
    folder = Path(path)
    missing_files = [name for name in (METRICS_FILE, TIMELINE_FILE, seal.RUN_JSON) if not (folder / name).is_file()]
    if missing_files:
        run_jsons = {file for place in (folder, Path("runs")) for file in place.glob(f"*/{seal.RUN_JSON}")}
        run_folders = sorted(str(file.parent) for file in run_jsons)
        hint = f" Runs and sweeps here: {', '.join(run_folders)}." if run_folders else ""
        if (folder / CHECKPOINTS).is_dir():
            hint = " It is of a run or sweep that has not ended: the same command with --resume goes on with it."
        if (folder / SWEEP_FILE).is_file():
            hint = " It is of a sweep: gcjax.analysis.load_sweep reads it, and load the folder of a combination in it."
        raise ValueError(
            f"A folder written by 'gcjax run' is needed; {folder} has no {', '.join(missing_files)}.{hint}"
        )
    facts = seal.read(folder, needed_files=(METRICS_FILE, TIMELINE_FILE), rebuilt_files=(*REPORT_FILES, PAGE_FILE))
    metrics, timeline = table_columns(folder / METRICS_FILE), table_columns(folder / TIMELINE_FILE)
    return Results(metrics, timeline, facts=facts, commits=table_columns_or_none(folder / COMMITS_FILE))


def table_columns(file: Path) -> Columns:
    """The columns of a Parquet file."""
    table = files.read_table(file)
    return {name: table[name].to_numpy() for name in table.column_names}


def table_columns_or_none(file: Path) -> Columns | None:
    """The columns of a Parquet file; None if there is no such file."""
    return table_columns(file) if file.is_file() else None
