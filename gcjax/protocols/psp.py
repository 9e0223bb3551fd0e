"""Probabilistic synchronous parallel (Wang, Catterall, Mortier, 2017, arXiv 1709.07772)."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.simulation.event_schedule import event_schedule
from gcjax.protocols.simulation.max_plus import check_staleness
from gcjax.protocols.simulation.rules import Rule, View
from gcjax.protocols.simulation.worker_selection import with_entry
from gcjax.stragglers.network import Network


@comparable
def psp(*, num_sampled: int, staleness: float = 0, rng_key: jax.Array, weight: float | None = None) -> Protocol:
    """Probabilistic synchronous parallel: at its barrier a worker looks at a random sample of the others only.

    After n units worker w draws a set S of β others and goes on iff `n - min_{v in S} n_v <= staleness`; it waits for
    those until then. Staleness 0 is pBSP, above 0 it is pSSP; β = W - 1 has the waiting of `ssp(staleness=...)`, β = 0
    is `asp`. Gradients are applied on arrival. The samples depend on the key, the worker and n only.

    Args:
      num_sampled: β, from 0 to W - 1.
      staleness: in units, 0 or more.
      rng_key: draws the samples.
      weight: the factor of a gradient when it is applied; 1/W if None.

    Raises:
      ValueError: if there are fewer than β others, or the staleness is negative or not whole, or the key is none.
    """
    num_sampled = _validate.integer("num_sampled", num_sampled)
    _validate.rng_key(rng_key)
    check_staleness(staleness)
    if weight is not None:
        _validate.single_number("weight", weight, finite=True)

    def rule_of_samples(num_workers: int, draw: Draw) -> Rule:
        """The waiting rule; each message is a commit of its own, with the weight 1/W or `weight`."""
        hint = "A worker looks at others."
        _validate.integer("num_sampled", num_sampled, maximum=num_workers - 1, hint=hint)
        factor = 1.0 / num_workers if weight is None else weight
        return _sampling_rule(num_sampled, staleness, draw)._replace(weight=factor)

    def rule(num_workers: int) -> Rule:
        """The waiting rule, whose samples are drawn when they are asked for."""
        return rule_of_samples(num_workers, _drawing(rng_key, num_workers, num_sampled))

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of the waiting rule, with samples that are drawn before, if they are not too many."""
        num_units, num_workers = durations.shape
        waiting_rule = rule(num_workers)
        if num_sampled <= _MAX_WITHOUT_SORT and num_units * num_workers * num_sampled <= _MAX_DRAWN_BEFORE:
            samples = _drawn_before(_drawing(rng_key, num_workers, num_sampled), num_units, num_workers)
            waiting_rule = rule_of_samples(num_workers, samples)
        return event_schedule(waiting_rule, durations, network)

    return Protocol(
        schedule,
        specification=lambda num_workers: (
            specifications.psp(num_workers, num_sampled=num_sampled, staleness=int(staleness))
            if math.isfinite(staleness)
            else specifications.asp(num_workers)
        ),
        max_weight=1.0 if weight is None else None,  # who gives a weight says how far a gradient moves
        rule=rule,
    )


Draw = Callable[[jax.Array, jax.Array], jax.Array]
"""`(worker int32[], number of its messages int32[]) -> int32[β]`, the others that it looks at then."""

_MAX_DRAWN_BEFORE = 2**24
"""So many numbers of all samples are drawn before a simulation at most; more are drawn one sample after the other."""


def _drawing(rng_key: jax.Array, num_workers: int, num_sampled: int) -> Draw:
    """Draws β others by the number of the worker and its messages so far."""

    def draw(worker: jax.Array, num_messages: jax.Array) -> jax.Array:
        """int32[β]: different workers, none of them `worker`."""
        key_of_turn = jax.random.fold_in(jax.random.fold_in(rng_key, worker), num_messages)
        indices_among_others = _sample(key_of_turn, num_workers - 1, num_sampled)
        skips_worker_itself = (indices_among_others >= worker).astype(jnp.int32)
        return indices_among_others + skips_worker_itself

    return draw


def _drawn_before(draw: Draw, num_units: int, num_workers: int) -> Draw:
    """The same samples out of a table for up to T messages: looking them up can be a part of one kernel."""
    workers, counts = jnp.arange(num_workers, dtype=jnp.int32), jnp.arange(num_units + 1, dtype=jnp.int32)
    samples = jax.vmap(jax.vmap(draw, in_axes=(0, None)), in_axes=(None, 0))(workers, counts)  # int32[T + 1, W, β]
    return lambda worker, num_messages: samples[num_messages, worker]


def _sampling_rule(num_sampled: int, staleness: float, draw: Draw) -> Rule:
    """The waiting rule of `psp`; its memory, int32[W, β], are the workers that each one looks at."""

    def memory(num_workers: int, dtype: jnp.dtype) -> jax.Array:
        """Any workers at first: nobody is behind yet."""
        del dtype
        return jnp.zeros((num_workers, num_sampled), jnp.int32)

    def remember(view: View, worker: jax.Array) -> jax.Array:
        """The memory after a message of `worker`: it looks at β others, drawn by its number and its messages so far."""
        return with_entry(view.memory, worker, draw(worker, view.clock[worker]))

    def ready(view: View) -> jax.Array:
        """bool[W]: who is at most `staleness` units ahead of all that it looks at, `view.memory int32[W, β]`."""
        clock_of_alive = jnp.where(view.alive, view.clock, jnp.iinfo(jnp.int32).max)
        # int32[W]; the largest number, so that nobody is ahead of it, if a worker looks at nobody who is alive.
        slowest_looked_at = jnp.min(clock_of_alive[view.memory], axis=1, initial=jnp.iinfo(jnp.int32).max)
        return view.clock - slowest_looked_at <= staleness

    return Rule(ready=ready, memory=memory, remember=remember)


_MAX_WITHOUT_SORT = 32
"""The largest sample for which each draw is compared with all before it."""


def _sample(rng_key: jax.Array, num_others: int, num_sampled: int) -> jax.Array:
    """int32[β]: different numbers below `num_others`; every set of β of them is as probable but for rounding.

    Small samples are drawn without sorting all numbers, which would be done at every message: for j = n - β, ..., n - 1
    one of 0, ..., j is drawn, or j itself is taken if that one has been taken already (Floyd's algorithm; Bentley,
    Floyd 1987). A remainder of 32 random bits is even but for n parts in 2^32.
    """
    if num_sampled > _MAX_WITHOUT_SORT:
        return jax.random.choice(rng_key, num_others, (num_sampled,), replace=False).astype(jnp.int32)
    largest = np.arange(num_others - num_sampled, num_others, dtype=np.uint32)  # the numbers j, of n = `num_others`
    draws = (jax.random.bits(rng_key, (num_sampled,), jnp.uint32) % (largest + 1)).astype(jnp.int32)
    sample = jnp.full(num_sampled, -1, jnp.int32)  # -1: not drawn yet
    for i in range(num_sampled):
        is_taken = (sample == draws[i]).any()
        sample = sample.at[i].set(jnp.where(is_taken, jnp.int32(largest[i]), draws[i]))
    return sample
