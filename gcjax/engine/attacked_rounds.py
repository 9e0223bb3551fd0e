"""Coded rounds in which some workers send wrong messages (Chen, Wang, Charles, Papailiopoulos 2018: DRACO).

The server decodes what was sent as its code does: one that compares messages (`gcjax.codes.majority`,
`gcjax.codes.error_correcting`) without what it takes for wrong, all others by the weights of their plan.

Letters: W workers, L blocks, M messages a worker sends.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from gcjax.codes.base import Coding, GradientCode
from gcjax.engine.compressed_messages import messages_and_loss_of_round
from gcjax.engine.gradients import ContributionFunction, RoundInputs, coded_gradients
from gcjax.engine.messages import decoded_blocks, gradient_from_blocks
from gcjax.engine.spread import Spread
from gcjax.engine.wrong_messages import WrongSenders
from gcjax.protocols.base import Protocol, workers_of
from gcjax.tasks.base import Task


def attacked_gradients(
    task: Task, code: GradientCode, round_units: int, wrong_senders: WrongSenders, spread: Spread
) -> ContributionFunction:
    """The function that gives what a commit of a coded round applies, of which some messages are wrong.

    Args:
      task: what is trained.
      code: of the round.
      round_units: the units of each worker in a round.
      wrong_senders: who sends what else.
      spread: how workers are spread over devices; the messages are compared on all of them.
    """
    messages_and_loss = messages_and_loss_of_round(task, code, spread)

    def estimate(params: Any, round_inputs: RoundInputs, coding: Coding) -> tuple[Any, jax.Array]:
        """(gradient sum, mean loss): what is decoded of the messages that are sent; the loss is that of right ones.

        `messages_and_loss` gives all messages, as if right; one is a pytree or a vector, of `width` numbers.
        """
        messages, loss = messages_and_loss(params, round_inputs, coding)
        right_messages = jax.vmap(lambda message: ravel_pytree(message)[0])(messages.values)  # [W·M, width]
        is_wrong_sender = wrong_senders.is_wrong_in_round(
            round_inputs.rng_key, round_inputs.round, code.assignment.num_workers
        )
        is_wrong_message = jnp.repeat(is_wrong_sender, code.num_messages)[:, None]  # [W·M, 1], from [W]
        sent_messages = jnp.where(is_wrong_message, wrong_senders.attack(right_messages), right_messages)
        sent_by_worker = sent_messages.reshape(-1, code.num_messages, sent_messages.shape[1])  # [W, M, width]
        decode = (  # [W, M, L]
            coding.decode if code.weights_from_messages is None else code.weights_from_messages(sent_by_worker, coding)
        )
        # What is not decoded, times 0, would be NaN where an infinity was sent.
        decoded_messages = jnp.where((decode != 0).any(axis=2, keepdims=True), sent_by_worker, 0)
        return gradient_from_blocks(decoded_blocks(decode, decoded_messages), params), loss

    return coded_gradients(code, round_units, estimate)


def check_wrong_senders(wrong_senders: WrongSenders | None, protocol: Protocol, compression: Any) -> None:
    """Raises a `ValueError` unless there are none, or the protocol has rounds of one code, and whole messages."""
    if wrong_senders is None:
        return
    if not isinstance(wrong_senders, WrongSenders):
        raise ValueError(
            f"wrong_senders must be gcjax.engine.wrong_messages.wrong_senders(...); got {wrong_senders!r}."
        )
    code = protocol.code
    if code is None or code.num_alternatives > 1 or workers_of(protocol) != code.assignment.num_workers:
        raise ValueError(
            "wrong messages are those of rounds of one code, whose rows are the workers; this protocol has "
            + ("no code" if code is None else "others")
            + ". Use coded(...); coded(gcjax.codes.uncoded(W)) is BSP."
        )
    if wrong_senders.num_wrong > code.assignment.num_workers:
        raise ValueError(
            f"num_wrong must be at most the number of workers, {code.assignment.num_workers}; got "
            f"{wrong_senders.num_wrong}."
        )
    if compression is not None:
        raise ValueError(f"wrong messages are not compressed; got {compression}. Leave out one of the two.")
