"""The simulation: who is slow, and what each scheme makes of what is finished.

Trials are the innermost axis wherever arithmetic is done, so that it is vectorised over them.

Letters: S trials, D deadlines, W workers, N chunks, K chunks a worker holds, R holders of a chunk, L blocks.
"""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import threadpoolctl

from experiments.partial_stragglers import systems
from experiments.partial_stragglers.optimal_decoding import optimal_errors
from gcjax import codes
from gcjax.codes import assignments, diagnostics
from gcjax.stragglers import StragglerModel, sample_durations

SCHEMES = ("original", "partial", "partial, random order")
"""Whole workers only; partial work in the best order; partial work in a random order."""


class Trials(NamedTuple):
    """What happens in all trials.

    Attributes:
      finish: float[K, W, S] seconds at which a worker finishes its first, second, ... chunk.
      rank: int32[W, S]: the workers in a random order; those with the lowest ranks are the ones that fail.
    """

    finish: jax.Array
    rank: jax.Array


Key = tuple[int, str]
"""L and a scheme."""

Errors = Callable[[jax.Array], jax.Array]
"""`finish float[K, W, S] -> float[S, deadlines]`: the error of a scheme at every deadline."""


@functools.partial(jax.jit, static_argnums=(0, 2, 3, 4))
def draw(stragglers: StragglerModel, rng_key: jax.Array, num_units: int, num_workers: int, num_trials: int) -> Trials:
    """Draws when chunks are finished (seconds) and who fails first (rank 0) in all trials; one unit is one chunk.

    `num_units` is K, the chunks of a worker.
    """
    time_key, rank_key = jax.random.split(rng_key)

    def durations_of_trial(key: jax.Array) -> jax.Array:
        return sample_durations(stragglers, key, num_units, num_workers)

    durations = jax.vmap(durations_of_trial)(jax.random.split(time_key, num_trials))  # [S, K, W]
    # [S, W]
    rank = jax.vmap(lambda key: jax.random.permutation(key, num_workers))(jax.random.split(rank_key, num_trials))
    durations_trials_last = jnp.transpose(durations, (1, 2, 0))
    return Trials(jnp.cumsum(durations_trials_last, axis=0), rank.T.astype(jnp.int32))


@jax.jit
def with_failures(trials: Trials, num_failed: jax.Array | int) -> jax.Array:
    """float[K, W, S]: when chunks are finished if the `num_failed` workers with the lowest ranks fail."""
    return jnp.where(trials.rank[None] < num_failed, jnp.inf, trials.finish)


def order_of_scheme(assignment: codes.Assignment, *, num_draws: int, rng_key: jax.Array) -> dict[str, codes.Assignment]:
    """Scheme -> the assignment in the order in which workers process their chunks; `num_draws`: see `random_order`."""
    best_order = assignments.order_chunks(assignment)
    order_by_chance = random_order(assignment, num_draws=num_draws, rng_key=rng_key)
    return dict(zip(SCHEMES, (best_order, best_order, order_by_chance), strict=True))


def random_order(assignment: codes.Assignment, *, num_draws: int, rng_key: jax.Array) -> codes.Assignment:
    """The random order with the least `q_max` of `num_draws`; see `published.NOTES` for the paper's number."""
    return random_orders(assignment, draws=(num_draws,), rng_key=rng_key)[num_draws]


def random_orders(
    assignment: codes.Assignment, *, draws: Sequence[int], rng_key: jax.Array
) -> dict[int, codes.Assignment]:
    """For each number of draws the order with the least `q_max` of so many; they begin with the same draws."""
    orders = [assignments.random_order(assignment, rng_key=key) for key in jax.random.split(rng_key, max(draws))]
    q_max_of_orders = [diagnostics.q_max(order) for order in orders]
    return {num_draws: orders[int(np.argmin(q_max_of_orders[:num_draws]))] for num_draws in draws}


def partial_errors(code: codes.GradientCode, deadlines: Sequence[float]) -> Errors:
    """The errors of a partial code: the coefficients are solved and the error is computed from them."""
    return systems.partial_errors(code, np.asarray(deadlines, np.float64))


def original_errors(code: codes.GradientCode) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The errors of the original scheme: only workers that have finished everything, optimal decoding.

    What a worker sends is fixed: its message in the partial code once everybody has finished (for L = 1 the sum of
    its chunks, each over the number of holders). For L > 1 this is our choice: the paper's data are for L = 1.

    Returns:
      A function of what `arrivals` returns, to float[S, deadlines].
    """
    plan_of_full_loads = jax.jit(code.plan)(jnp.asarray(code.assignment.loads))
    message_coefficients = np.asarray(plan_of_full_loads.encode)[:, 0]  # float[W, K, L], of the one message
    errors = optimal_errors(code.assignment, message_coefficients)
    return lambda order, counts: jnp.asarray(errors(order, counts))


def estimate(code: codes.GradientCode, deadlines: Sequence[float]) -> Errors:
    """`sqrt(sum over chunks of max(0, L - finished holders))`, from the numbers of finished holders alone."""
    positions, moments = systems.holder_positions(code.assignment), np.asarray(deadlines, np.float64)
    return lambda finish: systems.estimate(finish, positions, moments, code.num_blocks)


def arrivals(
    assignment: codes.Assignment, finish: jax.Array, deadlines: Sequence[float]
) -> tuple[jax.Array, jax.Array]:
    """The order int32[S, W] in which workers have finished all, and how many int32[S, deadlines] by each deadline."""
    # A worker without chunks counts as if it had one; it has nothing to send.
    workers, last_slots = np.arange(assignment.num_workers), assignment.loads.clip(1) - 1
    return _arrival_order_and_counts(finish, workers, last_slots, np.asarray(deadlines, np.float64))


@jax.jit
def _arrival_order_and_counts(
    finish: jax.Array, workers: jax.Array, last_slots: jax.Array, deadlines: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """As `arrivals`; `finish float[K, W, S]`, and the last slot of each worker, `last_slots int[W]`."""
    arrival_times = finish[last_slots, workers]  # float[W, S]
    has_arrived = arrival_times[:, None, :] <= deadlines[None, :, None]  # bool[W, deadlines, S]
    counts = jnp.sum(has_arrived, axis=0, dtype=jnp.int32)  # [deadlines, S]
    return jnp.argsort(arrival_times.T, axis=1).astype(jnp.int32), counts.T


def side_by_side(functions: dict[Key, Callable[[], jax.Array]]) -> dict[Key, jax.Array]:
    """Key -> what its function returns; called in as many threads as there are cores: most keep one core busy.

    Products and factors of NumPy and SciPy run in the thread that calls them meanwhile, as more would be in its way.
    """
    has_float64 = jnp.result_type(float) == np.float64  # this setting of JAX belongs to a thread

    def call(function: Callable[[], jax.Array]) -> jax.Array:
        with jax.enable_x64(has_float64):
            return jax.block_until_ready(function())

    with threadpoolctl.threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(os.cpu_count()) as threads:
        return dict(zip(functions, threads.map(call, functions.values()), strict=True))


def completion(
    assignment: codes.Assignment, num_blocks: int, *, whole_workers: bool
) -> Callable[[jax.Array], jax.Array]:
    """When every chunk has been finished by L workers: the time of an exact decode, in whole units.

    Args:
      assignment: who holds what, in which order.
      num_blocks: L.
      whole_workers: whether only workers count that have finished everything (the original scheme).

    Returns:
      A function `finish float[K, W, S] -> float[S]`; inf if never.
    """
    positions = systems.holder_positions(assignment, whole_workers=whole_workers)
    return lambda finish: _completion_times(finish, positions, num_blocks)


@functools.partial(jax.jit, static_argnums=2)
def _completion_times(finish: jax.Array, positions: systems.HolderPositions, num_blocks: int) -> jax.Array:
    """float[S]: when each chunk has `num_blocks` finished holders, in whole units, rounded up; inf if never.

    `finish`: float[K, W, S]; `positions`: where the holders of each chunk stand in it.
    """
    times_by_holder = systems.by_holder(finish, positions)  # R arrays [N, S]
    chunk_times = _kth_smallest(times_by_holder, num_blocks)  # [N, S]
    return jnp.ceil(chunk_times.max(axis=0))


def _kth_smallest(arrays: list[jax.Array], rank: int) -> jax.Array:
    """The `rank`-th smallest (from 1) of arrays of one shape, entry by entry: so many rounds of a bubble sort."""
    partly_sorted = list(arrays)
    for num_sorted in range(rank):
        for i in range(len(partly_sorted) - 1, num_sorted, -1):
            smaller = jnp.minimum(partly_sorted[i - 1], partly_sorted[i])
            larger = jnp.maximum(partly_sorted[i - 1], partly_sorted[i])
            partly_sorted[i - 1], partly_sorted[i] = smaller, larger
    return partly_sorted[rank - 1]
