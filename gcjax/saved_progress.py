"""What of a run is kept on the disk, for the last line of a command that is ended early.

Nothing is imported here that takes long, and nothing when a signal comes: see `gcjax.interrupts`.
"""

import time
from collections.abc import Callable

_newest: "SavedProgress | None" = None


class SavedProgress:
    """The work of one run, from one checkpoint to the next."""

    def __init__(self, label: str, num_evals: int, steps: Callable[[], list[int]]) -> None:
        """The run that is now at work.

        Args:
          label: what a person calls it.
          num_evals: the steps of the whole.
          steps: the whole checkpoints that are on the disk, as steps; called on another thread when a signal comes.
        """
        global _newest
        self._label, self._num_evals, self._steps = label, num_evals, steps
        self._begin, self._moments = time.monotonic(), dict[int, float]()
        self._stopped = False
        _newest = self

    def saved(self, step: int) -> None:
        """A checkpoint of a step is being written, or was restored: what comes later may be lost."""
        self._moments[step] = time.monotonic()

    def stopped(self) -> None:
        """The run goes no further than to the step that was saved last."""
        self._stopped = True

    def sentence(self) -> str:
        """What is kept and what is lost."""
        moments = dict(self._moments)  # the other thread may go on
        step = max(moments.keys() & set(self._steps()), default=None)
        if step is None:
            return f"lost is the work of {self._seconds(self._begin)} on {self._label}"
        kept = f"{step / max(1, self._num_evals):.0%} of {self._label}"
        if self._stopped and step == max(moments):
            return f"a checkpoint was written at {kept}, so nothing is lost"
        return f"lost is the work of {self._seconds(moments[step])} since the checkpoint at {kept}"

    @staticmethod
    def _seconds(since: float) -> str:
        return f"{time.monotonic() - since:.0f} s"


def sentence() -> str:
    """What is kept and what is lost of the run that is, or was last, at work; empty if none has begun."""
    return "" if _newest is None else _newest.sentence()


def forget() -> None:
    """A new command begins."""
    global _newest
    _newest = None
