"""A worker on the real clock: it computes what the server asks for, until the server says that all is done."""

import contextlib
import threading
import time
import uuid
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from gcjax import _validate
from gcjax.parameter_server import clock, flight, wire
from gcjax.parameter_server.inbox import Inbox
from gcjax.parameter_server.overlapping import OverlappingTurns
from gcjax.parameter_server.overlapping_program import OverlappingProgram
from gcjax.parameter_server.security import NO_SECURITY, Security, check_worker
from gcjax.parameter_server.setups import Setup, check_setup, fingerprint
from gcjax.parameter_server.transport import Connection, Disconnected, NotLetIn
from gcjax.parameter_server.wire import Message
from gcjax.parameter_server.worker_program import CodedProgram, LocalProgram, worker_program
from gcjax.parameter_server.worker_turns import Order, WorkerTurns, check_not_refused, next_message
from gcjax.throttle import Throttle, no_throttle

NUM_PINGS = 5
SECONDS_BETWEEN_LOOKS = 0.1
"""From one look whether the server is there, or ready, to the next."""


class Report(NamedTuple):
    """What a worker has done.

    Attributes:
      num_units: computed.
      num_pushes: that were sent.
      num_connections: to the server; one unless it was lost.
    """

    num_units: int = 0
    num_pushes: int = 0
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
      patience: seconds for which a server at which nobody answers is looked for, also until it is started again. One
        that answers and does not begin yet is waited for, for example while it computes its last commits anew. One that
        hangs with its connection open, for example suspended, is missed after some seven minutes.

    Returns:
      What the worker has done.

    Raises:
      ValueError: for bad input, or if the server runs something else; the difference is shown.
      Disconnected: if nobody answers for so long.
    """
    check_setup(setup)
    check_worker(address, security)
    _validate.single_number("patience", patience)
    worker = _validate.integer("worker", worker, maximum=setup.num_workers - 1, hint="Workers are numbered from 0.")
    worker_process = _Worker(setup, worker, throttle or no_throttle)
    layout = wire.layout_of(jax.eval_shape(setup.task.init, setup.init_key))
    while True:
        try:
            connection = flight.connect(address, max_bytes=layout.num_bytes, security=security)
            try:
                with contextlib.closing(connection):
                    worker_process.serve(connection, layout)
            finally:
                worker_process.join_threads()
            return worker_process.report
        except Disconnected as error:
            if time.monotonic() > worker_process.last_connected_time + patience:
                raise Disconnected(f"{error} It was looked for for {patience:g} s.") from None
            time.sleep(SECONDS_BETWEEN_LOOKS)


class _Worker:
    """The state of a worker that outlives its connections.

    Attributes:
      report: what it has done so far.
      last_connected_time: seconds of the monotonic clock, when it last was in touch with a server; first, its begin.
    """

    def __init__(self, setup: Setup, worker: int, throttle: Throttle) -> None:
        """`worker`: its number; `throttle`: `(worker, unit) -> seconds` that a unit takes at least."""
        self.report = Report()
        self._setup, self._worker, self._throttle = setup, worker, throttle
        self._incarnation = uuid.uuid4().hex
        self._program = worker_program(setup, worker)
        self._fingerprint = fingerprint(setup)
        self._last_turn = -1  # the number of the last one that has begun
        self._last_pushed_turn = -1  # its number
        self._begins_anew = False  # whether an order that was left out has said so
        self._threads: list[threading.Thread] = []  # that read and write the last connection
        self._warm_up()
        self.last_connected_time = time.monotonic()

    def join_threads(self) -> None:
        """Waits for the threads of the last connection, which is closed: Python must not end while they are in gRPC."""
        for thread in self._threads:
            thread.join(flight.CLOSE_SECONDS)

    def serve(self, connection: Connection, layout: wire.Layout) -> None:
        """Does what the server asks for, until the run is done. Raises `Disconnected` if the server is gone.

        `layout`: of the parameters in a message.
        """
        self._add_to_report(num_connections=1)
        lease_and_offset = self._join_server(connection)
        if lease_and_offset is None:
            return
        lease, clock_offset = lease_and_offset
        inbox = Inbox()
        has_ended = threading.Event()
        signs_arguments = connection, lease / 4, clock_offset, has_ended
        self._threads = [
            threading.Thread(target=_receive_all, args=(connection, inbox), daemon=True),
            threading.Thread(target=_send_signs_of_life, args=signs_arguments, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        was_let_in = True
        try:
            if isinstance(self._program, OverlappingProgram):
                self._take_overlapping_turns(self._program, connection, inbox, layout, clock_offset)
            else:
                self._take_turns(WorkerTurns(connection, inbox, self._program, layout, clock_offset), inbox)
        except NotLetIn:
            was_let_in = False
            raise
        except Disconnected:
            if isinstance(self._program, OverlappingProgram):
                self._program.give_up_turn()
            if not _has_end_message(inbox):  # else the run was done while a turn was under way
                raise
        finally:
            has_ended.set()
            if was_let_in:
                self.last_connected_time = time.monotonic()

    def _take_turns(self, turns: WorkerTurns, inbox: Inbox) -> None:
        """Takes one turn after the other, until the run is done; one is left out if a later order has come already."""
        while (message := next_message(inbox)).kind != "end":
            if message.kind != "begin":
                continue
            order = Order.of(message)
            self._last_turn = order.turn
            if inbox.has_later_order():
                self._begins_anew |= order.begins_anew
            else:
                try:
                    self._take_turn(turns, message)
                except Disconnected:  # between two turns there is nothing to give up: the last one has been pushed
                    self._program.give_up_turn()
                    raise

    def _take_overlapping_turns(
        self,
        program: OverlappingProgram,
        connection: Connection,
        inbox: Inbox,
        layout: wire.Layout,
        clock_offset: float,
    ) -> None:
        """Takes turns until the run is done, while another thread computes.

        The server's message "begin" begins a turn; "computed", of the other thread, says that a unit is done.
        `clock_offset`: seconds to add to our clock to get the server's.
        """
        throttle = partial(self._throttle, self._worker)
        turns = OverlappingTurns(connection, inbox, program, layout, clock_offset, throttle)
        try:
            while (message := next_message(inbox)).kind != "end":
                if message.kind == "begin":
                    order = Order.of(message)
                    self._last_turn = order.turn
                    turns.begin(order, message.body)
                elif message.kind == "computed":
                    turns.push_if_due()
        finally:
            turns.close()
            self._add_to_report(num_units=turns.num_units, num_pushes=turns.num_pushes)

    def _warm_up(self) -> None:
        """Compiles what a turn takes, so that the first one takes no longer than others."""
        if isinstance(self._program, OverlappingProgram):
            self._program.warm_up()
            return
        self._program.begin(jax.tree.map(np.asarray, self._setup.initial_params()))
        jax.block_until_ready(self._program.compute(0))
        jax.block_until_ready(self._program.warm_up_push())
        self._program.give_up_turn()

    def _join_server(self, connection: Connection) -> tuple[float, float] | None:
        """Says who the worker is; returns the seconds of its lease, and those to add to its clock for the server's.

        None if the run is done by then.
        """
        connection.send(
            Message(
                {
                    "kind": "hello",
                    "worker": self._worker,
                    "incarnation": self._incarnation,
                    "fingerprint": self._fingerprint,
                    "last_turn": self._last_turn,
                }
            )
        )
        ping_times: list[tuple[float, float, float]] = []
        while len(ping_times) < NUM_PINGS:
            send_time = time.monotonic()
            connection.send(Message({"kind": "ping"}))
            # Orders come here if the server has not missed the last connection; after "ready" there will be new ones.
            while (answer := connection.receive()).kind not in ("pong", "end", "refused"):
                pass
            if answer.kind == "end":
                return None
            check_not_refused(answer)
            if answer.header["is_ready"]:
                ping_times.append((send_time, float(answer.header["now"]), time.monotonic()))
            else:  # it compiles, or goes on with an earlier run; its answers may take long
                self.last_connected_time = time.monotonic()
                time.sleep(SECONDS_BETWEEN_LOOKS)
        connection.send(Message({"kind": "ready"}))
        return float(answer.header["lease"]), clock.clock_offset(ping_times)

    def _take_turn(self, turns: WorkerTurns, message: Message) -> None:
        """Computes and pushes a turn, unless it is cut off; a later order then waits in the inbox."""
        assert not isinstance(self._program, OverlappingProgram)
        order = Order.of(message)
        if order.last_arrived_turn != self._last_pushed_turn:
            self._program.give_up_turn()  # what was pushed came too late, and is in no commit
        if (order.begins_anew or self._begins_anew) and isinstance(self._program, LocalProgram):
            self._program.begin_anew()
        self._begins_anew = False
        if isinstance(self._program, CodedProgram):
            self._program.set_row(order.code_row)
        turns.begin(message)
        if order.lasts_until_stopped:
            num_units, num_pushes = turns.run_until_stopped(order, partial(self._throttle, self._worker))
            self._add_to_report(num_units=num_units, num_pushes=num_pushes)
            if num_pushes:
                self._last_pushed_turn = order.turn
            else:
                self._program.give_up_turn()
            return
        unit = order.first_unit
        while not turns.has_all_units(order):
            if not turns.compute(unit, self._throttle(self._worker, unit), can_be_cut_off=order.can_be_cut_off):
                self._program.give_up_turn()
                return
            unit += 1
            self._add_to_report(num_units=1)
        if turns.push(order):
            self._last_pushed_turn = order.turn
            self._add_to_report(num_pushes=1)
        else:
            self._program.give_up_turn()

    def _add_to_report(self, **increments: int) -> None:
        """Adds to the counts of the report."""
        self.report = self.report._replace(**{n: getattr(self.report, n) + value for n, value in increments.items()})


def _receive_all(connection: Connection, inbox: Inbox) -> None:
    """Puts every message into the inbox, and `None` when the connection is lost or what came is no message."""
    try:
        while True:
            inbox.put(connection.receive())
    except (Disconnected, ValueError):
        inbox.put(None)


def _has_end_message(inbox: Inbox) -> bool:
    """Whether the server has said that the run is done, in what is left of a connection that is lost."""
    while inbox.has_next(seconds=1.0) and (message := inbox.get()) is not None:
        if message.kind == "end":
            return True
    return False


def _send_signs_of_life(
    connection: Connection, seconds: float, clock_offset: float, has_ended: threading.Event
) -> None:
    """Tells the server every so many seconds that the worker is there, and when that was said, by the server's clock.

    `clock_offset`: seconds to add to our clock to get the server's.
    """
    with contextlib.suppress(Disconnected):
        while not has_ended.wait(seconds):
            connection.send(Message({"kind": "alive", "sent": time.monotonic() + clock_offset}))
