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
    """The stop of the turns under way; `None` for `coded` where pushes are whole gradients or changes."""

    def __init__(self, coded: CodedRounds | None) -> None:
        """No turn has been stopped yet."""
        self._coded = coded
        self._number = 0
        self._asked_at = self._last_answer = math.inf
        self._progress = np.zeros(0, np.int32)

    def begin(self, progress: np.ndarray, is_under_way: np.ndarray, now: float) -> np.ndarray:
        """bool[W]: who of those with a turn under way is asked for a push, for `progress int32[W]` units done."""
        asked = progress > 0
        if self._coded is not None:
            asked = self._coded.make_plan(progress).asked
        self._number += 1
        self._asked_at, self._last_answer, self._progress = now, math.inf, progress
        return asked & is_under_way

    def ask_more(self, progress: np.ndarray, is_under_way: np.ndarray, now: float) -> np.ndarray:
        """bool[W]: who else is asked, as who was has not answered; an answer of those still counts."""
        self._asked_at, self._last_answer, self._progress = now, math.inf, progress
        return (progress > 0) & is_under_way

    def take_back(self) -> None:
        """Takes the last stop back: turns go on, and an answer to it that is still under way is none."""
        self._number += 1
        self._asked_at = self._last_answer = math.inf

    def request(self, worker: int) -> dict[str, Any]:
        """What the worker is told."""
        header = {"kind": "stop", "stop": self._number, "units": int(self._progress[worker])}
        if self._coded is not None:
            header["encode"] = self._coded.plan.encode[worker].tolist()
        return header

    def is_answer(self, header: Any, now: float) -> bool:
        """Whether a push answers the last stop, and notes that it has come."""
        if header.get("stop") != self._number:
            return False
        self._last_answer = now
        return True

    @property
    def end_of_patience(self) -> float:
        """Seconds, when whoever has not answered yet is not waited for if it is not needed; inf if nobody has."""
        if math.isinf(self._last_answer):
            return math.inf
        return self._asked_at + max(MIN_PATIENCE, PATIENCE * (self._last_answer - self._asked_at))
