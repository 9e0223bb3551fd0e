"""Workers that send wrong messages, for simulations: who they are in each round, and what they send.

The attacks are those of the released code of DRACO (Chen, Wang, Charles, Papailiopoulos 2018).

Letters: W workers, U messages at hand, d numbers of a message.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.registry import Entry

Attack = Callable[[jax.Array], jax.Array]
"""`messages float[U, d] -> float[U, d]`: what workers send instead of these."""

_PAPER = "Chen et al. 2018"

_KEY_OF_WRONG_SENDERS = 0x77726F6E
"""Folded into the key of the batches, where no worker and no chunk has so large a number."""


class WrongSenders(NamedTuple):
    """Workers of a run that send wrong messages, as many in each round, any as likely as any other.

    Attributes:
      attack: what they send.
      num_wrong: how many they are.
      persistent: whether they are the same in all rounds.
    """

    attack: Attack
    num_wrong: int
    persistent: bool

    def is_wrong_in_round(self, batch_key: jax.Array, round_number: jax.Array, num_workers: int) -> jax.Array:
        """bool[W]: who sends wrong messages in a round, of this number, as the key of the run's batches decides.

        Also for a training step of one's own (`gcjax.engine.voting_value_and_grad`), with any key.

        Args:
          batch_key: draws them; the same key and round, the same workers.
          round_number: a whole number, also traced.
          num_workers: W.

        Raises:
          ValueError: if there are more wrong senders than workers.
        """
        _validate.integer("num_wrong", self.num_wrong, minimum=0, maximum=num_workers)
        key = jax.random.fold_in(batch_key, _KEY_OF_WRONG_SENDERS)
        if not self.persistent:
            key = jax.random.fold_in(key, round_number)
        return jax.random.permutation(key, jnp.arange(num_workers) < self.num_wrong)


@comparable
def reversed_gradient(scale: float = 100.0) -> Attack:
    """An attack: wrong senders send what they should, times minus the scale.

    Args:
      scale: above 0; 100 in the released code.
    """
    _validate.single_number("scale", scale, above=True)
    return lambda messages: -scale * messages


@comparable
def constant_message(value: float = -100.0) -> Attack:
    """An attack: the same number everywhere, so that all wrong senders send the same.

    Args:
      value: -100 in the released code.
    """
    _validate.single_number("value", value, minimum=-float("inf"))
    return lambda messages: jnp.full_like(messages, value)


_REVERSED = reversed_gradient()


@comparable
def wrong_senders(attack: Attack = _REVERSED, *, num_wrong: int, persistent: bool = False) -> WrongSenders:
    """Workers that send wrong messages, for `gcjax.engine.run(..., wrong_senders=)` and `study.wrong_senders`.

    Args:
      attack: what they send instead of what they should; `reversed_gradient()` by default.
      num_wrong: how many they are in each round.
      persistent: whether they are the same in all rounds.

    Raises:
      ValueError: if the attack is no function, or the number is negative.
    """
    if not callable(attack):
        raise ValueError(f"attack must be a function, for example reversed_gradient(); got {attack!r}.")
    return WrongSenders(attack, _validate.integer("num_wrong", num_wrong, minimum=0), bool(persistent))


ATTACKS = {
    "reversed_gradient": Entry(reversed_gradient, _PAPER),
    "constant_message": Entry(constant_message, _PAPER),
}
SENDERS = {"wrong_senders": Entry(wrong_senders, _PAPER)}

__all__ = [
    "ATTACKS",
    "SENDERS",
    "WrongSenders",
    "constant_message",
    "reversed_gradient",
    "wrong_senders",
]
