"""The command `gcjax report`."""

import argparse
import contextlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path


def command(options: argparse.Namespace) -> None:
    """Rebuilds the summary and the figures of a run, and prints its table."""
    from gcjax import analysis, locks, progress, tables
    from gcjax.analysis import seal

    folder = Path(options.folder)
    if not (folder / "metrics.parquet").exists() and (folder / "summary.md").exists():
        with _warnings_in_a_line():
            seal.read(folder)
        page = (folder / "summary.md").read_text()  # of a study: its tables, as written
        progress.console().print(tables.rich_page(page))
        return
    with _warnings_in_a_line():
        results = analysis.load(folder)
    with locks.lock(folder):
        analysis.write_report(results, folder)
    progress.console().print(analysis.table(results))


@contextlib.contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Warnings of the block go to stderr, without the place in the code."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for each in caught:
        print(f"gcjax: warning: {each.message}", file=sys.stderr)
