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

    def step(before: jax.Array, ratio: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """One step: from P(slow | before) to that of the next step."""
        before = before.clip(_CERTAIN, 1 - _CERTAIN)
        after = jax.nn.sigmoid(jnp.log(before) - jnp.log1p(-before) + ratio)
        return after * persistence + (1 - after) * enter, (before, after)

    first = jnp.full(log_ratio.shape[1], probability, log_ratio.dtype)
    return jax.lax.scan(step, first, log_ratio)[1]


@jax.jit
def _passes(
    log_ratio: jax.Array, probability: jax.Array, persistence: jax.Array, enter: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The fields of `Smoothed`."""
    before, after = _forward(log_ratio, probability, persistence, enter)

    def step(slow_next: jax.Array, probabilities: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, Any]:
        """One step back: P(slow | all), and that it was slow then and in the step after it."""
        next_before, now = probabilities
        stayed = now * persistence * slow_next / next_before
        recovered = now * (1 - persistence) * (1 - slow_next) / (1 - next_before)
        slow = (stayed + recovered).clip(0, 1)
        return slow, (slow, stayed.clip(0, 1))

    _, (slow, stayed) = jax.lax.scan(step, after[-1], (before[1:], after[:-1]), reverse=True)
    return before, jnp.concatenate([slow, after[-1:]]), stayed
