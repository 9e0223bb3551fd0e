"""The forward and backward passes of a hidden chain of two states, fast and slow, on each worker.

Letters: T steps, W workers.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_LARGEST_RATIO = 80.0  # of the logarithms of two densities; e to it is still a float32
_CERTAIN = 1e-6  # a chain is never more certain than this of its next state


class Chain(NamedTuple):
    """The chain of a Markov model, stationary from the first step on.

    Attributes:
      probability: P(slow).
      persistence: P(slow | slow before).
    """

    probability: float
    persistence: float

    @property
    def enter_probability(self) -> float:
        """P(slow | fast before), by which as many turn slow as recover; clipped to 1."""
        return min(self.probability * (1 - self.persistence) / max(1 - self.probability, 1e-12), 1.0)


class StateProbabilities(NamedTuple):
    """What all times say of the states.

    Attributes:
      slow_given_past: float64[T, W], P(slow | all steps before).
      slow_given_all: float64[T, W], P(slow | all steps).
      stayed_given_all: float64[T - 1, W], P(slow, and slow in the next step | all steps).
    """

    slow_given_past: np.ndarray
    slow_given_all: np.ndarray
    stayed_given_all: np.ndarray


def state_probabilities(log_density_fast: np.ndarray, log_density_slow: np.ndarray, chain: Chain) -> StateProbabilities:
    """P(slow) of each unit, given the logarithms float64[T, W] of the densities of its time if it is fast, or slow.

    The logarithms are NaN where nothing was measured; the probabilities are not.
    """
    log_ratio = _log_ratio(log_density_fast, log_density_slow)
    probabilities = _forward_and_backward(log_ratio, *_chain_probabilities(chain))
    return StateProbabilities(*(np.asarray(array, np.float64) for array in probabilities))


def slow_given_past(log_density_fast: np.ndarray, log_density_slow: np.ndarray, chain: Chain) -> np.ndarray:
    """float64[T, W]: P(slow | all steps before), by the logarithms float64[T, W] of both densities of each time."""
    log_ratio = _log_ratio(log_density_fast, log_density_slow)
    given_past, _ = _forward(log_ratio, *_chain_probabilities(chain))
    return np.asarray(given_past, np.float64)


def mixture_log_density(
    log_density_fast: np.ndarray, log_density_slow: np.ndarray, slow_probability: np.ndarray | float
) -> np.ndarray:
    """The logarithm of the density of each time, float64[T, W], given P(slow) before it was measured.

    The density is P(slow) * density if slow + (1 - P(slow)) * density if fast; P(slow) is float64[T, W] or one for all.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.logaddexp(
            np.log(slow_probability) + log_density_slow, np.log1p(-np.asarray(slow_probability)) + log_density_fast
        )


def _chain_probabilities(chain: Chain) -> tuple[float, float, float]:
    """P(slow), P(slow | slow before), P(slow | fast before)."""
    return chain.probability, chain.persistence, chain.enter_probability


def _log_ratio(log_density_fast: np.ndarray, log_density_slow: np.ndarray) -> np.ndarray:
    """float32[T, W]: the logarithm of slow over fast density, between -80 and 80.

    0 where it says nothing: neither state can have this time, or none was measured (NaN).
    """
    with np.errstate(invalid="ignore"):
        ratio = np.nan_to_num(
            log_density_slow - log_density_fast, nan=0.0, posinf=_LARGEST_RATIO, neginf=-_LARGEST_RATIO
        )
    return ratio.clip(-_LARGEST_RATIO, _LARGEST_RATIO).astype(np.float32)


@jax.jit
def _forward(
    log_ratio: jax.Array, probability: jax.Array, persistence: jax.Array, enter_probability: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """P(slow | all steps before) and P(slow | all steps until now), float[T, W] each.

    By `log_ratio float[T, W]`, the logarithm of slow over fast density, and the chain: P(slow), P(slow | slow before),
    P(slow | fast before), float[] each.
    """

    def forward_step(
        slow_given_past: jax.Array, log_ratio_of_step: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """P(slow | steps before) of the next step; and of this one (P(slow | steps before), P(slow | steps until now)).

        All float[W]. P(slow | steps before) is clipped, so that its odds are finite; to their logarithm that of slow
        over fast density is added (Bayes).
        """
        slow_given_past = slow_given_past.clip(_CERTAIN, 1 - _CERTAIN)
        slow_given_past_and_now = jax.nn.sigmoid(
            jnp.log(slow_given_past) - jnp.log1p(-slow_given_past) + log_ratio_of_step
        )
        return slow_given_past_and_now * persistence + (1 - slow_given_past_and_now) * enter_probability, (
            slow_given_past,
            slow_given_past_and_now,
        )

    slow_before_first_step = jnp.full(log_ratio.shape[1], probability, log_ratio.dtype)
    return jax.lax.scan(forward_step, slow_before_first_step, log_ratio)[1]


@jax.jit
def _forward_and_backward(
    log_ratio: jax.Array, probability: jax.Array, persistence: jax.Array, enter_probability: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """P(slow | steps before) and P(slow | all steps), float[T, W], and P(slow then and in the next step | all steps).

    The last one is float[T - 1, W]; arguments are as of `_forward`.
    """
    slow_given_past, slow_given_past_and_now = _forward(log_ratio, probability, persistence, enter_probability)

    def backward_step(
        next_slow_given_all: jax.Array, probabilities: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, Any]:
        """P(slow | all steps); and (the same, P(slow now and in the next step | all steps)), all float[W].

        From P(slow | all steps) of the next step, and its P(slow | steps before) with P(slow | steps until now) of this
        one. By rounding they could be above 1.
        """
        next_slow_given_past, slow_given_past_and_now = probabilities
        stayed_given_all = slow_given_past_and_now * persistence * next_slow_given_all / next_slow_given_past
        recovered_given_all = (
            slow_given_past_and_now * (1 - persistence) * (1 - next_slow_given_all) / (1 - next_slow_given_past)
        )
        slow_given_all = (stayed_given_all + recovered_given_all).clip(0, 1)
        return slow_given_all, (slow_given_all, stayed_given_all.clip(0, 1))

    # Of the last step, with which it begins, all steps are those until now.
    _, (slow_given_all, stayed_given_all) = jax.lax.scan(
        backward_step, slow_given_past_and_now[-1], (slow_given_past[1:], slow_given_past_and_now[:-1]), reverse=True
    )
    return slow_given_past, jnp.concatenate([slow_given_all, slow_given_past_and_now[-1:]]), stayed_given_all
