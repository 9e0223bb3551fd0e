"""Rounds of a gradient code at the server: what workers are asked for, and what their messages decode to.

Letters: W workers, K chunks of a worker, L blocks of a gradient with d numbers, M messages of a worker.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.base import GradientCode
from gcjax.engine.messages import accumulation_dtype, gradient_from_blocks
from gcjax.parameter_server import wire
from gcjax.parameter_server.updates import Contribution


class Plan(NamedTuple):
    """What is asked for in a round.

    Attributes:
      progress: int32[W], the chunks of each worker that count.
      encode: float[W, M, K, L].
      decode: float[W, M, L].
      is_needed: bool[W], whose messages the estimate needs.
    """

    progress: np.ndarray
    encode: np.ndarray
    decode: np.ndarray
    is_needed: np.ndarray


class CodedRounds:
    """The rounds of a code, one after the other."""

    def __init__(self, code: GradientCode, params: Any) -> None:
        """`params`: of the model, or their shapes."""
        self._code = code
        shape, dtype = message_shape(code, params)
        self.layout = wire.layout_of(jax.ShapeDtypeStruct(shape, dtype))  # of what a worker sends
        self._zeros = np.zeros((code.num_blocks, shape[1]), dtype)  # [L, ceil(d / L)], no gradient
        self._losses = np.zeros((code.assignment.num_workers, code.assignment.load))  # [W, K], of the chunks
        self._coefficients = jax.jit(self._encode_and_decode)
        self._add_decoded = jax.jit(lambda total, decode, message: total + decode.T.astype(total.dtype) @ message)
        self._gradient_from_blocks = jax.jit(gradient_from_blocks)
        self.plan = self.make_plan(np.zeros(code.assignment.num_workers, np.int32))

    def make_plan(self, progress: np.ndarray) -> Plan:
        """Plans a round by the chunks `int32[W]` that are done."""
        encode, decode = jax.device_get(self._coefficients(jnp.asarray(progress, jnp.int32)))
        self.plan = Plan(np.asarray(progress), encode, decode, is_needed=(decode != 0).any(axis=(1, 2)))
        return self.plan

    def note_loss(self, worker: int, slot: int, loss: float) -> None:
        """Remembers the loss of a worker's chunk number `slot`, 0, ..., K - 1, in this round."""
        self._losses[worker, slot] = loss

    def decoded(self, pushes: Sequence[Contribution], params: Any) -> Contribution:
        """The gradient that the messages of the workers that are needed decode to, as one contribution.

        Its loss is the mean over the chunks, each by the weight that it has in the gradient; `params` give the shapes.
        """
        total: Any = self._zeros
        for push in pushes:
            total = self._add_decoded(total, self.plan.decode[push.worker], push.tree)
        chunk_weights = np.einsum("uml,umkl->uk", self.plan.decode, self.plan.encode, dtype=np.float64)  # [W, K]
        loss = (chunk_weights * self._losses)[chunk_weights != 0].sum() / (chunk_weights.sum() or 1.0)
        return pushes[0]._replace(tree=self._gradient_from_blocks(total, params), loss=float(loss))

    def warm_up(self, params: Any) -> None:
        """Compiles what `decoded` calls, on a message of zeros."""
        message = np.zeros(self.layout.shapes[0], self._zeros.dtype)
        total = self._add_decoded(self._zeros, self.plan.decode[0], message)
        total = self._add_decoded(total, self.plan.decode[0], message)  # once more: now `total` is on the device
        jax.block_until_ready(self._gradient_from_blocks(total, params))

    def _encode_and_decode(self, progress: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The coefficients of the code's plan; those of workers that send nothing are 0."""
        coding = self._code.plan(progress)
        sent = self._code.sent(progress)[:, :, None]
        return coding.encode, jnp.where(sent, coding.decode, 0)


def message_shape(code: GradientCode, params: Any) -> tuple[tuple[int, int], Any]:
    """(M, ceil(d / L)) and the dtype of what a worker sends, for a gradient with the d numbers of `params`."""
    leaves = jax.tree.leaves(params)
    size = sum(int(np.prod(x.shape)) for x in leaves)
    dtype = jnp.dtype(accumulation_dtype(jnp.result_type(*(x.dtype for x in leaves))))
    return (code.num_messages, -(-size // code.num_blocks)), dtype
