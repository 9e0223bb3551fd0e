"""A worker on the real clock: it computes what the server asks for, until the server says that all is done."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax import _validate
from gcjax.parameter_server import clock, flight, wire
from gcjax.parameter_server.inbox import Inbox
from gcjax.parameter_server.overlapping import OverlappingTurns, described
from gcjax.parameter_server.overlapping_program import OverlappingProgram
from gcjax.parameter_server.setups import Setup, check_setup, fingerprint
from gcjax.parameter_server.transport import NO_SECURITY, Connection, Disconnected, Refused, Security
from gcjax.parameter_server.units import Unit
from gcjax.parameter_server.wire import Message
from gcjax.parameter_server.worker_program import CodedProgram, LocalProgram, Program, worker_program

NUM_PINGS = 5
POLL_SECONDS = 1e-3
"""How often a worker that computes looks whether it has been cut off."""

Throttle = Callable[[int, int], float]
"""`(worker, unit) -> seconds` that a unit takes at least: stands for a device of that speed."""


class Report(NamedTuple):
    """What a worker has done.

    Attributes:
      num_units: computed.
      num_pushes: that were sent.
      num_cut_off: turns that were cut off.
      num_connections: to the server; one unless it was lost.
    """

    num_units: int = 0
    num_pushes: int = 0
    num_cut_off: int = 0
    num_connections: int = 0


def work(
    setup: Setup,
    address: str,
    *,
    worker: int,
    throttle: Throttle | None = None,
    security: Security = NO_SECURITY,
    patience: float = 60.0,
) -> Report:
    """Works for a server until it says that the run is done.

    Args:
      setup: equal to that of the server.
      address: HOST:PORT of the server.
      worker: its number, 0, ..., W - 1; one process each.
      throttle: `(worker, unit) -> seconds` that a unit takes at least, to stand for a slower device.
      security: the token and the certificate of the server.
      patience: seconds for which a server that does not answer is looked for.

    Returns:
      What the worker has done.

    Raises:
      ValueError: for bad input, or if the server runs something else; the difference is shown.
      Disconnected: if the server does not answer for so long.
    """
    check_setup(setup)
    _validate.integer("worker", worker, maximum=setup.num_workers - 1, hint="Workers are numbered from 0.")
    member = _Worker(setup, worker, throttle or _no_throttle)
    layout = wire.layout_of(jax.eval_shape(setup.task.init, setup.init_key))
    deadline = time.monotonic() + patience
    while True:
        try:
            connection = flight.connect(address, max_bytes=layout.num_bytes, security=security)
            with contextlib.closing(connection):
                if member.serve(connection, layout):
                    return member.report
        except Disconnected as error:
            if time.monotonic() > deadline:
                raise Disconnected(f"{error} It was looked for for {patience:g} s.") from None
            time.sleep(0.1)
        else:
            deadline = time.monotonic() + patience


class _Order(NamedTuple):
    """A turn that the server asks for.

    Attributes:
      turn: its number, which goes back with everything that belongs to it.
      first: the first unit.
      num_units: how many.
      weight: of the contribution where the worker needs it.
      exchanges: whether the parameters are asked for before the push.
      can_be_cut: whether the server may end it early.
      seconds: if above 0, the turn is as many units as fill them, one at least, and not `num_units`.
      until_stopped: whether the turn lasts until the server stops it, with a report of each unit.
      last_taken: the number of the last turn whose push the server has taken; -1 for none.
      version: of the parameters that come with it, or that were read before.
      anew: whether the worker's own parameters and its optimizer state are to begin anew.
    """

    turn: int
    first: int
    num_units: int
    weight: float
    exchanges: bool
    can_be_cut: bool
    seconds: float
    until_stopped: bool
    last_taken: int
    version: int
    anew: bool

    @classmethod
    def of(cls, message: Message) -> "_Order":
        """The order that a message says."""
        return cls(**{name: message.header[name] for name in cls._fields})


class _Worker:
    """The state of a worker that outlives its connections."""

    def __init__(self, setup: Setup, worker: int, throttle: Throttle) -> None:
        """`throttle`: see `work`."""
        self.report = Report()
        self._setup, self._worker, self._throttle = setup, worker, throttle
        self._incarnation = uuid.uuid4().hex
        self._program = worker_program(setup, worker)
        self._fingerprint = fingerprint(setup)
        self._last_pushed = -1  # the number of a turn
        self._warm_up()

    def serve(self, connection: Connection, layout: wire.Layout) -> bool:
        """Does what the server asks for; True once the run is done. Raises `Disconnected` if the server is gone."""
        self._count(num_connections=1)
        lease, offset = self._enter(connection)
        inbox = Inbox()
        threading.Thread(target=_receive_all, args=(connection, inbox), daemon=True).start()
        has_ended = threading.Event()
        threading.Thread(
            target=_send_signs_of_life, args=(connection, lease / 4, offset, has_ended), daemon=True
        ).start()
        try:
            if isinstance(self._program, OverlappingProgram):
                self._take_overlapping_turns(self._program, connection, inbox, layout, offset)
            else:
                self._take_turns(_Turns(connection, inbox, self._program, layout, offset), inbox)
            return True
        except Disconnected:
            self._program.cancel()
            if _has_end(inbox):  # the run was done while a turn was under way
                return True
            raise
        finally:
            has_ended.set()

    def _take_turns(self, turns: "_Turns", inbox: Inbox) -> None:
        """Takes one turn after the other, until the run is done."""
        while (message := _next(inbox)).kind != "end":
            if message.kind == "begin" and inbox.has_order():
                self._count(num_cut_off=1)
            elif message.kind == "begin":
                self._take_turn(turns, message)

    def _take_overlapping_turns(
        self, program: OverlappingProgram, connection: Connection, inbox: Inbox, layout: wire.Layout, offset: float
    ) -> None:
        """Takes turns while it computes, until the run is done."""
        throttle = partial(self._throttle, self._worker)
        turns = OverlappingTurns(connection, inbox, program, layout, offset, throttle)
        try:
            while (message := _next(inbox)).kind != "end":
                if message.kind == "begin":
                    turns.take(_Order.of(message), message.body)
                elif message.kind == "computed":
                    turns.push_if_due()
        finally:
            turns.close()
            self._count(num_units=turns.num_units, num_pushes=turns.num_pushes)

    def _warm_up(self) -> None:
        """Compiles what a turn takes, so that the first one takes no longer than others."""
        if isinstance(self._program, OverlappingProgram):
            self._program.warm_up()
            return
        self._program.begin(jax.tree.map(np.asarray, self._setup.initial_params()))
        jax.block_until_ready(self._program.compute(0))
        jax.block_until_ready(self._program.warm_message())
        self._program.cancel()

    def _enter(self, connection: Connection) -> tuple[float, float]:
        """Says who we are; returns the seconds of the lease, and those to add to our clock to get the server's."""
        connection.send(
            Message(
                {
                    "kind": "hello",
                    "worker": self._worker,
                    "incarnation": self._incarnation,
                    "fingerprint": self._fingerprint,
                    "last_pushed": self._last_pushed,
                }
            )
        )
        exchanges = []
        for _ in range(NUM_PINGS):
            sent = time.monotonic()
            connection.send(Message({"kind": "ping"}))
            answer = connection.receive()
            if answer.kind == "refused":
                raise (Disconnected if answer.header["may_try_again"] else Refused)(answer.header["why"])
            exchanges.append((sent, float(answer.header["now"]), time.monotonic()))
        connection.send(Message({"kind": "ready"}))
        return float(answer.header["lease"]), clock.offset(exchanges)

    def _take_turn(self, turns: "_Turns", message: Message) -> None:
        """Computes and pushes a turn, unless it is cut off; a later order then waits in the inbox."""
        assert not isinstance(self._program, OverlappingProgram)
        order = _Order.of(message)
        if order.last_taken != self._last_pushed:
            self._program.cancel()  # what was pushed came too late, and is in no commit
        if order.anew and isinstance(self._program, LocalProgram):
            self._program.begin_anew()
        turns.begin(message)
        if order.until_stopped:
            num_units, num_pushes = turns.until_stopped(order, partial(self._throttle, self._worker))
            self._count(num_units=num_units, num_pushes=num_pushes, num_cut_off=int(not num_pushes))
            if num_pushes:
                self._last_pushed = order.turn
            else:
                self._program.cancel()
            return
        unit = order.first
        while not turns.is_full(order):
            if not turns.compute(unit, self._throttle(self._worker, unit), can_be_cut=order.can_be_cut):
                self._program.cancel()
                self._count(num_cut_off=1)
                return
            unit += 1
            self._count(num_units=1)
        if turns.push(order):
            self._last_pushed = order.turn
            self._count(num_pushes=1)
        else:
            self._program.cancel()

    def _count(self, **increments: int) -> None:
        """Adds to the counts of the report."""
        self.report = self.report._replace(**{n: getattr(self.report, n) + value for n, value in increments.items()})


class _Turns:
    """The turns on one connection."""

    def __init__(
        self,
        connection: Connection,
        inbox: "Inbox",
        program: Program,
        layout: wire.Layout,
        offset: float,
    ) -> None:
        """`offset`: seconds to add to our clock to get the server's."""
        self._connection, self._inbox, self._program, self._layout = connection, inbox, program, layout
        self._offset = offset
        self._units: list[Unit] = []
        self._ends: list[float] = []
        self._compute_start = 0.0

    def begin(self, message: Message) -> None:
        """Begins a turn with the parameters that came with the order, if any did."""
        params = None if message.body is None else wire.from_bytes(message.body, self._layout)
        self._program.begin(params)
        self._units, self._ends, self._compute_start = [], [], self._now()

    def compute(self, unit: int, min_seconds: float, *, can_be_cut: bool) -> bool:
        """Computes a unit, which takes so many seconds at least; returns False if the turn was cut off meanwhile."""
        end = time.monotonic() + min_seconds
        result = self._program.compute(unit)
        if not can_be_cut:
            jax.block_until_ready(result.loss)
            time.sleep(max(end - time.monotonic(), 0.0))
        if self._is_interrupted(result, end):
            return False
        self._units.append(result)
        self._ends.append(self._now())
        return not (can_be_cut and self._inbox.has_next())

    def is_full(self, order: _Order) -> bool:
        """Whether the turn has all its units."""
        if order.seconds > 0:
            return bool(self._ends) and self._ends[-1] - self._compute_start >= order.seconds
        return len(self._units) == order.num_units

    def until_stopped(self, order: _Order, throttle: Callable[[int], float]) -> tuple[int, int]:
        """Computes and reports one unit after the other, and pushes when the server stops the turn.

        Returns:
          How many units there are, and how many pushes.
        """
        num_pushes = 0
        for unit in range(order.first, order.first + order.num_units):
            end = time.monotonic() + throttle(unit)
            result = self._program.compute(unit)
            while self._is_interrupted(result, end):
                goes_on, num_new = self._answer(order, lost=1)
                num_pushes += num_new
                if not goes_on:
                    return len(self._units), num_pushes
            self._units.append(result)
            self._ends.append(self._now())
            self._report(order, float(result.loss))
        goes_on = True
        while goes_on:
            self._inbox.has_next(None)
            goes_on, num_new = self._answer(order, lost=0)
            num_pushes += num_new
        return len(self._units), num_pushes

    def _report(self, order: _Order, loss: float) -> None:
        """Tells the server that a unit is done."""
        times = {"compute_start": self._compute_start, "end": self._ends[-1]}
        self._connection.send(Message({"kind": "unit", "turn": order.turn, "loss": loss, **times}))

    def _answer(self, order: _Order, *, lost: int) -> tuple[bool, int]:
        """Deals with the message that is there: whether the turn goes on, and how many pushes there were.

        `lost` are the units under way. What is not for this turn is left where it is.
        """
        message = self._inbox.get()
        if message is None or message.kind != "stop":
            self._inbox.put_back(message)
            return False, 0
        if message.header["turn"] != order.turn:
            return True, 0
        heard = self._now()
        program, is_coded = self._program, isinstance(self._program, CodedProgram)
        if isinstance(program, CodedProgram):
            tree = program.message_of(message.header["units"], message.header["encode"])
        else:
            if lost:
                program.undo()
            tree = program.message(None, order.weight)
        header = {"turn": order.turn, "stop": message.header["stop"], "stop_heard": heard}
        self._send_push(header, wire.to_bytes(tree), lost)
        return is_coded, 1

    def push(self, order: _Order) -> bool:
        """Sends what was computed; returns False if the turn was cut off while the parameters were asked for."""
        assert not isinstance(self._program, CodedProgram)  # its pushes are answers to the end of a round
        version_params = None
        if order.exchanges:
            self._connection.send(Message({"kind": "pull", "turn": order.turn}))
            answer = _next(self._inbox)
            if answer.kind != "params":
                self._inbox.put_back(answer)
                return False
            version_params = wire.from_bytes(answer.body, self._layout)
        self._send_push({"turn": order.turn}, wire.to_bytes(self._program.message(version_params, order.weight)), 0)
        return True

    def _send_push(self, header: dict[str, Any], body: np.ndarray, lost: int) -> None:
        """Sends the bytes of a push, with what is known of its units; `lost` are those that were begun only."""
        header = {
            **header,
            "kind": "push",
            **described(self._units),
            "compute_start": self._compute_start,
            "ends": list(self._ends),  # the message may be written later
            "lost": lost,
            "send_start": self._now(),
        }
        self._connection.send(Message(header, body))

    def _now(self) -> float:
        """Seconds by the server's clock."""
        return time.monotonic() + self._offset

    def _is_interrupted(self, result: Unit, end: float) -> bool:
        """Waits until a unit is computed, and it is `end` seconds; whether a message comes before."""
        while not _is_ready(result.loss) or time.monotonic() < end:
            if self._inbox.has_next(POLL_SECONDS):
                return True
        return False


def _receive_all(connection: Connection, inbox: Inbox) -> None:
    """Puts every message into the inbox, and `None` when the connection is lost."""
    try:
        while True:
            inbox.put(connection.receive())
    except (Disconnected, ValueError):
        inbox.put(None)


def _next(inbox: Inbox) -> Message:
    """The next message; raises `Disconnected` if there is none any more."""
    message = inbox.get()
    if message is None:
        inbox.put_back(None)
        raise Disconnected("the server is gone.")
    if message.kind == "refused":  # it can come after the answers to all pings
        raise Refused(message.header["why"])
    return message


def _has_end(inbox: Inbox) -> bool:
    """Whether the server has said that the run is done, in what is left of a connection that is lost."""
    while inbox.has_next(1.0) and (message := inbox.get()) is not None:
        if message.kind == "end":
            return True
    return False


def _send_signs_of_life(connection: Connection, seconds: float, offset: float, has_ended: threading.Event) -> None:
    """Tells the server every so many seconds that the worker is there, and when that was said, by the server's clock.

    `offset`: seconds to add to our clock to get the server's.
    """
    with contextlib.suppress(Disconnected):
        while not has_ended.wait(seconds):
            connection.send(Message({"kind": "alive", "sent": time.monotonic() + offset}))


def _is_ready(array: Any) -> bool:
    """Whether an array has been computed."""
    return bool(array.is_ready())


def _no_throttle(worker: int, unit: int) -> float:
    """0 seconds: a unit takes as long as it takes."""
    del worker, unit
    return 0.0
