"""Rounds of a gradient code at the server: what workers are asked for, and what their messages decode to.

A worker has a row of the code in a round. The code may have rows for several codes of the same workers, of which a
round uses one (`gcjax.codes.alternatives`); what is said of workers here is that of their rows.

Letters: W workers, K chunks of a worker, L blocks of a gradient, M messages of a worker.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax._products import matmul
from gcjax.codes.base import GradientCode
from gcjax.engine.messages import accumulation_dtype, block_shape, gradient_from_blocks
from gcjax.parameter_server import wire
from gcjax.parameter_server.updates import Contribution


class Plan(NamedTuple):
    """What is asked for in a round.

    Attributes:
      progress: int32[W], the chunks of each worker that count.
      encode: float[W, M, K, L].
      decode: float[W, M, L].
      is_sent: bool[W, M], which messages each worker sends, if it sends any.
      is_needed: bool[W], whose messages the estimate needs.
    """

    progress: np.ndarray
    encode: np.ndarray
    decode: np.ndarray
    is_sent: np.ndarray
    is_needed: np.ndarray


class CodedRounds:
    """The rounds of a code, one after the other."""

    def __init__(self, code: GradientCode, num_workers: int, params: Any) -> None:
        """`num_workers`: W; `params`: of the model, or their shapes."""
        self._code = code
        self._message_shape, dtype = message_shape(code, params)
        self.layout = wire.layout_of(jax.ShapeDtypeStruct(self._message_shape, dtype))  # of all M messages of a worker
        self._zero_blocks = np.zeros((code.num_blocks, self._message_shape[1]), dtype)  # [L, width], no gradient
        self._chunk_losses = np.zeros((num_workers, code.assignment.load))  # [W, K], of the chunks
        self._row_of_worker = np.arange(num_workers)  # [W], of the code
        self._compiled_encode_and_decode = jax.jit(self._encode_and_decode)
        self._compiled_add_decoded = jax.jit(
            lambda decoded_blocks, decode, messages: (
                decoded_blocks + matmul(decode.T.astype(decoded_blocks.dtype), messages)
            )
        )
        self._compiled_gradient_from_blocks = jax.jit(gradient_from_blocks)
        self.plan = self.make_plan(np.zeros(num_workers, np.int32))

    @property
    def push_sizes(self) -> range:
        """The numbers of bytes that a push may have: those of one message, ..., of M."""
        num_bytes = self.layout.num_bytes
        bytes_of_message = num_bytes // self._code.num_messages
        return range(bytes_of_message, num_bytes + 1, bytes_of_message)

    def set_row(self, worker: int, row: int) -> None:
        """Notes the row of the code that a worker has in the turn that it begins."""
        self._row_of_worker[worker] = row

    def make_plan(self, progress: np.ndarray) -> Plan:
        """The plan of a round by `progress int32[W]`, the chunks that each worker has done; it is kept as `plan`.

        The code is asked by its rows, of which each worker has one; on the rows of nobody nothing is done.
        """
        progress_of_rows = np.zeros(self._code.assignment.num_workers, np.int32)
        progress_of_rows[self._row_of_worker] = progress
        arrays_of_rows = jax.device_get(self._compiled_encode_and_decode(progress_of_rows))
        # [W, M, K, L], [W, M, L], [W, M]
        encode, decode, is_sent = (array[self._row_of_worker] for array in arrays_of_rows)
        self.plan = Plan(
            np.asarray(progress), encode, decode, is_sent=is_sent, is_needed=(decode != 0).any(axis=(1, 2))
        )
        return self.plan

    def messages(self, worker: int, body: np.ndarray | None) -> np.ndarray | None:
        """float[M, width]: the M messages in a push, 0 for those that are not sent; None if it is not as planned.

        `body uint8[n]`: the bytes of those that the plan has the worker send.
        """
        is_sent, dtype = self.plan.is_sent[worker], self._zero_blocks.dtype  # bool[M]
        if body is None or body.size != self.push_sizes.step * int(is_sent.sum()):  # the bytes of a message: the step
            return None
        sent_messages = body.view(dtype).reshape(-1, self._message_shape[1])
        if is_sent.all():
            return sent_messages
        messages = np.zeros(self._message_shape, dtype)
        messages[is_sent] = sent_messages
        return messages

    def note_loss(self, worker: int, slot: int, loss: float) -> None:
        """Remembers the loss of a worker's chunk number `slot`, 0, ..., K - 1, in this round."""
        self._chunk_losses[worker, slot] = loss

    def decoded(self, pushes: Sequence[Contribution], params: Any) -> Contribution:
        """The gradient that the messages of the workers that are needed decode to, as one contribution.

        Its loss is the mean over the chunks, each by the weight that it has in the gradient, 0 if none has any; the
        rest is as in the first push. The tree of a push are the M messages float[M, width] of a worker; `params`
        give the shapes of the gradient.
        """
        decoded_blocks: Any = self._zero_blocks  # [L, width]
        for push in pushes:
            decoded_blocks = self._compiled_add_decoded(decoded_blocks, self.plan.decode[push.worker], push.tree)
        # [W, K], added up over messages and blocks
        chunk_weights = np.einsum("uml,umkl->uk", self.plan.decode, self.plan.encode, dtype=np.float64)
        loss = (chunk_weights * self._chunk_losses)[chunk_weights != 0].sum() / (chunk_weights.sum() or 1.0)
        return pushes[0]._replace(tree=self._compiled_gradient_from_blocks(decoded_blocks, params), loss=float(loss))

    def warm_up(self, params: Any) -> None:
        """Compiles what `decoded` calls, on messages of zeros."""
        zero_messages = np.zeros(self.layout.shapes[0], self._zero_blocks.dtype)
        decoded_blocks = self._compiled_add_decoded(self._zero_blocks, self.plan.decode[0], zero_messages)
        # Once more: now `decoded_blocks` is on the device.
        decoded_blocks = self._compiled_add_decoded(decoded_blocks, self.plan.decode[0], zero_messages)
        jax.block_until_ready(self._compiled_gradient_from_blocks(decoded_blocks, params))

    def _encode_and_decode(self, progress: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The coefficients of the code's plan, and which messages are sent, by `progress int32[rows]`.

        They are encode float[rows, M, K, L], decode float[rows, M, L], 0 for messages that are not sent, and bool[rows,
        M]: of each row of the code M messages, combined from the L blocks of K chunks.
        """
        coding, is_sent = self._code.plan(progress), self._code.sent(progress)
        return coding.encode, jnp.where(is_sent[:, :, None], coding.decode, 0), is_sent


def message_shape(code: GradientCode, params: Any) -> tuple[tuple[int, int], Any]:
    """The shape (M, width) and the dtype of what a worker sends: M messages, each as wide as a block of the gradient.

    The gradient has the shapes of `params`.
    """
    block = block_shape(params, code.num_blocks)
    return (code.num_messages, *block.shape), jnp.dtype(accumulation_dtype(block.dtype))
