"""What of a run is kept on the disk, for the last line of a command that is ended early.

Nothing is imported here that takes long, and nothing when a signal comes: see `gcjax.interrupts`.
"""

import time
from collections.abc import Callable

_newest_run: "SavedProgress | None" = None


class SavedProgress:
    """Which checkpoints a run has written, and when, so that a person can be told how much work is lost."""

    def __init__(self, label: str, num_steps: int, saved_steps: Callable[[], list[int]]) -> None:
        """The run that is now at work.

        Args:
          label: what a person calls it.
          num_steps: the steps of the whole run; a checkpoint is of a step.
          saved_steps: returns the steps whose checkpoints are whole on the disk; called on another thread when a signal
            comes.
        """
        global _newest_run
        self._label, self._num_steps = label, num_steps
        self._saved_steps = saved_steps
        self._begin_time = time.monotonic()
        self._checkpoint_times: dict[int, float] = {}  # step -> when
        self._goes_no_further = False
        _newest_run = self

    def record_checkpoint(self, step: int) -> None:
        """Notes that a checkpoint of a step is being written, or was restored: what comes later may be lost."""
        self._checkpoint_times[step] = time.monotonic()

    def record_stop(self) -> None:
        """Notes that the run goes no further than to its last checkpoint."""
        self._goes_no_further = True

    def lost_work_text(self) -> str:
        """What is kept and what is lost if the process ends now, as the end of a sentence.

        Kept is the last step whose checkpoint is whole on the disk, of those that this run has written or restored.
        """
        time_of_step = dict(self._checkpoint_times)  # a copy, as the other thread may go on
        last_saved_step = max(time_of_step.keys() & set(self._saved_steps()), default=None)
        if last_saved_step is None:
            return f"lost is the work of {_seconds_since(self._begin_time)} on {self._label}"
        share_of_run = f"{last_saved_step / max(1, self._num_steps):.0%} of {self._label}"
        is_all_saved = self._goes_no_further and last_saved_step == max(time_of_step)
        if is_all_saved:
            return f"a checkpoint was written at {share_of_run}, so nothing is lost"
        lost_seconds = _seconds_since(time_of_step[last_saved_step])
        return f"lost is the work of {lost_seconds} since the checkpoint at {share_of_run}"


def _seconds_since(begin_time: float) -> str:
    """The time since a moment of the monotonic clock, in words."""
    return f"{time.monotonic() - begin_time:.0f} s"


def lost_work_text() -> str:
    """What is kept and what is lost of the run that is, or was last, at work; empty if none has begun."""
    return "" if _newest_run is None else _newest_run.lost_work_text()


def forget_run() -> None:
    """Forgets the run of an earlier command, so that `lost_work_text` is empty until one begins."""
    global _newest_run
    _newest_run = None
