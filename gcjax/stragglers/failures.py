"""Workers that fail: their units take for ever (inf).

Three ways to say who fails, one mechanism. A round is `period` units of every worker: 1 where a unit is
a round, K for coded rounds of K chunks. Nobody fails before the onset; from then on whoever is chosen fails
until the end of the round, or for ever. A failed unit never ends: only coded rounds cut it off and go on, under other
protocols its worker is lost. An onset within a round cuts the round short. Letters: W workers.
"""

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.stragglers.base import StragglerModel, per_worker
from gcjax.stragglers.failure_times import Count, FailureState, check_range, failing
from gcjax.stragglers.heterogeneous import worker_mask


@comparable
def failed_workers(
    model: StragglerModel,
    *,
    workers: tuple[int, ...],
    forever: bool = True,
    onset: Count = 0,
    latest_onset: Count | None = None,
    period: Count = 1,
) -> StragglerModel:
    """The model in which given workers fail, at the onset.

    Args:
      model: the times of the workers that have not failed.
      workers: who fails, by number.
      forever: for good, or for the round of the onset only.
      onset: the first unit that fails, a number or one a worker.
      latest_onset: if given, every worker draws its onset uniformly from `onset` up to and including this.
      period: units a round.

    Raises:
      ValueError: if there is no such worker, or the onset or period is not a whole number in its range.
    """

    def is_given(num_workers: int) -> jax.Array:
        """bool[W]: whether a worker is among those given; what `_given_workers_fail` needs."""
        return worker_mask(workers, num_workers)

    return failing(model, _given_workers_fail, is_given, forever, onset, latest_onset, period)


@comparable
def failed_count(
    model: StragglerModel,
    *,
    count: Count,
    max_count: Count | None = None,
    forever: bool = False,
    onset: Count = 0,
    latest_onset: Count | None = None,
    period: Count = 1,
) -> StragglerModel:
    """The model in which so many random workers fail in each round (simulations of Ramamoorthy et al. 2024).

    Args:
      model: the times of the workers that have not failed.
      count: how many fail, at most W.
      max_count: if given, the number itself is drawn uniformly from `count` up to and including this.
      forever: whether one set is drawn and fails for good, rather than a new set in each round.
      onset: the first unit that may fail, a number or one a worker.
      latest_onset: if given, every worker draws its onset uniformly from `onset` up to and including this.
      period: units a round.

    Raises:
      ValueError: if a count exceeds W, or a parameter is not a whole number in its range.
    """
    largest_count = count if max_count is None else max_count
    check_range("count", count, "max_count", largest_count)

    def count_range(num_workers: int) -> jax.Array:
        """int32[2]: the smallest and the largest number of workers that fail; what `_random_workers_fail` needs."""
        _validate.whole("count", largest_count, maximum=num_workers, hint="No more workers can fail than there are.")
        return jnp.stack([jnp.asarray(count, jnp.int32), jnp.asarray(largest_count, jnp.int32)])

    return failing(model, _random_workers_fail, count_range, forever, onset, latest_onset, period)


@comparable
def failed_probability(
    model: StragglerModel,
    *,
    probability: float | jax.Array,
    forever: bool = False,
    onset: Count = 0,
    latest_onset: Count | None = None,
    period: Count = 1,
) -> StragglerModel:
    """The model in which each worker fails in each round with a probability.

    Args:
      model: the times of the workers that have not failed.
      probability: of failing in a round, a number or one a worker.
      forever: whether a failure lasts for good, rather than for its round.
      onset: the first unit that may fail, a number or one a worker.
      latest_onset: if given, every worker draws its onset uniformly from `onset` up to and including this.
      period: units a round.

    Raises:
      ValueError: if the probability is outside [0, 1], or the onset or period is not a whole number in its
        range.
    """
    _validate.probability("probability", probability)

    def probabilities(num_workers: int) -> jax.Array:
        """float[W]: of failing in a round; what `_workers_fail_independently` needs."""
        return per_worker("probability", probability, num_workers)

    return failing(model, _workers_fail_independently, probabilities, forever, onset, latest_onset, period)


def _given_workers_fail(state: FailureState, is_given: jax.Array) -> jax.Array:
    """bool[W]: the workers with `is_given bool[W]` fail in the round of their onset."""
    return is_given & (state.rounds_since_onset == 0)


def _random_workers_fail(state: FailureState, count_range: jax.Array) -> jax.Array:
    """bool[W]: a random set, new in each round unless failures last; of at least and at most `count_range int32[2]`."""
    rng_key = jax.random.fold_in(state.rng_key, jnp.where(state.forever, 0, state.round))
    count_key, order_key = jax.random.split(rng_key)
    count = jax.random.randint(count_key, (), count_range[0], count_range[1] + 1, jnp.int32)
    # Of the numbers 0 to W - 1, which are in a random order, `count` are below `count`.
    return jax.random.permutation(order_key, jnp.arange(state.failed_before.size, dtype=jnp.int32)) < count


def _workers_fail_independently(state: FailureState, probability: jax.Array) -> jax.Array:
    """bool[W]: each worker fails in a round with its `probability float[W]`."""
    rng_key = jax.random.fold_in(state.rng_key, state.round)
    return jax.random.uniform(rng_key, probability.shape, probability.dtype) < probability
