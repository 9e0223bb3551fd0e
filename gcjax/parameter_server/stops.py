"""How the server stops turns: whom it asks for a push, and for how long it waits for those who do not answer.

Letters: W workers.
"""

import math
from typing import Any

import numpy as np

from gcjax.parameter_server.coded_rounds import CodedRounds

MIN_PATIENCE = 0.02
"""Seconds that everybody has for an answer."""
PATIENCE = 2.0
"""How many times as long as the others everybody may take for an answer."""


class Stops:
    """The stop of the turns under way; `None` for `coded_rounds` where pushes are whole gradients or changes."""

    def __init__(self, coded_rounds: CodedRounds | None) -> None:
        """No turn has been stopped yet; `coded_rounds`: of the protocol's code, None if it has none."""
        self._coded_rounds = coded_rounds
        self._stop_number = 0
        self._request_time = self._last_answer_time = math.inf
        self._progress = np.zeros(0, np.int32)

    def request_pushes(self, progress: np.ndarray, is_under_way: np.ndarray, now: float) -> np.ndarray:
        """Begins a new stop at `now` seconds; returns bool[W], whom to ask for a push.

        They are those of `is_under_way bool[W]` who have done a unit, by `progress int32[W]`, or whose messages a code
        needs.
        """
        has_something_to_push = progress > 0
        if self._coded_rounds is not None:
            has_something_to_push = self._coded_rounds.make_plan(progress).is_needed
        self._stop_number += 1
        self._request_time, self._last_answer_time, self._progress = now, math.inf, progress
        return has_something_to_push & is_under_way

    def request_more_pushes(self, progress: np.ndarray, is_under_way: np.ndarray, now: float) -> np.ndarray:
        """bool[W]: whom else to ask, as who was asked has not answered; an answer of those still counts.

        They are those of `is_under_way bool[W]` who have done a unit by now, by `progress int32[W]`.
        """
        self._request_time, self._last_answer_time, self._progress = now, math.inf, progress
        return (progress > 0) & is_under_way

    def withdraw(self) -> None:
        """Takes the last stop back: turns go on, and an answer to it that is still under way does not count."""
        self._stop_number += 1
        self._request_time = self._last_answer_time = math.inf

    def header(self, worker: int) -> dict[str, Any]:
        """The header of the message that asks a worker for its push: how many units, which coefficients of a code.

        Those are of the messages that it is to send.
        """
        header = {"kind": "stop", "stop_number": self._stop_number, "num_units": int(self._progress[worker])}
        if self._coded_rounds is not None:
            plan = self._coded_rounds.plan
            header["encode"] = plan.encode[worker][plan.is_sent[worker]].tolist()  # [messages, chunks, blocks]
        return header

    def accept_answer(self, header: Any, tree: Any, now: float) -> bool:
        """Whether a push with this header answers the last stop; if so, `now` seconds is noted as the time of it.

        One without the arrays that were asked for, whose `tree` is None, does not.
        """
        if header.get("stop_number") != self._stop_number or tree is None:
            return False
        self._last_answer_time = now
        return True

    @property
    def answer_deadline(self) -> float:
        """Seconds, from when on answers that are not needed are not waited for; inf while nobody has answered.

        The last answer's seconds since the stop, times `PATIENCE`, after it; `MIN_PATIENCE` seconds after it at least.
        """
        if math.isinf(self._last_answer_time):
            return math.inf
        return self._request_time + max(MIN_PATIENCE, PATIENCE * (self._last_answer_time - self._request_time))
