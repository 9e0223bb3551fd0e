"""What a worker computes in a turn: the same as the engine computes for its contribution."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax.codes.base import GradientCode
from gcjax.engine.gradients import RoundInputs, chunk_batch, unit_inputs
from gcjax.engine.messages import combined_rows, gradient_blocks
from gcjax.parameter_server.coded_rounds import message_shape
from gcjax.parameter_server.overlapping_program import OverlappingProgram
from gcjax.parameter_server.setups import Setup
from gcjax.parameter_server.units import UnitResult, is_finite, unit_gradient
from gcjax.protocols.base import LocalWork


class GradientProgram:
    """A worker that pushes the gradient on one unit, at the parameters that it has read."""

    def __init__(self, setup: Setup, worker: int) -> None:
        """`worker`: its number."""
        self._task, self._batch_key = setup.task, setup.batch_key
        self._gradient = unit_gradient(setup.task, worker)
        self._params: Any = None
        self._last_gradient: Any = None  # of the unit that was computed last, to be pushed

    def begin(self, version_params: Any) -> None:
        """Begins a turn, at new parameters if there are any."""
        if version_params is not None:
            self._params = version_params

    def compute(self, unit: int) -> UnitResult:
        """Computes a unit, or begins to."""
        unit_result, self._last_gradient = self._gradient(
            self._params, self._task.data, self._batch_key, jnp.int32(unit)
        )
        return unit_result

    def push_tree(self, version_params: Any, weight: float) -> Any:
        """What is pushed: the gradient on the last unit."""
        del version_params, weight
        return self._last_gradient

    def warm_up_push(self) -> Any:
        """As `push_tree`, to compile it."""
        return self._last_gradient

    def undo_unit(self) -> None:
        """Gives up the last unit: a gradient is never stopped, since it is a turn of its own."""

    def give_up_turn(self) -> None:
        """Gives up the turn: nothing is kept of a gradient."""


class LocalProgram:
    """A worker that takes optimizer steps of its own and pushes what these have changed (`LocalWork`)."""

    def __init__(self, setup: Setup, local: LocalWork, worker: int) -> None:
        """`worker`: its number."""
        self._task, self._local, self._worker = setup.task, local, jnp.int32(worker)
        self._optimizer: optax.GradientTransformation = local.optimizer or setup.optimizer
        self._batch_key = setup.batch_key
        self._take_step = jax.jit(self._result_and_state_after_step)
        self._pull, self._change_and_params = jax.jit(local.pull), jax.jit(local.push)
        params = setup.initial_params()
        self._initial_state = params, jax.jit(self._optimizer.init)(params)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Takes the parameters and the optimizer state with which a process begins."""
        self._params, self._opt_state = self._state_before_turn = self._state_before_unit = self._initial_state
        self._params_before_turn = self._version_params = self._params

    def begin(self, version_params: Any) -> None:
        """Begins a turn, with reading `version_params`, the newest parameters, if there are any.

        Where each turn begins with reading, the last ones are read again if there are none.
        """
        self._state_before_turn = self._params, self._opt_state
        if version_params is None and self._local.reads_always:
            version_params = self._version_params
        if version_params is not None:
            self._params = self._pull(self._params, version_params)
            self._version_params = version_params
        self._params_before_turn = self._params  # and after reading

    def compute(self, unit: int) -> UnitResult:
        """Takes the local step on unit number `unit`; its loss may not be computed yet when this returns."""
        self._state_before_unit = self._params, self._opt_state
        gradient_params = self._version_params if self._local.gradients_at_version else self._params
        unit_result, self._params, self._opt_state = self._take_step(
            self._params, self._opt_state, gradient_params, self._task.data, self._batch_key, jnp.int32(unit)
        )
        return unit_result

    def push_tree(self, version_params: Any, weight: float) -> Any:
        """What is pushed: the change since the turn began, as the protocol's local work makes it.

        The worker goes on with the parameters that this leaves to it.

        `version_params`: the newest, if they were asked for before the push; None for those that the turn has read.
        `weight`: of the contribution.
        """
        version_params = self._version_params if version_params is None else version_params
        dtype = jnp.result_type(float)
        change, self._params = self._change_and_params(
            self._params, self._params_before_turn, version_params, np.asarray(weight, dtype)
        )
        return change

    def warm_up_push(self) -> Any:
        """As `push_tree`, to compile it."""
        return self.push_tree(version_params=None, weight=0.0)

    def undo_unit(self) -> None:
        """Gives up the last unit: the step on it is taken back."""
        self._params, self._opt_state = self._state_before_unit

    def give_up_turn(self) -> None:
        """Gives up the turn: the local parameters are those from before it."""
        self._params, self._opt_state = self._state_before_turn

    def _result_and_state_after_step(
        self, params: Any, opt_state: Any, gradient_params: Any, data: Any, batch_key: jax.Array, unit: jax.Array
    ) -> tuple[UnitResult, Any, Any]:
        """The result of a unit, and the worker's parameters and optimizer state after the step on it.

        The gradient is taken at `gradient_params`.
        """
        loss, gradient = jax.value_and_grad(self._task.loss)(
            gradient_params, *unit_inputs(self._task, data, batch_key, self._worker, unit)
        )
        updates, opt_state = self._optimizer.update(gradient, opt_state, params)
        return UnitResult(loss, is_finite((loss, gradient))), optax.apply_updates(params, updates), opt_state


class CodedProgram:
    """A worker of a gradient code: the gradients of its chunks, which it combines once it knows how.

    Letters: K chunks, L blocks of a gradient, M messages.
    """

    def __init__(self, setup: Setup, code: GradientCode, worker: int) -> None:
        """`worker`: its number."""
        self._task, self._code, self._batch_key = setup.task, code, setup.batch_key
        self._worker = worker
        self.set_row(worker)
        self._loss_and_blocks_of_chunk, self._combine = jax.jit(self._loss_and_blocks), jax.jit(_combined)
        shape, dtype = message_shape(code, jax.eval_shape(setup.task.init, setup.init_key))
        self._zeros = jnp.zeros((code.num_blocks, shape[1]), dtype)
        self._params: Any = None
        self._blocks = [self._zeros] * code.assignment.load

    def set_row(self, row: int) -> None:
        """Takes the chunks of this row of the code from now on."""
        self._chunks = self._code.assignment.chunks[row]

    def begin(self, version_params: Any) -> None:
        """Begins a round, at new parameters if there are any."""
        if version_params is not None:
            self._params = version_params
        self._blocks = [self._zeros] * self._code.assignment.load

    def compute(self, unit: int) -> UnitResult:
        """Computes the gradient on a chunk: unit r K + k is the k-th of the worker's K chunks in round r.

        The result may not be computed yet when this returns.
        """
        round_number, slot = divmod(unit, self._code.assignment.load)
        chunk = jnp.int32(max(self._chunks[slot], 0))  # -1 pads the chunks of a worker that has fewer than others
        round_inputs = RoundInputs(self._task.data, self._batch_key, jnp.int32(round_number))
        unit_result, self._blocks[slot] = self._loss_and_blocks_of_chunk(self._params, round_inputs, chunk)
        return unit_result

    def coded_messages(self, num_chunks: int, encode: Any) -> np.ndarray:
        """float[messages, width]: the messages from the first `num_chunks` of the worker's K chunks.

        `encode float[messages, K, L]`: the coefficients of as many messages as are to be sent, M at most, for the L
        blocks of the gradient on each chunk.
        """
        code = self._code
        # float[L, width] of each chunk; later ones do not count, though they may have been computed by now.
        blocks = [x if k < num_chunks else self._zeros for k, x in enumerate(self._blocks)]
        rows = np.zeros((code.num_messages, code.assignment.load, code.num_blocks), self._zeros.dtype)
        rows[: len(encode)] = encode  # those behind are of no message: one shape, one program
        return np.asarray(self._combine(blocks, rows))[: len(encode)]

    def warm_up_push(self) -> np.ndarray:
        """No message, to compile them."""
        return self.coded_messages(0, np.zeros((0, self._code.assignment.load, self._code.num_blocks)))

    def give_up_turn(self) -> None:
        """Gives up the round: nothing is kept of it."""

    def _loss_and_blocks(
        self, params: Any, round_inputs: RoundInputs, chunk: jax.Array
    ) -> tuple[UnitResult, jax.Array]:
        """The loss of a chunk, whether all is finite, and the L blocks float[L, width] of its gradient."""
        loss, gradient = jax.value_and_grad(self._task.loss)(params, *chunk_batch(self._task, round_inputs, chunk))
        blocks = gradient_blocks(gradient, self._code.num_blocks).astype(self._zeros.dtype)
        return UnitResult(loss, is_finite((loss, gradient))), blocks


def _combined(blocks: list[jax.Array], encode: jax.Array) -> jax.Array:
    """float[M, width]: M messages, as sums of the L blocks `float[L, width]` of K chunks by `encode float[M, K, L]`."""
    return sum(
        (combined_rows(encode[:, k], rows) for k, rows in enumerate(blocks[1:], 1)),
        combined_rows(encode[:, 0], blocks[0]),
    )


Program = GradientProgram | LocalProgram | CodedProgram
"""Of a worker that does one thing after the other."""


def worker_program(setup: Setup, worker: int) -> Program | OverlappingProgram:
    """What worker number `worker` computes in its turns: messages of a code, gradients, or local steps."""
    if setup.protocol.code is not None:
        return CodedProgram(setup, setup.protocol.code, worker)
    local = setup.protocol.local
    if local is None:
        return GradientProgram(setup, worker)
    return (OverlappingProgram if local.overlaps_pull else LocalProgram)(setup, local, worker)
