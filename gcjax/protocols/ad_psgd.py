"""Asynchronous decentralised parallel SGD (Lian, Zhang, Zhang, Liu, ICML 2018)."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, specifications
from gcjax.equality import comparable
from gcjax.mixing_matrices import MixingMatrix, undirected_neighbours
from gcjax.protocols.base import LocalWork, Mixing, Protocol, Schedule, own_params
from gcjax.protocols.gossip import no_rule
from gcjax.protocols.simulation.max_plus import bounded_staleness, commits_on_arrival
from gcjax.stragglers.network import Network


@comparable
def ad_psgd(*, graph: Any = "bipartite", rng_key: jax.Array) -> Protocol:
    """AD-PSGD: there is no server, and nobody waits; with each gradient a worker averages with a random neighbour.

    Worker w takes a gradient g at its own parameters. When it has it, it draws a neighbour v, both get the mean of
    their parameters, `x_w = x_v = (x_w + x_v) / 2`, and then w takes the step of g (Lian et al. 2018, algorithm 1).
    Meanwhile others may have averaged with w, so that g is of parameters that it no longer has; also others whose step
    comes at the same moment, after its own. `F[n, w] = F[n-1, w] +` the seconds of a unit and of the exchange. Each
    such step is a commit, and happens at one moment; the run's parameters are the mean of all workers' own. The graph
    must be bipartite, as the paper asks, so that no circle of workers can wait for each other.

    What is ours: every worker draws neighbours, also those that the paper's system makes answer only; a worker goes on
    when its exchange is over, `2 latency + upload + download` on its own link, and the neighbour's link and time are
    not charged. Nothing passes a server's link.

    Args:
      graph: "bipartite", even workers with odd ones; or "ring" or "torus" where these are bipartite; or bool[W, W], or
        a `networkx.Graph`. Who has no neighbour works alone, and sends nothing.
      rng_key: draws the neighbours, by the worker and the number of its step.

    Raises:
      ValueError: if the key is none, or the graph is directed, or of other workers, or not bipartite.
    """
    _validate.rng_key(rng_key)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule in which nobody waits, and each exchange, there and back, is a commit when it is over."""
        num_workers = durations.shape[1]
        neighbours = undirected_neighbours(graph, num_workers, bipartite=True)  # raises an error if it is not bipartite
        exchange_seconds = 2 * network.latency + network.upload + network.download
        exchange_seconds = jnp.where(neighbours.any(axis=1), exchange_seconds, 0)
        timeline = bounded_staleness(durations, Network(upload=exchange_seconds), math.inf)
        record = commits_on_arrival(timeline, 1.0 / num_workers, math.inf)
        return record._replace(read=_versions_after_own_steps(record))

    def neighbour(schedule: Schedule) -> jax.Array:
        """int32[E]: with whom the worker of each commit averages, itself if it has no neighbour."""
        neighbours = undirected_neighbours(graph, schedule.start.shape[1])
        num_neighbours = jnp.asarray(neighbours.sum(axis=1), jnp.int32)
        # [W, W]: of each worker all workers, its neighbours first.
        neighbours_first = jnp.asarray(np.argsort(~neighbours, axis=1, kind="stable"), jnp.int32)

        def neighbour_of_step(worker: jax.Array, unit: jax.Array) -> jax.Array:
            """int32[]: the neighbour that a worker draws with a unit; itself if it has none.

            Row w of `neighbours_first int32[W, W]` begins with the `num_neighbours[w]` neighbours of worker w.
            """
            key_of_step = jax.random.fold_in(jax.random.fold_in(rng_key, worker), unit)
            index = jax.random.randint(key_of_step, (), 0, num_neighbours[worker].clip(1), jnp.int32)
            return jnp.where(num_neighbours[worker] > 0, neighbours_first[worker, index], worker)

        return jax.vmap(neighbour_of_step)(schedule.worker[:, 0].clip(0), schedule.unit[:, 0].clip(0))

    def mean_of_two(schedule: Schedule) -> Callable[[jax.Array], MixingMatrix]:
        """How the worker and the neighbour of any commit mix: both get the mean of their parameters."""
        return lambda commit: MixingMatrix(jnp.full((2, 2), 0.5, schedule.time.dtype))

    def copies(schedule: Schedule) -> jax.Array:
        """float[T, W]: the copies of the parameters for each unit, which a worker and its neighbour send each other."""
        has_neighbour = undirected_neighbours(graph, schedule.start.shape[1]).any(axis=1)
        return jnp.broadcast_to(jnp.where(has_neighbour, 2, 0).astype(schedule.start.dtype), schedule.start.shape)

    return Protocol(
        schedule,
        local=LocalWork(pull=own_params, mixing=Mixing(mean_of_two, copies, neighbour), single_steps=True),
        rule=no_rule,
        specification=specifications.ad_psgd,
    )


def _versions_after_own_steps(record: Schedule) -> jax.Array:
    """int32[T, W]: the version of which each unit is, that which its worker's step before has made; `read` otherwise.

    `read` counts all steps of a moment, also those that come after the worker's own.
    """
    is_commit = jnp.isfinite(record.time)
    num_units = record.read.shape[0]
    next_unit = jnp.where(is_commit, record.unit[:, 0] + 1, num_units)
    version = jnp.arange(1, record.time.size + 1, dtype=record.read.dtype)
    return record.read.at[next_unit, record.worker[:, 0]].set(version, mode="drop")
