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
from gcjax.parameter_server.units import UnitResult, unit_gradient
from gcjax.protocols.base import LocalWork


class LocalState(NamedTuple):
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
      gradient_params: the parameters at which its gradient is taken.
      stretch_number: units that follow each other without a break have the same number; -1 once all is done.
    """

    unit: int
    gradient_params: Any
    stretch_number: int


class Push(NamedTuple):
    """What a worker pushes.

    Attributes:
      turn: the number of the turn that ends with it.
      change: of the parameters.
      unit_results: of the units that were computed since the last push.
      first_unit_on_version: the first unit on the version that was read for this turn; behind the last one if none is.
      compute_start: seconds, when the first unit began.
      unit_ends: seconds, when each unit ended.
    """

    turn: int
    change: Any
    unit_results: tuple[UnitResult, ...]
    first_unit_on_version: int
    compute_start: float
    unit_ends: tuple[float, ...]


class OverlappingProgram:
    """What both threads work on, one at a time. Times are those of `time.monotonic`.

    Attributes:
      has_job: whether there is a unit to compute.
    """

    def __init__(self, setup: Setup, local: LocalWork, worker: int) -> None:
        """`worker`: its number."""
        self._task, self._batch_key = setup.task, setup.batch_key
        self._optimizer = local.optimizer or setup.optimizer
        self._gradient = unit_gradient(setup.task, worker)
        self._take_step = jax.jit(self._params_and_state_after_step)
        self._pull, self._change_and_base = jax.jit(local.pull), jax.jit(local.push)
        params = setup.initial_params()
        self._initial_local = self._local = LocalState(params, jax.jit(self._optimizer.init)(params), version=-1)
        self._local_at_push, self._turn_at_push = self._local, -1  # after the last push, and the number of its turn
        self._local_at_arrived_push = self._local  # after the last push that the server has
        self._change_base_params = params  # what a push has changed is counted from here
        self._version_params = params  # as they came from the server last
        self._unanswered_order: Any = None  # its push is not sent yet
        self._unit_results: list[UnitResult] = []  # since the last push
        self._unit_ends: list[float] = []  # seconds, of the same units
        self._first_unit, self._first_unit_on_version, self._compute_start = -1, -1, 0.0  # of the next push
        self._job, self.has_job = Job(unit=-1, gradient_params=params, stretch_number=0), False
        self._condition = threading.Condition()

    def warm_up(self) -> None:
        """Compiles what a turn calls; no state changes."""
        local_state = self._local
        _, gradient = self.gradient(Job(unit=0, gradient_params=local_state.params, stretch_number=0))
        pulled = self._pull(local_state.params, jax.tree.map(np.asarray, local_state.params))
        params, _ = self._take_step(pulled, local_state.opt_state, gradient)
        jax.block_until_ready(self._change_and_base(params, local_state.params, local_state.params, _weight(0.0)))

    # What the thread that computes does.

    def job(self) -> Job | None:
        """Waits until there is a unit to compute; None once all is done."""
        with self._condition:
            self._condition.wait_for(lambda: self.has_job or self._job.stretch_number < 0)
            return self._job if self.has_job else None  # no job: all is done

    def gradient(self, job: Job) -> tuple[UnitResult, Any]:
        """Computes a unit, or begins to."""
        return self._gradient(job.gradient_params, self._task.data, self._batch_key, np.int32(job.unit))

    def wait_until(self, job: Job, end: float) -> None:
        """Waits until `time.monotonic()` is `end` seconds, or the job's unit is not wanted any more."""
        with self._condition:
            self._condition.wait_for(
                lambda: job.stretch_number != self._job.stretch_number, max(end - time.monotonic(), 0.0)
            )

    def finish(self, job: Job, result: UnitResult, gradient: Any) -> bool:
        """Takes the step on a unit, and goes on to the next one; False if the unit is not wanted any more."""
        with self._condition:
            if job.stretch_number != self._job.stretch_number:
                return False
            params, opt_state = self._take_step(self._local.params, self._local.opt_state, gradient)
            self._local = self._local._replace(params=params, opt_state=opt_state)
            self._unit_results.append(result)
            self._unit_ends.append(time.monotonic())
            self._job = job._replace(unit=job.unit + 1, gradient_params=params)
            return True

    # What the thread that sends and receives does.

    def begin(self, order: Any, version_params: Any) -> Push | None:
        """Begins a turn, with reading `version_params` if there are any; returns what is pushed at once, or None.

        What is pushed at once are the units that were done while nobody waited for them.

        Args:
          order: an `Order`, with `turn`, `first_unit`, `version`, `weight`, `last_arrived_turn` and `begins_anew`.
          version_params: of `order.version`, or None.
        """
        with self._condition:
            has_arrived = order.last_arrived_turn == self._turn_at_push
            if has_arrived:
                self._local_at_arrived_push = self._local_at_push
            if order.begins_anew:
                self._local_at_arrived_push = self._initial_local
            if order.begins_anew or not (has_arrived and self.has_job and order.first_unit == self._first_unit):
                self._go_back_to_arrived(order)
            self._unanswered_order, self._first_unit_on_version = order, self._first_unit + len(self._unit_results)
            push = self._new_push() if self._unit_results else None
            local_before_pull = self._local
            if version_params is not None and order.version != local_before_pull.version:
                self._pull_version(version_params, order.version)
            if not self.has_job:  # the first gradient is at what the worker had before it read, if it had read already
                self._start_stretch(local_before_pull.params if local_before_pull.version >= 0 else self._local.params)
            return push

    def push(self) -> Push | None:
        """What is pushed, if the server waits for it and a unit is done."""
        with self._condition:
            return self._new_push() if self._unanswered_order is not None and self._unit_results else None

    def give_up_turn(self) -> None:
        """Gives up what was not pushed, and computes no more until an order comes."""
        with self._condition:
            self._end_stretch(self._job.stretch_number + 1)

    def end(self) -> None:
        """Ends the thread that computes."""
        with self._condition:
            self._end_stretch(-1)

    def _start_stretch(self, gradient_params: Any) -> None:
        """Begins a stretch of units; the gradient of the first is taken at these parameters.

        It has the number that was set as the last one ended, but not -1, the number of the end.
        """
        self._job, self.has_job = Job(self._first_unit, gradient_params, max(self._job.stretch_number, 0)), True
        self._compute_start = time.monotonic()
        self._condition.notify_all()

    def _end_stretch(self, stretch_number: int) -> None:
        """Ends the stretch of units; the next one has the number `stretch_number`, and -1 says that there is none.

        What was computed since the last push is dropped, and no order waits for a push any more.
        """
        self._job, self.has_job, self._unanswered_order = self._job._replace(stretch_number=stretch_number), False, None
        self._unit_results, self._unit_ends = [], []
        self._condition.notify_all()

    def _go_back_to_arrived(self, order: Any) -> None:
        """Goes back to the state after the last push that the server has; the units since then are lost."""
        self._end_stretch(self._job.stretch_number + 1)
        self._local = self._local_at_push = self._local_at_arrived_push
        self._change_base_params = self._local.params
        self._turn_at_push, self._first_unit = order.last_arrived_turn, order.first_unit

    def _pull_version(self, version_params: Any, version: int) -> None:
        """Goes on with the parameters of a version, mixed with the worker's own as the protocol says."""
        self._change_base_params = self._pull(self._local.params, version_params)
        self._local = self._local._replace(params=self._change_base_params, version=version)
        self._version_params = version_params

    def _new_push(self) -> Push:
        """What is pushed now: all units since the last push. The next unit began as the last of them ended."""
        change, self._change_base_params = self._change_and_base(
            self._local.params, self._change_base_params, self._version_params, _weight(self._unanswered_order.weight)
        )
        push = Push(
            turn=self._unanswered_order.turn,
            change=change,
            unit_results=tuple(self._unit_results),
            first_unit_on_version=self._first_unit_on_version,
            compute_start=self._compute_start,
            unit_ends=tuple(self._unit_ends),
        )
        self._local = self._local_at_push = self._local._replace(params=self._change_base_params)
        self._first_unit, self._compute_start = self._first_unit + len(self._unit_results), self._unit_ends[-1]
        self._unit_results, self._unit_ends, self._unanswered_order = [], [], None
        self._turn_at_push = push.turn
        return push

    def _params_and_state_after_step(self, params: Any, opt_state: Any, gradient: Any) -> tuple[Any, Any]:
        """Parameters and optimizer state after a step."""
        updates, opt_state = self._optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state


def _weight(weight: float) -> np.ndarray:
    """float[]: the weight of a contribution."""
    return np.asarray(weight, jnp.result_type(float))
