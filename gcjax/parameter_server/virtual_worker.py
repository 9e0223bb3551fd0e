"""A worker in virtual time, whose turns the server stops: what it does with the messages that reach it.

Letters: T units of the worker.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gcjax.parameter_server.wire import Message


class Surroundings(NamedTuple):
    """What a worker acts on.

    Attributes:
      at: `(seconds, action)`: has `action(seconds)` called then.
      report: `(seconds, message)`: sends the report of a unit.
      push: `(seconds, message)`: sends a push.
      end: `(seconds)`: ends the run, as there are no units any more.
    """

    at: Callable[[float, Callable[[float], None]], None]
    report: Callable[[float, Message], None]
    push: Callable[[float, Message], None]
    end: Callable[[float], None]


class VirtualWorker:
    """A worker; while it is held up it hears nothing."""

    def __init__(
        self, durations: np.ndarray, held: np.ndarray, num_bytes: int, goes_on: bool, surroundings: Surroundings
    ) -> None:
        """A worker that has no order yet.

        Args:
          durations: float64[T] seconds of the units.
          held: float64[T] seconds, from the begin of each unit, in which the worker is held up.
          num_bytes: of a push.
          goes_on: whether the worker goes on with its turn when it has answered a stop.
          surroundings: what it acts on.
        """
        self._durations, self._held, self._goes_on, self._outside = durations, held, goes_on, surroundings
        self._body = np.zeros(num_bytes, np.uint8)
        self._held_until = 0.0
        self._number = 0  # of the unit under way: one that was broken off does not end
        self._order: Any = None
        self._start, self._ends = 0.0, [0.0]

    def lose(self) -> None:
        """Forgets its turn: the process is gone."""
        self._number += 1
        self._order, self._held_until = None, 0.0

    def hear(self, now: float, message: Message) -> None:
        """Deals with a message of the server, or does so once it is held up no longer."""
        if now < self._held_until:
            self._outside.at(self._held_until, lambda then: self.hear(then, message))
        elif message.kind == "begin":
            self._order, self._start, self._ends = message.header, now, []
            self._begin_unit(now)
        elif message.kind == "stop" and self._order is not None and message.header["turn"] == self._order["turn"]:
            self._answer(now, message.header)

    def _begin_unit(self, now: float) -> None:
        """Begins the next unit of the turn, if there is one; one that was under way is broken off."""
        self._number += 1
        number, unit = self._number, self._order["first"] + len(self._ends)
        if len(self._ends) == self._order["num_units"]:
            return
        if unit >= self._durations.size:
            self._outside.end(now)
            return
        self._held_until = now + float(self._held[unit])
        self._outside.at(now + float(self._durations[unit]), lambda then: self._end_unit(then, number))

    def _end_unit(self, now: float, number: int) -> None:
        """Reports the unit, and begins the next one."""
        if number != self._number:
            return
        self._ends.append(now)
        header = {"kind": "unit", "turn": self._order["turn"], "compute_start": self._start, "end": now, "loss": 0.0}
        self._outside.report(now, Message(header))
        self._begin_unit(now)

    def _answer(self, now: float, stop: Any) -> None:
        """Pushes what is done; the unit under way goes on where the turn does, and is broken off otherwise."""
        header = {
            "kind": "push",
            "turn": stop["turn"],
            "stop": stop["stop"],
            "loss": 0.0,
            "is_finite": True,
            "compute_start": self._start,
            "ends": list(self._ends),
            "lost": int(len(self._ends) < self._order["num_units"]),
            "send_start": now,
        }
        if not self._goes_on:
            self._number += 1
            self._order = None
        self._outside.push(now, Message(header, self._body))
