"""Persistent slow workers: a two-state Markov chain on each worker.

The good and bad states of Yang, Pedarsani and Avestimehr 2019 (Timely-throughput optimal coded computing). A
job of the Alibaba Cluster Trace Program has P(slow) = 0.43 and P(slow | slow before) = 0.95.

Letters: W workers.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.stragglers.base import StragglerModel, per_worker
from gcjax.stragglers.iid import Parameter, constant

_ROUNDING = 1e-6


class _State(NamedTuple):
    """The chain of each worker.

    Attributes:
      base_state: state of the model of the times of fast units.
      is_slow: bool[W], who is slow in the next unit.
      enter_probability: float[W], P(slow | fast before).
      persistence: float[W], P(slow | slow before).
      slowdown: float[W], the factor on the time of a slow unit.
    """

    base_state: Any
    is_slow: jax.Array
    enter_probability: jax.Array
    persistence: jax.Array
    slowdown: jax.Array


@dataclasses.dataclass(frozen=True)
class _Markov:
    """The sample function of `markov`; equal for equal base models, so that it compiles once."""

    sample_base: Callable[[Any, jax.Array], tuple[jax.Array, Any]]

    def __call__(self, state: _State, rng_key: jax.Array) -> tuple[jax.Array, _State]:
        """Seconds float[W] of the next unit, and the state with who is slow in the one after it."""
        base_key, chain_key = jax.random.split(rng_key)
        seconds, base_state = self.sample_base(state.base_state, base_key)
        seconds = jnp.where(state.is_slow, state.slowdown * seconds, seconds)
        is_slow = jax.random.bernoulli(chain_key, jnp.where(state.is_slow, state.persistence, state.enter_probability))
        return seconds, state._replace(base_state=base_state, is_slow=is_slow)


@comparable
def markov(
    *, probability: Parameter, persistence: Parameter, slowdown: Parameter, base: Parameter | StragglerModel = 1.0
) -> StragglerModel:
    """Workers turn slow and recover: who is slow now is likely slow next. Starts in the stationary state.

    Args:
      probability: P(slow), the share of slow units in the long run.
      persistence: P(slow | slow before). Equal to `probability`, it makes the units independent.
      slowdown: the factor on the time of a slow unit.
      base: seconds of a unit that is not slow, or the model that they come from. With a number all fast units take
        equally long, and of messages that arrive at once that of the lower number is first: so what takes the first K
        of them may never take those of the highest numbers.

    Raises:
      ValueError: if a probability is outside [0, 1], no chain has these two probabilities, or `slowdown` is
        not above zero and finite.
    """
    _check_chain(_validate.probability("probability", probability), _validate.probability("persistence", persistence))
    _validate.number("slowdown", slowdown, above=True, finite=True)
    base_model = base if isinstance(base, StragglerModel) else constant(seconds=base)

    def init(rng_key: jax.Array, num_workers: int) -> _State:
        """The state before the first unit, stationary: each worker is slow with P(slow); parameters are float[W]."""
        base_key, chain_key = jax.random.split(rng_key)
        slow_probability = per_worker("probability", probability, num_workers)
        persistences = per_worker("persistence", persistence, num_workers)
        return _State(
            base_state=base_model.init(base_key, num_workers),
            is_slow=jax.random.bernoulli(chain_key, slow_probability),
            enter_probability=_enter_probability(slow_probability, persistences),
            persistence=persistences,
            slowdown=per_worker("slowdown", slowdown, num_workers),
        )

    return StragglerModel(init, _Markov(base_model.sample))


def _enter_probability(probability: jax.Array, persistence: jax.Array) -> jax.Array:
    """float[W]: P(slow | fast before), by the balance of those who turn slow and those who recover; 0 if never fast."""
    fast_probability = 1 - probability
    recovering = probability * (1 - persistence)  # the share of workers that recover in a unit; as many turn slow
    is_ever_fast = fast_probability > 0
    return jnp.where(is_ever_fast, recovering / jnp.where(is_ever_fast, fast_probability, 1.0), 0.0)


def _check_chain(probability: Any, persistence: Any) -> None:
    """Raises `ValueError` if no chain has these P(slow) and P(slow | slow before), unless they are traced."""
    if _validate.is_traced(probability) or _validate.is_traced(persistence):
        return
    probability, persistence = np.broadcast_arrays(
        np.asarray(probability, np.float64), np.asarray(persistence, np.float64)
    )
    # As many must turn slow in a unit as recover, and only those who are fast can.
    is_impossible = probability * (1 - persistence) > 1 - probability + _ROUNDING
    if np.any(is_impossible):
        probability, persistence = probability[is_impossible][0], persistence[is_impossible][0]
        raise ValueError(
            "probability * (1 - persistence) must be at most 1 - probability: no more workers can recover "
            f"in a unit than are fast; got probability={probability:g}, persistence={persistence:g}. "
            f"With this probability, persistence must be at least {2 - 1 / probability:g}."
        )
