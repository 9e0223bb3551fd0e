"""The files that `gcjax report` writes if it is asked to: a page in HTML, and a timeline for viewers of traces."""

from __future__ import annotations

import argparse
import contextlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gcjax.cli import out_files

if TYPE_CHECKING:
    from gcjax.analysis.timelines.activity import Activity


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a page and of a timeline to the parser of `gcjax report`."""
    parser.add_argument(
        "--html", metavar="FILE", nargs="?", const="",
        help="write a page that needs no network: verdict, table, curves, timeline, config (default: report.html in "
        "RUN_DIR, made anew; another one must be new or empty)",
    )  # fmt: skip
    parser.add_argument(
        "--timeline", metavar="FILE",
        help="write who did what when, for Perfetto (ui.perfetto.dev), new or empty: .json, or .pftrace with "
        "gcjax[perfetto]; also with .gz",
    )  # fmt: skip
    parser.add_argument(
        "--scheme", metavar="NAME", action="append", default=[],
        help="a scheme of the timeline, instead of all; may be repeated",
    )  # fmt: skip
    parser.add_argument("--window", metavar="A:B", type=_parse_window, help="the timeline from A to B seconds")
    parser.add_argument("--workers", metavar="N", type=int, help="so many workers in the timeline, evenly spaced")


def check(options: argparse.Namespace) -> None:
    """Raises a `ValueError` if options do not go together, or a file would be lost; writes nothing."""
    from gcjax.analysis.store import PAGE_FILE

    page_of_folder = Path(options.folder, PAGE_FILE)
    if options.html and Path(options.html).resolve() != page_of_folder.resolve():
        check_new_file("--html", options.html, options.folder)
    if options.timeline is None:
        timeline_options = [name for name in ("scheme", "window", "workers") if getattr(options, name)]
        if timeline_options:
            raise ValueError(f"--{timeline_options[0]} is for a timeline. Add --timeline FILE, or leave it out.")
        return
    from gcjax.analysis.timelines import writing

    writing.check_suffix(options.timeline)
    check_new_file("--timeline", options.timeline, options.folder)


def check_new_file(option: str, file: str, folder: str) -> None:
    """Raises a `ValueError` if the file given by an option is one of the run in the folder, or has content."""
    from gcjax.analysis import seal

    seal.check_not_of_run(Path(folder), file)  # also if it is missing now
    out_files.check_new_file(option, file)


def shown_activities(options: argparse.Namespace, folder: Path) -> list[Activity]:
    """What the timeline of the run in `folder` shows, of each scheme; empty if none is asked for.

    Raises:
      ValueError: if the folder has no timeline, or no such scheme, or options do not fit it.
    """
    if options.timeline is None or not folder.is_dir():  # whoever reads the folder says what it must be
        return []
    from gcjax import analysis
    from gcjax.analysis.timelines import activity
    from gcjax.analysis.timelines import folder as timeline_folders

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", analysis.UnsealedWarning)  # that is said with the table
        activities = timeline_folders.activities(folder, schemes=options.scheme)
    max_units = max(1, activity.MAX_UNITS // len(activities))  # of each run, of all together `MAX_UNITS`
    return [
        activity.limited_activity(activity_of_run, window=options.window, workers=options.workers, max_units=max_units)
        for activity_of_run in activities
    ]


def write(options: argparse.Namespace, folder: Path, activities: Sequence[Activity]) -> None:
    """Writes the timeline and the page of the run in `folder`, if they are asked for, and says what they show.

    The timeline shows `activities`.
    """
    from gcjax import analysis, files

    rule, advice = "The file must be one", "Choose another one."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", analysis.UnsealedWarning)  # that has been said
        if options.timeline is not None:
            with files.os_errors_as_value_error(rule, options.timeline, advice):
                _write_timeline(options.timeline, activities)
        if options.html is not None:
            with files.os_errors_as_value_error(rule, options.html or folder, advice):
                _write_page(options, folder)


def _write_timeline(file: str, activities: Sequence[Activity]) -> None:
    """Writes what a timeline shows to a file, and prints what it is."""
    from gcjax import progress
    from gcjax.analysis.timelines import writing

    writing.write_activities(activities, file)
    shown_parts_text = "; ".join(
        f"{shown_part_text}: {', '.join(names)}" for shown_part_text, names in _names_by_shown_part(activities).items()
    )
    progress.console().print(f"Timeline written to {file} ({shown_parts_text})", markup=False, highlight=False)


def _write_page(options: argparse.Namespace, folder: Path) -> None:
    """Writes the page of the run in `folder`, by default into it, and prints where.

    The folder is locked only if the page is written there, since it may be one that cannot be written.
    """
    from gcjax import locks, progress
    from gcjax.analysis.html_report.folder import write_html

    is_in_folder = not options.html or Path(options.html).resolve().is_relative_to(folder.resolve())
    with locks.lock(folder) if is_in_folder else contextlib.nullcontext():
        path = write_html(folder, options.html or None)
    progress.console().print(f"Page written to {path}", markup=False, highlight=False)


def _names_by_shown_part(activities: Sequence[Activity]) -> dict[str, list[str]]:
    """Which part is shown -> the names of the runs of which it is."""
    names_of_part: dict[str, list[str]] = {}
    for activity_of_run in activities:
        names_of_part.setdefault(activity_of_run.shown_part_text, []).append(activity_of_run.name)
    return names_of_part


def _parse_window(window_text: str) -> tuple[float, float]:
    """The seconds from A and to B of a window, from a text `A:B`."""
    begin, _, end = window_text.partition(":")
    try:
        return float(begin), float(end)
    except ValueError:
        problem = f"a window must be two numbers of seconds, as in 0:12.5; got {window_text!r}"
        raise argparse.ArgumentTypeError(problem) from None
