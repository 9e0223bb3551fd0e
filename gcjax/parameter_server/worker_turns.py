"""The turns of a worker on one connection: it computes, reports and pushes what the server has asked for."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax.parameter_server import wire
from gcjax.parameter_server.inbox import Inbox
from gcjax.parameter_server.overlapping import losses_header
from gcjax.parameter_server.transport import Connection, Disconnected, NotLetIn, Refused
from gcjax.parameter_server.units import UnitResult
from gcjax.parameter_server.wire import Message
from gcjax.parameter_server.worker_program import CodedProgram, Program

POLL_SECONDS = 1e-3
"""How often a worker looks whether a unit is computed that may be cut off; a message wakes it up at once."""
LONGEST_WAIT = 3600.0
"""Seconds of one wait for a message, since Python takes no endless ones."""


class Order(NamedTuple):
    """A turn that the server asks for.

    Attributes:
      turn: its number, which goes back with everything that belongs to it.
      first_unit: the first of its units, counted from the worker's first one.
      num_units: how many.
      code_row: the row of its code that the worker has; its number if there is no code.
      weight: of the contribution where the worker needs it.
      pulls_before_push: whether the parameters are asked for before the push.
      can_be_cut_off: whether the server may end it early.
      turn_seconds: if above 0, the turn is as many units as fill them, one at least, and not `num_units`.
      lasts_until_stopped: whether the turn lasts until the server stops it, with a report of each unit.
      last_arrived_turn: the number of the last turn whose push the server has; -1 for none.
      version: of the parameters that come with it, or that were read before.
      begins_anew: whether the worker's own parameters and its optimizer state are to begin anew.
    """

    turn: int
    first_unit: int
    num_units: int
    code_row: int
    weight: float
    pulls_before_push: bool
    can_be_cut_off: bool
    turn_seconds: float
    lasts_until_stopped: bool
    last_arrived_turn: int
    version: int
    begins_anew: bool

    @classmethod
    def of(cls, message: Message) -> "Order":
        """The order that a message says."""
        return cls(**{name: message.header[name] for name in cls._fields})


class WorkerTurns:
    """The turns on one connection."""

    def __init__(
        self,
        connection: Connection,
        inbox: Inbox,
        program: Program,
        layout: wire.Layout,
        clock_offset: float,
    ) -> None:
        """`layout`: of the parameters in a message; `clock_offset`: seconds to add to our clock to get the server's."""
        self._connection, self._inbox, self._program, self._layout = connection, inbox, program, layout
        self._clock_offset = clock_offset
        self._unit_results: list[UnitResult] = []  # of the turn
        self._unit_ends: list[float] = []  # seconds by the server's clock
        self._compute_start = 0.0  # likewise

    def begin(self, message: Message) -> None:
        """Begins a turn with the parameters that came with the order, if any did."""
        params = None if message.body is None else wire.from_bytes(message.body, self._layout)
        self._program.begin(params)
        self._unit_results, self._unit_ends, self._compute_start = [], [], self._now()

    def compute(self, unit: int, min_seconds: float, *, can_be_cut_off: bool) -> bool:
        """Computes a unit, which takes `min_seconds` at least; returns False if the turn was cut off meanwhile.

        A turn is cut off by any message from the server, and only if `can_be_cut_off`.
        """
        earliest_end = time.monotonic() + min_seconds
        unit_result = self._program.compute(unit)
        if not can_be_cut_off:
            jax.block_until_ready(unit_result.loss)
            time.sleep(max(earliest_end - time.monotonic(), 0.0))  # now there is nothing left to be interrupted
        if self._is_interrupted(unit_result, earliest_end):
            return False
        self._unit_results.append(unit_result)
        self._unit_ends.append(self._now())
        return not (can_be_cut_off and self._inbox.has_next())

    def has_all_units(self, order: Order) -> bool:
        """Whether the turn has all its units."""
        if order.turn_seconds > 0:
            return bool(self._unit_ends) and self._unit_ends[-1] - self._compute_start >= order.turn_seconds
        return len(self._unit_results) == order.num_units

    def run_until_stopped(self, order: Order, throttle: Callable[[int], float]) -> tuple[int, int]:
        """Computes and reports one unit after the other, and pushes when the server stops the turn.

        `throttle`: `(unit) -> seconds` that a unit takes at least.

        Returns:
          How many units the turn has, and how many pushes it has sent; under a code more than one, if the server stops
          it more than once.
        """
        num_pushes = 0
        for unit in range(order.first_unit, order.first_unit + order.num_units):
            earliest_end = time.monotonic() + throttle(unit)
            unit_result = self._program.compute(unit)
            while self._is_interrupted(unit_result, earliest_end):
                goes_on, num_new = self._answer_next_message(order, num_lost=1)
                num_pushes += num_new
                if not goes_on:
                    return len(self._unit_results), num_pushes
            self._unit_results.append(unit_result)
            self._unit_ends.append(self._now())
            self._report_unit(order, float(unit_result.loss))
        goes_on = True  # all units are done; stops are still answered
        while goes_on:
            self._inbox.has_next(seconds=None)
            goes_on, num_new = self._answer_next_message(order, num_lost=0)
            num_pushes += num_new
        return len(self._unit_results), num_pushes

    def _report_unit(self, order: Order, loss: float) -> None:
        """Tells the server that a unit is done."""
        times = {"compute_start": self._compute_start, "unit_end": self._unit_ends[-1]}
        self._connection.send(Message({"kind": "unit", "turn": order.turn, "loss": loss, **times}))

    def _answer_next_message(self, order: Order, *, num_lost: int) -> tuple[bool, int]:
        """Answers the next message, by a push if it is a stop of this turn.

        `num_lost`: the units under way, 0 or 1. A message that is no stop stays in the inbox, and ends the turn; a
        stop of another turn is dropped.

        Returns:
          Whether the turn goes on, as it does under a code; and how many pushes were sent, 0 or 1.
        """
        message = self._inbox.get()
        if message is None or message.kind != "stop":
            self._inbox.put_back(message)
            return False, 0
        if message.header["turn"] != order.turn:
            return True, 0
        stop_heard_time = self._now()
        program, is_coded = self._program, isinstance(self._program, CodedProgram)
        if isinstance(program, CodedProgram):
            tree = program.coded_messages(message.header["num_units"], message.header["encode"])
        else:
            if num_lost:
                program.undo_unit()
            tree = program.push_tree(version_params=None, weight=order.weight)
        header = {"turn": order.turn, "stop_number": message.header["stop_number"], "stop_heard": stop_heard_time}
        self._send_push(header, wire.to_bytes(tree), num_lost=num_lost)
        return is_coded, 1

    def push(self, order: Order) -> bool:
        """Sends what was computed; returns False if the turn was cut off while the parameters were asked for."""
        assert not isinstance(self._program, CodedProgram)  # its pushes are answers to the end of a round
        version_params = None
        if order.pulls_before_push:
            self._connection.send(Message({"kind": "pull", "turn": order.turn}))
            answer = next_message(self._inbox)
            if answer.kind != "params":
                self._inbox.put_back(answer)
                return False
            version_params = wire.from_bytes(answer.body, self._layout)
        self._send_push(
            {"turn": order.turn}, wire.to_bytes(self._program.push_tree(version_params, order.weight)), num_lost=0
        )
        return True

    def _send_push(self, header: dict[str, Any], body: np.ndarray, *, num_lost: int) -> None:
        """Sends the bytes of a push, with losses and times of its units; `num_lost` more were begun and did not end."""
        header = {
            **header,
            "kind": "push",
            **losses_header(self._unit_results),
            "compute_start": self._compute_start,
            "unit_ends": list(self._unit_ends),  # the message may be written later
            "num_lost": num_lost,
            "send_start": self._now(),
        }
        self._connection.send(Message(header, body))

    def _now(self) -> float:
        """Seconds by the server's clock."""
        return time.monotonic() + self._clock_offset

    def _is_interrupted(self, unit_result: UnitResult, earliest_end: float) -> bool:
        """Waits until a unit is computed and `time.monotonic()` is `earliest_end`; True if a message comes before."""
        while (seconds_left := earliest_end - time.monotonic()) > 0 or not _is_ready(unit_result.loss):
            if self._inbox.has_next(min(seconds_left, LONGEST_WAIT) if seconds_left > 0 else POLL_SECONDS):
                return True
        return False


def next_message(inbox: Inbox) -> Message:
    """Waits for the next message; raises `Disconnected` if the server is gone, or the error of `check_not_refused`."""
    message = inbox.get()
    if message is None:
        inbox.put_back(None)
        raise Disconnected("the server is gone.")
    check_not_refused(message)  # a refusal can come after the answers to all pings
    return message


def check_not_refused(message: Message) -> None:
    """Raises `Refused` if the message says that the worker is not let in, or `NotLetIn` if it may try again."""
    if message.kind == "refused":
        raise (NotLetIn if message.header.get("may_try_again") else Refused)(message.header["why"])


def _is_ready(array: Any) -> bool:
    """Whether an array has been computed."""
    return bool(array.is_ready())
