"""Timelines as files, in the format that the suffix of their name says."""

import contextlib
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np

from gcjax import files
from gcjax.analysis.timelines import chrome, track_events
from gcjax.analysis.timelines.activity import Activity, of_schedule
from gcjax.protocols.schedule import Schedule

_WRITERS = {".json": chrome.write, ".pftrace": track_events.write}


def write_timeline(
    schedule: Schedule,
    path: str | Path,
    *,
    name: str = "run",
    durations: np.ndarray | None = None,
    loss: np.ndarray | None = None,
    window: tuple[float, float] | None = None,
    workers: int | Sequence[int] | None = None,
) -> str:
    """Writes a record, simulated or live, as a file that Perfetto opens (ui.perfetto.dev reads it in the browser).

    A worker has a track with what it does: computing, cut off, receiving, sending, failed, waiting; the server one with
    the versions of the parameters. Arrows go from pushes to the commits that they are in. Staleness and loss are
    counters. Of a record with more than 50,000 units 64 workers are shown, and as many seconds as these fill, unless
    `window` or `workers` say something else. The file says what is shown.

    Args:
      schedule: of one run; of `LiveRun.schedule` likewise.
      path: the file; `.json` for Trace Event JSON, `.pftrace` for TrackEvent protobuf, which needs `gcjax[perfetto]`;
        with `.gz` after it compressed.
      name: of the run.
      durations: float[T, W] seconds, those that the record was made of: inf marks the units of failed workers. If
        None, a unit that never ends is one that the end of the run cuts off.
      loss: float[E], that of each commit, as in `LiveRun.loss`.
      window: seconds, from when to when.
      workers: how many, evenly spaced, or which; all if None, but 64 of a large record.

    Returns:
      Which part of the record the file shows, in words.

    Raises:
      ValueError: if the suffix is of no format, or the package that it needs is not installed, or the record is of a
        batch, or the other arguments do not fit to it.
    """
    check_suffix(path)
    activity = of_schedule(schedule, name=name, durations=durations, loss=loss, window=window, workers=workers)
    write_activities([activity], path)
    return activity.shown_part_text


def write_activities(activities: Sequence[Activity], path: str | Path) -> None:
    """Writes several runs into one file, each as a process, in the format of its suffix; errors as `write_timeline`."""
    write = _WRITERS[check_suffix(path)]
    with files.atomic_write(path) as temporary_path, _open_for_writing(temporary_path) as file:
        write(file, activities)


def check_suffix(path: str | Path) -> str:
    """The suffix of a timeline's file that says its format, without `.gz`; a `ValueError` if it is of no format."""
    suffix = Path(str(path).removesuffix(".gz")).suffix
    if suffix not in _WRITERS:
        raise ValueError(
            f"a timeline must be a file with the suffix {' or '.join(_WRITERS)}, with .gz after it or not; got "
            f"{Path(path).name}. Choose one of them."
        )
    return suffix


@contextlib.contextmanager
def _open_for_writing(path: Path) -> Iterator[IO[bytes]]:
    """The file, to write to; compressed if it ends in .gz, with the same bytes for the same content."""
    with path.open("wb") as file:
        if path.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as compressed:
            yield cast(IO[bytes], compressed)
