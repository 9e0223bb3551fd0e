"""The turns of a worker that computes in one thread while another one sends and receives."""

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gcjax.parameter_server import wire
from gcjax.parameter_server.inbox import Inbox
from gcjax.parameter_server.overlapping_program import OverlappingProgram, Push
from gcjax.parameter_server.transport import Connection
from gcjax.parameter_server.wire import Message


class OverlappingTurns:
    """The turns on one connection; units are computed from the first order until `close`.

    Attributes:
      num_units: computed so far.
      num_pushes: sent so far.
    """

    def __init__(
        self,
        connection: Connection,
        inbox: Inbox,
        program: OverlappingProgram,
        layout: wire.Layout,
        clock_offset: float,
        throttle: Callable[[int], float],
    ) -> None:
        """Begins to compute in a thread of its own; this one reads the inbox.

        Args:
          connection: to the server.
          inbox: where messages of the server are, and where a note comes after each unit.
          program: what both threads work on.
          layout: of the parameters in a message.
          clock_offset: seconds to add to our clock to get the server's.
          throttle: `(unit) -> seconds` that the unit takes at least.
        """
        self.num_units = self.num_pushes = 0
        self._connection, self._inbox, self._program, self._layout = connection, inbox, program, layout
        self._clock_offset, self._throttle = clock_offset, throttle
        self._error: BaseException | None = None
        self._is_x64 = jnp.result_type(float) == jnp.float64  # each thread has its own setting
        self._thread = threading.Thread(target=self._compute_all, daemon=True)
        self._thread.start()

    def begin(self, order: Any, body: Any) -> None:
        """Begins a turn; its push is sent at once, or by `push_if_due` when a unit is done.

        `order`: an `Order`; `body`: the bytes of the parameters that came with it, or None.
        """
        self._send(self._program.begin(order, None if body is None else wire.from_bytes(body, self._layout)))

    def push_if_due(self) -> None:
        """Sends the push that the server waits for, if a unit is done. Raises the error of the other thread."""
        if self._error is not None:
            raise self._error
        self._send(self._program.push())

    def close(self) -> None:
        """Ends the thread that computes, after the unit that is under way."""
        self._program.end()
        self._thread.join()

    def _compute_all(self) -> None:
        """Computes unit by unit, in a thread of its own; an error is kept, and a message in the inbox says so."""
        try:
            with jax.enable_x64(self._is_x64):
                self._compute()
        except BaseException as error:
            self._error = error
            self._inbox.put(Message({"kind": "computed"}))

    def _compute(self) -> None:
        """Computes unit by unit while there are jobs; a message in the inbox tells of each unit that counts."""
        while (job := self._program.job()) is not None:
            earliest_end = time.monotonic() + self._throttle(job.unit)
            unit, gradient = jax.block_until_ready(self._program.gradient(job))
            self._program.wait_until(job, earliest_end)
            if self._program.finish(job, unit, gradient):
                self.num_units += 1
                self._inbox.put(Message({"kind": "computed"}))

    def _send(self, push: Push | None) -> None:
        """Sends a push, if there is one."""
        if push is not None:
            self._connection.send(push_message(push, self._clock_offset))
            self.num_pushes += 1


def push_message(push: Push, clock_offset: float) -> Message:
    """The message of a push that is sent now; `clock_offset`: seconds to add to our clock to get the server's."""
    header = {
        "kind": "push",
        "turn": push.turn,
        "first_unit_on_version": push.first_unit_on_version,
        **losses_header(push.unit_results),
        "num_lost": 0,  # the unit under way is not broken off
    }
    times = {
        "compute_start": push.compute_start + clock_offset,
        "unit_ends": [unit_end + clock_offset for unit_end in push.unit_ends],
        "send_start": time.monotonic() + clock_offset,
    }
    return Message({**header, **times}, wire.to_bytes(push.change))


def losses_header(unit_results: Any) -> dict[str, Any]:
    """The entries of a push's header about its units: their mean loss, and whether all their numbers are finite.

    `unit_results`: a `UnitResult` of each unit, one at least.
    """
    losses, is_finite = zip(*jax.device_get(unit_results), strict=True)
    return {"loss": math.fsum(map(float, losses)) / len(losses), "is_finite": all(map(bool, is_finite))}
