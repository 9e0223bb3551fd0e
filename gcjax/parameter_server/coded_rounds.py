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
      asked: bool[W], whose messages the estimate needs.
    """

    progress: np.ndarray
    encode: np.ndarray
    decode: np.ndarray
    asked: np.ndarray


class CodedRounds:
    """The rounds of a code, one after the other."""

    def __init__(self, code: GradientCode, params: Any) -> None:
        """`params`: of the model, or their shapes."""
        self._code = code
        shape, dtype = message_shape(code, params)
        self.layout = wire.layout_of(jax.ShapeDtypeStruct(shape, dtype))
        self._zeros = np.zeros((code.num_blocks, shape[1]), dtype)
        self._losses = np.zeros((code.assignment.num_workers, code.assignment.load))
        self._plan = jax.jit(self._planned)
        self._add = jax.jit(lambda total, decode, message: total + decode.T.astype(total.dtype) @ message)
        self._gradient_from_blocks = jax.jit(gradient_from_blocks)
        self.plan = self.make_plan(np.zeros(code.assignment.num_workers, np.int32))

    def make_plan(self, progress: np.ndarray) -> Plan:
        """Plans a round by the chunks `int32[W]` that are done."""
        encode, decode = jax.device_get(self._plan(jnp.asarray(progress, jnp.int32)))
        self.plan = Plan(np.asarray(progress), encode, decode, asked=(decode != 0).any(axis=(1, 2)))
        return self.plan

    def note_loss(self, worker: int, slot: int, loss: float) -> None:
        """Remembers the loss of a worker's chunk in this round."""
        self._losses[worker, slot] = loss

    def estimate(self, answers: Sequence[Contribution], params: Any) -> Contribution:
        """What the messages of those that were asked decode to, as one contribution."""
        total: Any = self._zeros
        for answer in answers:
            total = self._add(total, self.plan.decode[answer.worker], answer.tree)
        weights = np.einsum("uml,umkl->uk", self.plan.decode, self.plan.encode, dtype=np.float64)  # of each chunk
        loss = (weights * self._losses)[weights != 0].sum() / (weights.sum() or 1.0)
        return answers[0]._replace(tree=self._gradient_from_blocks(total, params), loss=float(loss))

    def warm_up(self, params: Any) -> None:
        """Compiles what a commit takes."""
        message = np.zeros(self.layout.shapes[0], self._zeros.dtype)
        total = self._add(self._zeros, self.plan.decode[0], message)
        total = self._add(total, self.plan.decode[0], message)
        jax.block_until_ready(self._gradient_from_blocks(total, params))

    def _planned(self, progress: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The coefficients of the code's plan; those of workers that send nothing are 0."""
        coding = self._code.plan(progress)
        sent = self._code.sent(progress)[:, :, None]
        return coding.encode, jnp.where(sent, coding.decode, 0)


def message_shape(code: GradientCode, params: Any) -> tuple[tuple[int, int], Any]:
    """(M, ceil(d / L)) and the dtype of what a worker sends."""
    leaves = jax.tree.leaves(params)
    size = sum(int(np.prod(x.shape)) for x in leaves)
    dtype = jnp.dtype(accumulation_dtype(jnp.result_type(*(x.dtype for x in leaves))))
    return (code.num_messages, -(-size // code.num_blocks)), dtype
