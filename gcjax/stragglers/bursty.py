"""Bursts of slowness (Krishnan, Ebrahimi, Khisti, ICLR 2023, arXiv 2211.13802: the (B, W, λ)-bursty model).

Letters: W workers. The paper's window W is called `window` here.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.stragglers.base import StragglerModel, per_worker
from gcjax.stragglers.iid import Parameter

_MOST_ROUNDS = 2**31 - 2  # one more is an int32, too


class _State(NamedTuple):
    """What bursts remember; all int32 but the times and the probability.

    Attributes:
      rounds_since_slow: [W], rounds since a worker was last slow, at most up to the window.
      rounds_left: [W], rounds that the current burst still lasts.
      is_slow: bool[W], who is slow in this round.
      unit: [], the next unit.
      base_seconds: float[W] seconds.
      slowdown: float[W], the factor of a slow unit; may be inf.
      probability: float[], that a worker which may begin a burst does.
      max_burst_length: [], B, in rounds.
      window: [], the window.
      max_slow: [], λ.
      period: [], units a round.
    """

    rounds_since_slow: jax.Array
    rounds_left: jax.Array
    is_slow: jax.Array
    unit: jax.Array
    base_seconds: jax.Array
    slowdown: jax.Array
    probability: jax.Array
    max_burst_length: jax.Array
    window: jax.Array
    max_slow: jax.Array
    period: jax.Array


@comparable
def bursty(
    *,
    base: Parameter = 1.0,
    slowdown: Parameter,
    burst: int,
    window: int,
    max_slow: int,
    probability: float = 0.1,
    period: int = 1,
) -> StragglerModel:
    """Workers are slow in bursts: few different ones, and for a short time, in any window of rounds.

    In any `window` consecutive rounds at most `max_slow` workers are slow, and the slow rounds of each lie within
    `burst` consecutive ones (Krishnan et al. 2023). A worker that may begin a burst does so with a given
    probability; the burst lasts 1 to `burst` rounds, any as likely as any other.

    Args:
      base: seconds of a unit that is not slow, a number or one a worker.
      slowdown: the factor of slow units, above 1; inf for workers that do not answer.
      burst: B, rounds.
      window: W in the paper, at least B, rounds.
      max_slow: λ, workers.
      probability: of beginning a burst.
      period: units a round: K for coded rounds of K chunks.

    Raises:
      ValueError: if a parameter is out of its range, or B exceeds the window.
    """
    _validate.number("base", base, above=True, finite=True)
    _validate.number("slowdown", slowdown, minimum=1.0, above=True)
    window = _validate.integer("window", window, minimum=1, maximum=_MOST_ROUNDS)
    burst = _validate.integer(
        "burst", burst, minimum=1, maximum=window, hint="A burst cannot be longer than the window."
    )
    max_slow = _validate.integer("max_slow", max_slow, minimum=0)
    period = _validate.integer("period", period, minimum=1, maximum=_MOST_ROUNDS)
    _validate.single_number("probability", probability, maximum=1.0)

    def init(rng_key: jax.Array, num_workers: int) -> _State:
        """Nobody is slow, and everybody may begin a burst."""
        del rng_key
        _validate.integer("max_slow", max_slow, maximum=num_workers, hint="No more workers can be slow than there are.")
        counts = {"max_burst_length": burst, "window": window, "max_slow": max_slow, "period": period}
        return _State(
            rounds_since_slow=jnp.full(num_workers, window, jnp.int32),  # so that everybody may begin a burst
            rounds_left=jnp.zeros(num_workers, jnp.int32),
            is_slow=jnp.zeros(num_workers, bool),
            unit=jnp.zeros((), jnp.int32),
            base_seconds=per_worker("base", base, num_workers),
            slowdown=per_worker("slowdown", slowdown, num_workers),
            probability=jnp.asarray(probability, jnp.result_type(float)),
            **{name: jnp.asarray(value, jnp.int32) for name, value in counts.items()},
        )

    return StragglerModel(init, _next_unit)


def _next_unit(state: _State, rng_key: jax.Array) -> tuple[jax.Array, _State]:
    """Seconds float[W] of the next unit; a round of `period` units begins with a draw of who is slow."""
    state = jax.lax.cond(state.unit % state.period == 0, _next_round, lambda state, key: state, state, rng_key)
    seconds = state.base_seconds * jnp.where(state.is_slow, state.slowdown, 1)
    return seconds, state._replace(unit=state.unit + 1)


def _next_round(state: _State, rng_key: jax.Array) -> _State:
    """The state in the next round: who begins a burst, and who is slow.

    Its arrays are [W]: how many rounds of a burst are left after this one, and the rounds since a worker was slow, 0 if
    it is, `window` at most.
    """
    begin_key, order_key, length_key = jax.random.split(rng_key, 3)
    workers_shape = state.rounds_since_slow.shape
    in_burst = state.rounds_left > 0
    rounds_since_slow = state.rounds_since_slow + 1
    # Who was slow in the last window - 1 rounds counts towards max_slow, whether or not slow now.
    is_counted = in_burst | (rounds_since_slow < state.window)
    can_begin = ~is_counted & jax.random.bernoulli(begin_key, state.probability, workers_shape)
    random_order = jnp.where(can_begin, jax.random.uniform(order_key, workers_shape), jnp.inf)
    random_rank = jnp.argsort(jnp.argsort(random_order)).astype(jnp.int32)  # 0 for the first of those who can begin
    # As many begin as places are left among the `max_slow`.
    begins_burst = can_begin & (random_rank < state.max_slow - jnp.sum(is_counted, dtype=jnp.int32))
    burst_length = jax.random.randint(length_key, workers_shape, 1, state.max_burst_length + 1, jnp.int32)
    rounds_left = jnp.where(begins_burst, burst_length, state.rounds_left)
    is_slow = rounds_left > 0
    rounds_since_slow = jnp.where(is_slow, 0, jnp.minimum(rounds_since_slow, state.window))
    return state._replace(rounds_since_slow=rounds_since_slow, rounds_left=(rounds_left - 1).clip(0), is_slow=is_slow)
