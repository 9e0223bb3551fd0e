"""Coded rounds in which some workers send wrong messages (Chen, Wang, Charles, Papailiopoulos 2018: DRACO).

The server decodes what was sent as its code does: one that compares messages (`gcjax.codes.majority`) by a vote, all
others by the weights of their plan.

Letters: W workers, L blocks, M messages a worker sends.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from gcjax.codes.base import Coding, GradientCode
from gcjax.engine.compressed_messages import messages_of_round
from gcjax.engine.gradients import Chunks, CommitGradient, coded_gradients
from gcjax.engine.messages import assembled, decoded_blocks
from gcjax.engine.spread import Spread
from gcjax.engine.wrong_messages import WrongSenders
from gcjax.protocols.base import Protocol, workers_of
from gcjax.tasks.base import Task


def attacked_gradients(task: Task, code: GradientCode, wrong: WrongSenders, spread: Spread) -> CommitGradient:
    """The function that gives what a commit of a coded round applies, of which some messages are wrong.

    Args:
      task: what is trained.
      code: of the round.
      wrong: who sends what else.
      spread: how workers are spread over devices; the messages are compared on all of them.
    """
    messages_and_loss = messages_of_round(task, code, spread)

    def estimate(params: Any, chunks: Chunks, coding: Coding) -> tuple[Any, jax.Array]:
        """(gradient sum, mean loss): what is decoded of the messages that are sent; the loss is that of right ones."""
        messages, loss = messages_and_loss(params, chunks, coding)
        rows = jax.vmap(lambda message: ravel_pytree(message)[0])(messages.values)  # [W·M, width]
        is_wrong = wrong.in_round(chunks.rng_key, chunks.round, code.assignment.num_workers)
        is_wrong = jnp.repeat(is_wrong, code.num_messages)
        rows = jnp.where(is_wrong[:, None], wrong.attack(rows), rows)
        sent = rows.reshape(-1, code.num_messages, rows.shape[1])
        decode = coding.decode if code.weights_by_vote is None else code.weights_by_vote(sent, coding)
        # What is not decoded, times 0, would be NaN where an infinity was sent.
        used = jnp.where((decode != 0).any(axis=2, keepdims=True), sent, 0)
        return assembled(decoded_blocks(decode, used), params), loss

    return coded_gradients(code, estimate)


def check_wrong_senders(wrong: WrongSenders | None, protocol: Protocol, compression: Any) -> None:
    """Raises a `ValueError` unless there are none, or the protocol has rounds of one code, and whole messages."""
    if wrong is None:
        return
    if not isinstance(wrong, WrongSenders):
        raise ValueError(f"wrong must be gcjax.engine.wrong_messages.wrong_senders(...); got {wrong!r}.")
    code = protocol.code
    if code is None or code.num_alternatives > 1 or workers_of(protocol) != code.assignment.num_workers:
        raise ValueError(
            "wrong messages are those of rounds of one code, whose rows are the workers; this protocol has "
            + ("no code" if code is None else "others")
            + ". Use coded(...); coded(gcjax.codes.uncoded(W)) is BSP."
        )
    if wrong.num_wrong > code.assignment.num_workers:
        raise ValueError(
            f"num_wrong must be at most the number of workers, {code.assignment.num_workers}; got {wrong.num_wrong}."
        )
    if compression is not None:
        raise ValueError(f"wrong messages are not compressed; got {compression}. Leave out one of the two.")
