"""The command `gcjax report`."""

from __future__ import annotations

import argparse
import errno
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from gcjax.cli import warning_lines

if TYPE_CHECKING:
    from gcjax.analysis import Results

_NOT_WRITABLE_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)


def command(options: argparse.Namespace) -> None:
    """`gcjax report`: rebuilds the summary and the figures of a run, and prints its table.

    The folder of an experiment that is no comparison has no metrics.parquet: its summary is printed as it is. With
    `--timeline` and `--html` it writes these files, too.
    """
    from gcjax.cli import report_files

    folder = Path(options.folder)
    report_files.check(options)
    activities = report_files.shown_activities(options, folder)  # refuses before anything is printed
    _rebuild_report(folder)
    report_files.write(options, folder, activities)
    if options.json:
        from gcjax.cli import results_json

        options.result = results_json.folder_json(folder)


@warning_lines.print_warnings()
def _rebuild_report(folder: Path) -> None:
    """Rebuilds summary and figures if the run is a comparison, and prints its table; else prints its summary.

    Of a comparison that cannot be written, such as one in an archive, the table is printed all the same.
    """
    from gcjax import analysis, progress, tables
    from gcjax.analysis import seal

    if (folder / "summary.md").exists() and not analysis.store.is_comparison(folder):
        seal.read(folder, rebuilt_files=(analysis.store.PAGE_FILE,))  # raises for a damaged file
        progress.console().print(tables.rich_page((folder / "summary.md").read_text()))
        return
    results = analysis.load(folder)
    _write_report(results, folder)
    progress.console().print(analysis.table(results))


def _write_report(results: Results, folder: Path) -> None:
    """Writes summary and figures of a comparison into its folder.

    Warns:
      UserWarning: if nothing can be written there, so that they stay as they are.
    """
    from gcjax import analysis, locks

    try:
        with locks.lock(folder):
            analysis.write_report(results, folder)
    except OSError as error:
        if error.errno not in _NOT_WRITABLE_ERRNOS:
            raise
        problem = f"{folder} cannot be written ({error.strerror})"
        warnings.warn(f"{problem}; its summary and its figures stay as they are.", stacklevel=2)
