"""Tells a person how far a run is."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from rich import progress as rich_progress
from rich.console import Console


class Progress(NamedTuple):
    """What an experiment reports to.

    Attributes:
      update: `(label, fraction)`: what is being done now, and the share of the whole that is done, in [0, 1].
      show: prints something that rich can print (text, a table), above the bar if there is one.
    """

    update: Callable[[str, float], None]
    show: Callable[[Any], None]


def silent() -> Progress:
    """Says nothing."""
    return Progress(update=lambda label, fraction: None, show=lambda renderable: None)


def console() -> Console:
    """Where results are printed; not on a terminal it is wide enough for a table."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=180)


@contextmanager
def bar() -> Iterator[Progress]:
    """A progress bar with the time left; only what is shown, and no bar, where stdout is not a terminal."""
    screen = console()
    columns = (
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as shown:
        task = shown.add_task("starting", total=1.0)
        yield Progress(
            update=lambda label, fraction: shown.update(task, description=label, completed=fraction),
            show=functools.partial(screen.print, markup=False),
        )
