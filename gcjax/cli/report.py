"""The command `gcjax report`."""

import argparse
from pathlib import Path

from gcjax.cli import warning_lines


def command(options: argparse.Namespace) -> None:
    """`gcjax report`: rebuilds the summary and the figures of a run, and prints its table.

    The folder of an experiment that is no comparison has no metrics.parquet: its summary is printed as it is. With
    `--timeline` and `--html` it writes these files, too.
    """
    from gcjax.cli import report_files

    folder = Path(options.folder)
    report_files.check(options)
    _rebuild_report(folder)
    report_files.write(options, folder)
    if options.json:
        from gcjax.cli import results_json

        options.result = results_json.folder_json(folder)


def _rebuild_report(folder: Path) -> None:
    """Rebuilds summary and figures if the run is a comparison, and prints its table; else prints its summary."""
    from gcjax import analysis, locks, progress, tables
    from gcjax.analysis import seal

    is_comparison, has_summary = (folder / "metrics.parquet").exists(), (folder / "summary.md").exists()
    if has_summary and not is_comparison:
        with warning_lines.print_warnings():
            seal.read(folder, rebuilt_files=(analysis.store.PAGE_FILE,))  # raises for a damaged file
        progress.console().print(tables.rich_page((folder / "summary.md").read_text()))
        return
    with warning_lines.print_warnings():
        results = analysis.load(folder)
    with locks.lock(folder):
        analysis.write_report(results, folder)
    progress.console().print(analysis.table(results))
