"""The command `gcjax report`."""

from __future__ import annotations

import argparse
import contextlib
import errno
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gcjax.cli import warning_lines

if TYPE_CHECKING:
    from gcjax.tables import RichTable

_NOT_WRITABLE_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)


def command(options: argparse.Namespace) -> None:
    """`gcjax report`: rebuilds the summary and the figures of a run or sweep, and prints its table.

    Of an experiment that is neither a comparison nor a sweep, the summary is printed as it is. With `--timeline`,
    `--html`, `--csv` and `--latex` it writes these files, too; a table without a file is all that is on stdout.
    """
    from gcjax.cli import report_files, report_tables

    folder = Path(options.folder)
    report_files.check(options)
    report_tables.check(options)
    activities = report_files.shown_activities(options, folder)  # refuses before anything is printed
    tables_as_text = report_tables.texts(options, folder)  # refuses, too
    is_stdout_of_table = report_tables.is_on_stdout(options)
    with contextlib.redirect_stdout(sys.stderr) if is_stdout_of_table else contextlib.nullcontext():
        _rebuild_report(options, folder)
        report_files.write(options, folder, activities)
        report_tables.write(options, tables_as_text)
    report_tables.print_on_stdout(options, tables_as_text)
    if options.json:
        from gcjax.cli import results_json

        options.result = results_json.folder_json(folder, against=options.against)


@warning_lines.print_warnings()
def _rebuild_report(options: argparse.Namespace, folder: Path) -> None:
    """Rebuilds summary and figures of a comparison or sweep, and prints its table; else prints the summary.

    Of one that cannot be written, such as one in an archive, the table is printed all the same. With `--against`
    the differences seed by seed from that scheme are printed, too.
    """
    from gcjax import analysis, progress, tables
    from gcjax.analysis import seal, summary, sweep_summary, sweeps
    from gcjax.cli import report_tables

    against = options.against
    if sweeps.is_sweep(folder):
        sweep = analysis.load_sweep(folder)
        differences = _shown(sweep_summary.paired_table(sweep, against)) if against is not None else ()
        _write_report(folder, lambda: sweep_summary.write(sweep, folder, against=against))
        progress.console().print(sweep_summary.table(sweep), *differences)
        return
    if (folder / "summary.md").exists() and not analysis.store.is_comparison(folder):
        report_tables.check_has_schemes(options, folder)
        seal.read(folder, rebuilt_files=(analysis.store.PAGE_FILE,))  # raises for a damaged file
        progress.console().print(tables.rich_page((folder / "summary.md").read_text()))
        return
    results = analysis.load(folder)
    differences = _shown(summary.paired_table(results, against)) if against is not None else ()
    _write_report(folder, lambda: analysis.write_report(results, folder, against=against))
    progress.console().print(analysis.table(results), *differences)


def _shown(table: RichTable) -> tuple[str | RichTable, ...]:
    """What is printed below the main table: an empty line and this table; nothing if it has no rows."""
    return ("", table) if table.rows else ()


def _write_report(folder: Path, write: Callable[[], None]) -> None:
    """Calls what writes the summary, and the figures, of a comparison or sweep into its folder.

    Warns:
      UserWarning: if nothing can be written there, so that they stay as they are.
    """
    from gcjax import locks

    try:
        with locks.lock(folder):
            write()
    except OSError as error:
        if error.errno not in _NOT_WRITABLE_ERRNOS:
            raise
        problem = f"{folder} cannot be written ({error.strerror})"
        warnings.warn(f"{problem}; its summary and its figures stay as they are.", stacklevel=2)
