"""The folder that a command writes to: chosen, made and locked, so that no other process writes there meanwhile.

A command that is refused, or interrupted, before it has written anything leaves no folder of its own behind.
"""

import contextlib
import datetime
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from gcjax import interrupts, locks
from gcjax.analysis.store import (
    CHECKPOINTS,
    is_resumable,
    make_empty_folder,
    os_errors_as_value_error,
    resumable_or_new_folder,
)

_RUNS = Path("runs")
_TIME_AND_NUMBER = re.compile(r"-(\d{8}-\d{6})(?:-(\d+))?")


def locked_new_folder(out: str | None, name: str, lock_stack: contextlib.ExitStack) -> Path:
    """A new or empty folder.

    Args:
      out: its path, or None for one in `runs` that nobody else has, named after `name` and the time.
      name: of the config.
      lock_stack: gets the lock; closing it releases the folder, and removes it if it is new and empty.

    Raises:
      ValueError: if the folder holds something, or another process writes to it.
    """
    if out is None:
        lock_stack.enter_context(_removed_if_empty(_missing_folders(_RUNS)))
        folder = _new_unique_folder(name)
        lock_stack.enter_context(_removed_if_empty([folder]))
        lock_stack.enter_context(locks.lock(folder))
        return folder
    return _locked_folder(Path(out), make_empty_folder, lock_stack)


def locked_resumable_or_new_folder(out: str | None, name: str, lock_stack: contextlib.ExitStack) -> Path:
    """The folder of a run that was stopped and can go on, or a new one; arguments as of `locked_new_folder`.

    Without `out` it is one of this config in `runs` that no process writes to: the newest one that has a checkpoint, or
    else the newest one.

    Raises:
      ValueError: if the run in `out` is finished, or still running, or something else is there.
    """
    if out is not None:
        return _locked_folder(Path(out), resumable_or_new_folder, lock_stack)
    newest_first = _unfinished_folders(name)
    for folder in sorted(newest_first, key=lambda folder: not is_resumable(folder)):
        with contextlib.suppress(locks.HeldError), contextlib.ExitStack() as attempt_stack:
            attempt_stack.enter_context(locks.lock(folder))
            is_still_unfinished = (folder / CHECKPOINTS).is_dir()
            if is_still_unfinished:
                lock_stack.push(attempt_stack.pop_all())
                return folder
    return locked_new_folder(out=None, name=name, lock_stack=lock_stack)


def _locked_folder(folder: Path, make_or_check: Callable[[Path], Path], lock_stack: contextlib.ExitStack) -> Path:
    """The folder, locked, by a lock that the stack gets as in `locked_new_folder`, if the check passes.

    `make_or_check` makes the folder if there is none, and raises a `ValueError` if a command must not write there.
    """
    with os_errors_as_value_error(folder):
        lock_stack.enter_context(_removed_if_empty(_missing_folders(folder)))
        has_lock_file = (folder / locks.LOCK_FILE).exists()
        if not has_lock_file:  # so that none is put where something else is
            make_or_check(folder)
        with contextlib.ExitStack() as attempt_stack:
            attempt_stack.enter_context(locks.lock(folder))
            make_or_check(folder)  # again: now nobody else can change it
            lock_stack.push(attempt_stack.pop_all())
    return folder


def _missing_folders(folder: Path) -> list[Path]:
    """The folders to make before there is this one, itself included; the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


@contextlib.contextmanager
def _removed_if_empty(folders: list[Path]) -> Iterator[None]:
    """Removes those of the folders that are empty when the block, or the process by a signal in it, ends.

    In `folders` the innermost come first, so that an outer one is empty when its turn comes.
    """

    def remove_empty_folders() -> None:
        """Removes those that hold nothing."""
        for folder in folders:
            with contextlib.suppress(OSError):  # it holds something, or is not there
                folder.rmdir()

    with interrupts.before_end(remove_empty_folders):
        try:
            yield
        finally:
            remove_empty_folders()


def _new_unique_folder(name: str) -> Path:
    """Makes `runs/NAME-TIME`, or `runs/NAME-TIME-2` and so on if another process has made that one, and returns it."""
    _RUNS.mkdir(exist_ok=True)
    name_and_time = f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    for number in itertools.count(1):
        folder = _RUNS / (name_and_time if number == 1 else f"{name_and_time}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("there are endless numbers")


def _unfinished_folders(name: str) -> list[Path]:
    """The folders `runs/NAME-TIME` and `runs/NAME-TIME-NUMBER` that have checkpoints, the newest first."""
    time_number_and_folder = []
    for checkpoints in _RUNS.glob(f"*/{CHECKPOINTS}"):
        folder = checkpoints.parent
        suffix = _TIME_AND_NUMBER.fullmatch(folder.name.removeprefix(name)) if folder.name.startswith(name) else None
        if suffix:
            time, number = suffix[1], int(suffix[2] or 1)
            time_number_and_folder.append((time, number, folder))
    return [folder for _, _, folder in sorted(time_number_and_folder, reverse=True)]
