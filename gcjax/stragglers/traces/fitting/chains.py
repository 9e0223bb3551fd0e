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
    def enter(self) -> float:
        """P(slow | fast before)."""
        return min(self.probability * (1 - self.persistence) / max(1 - self.probability, 1e-12), 1.0)


class Smoothed(NamedTuple):
    """What all times say of the states.

    Attributes:
      predicted: float64[T, W], P(slow | all steps before).
      slow: float64[T, W], P(slow | all steps).
      stayed: float64[T - 1, W], P(slow, and slow in the next step | all steps).
    """

    predicted: np.ndarray
    slow: np.ndarray
    stayed: np.ndarray


def smoothed(log_fast: np.ndarray, log_slow: np.ndarray, chain: Chain) -> Smoothed:
    """The states, given the logarithms float64[T, W] of the densities in either; NaN where nothing was measured."""
    return Smoothed(*(np.asarray(x, np.float64) for x in _passes(_log_ratio(log_fast, log_slow), *_numbers(chain))))


def predicted(log_fast: np.ndarray, log_slow: np.ndarray, chain: Chain) -> np.ndarray:
    """float64[T, W]: P(slow | all steps before)."""
    return np.asarray(_forward(_log_ratio(log_fast, log_slow), *_numbers(chain))[0], np.float64)


def mixed(log_fast: np.ndarray, log_slow: np.ndarray, slow_probability: np.ndarray | float) -> np.ndarray:
    """The logarithm of the density of each time, float64[T, W], given P(slow) before it was measured."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.logaddexp(np.log(slow_probability) + log_slow, np.log1p(-np.asarray(slow_probability)) + log_fast)


def _numbers(chain: Chain) -> tuple[float, float, float]:
    """P(slow), P(slow | slow before), P(slow | fast before)."""
    return chain.probability, chain.persistence, chain.enter


def _log_ratio(log_fast: np.ndarray, log_slow: np.ndarray) -> np.ndarray:
    """float32[T, W]: how much likelier slow is, as a logarithm; 0 where neither state, or no time, says anything."""
    with np.errstate(invalid="ignore"):
        ratio = np.nan_to_num(log_slow - log_fast, nan=0.0, posinf=_LARGEST_RATIO, neginf=-_LARGEST_RATIO)
    return ratio.clip(-_LARGEST_RATIO, _LARGEST_RATIO).astype(np.float32)


@jax.jit
def _forward(
    log_ratio: jax.Array, probability: jax.Array, persistence: jax.Array, enter: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """P(slow | all steps before) and P(slow | all steps until now), float[T, W] each."""

    def forward_step(
        slow_before: jax.Array, log_ratio_of_step: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """One step: from P(slow | before) to that of the next step."""
        slow_before = slow_before.clip(_CERTAIN, 1 - _CERTAIN)
        slow_after = jax.nn.sigmoid(jnp.log(slow_before) - jnp.log1p(-slow_before) + log_ratio_of_step)
        return slow_after * persistence + (1 - slow_after) * enter, (slow_before, slow_after)

    slow_before_first = jnp.full(log_ratio.shape[1], probability, log_ratio.dtype)
    return jax.lax.scan(forward_step, slow_before_first, log_ratio)[1]


@jax.jit
def _passes(
    log_ratio: jax.Array, probability: jax.Array, persistence: jax.Array, enter: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The fields of `Smoothed`."""
    slow_before, slow_until_now = _forward(log_ratio, probability, persistence, enter)

    def backward_step(slow_next: jax.Array, probabilities: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, Any]:
        """One step back: P(slow | all), and that it was slow then and in the step after it."""
        predicted_next, slow_now = probabilities
        stayed = slow_now * persistence * slow_next / predicted_next
        recovered = slow_now * (1 - persistence) * (1 - slow_next) / (1 - predicted_next)
        slow_given_all = (stayed + recovered).clip(0, 1)
        return slow_given_all, (slow_given_all, stayed.clip(0, 1))

    _, (slow_given_all, stayed) = jax.lax.scan(
        backward_step, slow_until_now[-1], (slow_before[1:], slow_until_now[:-1]), reverse=True
    )
    return slow_before, jnp.concatenate([slow_given_all, slow_until_now[-1:]]), stayed
