"""Partial all-reduce among random groups (Luo, He, Zhuo, Qian, ASPLOS 2020: Prague)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.mixing_matrices import MixingMatrix, are_short
from gcjax.protocols.base import LocalWork, Mixing, Protocol, Schedule, own_params
from gcjax.protocols.gossip import no_rule
from gcjax.protocols.groups import group_arrays
from gcjax.protocols.simulation.neighbours import Exchange, copies_sent, neighbour_iterations
from gcjax.specifications.groups import consecutive_groups
from gcjax.stragglers.network import Network


@comparable
def prague(*, group_size: int, rng_key: jax.Array) -> Protocol:
    """Partial all-reduce: there is no server; after each step all members of a group take the mean of their parameters.

    Each iteration has other groups, drawn at random, and each worker is in one of them. With G[t, w] the group of w in
    iteration t, F[t, w] its end and D[t, w] its seconds, `F[t, w] = max_{v in G[t-1, w]} F[t-1, v] + D[t, w]`: whoever
    is slow holds up its group only, and those who meet its members later (Luo et al. 2020). The groups are the paper's
    static schedule, known to all before, of random groups, which never overlap; its group generator, which forms groups
    of those who happen to be there, is left out. Commits and the run's parameters are those of `d_psgd`. A member of a
    group of g workers sends and receives 2 (g-1)/g copies of the parameters, as a ring of g does that adds up and hands
    round.

    Args:
      group_size: g, the most members, from 1 to W; the groups are as equal in size as possible.
      rng_key: draws the groups, by the number of the iteration.

    Raises:
      ValueError: if there are fewer workers than members, or the key is none.
    """
    group_size = _validate.integer("group_size", group_size, minimum=1)
    _validate.rng_key(rng_key)

    def places_of_groups(num_workers: int) -> tuple[np.ndarray, np.ndarray]:
        """int32[G, members], the places of each group, filled up with -1; and int32[W], the group of each place."""
        hint = "A group cannot have more members than there are workers."
        _validate.integer("group_size", group_size, minimum=1, maximum=num_workers, hint=hint)
        return group_arrays(consecutive_groups(range(num_workers), -(-num_workers // group_size)))

    def place_of_workers(iteration: jax.Array, num_workers: int) -> jax.Array:
        """int32[W], the random place of each worker after an iteration, int32[]; a group has places in a row."""
        return jax.random.permutation(jax.random.fold_in(rng_key, iteration), num_workers)

    def group_of_workers(iteration: jax.Array, num_workers: int) -> tuple[jax.Array, jax.Array]:
        """int32[W], the group of each worker after an iteration, int32[]; and int32[W], how many members it has."""
        _, group_of_place = places_of_groups(num_workers)
        group_of_worker = jnp.asarray(group_of_place)[place_of_workers(iteration, num_workers)]
        return group_of_worker, jnp.asarray(np.bincount(group_of_place))[group_of_worker]

    def exchange(iteration: jax.Array, num_workers: int) -> Exchange:
        """Everybody hears the others of its group (and itself), and sends and receives its share of an all-reduce."""
        group, num_members = group_of_workers(iteration, num_workers)
        copies = 2 * (num_members - 1) / num_members
        return Exchange(group[:, None] == group[None], num_sent=copies, num_received=copies)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which everybody waits for the others of its group."""
        num_workers = durations.shape[1]
        return neighbour_iterations(lambda iteration: exchange(iteration, num_workers), durations, network)

    def copies(schedule: Schedule) -> jax.Array:
        """float[T, W]: the share of an all-reduce, in copies of the parameters, that each worker sends after a unit."""
        num_workers = schedule.start.shape[1]
        return copies_sent(lambda iteration: exchange(iteration, num_workers), schedule)

    def matrix(schedule: Schedule) -> Callable[[jax.Array], MixingMatrix]:
        """Row w has 1 / members for each member of w's group after a commit (iteration), itself too."""
        num_workers = schedule.start.shape[1]
        iterations = jnp.arange(schedule.time.shape[0], dtype=jnp.int32)
        draw_places = partial(place_of_workers, num_workers=num_workers)
        # The schedule draws them one by one, and JAX promises the same under vmap for this kind of keys only.
        draws_alike_under_vmap = jax.random.key_impl(rng_key) == "threefry2x32"
        # [E, W]
        place_of_commits = (
            jax.vmap(draw_places)(iterations) if draws_alike_under_vmap else jax.lax.map(draw_places, iterations)
        )
        return _means_of_groups(place_of_commits, *places_of_groups(num_workers), schedule.time.dtype)

    return Protocol(
        schedule,
        one_version=False,
        local=LocalWork(pull=own_params, mixing=Mixing(matrix, copies), single_steps=True),
        rule=no_rule,
        specification=lambda num_workers: specifications.prague(num_workers, group_size=group_size),
    )


def _means_of_groups(
    place_of_commits: jax.Array, places_of_group: np.ndarray, group_of_place: np.ndarray, dtype: Any
) -> Callable[[jax.Array], MixingMatrix]:
    """The function `commit int32[] -> MixingMatrix` by which everybody gets the mean of its group.

    Args:
      place_of_commits: int32[E, W], the place of each worker in each commit.
      places_of_group: int32[G, members], the places of each group, filled up with -1.
      group_of_place: int32[W], the group of each place.
      dtype: of the weights.
    """
    worker_of_commits = jnp.argsort(place_of_commits, axis=1)  # of each place
    share_of_place = jnp.asarray(1 / np.bincount(group_of_place)[group_of_place], dtype)[:, None]  # [W, 1]
    places = jnp.asarray(places_of_group[group_of_place])  # int32[W, members], of each place those of its group

    def matrix_of_commit(commit: jax.Array) -> MixingMatrix:
        """The matrix, with the members of its group listed for each worker if they are few."""
        place, worker = place_of_commits[commit], worker_of_commits[commit]
        if are_short(places.shape[1], group_of_place.size):
            return MixingMatrix(jnp.where(places >= 0, share_of_place, 0)[place], worker[places.clip(0)][place])
        group = jnp.asarray(group_of_place)[place]
        return MixingMatrix(jnp.where(group[:, None] == group[None], share_of_place[place], 0))

    return matrix_of_commit
