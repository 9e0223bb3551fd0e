"""`gcjax.watch`: a wrapper around a training step."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gcjax import _validate
from gcjax.watching.exchange import Memory
from gcjax.watching.reports import Report
from gcjax.watching.shared_folder import SharedFolder
from gcjax.watching.wrapper import Watch

_MAX_NAME = 100  # letters


def print_report(report: Report) -> None:
    """Prints a report to stderr."""
    print(*(f"gcjax: {line}" for line in str(report).splitlines()), sep="\n", file=sys.stderr, flush=True)


def watch(
    step: Callable[..., Any],
    *,
    folder: str | os.PathLike[str] | None = None,
    name: str = "step",
    start: int = 0,
    every: float = 5.0,
    waits: bool = True,
    report: Callable[[Report], None] | None = print_report,
) -> Watch:
    """Wraps a training step: the same results, and a record of who computed and who waited.

        step = gcjax.watch(jax.jit(step), folder="runs/watch")

    **How.** The loop is never stopped: a thread waits for what the step has returned, and takes the time; so the step
    must return something of what it computes, such as the loss. All processes leave a collective together, so the end
    of a step is the common zero from which each measures, by its own clock, when it is ready for the next collective.
    Who comes last waits for nobody; it is the slow one. Nothing is put into the compiled program. Another thread
    appends to the file of this process in `folder` every few seconds; process 0 takes what others have appended, and
    judges (`gcjax.watching` says how).

    **What it sees.**

    - Of any step: time in which a process had not called its step yet, though the one before was done: input
      pipelines, logging, checkpoints, garbage collection. And time in which a whole process stood still (stopped,
      swapped out, kept from its processors), by beats on a thread, which miss what is shorter than 15 ms in part; on
      accelerators only up to the return of the call, since they go on with what they have been given.
    - Not so: a device that is slow inside of a compiled program that also has the collective. The step takes all
      processes as long. Mark what comes before the collective with `gcjax.watching.local`; then the time up to its
      end is measured, whatever makes it long.
    - With `waits=False`, for steps without collectives: everything, since the time of a step is each one's own.

    **What it assumes.** Without a local part: that a step takes all devices as long, apart from what was said. That the
    step ends for all together, as with a reduction of gradients or of the loss; a pipeline of stages does not. With a
    local part, what comes after the collective counts as communication. A loop that computes in Python without a pause
    can delay the threads by `sys.getswitchinterval()`, 5 ms.

    Above the method of a class it is a decorator, `@gcjax.watch`; all instances then share one record, and
    `Class.step.close()` ends it.

    The first step is left out, since it compiles. Arrays that the next step takes over (donated) are fine. Exceptions
    pass through. In a process that was forked off, the step runs as it is, unrecorded.

    Args:
      step: any callable, compiled or not. Not to be compiled itself afterwards.
      folder: where all processes write; on a file system that all see. Without one, each knows only of itself, and
        keeps that in memory.
      name: of this step, if several are watched.
      start: the number of the first step; that of the checkpoint if a run goes on. What this process had recorded from
        that step on is replaced, as is what runs from later steps had; their files stay, as `NAME.*.replaced`.
      every: seconds from one time of writing and reading to the next: as much is lost if a process is killed.
      waits: whether the step waits for other processes.
      report: called in process 0, on a thread, when a process is newly named, or as worse than before, or no longer,
        and when one has been silent for three times `every` while others were not; None for nothing.

    Returns:
      A callable with the arguments and results of `step`, and its other attributes.

    Raises:
      ValueError: if an argument is wrong; at the first call, if the folder has the trace of another run or wrapper, or
        another process writes there as the worker that this one is.

    Example:
      >>> step = gcjax.watch(lambda x: x + 1)
      >>> step(1)
      2
    """
    if isinstance(step, (staticmethod, classmethod)):
        raise ValueError(f"step must be a function; got a {type(step).__name__}. Write @gcjax.watch below that.")
    if not callable(step):
        raise ValueError(f"step must be callable; got {step!r}.")
    if not (report is None or callable(report)):
        raise ValueError(f"report must be a function of one report, or None; got {report!r}.")
    _validate.boolean("waits", waits)
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or set(name) & set("./\\*?[\0"):
        raise ValueError(
            f"name must be part of a file's name, of {_MAX_NAME} letters at most, without . / \\ * ? [; got {name!r}."
        )
    if not isinstance(folder, (str, os.PathLike, type(None))):
        raise ValueError(f"folder must be the path of one, or None; got {folder!r}.")
    _validate.single_number("every", every, above=True, finite=True)
    start = _validate.integer("start", start)
    exchange = Memory() if folder is None else SharedFolder(Path(folder).expanduser(), name, start)
    return Watch(step, exchange, start=start, every=every, waits=waits, tell=report)
