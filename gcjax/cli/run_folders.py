"""The folder that a command writes to: chosen, made and locked, so that no other process writes there meanwhile."""

import contextlib
import datetime
import itertools
import re
from collections.abc import Callable
from pathlib import Path

from gcjax import locks
from gcjax.analysis.store import CHECKPOINTS, empty_folder, unfinished_folder, writable

_RUNS = Path("runs")
_TIME = re.compile(r"-(\d{8}-\d{6})(?:-(\d+))?")


def new(out: str | None, name: str, holding: contextlib.ExitStack) -> Path:
    """A new or empty folder.

    Args:
      out: its path, or None for one in `runs` that nobody else has, named after `name` and the time.
      name: of the config.
      holding: gets the lock; closing it releases the folder.

    Raises:
      ValueError: if the folder holds something, or another process writes to it.
    """
    if out is None:
        folder = _unique(name)
        holding.enter_context(locks.lock(folder))
        return folder
    return _locked(Path(out), empty_folder, holding)


def unfinished(out: str | None, name: str, holding: contextlib.ExitStack) -> Path:
    """The folder of a run that was stopped and can go on, or a new one.

    Args:
      out: its path, or None for the newest one of this config in `runs` that no process writes to.
      name: of the config.
      holding: gets the lock; closing it releases the folder.

    Raises:
      ValueError: if the run in `out` is finished, or still running, or something else is there.
    """
    if out is not None:
        return _locked(Path(out), unfinished_folder, holding)
    for folder in _unfinished_folders(name):
        with contextlib.suppress(locks.HeldError), contextlib.ExitStack() as attempt:
            attempt.enter_context(locks.lock(folder))
            if (folder / CHECKPOINTS).is_dir():  # not finished meanwhile
                holding.push(attempt.pop_all())
                return folder
    return new(None, name, holding)


def _locked(folder: Path, check: Callable[[Path], Path], holding: contextlib.ExitStack) -> Path:
    """The folder, locked, after a check that also makes it."""
    with writable(folder):
        if not (folder / locks.NAME).exists():  # before a lock file comes to where something else is
            check(folder)
        with contextlib.ExitStack() as attempt:
            attempt.enter_context(locks.lock(folder))
            check(folder)  # with nobody else there
            holding.push(attempt.pop_all())
    return folder


def _unique(name: str) -> Path:
    """A folder that did not exist before, made in one step, so that nobody else has made it."""
    _RUNS.mkdir(exist_ok=True)
    moment = f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    for number in itertools.count(1):
        folder = _RUNS / (moment if number == 1 else f"{moment}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("there are endless numbers")


def _unfinished_folders(name: str) -> list[Path]:
    """The folders with checkpoints of a config, the newest first."""
    folders = []
    for checkpoints in _RUNS.glob(f"*/{CHECKPOINTS}"):
        folder = checkpoints.parent
        time = _TIME.fullmatch(folder.name.removeprefix(name)) if folder.name.startswith(name) else None
        if time:
            folders.append((time[1], int(time[2] or 1), folder))
    return [folder for _, _, folder in sorted(folders, reverse=True)]
