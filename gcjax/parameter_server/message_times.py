"""When each message was sent, heard and dealt with: where the time of a round goes."""

from array import array
from typing import NamedTuple

import numpy as np

PUSH, REPORT, SIGN, STOP = "push", "unit", "alive", "stop"
"""The kinds of messages that are written down: a push, the report of a unit, a sign of life, and the order to stop."""


class MessageTimes(NamedTuple):
    """The messages of a run, in the order in which they were dealt with; all seconds are by the server's clock.

    Attributes:
      kind: text[messages], `PUSH`, `REPORT`, `SIGN` or `STOP`.
      worker: int32[messages], who sent it; of a stop, whom it was sent to.
      sent: float64[messages] seconds, when sending began; of a report, when its unit ended.
      handle_start: float64[messages], when the other side began to deal with it. The server deals with one after
        the other.
      handle_end: float64[messages], when that was done; of a stop, when the worker had made the push that answers it.
      rule_seconds: float64[messages] seconds, what the rule took of that.
      commit_seconds: float64[messages] seconds, what the update of the parameters took of that; 0 where there was none.
    """

    kind: np.ndarray
    worker: np.ndarray
    sent: np.ndarray
    handle_start: np.ndarray
    handle_end: np.ndarray
    rule_seconds: np.ndarray
    commit_seconds: np.ndarray

    def of(self, *kinds: str) -> "MessageTimes":
        """The messages of some kinds."""
        return self.where(np.isin(self.kind, kinds))

    def where(self, is_kept: np.ndarray) -> "MessageTimes":
        """The messages for which `is_kept bool[messages]`."""
        return MessageTimes(*(values[is_kept] for values in self))


class MessageLog:
    """Messages, as they are dealt with."""

    def __init__(self) -> None:
        """None yet."""
        self._kinds: list[str] = []
        self._workers = array("i")
        self._seconds = array("d")

    def add(
        self,
        kind: str,
        worker: int,
        sent: float,
        handle_start: float,
        handle_end: float,
        *,
        rule_seconds: float = 0.0,
        commit_seconds: float = 0.0,
    ) -> None:
        """Writes a message down: its kind, whose it is, and seconds by the server's clock, as in `MessageTimes`.

        Dealing with it lasts from `handle_start` to `handle_end`, of which the rule and the commit take their seconds.
        """
        self._kinds.append(kind)
        self._workers.append(worker)
        self._seconds.extend((sent, handle_start, handle_end, rule_seconds, commit_seconds))

    def times(self) -> MessageTimes:
        """All of them."""
        seconds = np.asarray(self._seconds, np.float64).reshape(-1, 5)  # five of each message, one after the other
        return MessageTimes(np.asarray(self._kinds, str), np.asarray(self._workers, np.int32), *seconds.T)
