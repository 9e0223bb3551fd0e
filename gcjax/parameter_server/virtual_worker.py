"""A worker in virtual time, whose turns the server stops: what it does with the messages that reach it.

Letters: T units of the worker.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gcjax.parameter_server.wire import Message


class Environment(NamedTuple):
    """What a worker acts on.

    Attributes:
      call_at: `(seconds, action)`: has `action(seconds)` called then.
      send_report: `(seconds, message)`: sends the report of a unit.
      send_push: `(seconds, message)`: sends a push.
      end_run: `(seconds)`: ends the run, as there are no units any more.
    """

    call_at: Callable[[float, Callable[[float], None]], None]
    send_report: Callable[[float, Message], None]
    send_push: Callable[[float, Message], None]
    end_run: Callable[[float], None]


class VirtualWorker:
    """A worker; while it is held up it hears nothing."""

    def __init__(
        self,
        durations: np.ndarray,
        held_up_seconds: np.ndarray,
        message_bytes: int,
        continues_after_stop: bool,
        environment: Environment,
    ) -> None:
        """A worker that has no order yet.

        Args:
          durations: float64[T] seconds of the units.
          held_up_seconds: float64[T] of the seconds of each unit, the first ones, in which the worker hears nothing.
          message_bytes: the bytes of a push, or of each message in it under a code.
          continues_after_stop: whether the worker goes on with its turn when it has answered a stop.
          environment: how it sends messages, has itself called later, and ends the run.
        """
        self._durations, self._held_up_seconds, self._environment = durations, held_up_seconds, environment
        self._continues_after_stop = continues_after_stop
        self._message_bytes = message_bytes
        self._held_up_until = 0.0
        self._num_begun = 0  # units: the end of one is ignored if another was begun after it, as it was broken off
        self._order_header: Any = None  # the header of the server's message for the turn; None between turns
        self._compute_start, self._unit_ends = 0.0, list[float]()

    def forget_turn(self) -> None:
        """Forgets its turn: the process is gone."""
        self._num_begun += 1
        self._order_header, self._held_up_until = None, 0.0

    def hear(self, now: float, message: Message) -> None:
        """Deals with a message of the server at `now` seconds, or later, once the worker is held up no longer."""
        if now < self._held_up_until:
            self._environment.call_at(self._held_up_until, lambda release_time: self.hear(release_time, message))
        elif message.kind == "begin":
            self._order_header, self._compute_start, self._unit_ends = message.header, now, []
            self._begin_unit(now)
        elif message.kind == "stop" and (self._order_header or {}).get("turn") == message.header["turn"]:
            self._answer_stop(now, message.header)

    def _begin_unit(self, now: float) -> None:
        """Begins the next unit of the turn, if there is one; a unit that was under way is broken off.

        The run ends where the worker has no durations for further units.
        """
        self._num_begun += 1  # by which the end of a unit that was broken off is told
        num_begun, unit = self._num_begun, self._order_header["first_unit"] + len(self._unit_ends)
        if len(self._unit_ends) == self._order_header["num_units"]:
            return
        if unit >= self._durations.size:
            self._environment.end_run(now)
            return
        self._held_up_until = now + float(self._held_up_seconds[unit])
        self._environment.call_at(now + float(self._durations[unit]), lambda end: self._end_unit(end, num_begun))

    def _end_unit(self, now: float, num_begun: int) -> None:
        """Reports the unit that was begun as number `num_begun`, unless it was broken off, and begins the next one."""
        if num_begun != self._num_begun:
            return
        self._unit_ends.append(now)
        report_header = {
            "kind": "unit",
            "turn": self._order_header["turn"],
            "compute_start": self._compute_start,
            "unit_end": now,
            "loss": 0.0,
        }
        self._environment.send_report(now, Message(report_header))
        self._begin_unit(now)

    def _answer_stop(self, now: float, stop_header: Any) -> None:
        """Answers a stop, of which `stop_header` is the header, by a push of what is done.

        The unit under way goes on where the turn does, and is broken off otherwise.
        """
        push_header = {
            "kind": "push",
            "turn": stop_header["turn"],
            "stop_number": stop_header["stop_number"],
            "loss": 0.0,
            "is_finite": True,
            "compute_start": self._compute_start,
            "unit_ends": list(self._unit_ends),
            "num_lost": int(len(self._unit_ends) < self._order_header["num_units"]),  # 1 if a unit is under way
            "send_start": now,
        }
        if not self._continues_after_stop:
            self._num_begun += 1
            self._order_header = None
        # Under a code turns go on, and the stop says which messages are to be sent.
        is_coded = self._continues_after_stop
        num_messages = len(stop_header["encode"]) if is_coded else 1
        self._environment.send_push(now, Message(push_header, np.zeros(num_messages * self._message_bytes, np.uint8)))
