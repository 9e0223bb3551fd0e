"""What a worker computes that goes on while its push and the answer travel.

One thread computes a unit after the other. Another one receives and sends: reading ends with the server's answer to a
push, the order for the next one; then all units that are done since the last push are pushed, or the one that is under
way once it is done. That unit has its gradient at the parameters from before reading, and its step is taken on those
that were read.
"""

import threading
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax.parameter_server.setups import Setup
from gcjax.parameter_server.units import Unit, unit_gradient
from gcjax.protocols.base import LocalWork


class Own(NamedTuple):
    """What a worker has of its own.

    Attributes:
      params: the parameters that it works on.
      opt_state: of the optimizer of its steps.
      version: that it has read last; -1 for none.
    """

    params: Any
    opt_state: Any
    version: int


class Job(NamedTuple):
    """A unit to compute.

    Attributes:
      unit: its number.
      at: the parameters at which its gradient is taken.
      stretch: units that follow each other without a break have the same number; -1 once all is done.
    """

    unit: int
    at: Any
    stretch: int


class Push(NamedTuple):
    """What a worker pushes.

    Attributes:
      turn: the number of the turn that ends with it.
      change: of the parameters.
      units: what was computed.
      fresh: the first unit on the version that was read for this turn; behind the last one if there is none.
      compute_start: seconds, when the first unit began.
      ends: seconds, when each unit ended.
    """

    turn: int
    change: Any
    units: tuple[Unit, ...]
    fresh: int
    compute_start: float
    ends: tuple[float, ...]


class OverlappingProgram:
    """What both threads work on, one at a time. Times are those of `time.monotonic`.

    Attributes:
      is_going: whether there is a unit to compute.
    """

    def __init__(self, setup: Setup, local: LocalWork, worker: int) -> None:
        """`worker`: its number."""
        self._task, self._batch_key = setup.task, setup.batch_key
        self._optimizer = local.optimizer or setup.optimizer
        self._gradient = unit_gradient(setup.task, worker)
        self._step, self._pull, self._change = jax.jit(self._stepped), jax.jit(local.pull), jax.jit(local.push)
        params = setup.initial_params()
        self._begun = self._own = Own(params, jax.jit(self._optimizer.init)(params), -1)
        self._pushed = self._taken = self._own  # after the last push, and after the last one that the server has taken
        self._base = self._version_params = params
        self._last_pushed = -1  # the number of a turn
        self._order: Any = None  # that waits for its push
        self._units: list[Unit] = []  # since the last push
        self._ends: list[float] = []
        self._first, self._fresh, self._compute_start = -1, -1, 0.0
        self._job, self.is_going = Job(-1, params, 0), False
        self._changed = threading.Condition()

    def warm_up(self) -> None:
        """Compiles what a turn takes."""
        own = self._own
        _, gradient = self.gradient(Job(0, own.params, 0))
        pulled = self._pull(own.params, jax.tree.map(np.asarray, own.params))
        params, _ = self._step(pulled, own.opt_state, gradient)
        jax.block_until_ready(self._change(params, own.params, own.params, _weight(0.0)))

    # What the thread that computes does.

    def job(self) -> Job | None:
        """Waits until there is a unit to compute; None once all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_going or self._job.stretch < 0)
            return self._job if self.is_going else None

    def gradient(self, job: Job) -> tuple[Unit, Any]:
        """Computes a unit, or begins to."""
        return self._gradient(job.at, self._task.data, self._batch_key, np.int32(job.unit))

    def rest(self, job: Job, end: float) -> None:
        """Waits until it is `end` seconds, or the unit is not wanted any more."""
        with self._changed:
            self._changed.wait_for(lambda: job.stretch != self._job.stretch, max(end - time.monotonic(), 0.0))

    def finish(self, job: Job, unit: Unit, gradient: Any) -> bool:
        """Takes the step on a unit, and goes on to the next one; False if the unit is not wanted any more."""
        with self._changed:
            if job.stretch != self._job.stretch:
                return False
            params, opt_state = self._step(self._own.params, self._own.opt_state, gradient)
            self._own = self._own._replace(params=params, opt_state=opt_state)
            self._units.append(unit)
            self._ends.append(time.monotonic())
            self._job = job._replace(unit=job.unit + 1, at=params)
            return True

    # What the thread that sends and receives does.

    def begin(self, order: Any, version_params: Any) -> Push | None:
        """Begins a turn, with reading these parameters if there are any; returns what is pushed at once, if any is.

        Args:
          order: with `turn`, `first`, `version`, `weight`, `last_taken` and `anew`.
          version_params: of `order.version`, or None.
        """
        with self._changed:
            is_taken = order.last_taken == self._last_pushed
            if is_taken:
                self._taken = self._pushed
            if order.anew:
                self._taken = self._begun
            if order.anew or not (is_taken and self.is_going and order.first == self._first):
                self._go_back(order)
            self._order, self._fresh = order, self._first + len(self._units)
            push = self._new_push() if self._units else None
            before = self._own
            if version_params is not None and order.version != before.version:
                self._read(version_params, order.version)
            if not self.is_going:  # before the first reading nothing is under way
                self._go(before.params if before.version >= 0 else self._own.params)
            return push

    def push(self) -> Push | None:
        """What is pushed, if the server waits for it and a unit is done."""
        with self._changed:
            return self._new_push() if self._order is not None and self._units else None

    def cancel(self) -> None:
        """Gives up what was not pushed, and computes no more until an order comes."""
        with self._changed:
            self._halt(self._job.stretch + 1)

    def end(self) -> None:
        """Ends the thread that computes."""
        with self._changed:
            self._halt(-1)

    def _go(self, at: Any) -> None:
        """Begins a stretch of units; the gradient of the first is taken at these parameters."""
        self._job, self.is_going = Job(self._first, at, max(self._job.stretch, 0)), True
        self._compute_start = time.monotonic()
        self._changed.notify_all()

    def _halt(self, stretch: int) -> None:
        """Ends the stretch of units; another one will have this number."""
        self._job, self.is_going, self._order = self._job._replace(stretch=stretch), False, None
        self._units, self._ends = [], []
        self._changed.notify_all()

    def _go_back(self, order: Any) -> None:
        """Goes back to what the server has taken."""
        self._halt(self._job.stretch + 1)
        self._own = self._pushed = self._taken
        self._base, self._last_pushed, self._first = self._own.params, order.last_taken, order.first

    def _read(self, version_params: Any, version: int) -> None:
        """Takes over parameters."""
        self._base = self._pull(self._own.params, version_params)
        self._own = self._own._replace(params=self._base, version=version)
        self._version_params = version_params

    def _new_push(self) -> Push:
        """What is pushed now: all units since the last push."""
        change, self._base = self._change(
            self._own.params, self._base, self._version_params, _weight(self._order.weight)
        )
        push = Push(
            turn=self._order.turn,
            change=change,
            units=tuple(self._units),
            fresh=self._fresh,
            compute_start=self._compute_start,
            ends=tuple(self._ends),
        )
        self._own = self._pushed = self._own._replace(params=self._base)
        self._first, self._compute_start = self._first + len(self._units), self._ends[-1]
        self._units, self._ends, self._order, self._last_pushed = [], [], None, push.turn
        return push

    def _stepped(self, params: Any, opt_state: Any, gradient: Any) -> tuple[Any, Any]:
        """Parameters and optimizer state after a step."""
        updates, opt_state = self._optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state


def _weight(weight: float) -> np.ndarray:
    """float[]: the weight of a contribution."""
    return np.asarray(weight, jnp.result_type(float))
