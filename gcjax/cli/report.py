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
    from gcjax.analysis import Results, Sweep
    from gcjax.tables import RichTable

_NOT_WRITABLE_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)


def command(options: argparse.Namespace) -> None:
    """`gcjax report`: rebuilds the summary and the figures of a run or sweep, and prints its table.

    Of an experiment that is neither a comparison nor a sweep, the summary is printed as it is. With `--timeline`,
    `--html`, `--csv`, `--latex` and `--curves` it writes these files, too; a table without a file is all that is on
    stdout.
    """
    from gcjax.analysis import sweeps
    from gcjax.cli import report_files, report_tables

    folder = Path(options.folder)
    report_files.check(options)
    report_tables.check(options)
    with warning_lines.print_warnings():
        content = sweeps.load_any(folder)
    tables_as_text = report_tables.texts(options, content)  # refuses before anything is printed
    activities = report_files.shown_activities(options, folder)  # refuses, too
    is_stdout_of_table = report_tables.is_on_stdout(options)
    with contextlib.redirect_stdout(sys.stderr) if is_stdout_of_table else contextlib.nullcontext():
        with warning_lines.print_warnings():
            _rebuild_report(options, folder, content)
        report_files.write(options, folder, activities)
        report_tables.write(options, tables_as_text)
    report_tables.print_on_stdout(options, tables_as_text)
    if options.json:
        from gcjax.cli import results_json

        options.result = results_json.folder_json(folder, content, against=options.against)


def _rebuild_report(options: argparse.Namespace, folder: Path, content: Results | Sweep | None) -> None:
    """Rebuilds summary and figures of a comparison or sweep, and prints its table; else prints the summary.

    Of one that cannot be written, such as one in an archive, the table is printed all the same. With `--against`
    the differences seed by seed from that scheme are printed, too.
    """
    from gcjax import analysis, progress, tables
    from gcjax.analysis import store, summary, sweep_summary
    from gcjax.analysis.sweeps import Sweep

    against, console = options.against, progress.console()
    if content is None:
        console.print(tables.rich_page((folder / store.SUMMARY_FILE).read_text()))
    elif isinstance(content, Sweep):
        differences = _shown(sweep_summary.paired_table(content, against)) if against is not None else ()
        _write_report(folder, lambda: sweep_summary.write(content, folder, against=against))
        console.print(sweep_summary.table(content), *differences)
    else:
        differences = _shown(summary.paired_table(content, against)) if against is not None else ()
        _write_report(folder, lambda: analysis.write_report(content, folder, against=against))
        console.print(analysis.table(content), *differences)


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
