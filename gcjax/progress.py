"""Tells a person how far a run is: a bar on a terminal, elsewhere a line for each thing that is done."""

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from rich import progress as rich_progress
from rich.console import Console

_DEFAULT_WIDTH = 80  # characters
_NOTEBOOK_WIDTH = 180  # a notebook scrolls


class Update(Protocol):
    """How an experiment says how far it is."""

    def __call__(self, label: str, fraction: float, detail: str = "") -> None:
        """Says what is being done.

        Args:
          label: what it is, for example the scheme that is being trained.
          fraction: of the whole that is done, in [0, 1].
          detail: what changes all the time, for example the loss; only a bar shows it.
        """


class Progress(NamedTuple):
    """What an experiment reports to.

    Attributes:
      update: `(label, fraction, detail)`: what is being done now, and the share of the whole that is done, in [0, 1].
      show: prints something that rich can print (text, a table), above the bar if there is one.
    """

    update: Update
    show: Callable[[Any], None]

    def part_reporter(self, label: str, index: int, num_parts: int) -> Callable[[float], None]:
        """A function that reports the share that is done of one of `num_parts` equal parts of the whole.

        Args:
          label: of the part.
          index: which part it is, from 0.
          num_parts: how many parts the whole has.
        """
        return lambda fraction_of_part: self.update(label, (index + fraction_of_part) / num_parts)

    def portion(self, start: float, end: float) -> "Progress":
        """A progress whose whole, from 0 to 1, is the share of this one from `start` to `end`."""

        def update(label: str, fraction: float, detail: str = "") -> None:
            """Reports a fraction of the portion as one of the whole."""
            fraction_of_whole = start + fraction * (end - start)
            self.update(label, fraction_of_whole, detail)

        return self._replace(update=update)


def silent() -> Progress:
    """A progress that says nothing."""
    return Progress(update=lambda label, fraction, detail="": None, show=lambda renderable: None)


class _Console(Console):
    """A console that leaves it to the command what to do when nobody reads on, where rich ends the process."""

    def on_broken_pipe(self) -> None:
        """Overrides rich's: raises the `BrokenPipeError` on."""
        raise BrokenPipeError


def console() -> Console:
    """Where results are printed; not on a terminal it has `COLUMNS` characters in a line, or 80."""
    default_console = _Console()
    if default_console.is_terminal:
        return default_console
    if default_console.is_jupyter:
        return _Console(width=_NOTEBOOK_WIDTH)
    columns = os.environ.get("COLUMNS", "")
    has_valid_columns = columns.isdecimal() and int(columns) > 0
    return _Console(width=int(columns) if has_valid_columns else _DEFAULT_WIDTH)


@contextmanager
def bar() -> Iterator[Progress]:
    """A progress bar with the time left; where stdout is no terminal, a line on stderr for each label that is done."""
    screen = console()
    show = functools.partial(_print, screen)
    if not screen.is_terminal:
        label_lines = _LabelLines()
        yield Progress(update=label_lines.update, show=show)
        label_lines.end()
        return
    columns = (
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=screen, transient=True) as rich_bar:
        task = rich_bar.add_task("starting", total=1.0)

        def update(label: str, fraction: float, detail: str = "") -> None:
            """Draws the bar with this label, detail and fraction."""
            description = f"{label}, {detail}" if detail else label
            rich_bar.update(task, description=description, completed=fraction)

        yield Progress(update=update, show=show)


def _print(screen: Console, renderable: Any) -> None:
    """Prints what rich can print, at the width of the screen; a text as it is, so that no path in it is broken."""
    screen.print(renderable, markup=False, soft_wrap=isinstance(renderable, str))


class _LabelLines:
    """Prints a line for each label that is done, with the seconds that it took, and nothing in between."""

    def __init__(self) -> None:
        """Without a label so far."""
        self._label, self._begin_time, self._is_done = "", time.perf_counter(), True

    def update(self, label: str, fraction: float, detail: str = "") -> None:
        """Says what is being done, and the fraction of the whole that is.

        Another label means that the last one is done; so does a fraction of 1, with which the present one is.
        """
        del detail  # only a bar shows it
        is_last_label_done = label != self._label
        if is_last_label_done:
            self._print_done(fraction)
            self._label, self._begin_time, self._is_done = label, time.perf_counter(), False
        if fraction >= 1:
            self.end()

    def end(self) -> None:
        """Prints that the last label is done, too, unless that has been said."""
        self._print_done(1.0)

    def _print_done(self, fraction: float) -> None:
        """Prints that the current label, if there is one, is done, with the fraction of the whole."""
        if not self._is_done:
            seconds = time.perf_counter() - self._begin_time
            print(f"{self._label}: done in {seconds:.1f} s ({fraction:.0%} of all)", file=sys.stderr, flush=True)
        self._is_done = True


__all__ = ["Progress", "Update"]
