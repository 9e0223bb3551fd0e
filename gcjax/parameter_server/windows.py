"""Protocols that look at the loss, on the real clock: at the end of each window they choose anew.

Letters: E commits.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.parameter_server.turn_log import TurnLog, padded_commit_times
from gcjax.protocols.base import LossFeedback, Observed
from gcjax.protocols.observed_losses import window_begin


class Windows:
    """The windows of a protocol; `None` for one that does not look at the loss."""

    def __init__(self, loss_feedback: LossFeedback | None, num_commits: int) -> None:
        """`num_commits`: E, the most commits of the run; without `loss_feedback` controls never change."""
        self._loss_feedback, self._num_commits = loss_feedback, num_commits
        self._window = 0
        if loss_feedback is not None:
            self._next_controls = jax.jit(loss_feedback.next)
            numbers, dtype = jnp.arange(1, loss_feedback.num_windows + 1, dtype=jnp.int32), jnp.result_type(float)
            # In the type in which times are observed, so that no commit is of two windows, or of none.
            self._window_ends = np.asarray(window_begin(numbers, loss_feedback.seconds, dtype))
            controls = loss_feedback.initial(loss_feedback.num_windows)
            self.controls_after(math.inf, TurnLog(0), controls, last_window=1)  # compiles
            self._window = 0

    def controls_after(self, now: float, log: TurnLog, controls: Any, last_window: int | None = None) -> Any:
        """The controls that hold at `now` seconds, by the losses in the log; `controls` are those of the last call.

        A protocol that looks at the loss chooses them anew at the end of each window of some seconds; those of others
        stay. `last_window`: the number of the window in which they change no more; by default the protocol's last one.
        """
        loss_feedback = self._loss_feedback
        if loss_feedback is None:
            return controls
        last_window = loss_feedback.num_windows - 1 if last_window is None else last_window
        num_ended = self._num_ended_by(now)
        while self._window < min(num_ended, last_window):
            controls = self._next_controls(controls, self._observed(log, self._window_ends[self._window]))
            self._window += 1
        return controls

    def go_on_at(self, now: float) -> None:
        """Takes the windows that have ended by `now` seconds as dealt with: for a run that goes on."""
        if self._loss_feedback is not None:
            self._window = min(self._num_ended_by(now), self._loss_feedback.num_windows - 1)

    def _num_ended_by(self, now: float) -> int:
        """How many windows have ended by `now` seconds, if the last one had an end, too."""
        return int(np.searchsorted(self._window_ends, self._window_ends.dtype.type(now), side="right"))

    def _observed(self, log: TurnLog, end: float) -> Observed:
        """What the protocol sees at `end` seconds, where a window ends.

        Times (seconds) and losses are float[E], E the most commits of the run; inf for those that have not been made.
        """
        dtype, num_missing = jnp.result_type(float), self._num_commits - len(log.losses)
        return Observed(
            window=jnp.asarray(self._window, jnp.int32),
            end=jnp.asarray(end, dtype),
            time=padded_commit_times(log, self._num_commits, dtype),
            loss=jnp.asarray(log.losses + [math.inf] * num_missing, dtype),
        )
