"""The record of a watched job, as it lies in its folder."""

from pathlib import Path

from gcjax.stragglers.traces.base import Trace
from gcjax.watching.joining import empty_rows, joined_trace
from gcjax.watching.shared_folder import SharedFolder


def record(folder: str | Path, *, name: str = "step") -> Trace:
    """What each process computed and waited, from the files that `gcjax.watch` has written so far.

    The job may still go on, or may have been killed before it wrote the trace of all. The file of a process alone does
    not tell what it computed from what it waited.

    Args:
      folder: that of `gcjax.watch`.
      name: of the step.

    Raises:
      ValueError: if there is no such folder, or it has no whole step of this name.
    """
    folder = Path(folder).expanduser()
    rows = SharedFolder(folder, name, 0).all_rows() if folder.is_dir() else empty_rows()
    if not len(rows):
        raise ValueError(
            f"A folder must have been written by gcjax.watch, with whole rows in {name}.*.csv; {folder} has none. "
            "Give the folder= and the name= of the watched step, or a file."
        )
    return joined_trace(rows)
