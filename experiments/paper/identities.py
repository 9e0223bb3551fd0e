"""Identities between schedules, and what wavefronts and past versions a schedule needs.

Letters: T units, W workers, E commits, C contributions to a commit.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import protocols, stragglers
from gcjax.engine.version_ring import versions_alive
from gcjax.protocols import Protocol, Schedule, simulation
from gcjax.stragglers import Network

Make = Callable[[int], Protocol]

IDENTITIES: dict[str, tuple[Make, Make, bool]] = {
    "SSP without a bound is ASP": (lambda w: protocols.ssp(staleness=10**6), lambda w: protocols.asp(), False),
    "one group is BSP": (lambda w: protocols.grouped(groups=[range(w)]), lambda w: protocols.bsp(), False),
    "groups of one worker are ASP": (
        lambda w: protocols.grouped(groups=[[i] for i in range(w)]), lambda w: protocols.asp(), False,
    ),
    "K-sync of all workers is BSP": (
        lambda w: protocols.k_sync(num_contributions=w), lambda w: protocols.bsp(), False,
    ),
    "K-async of all workers is BSP": (
        lambda w: protocols.k_async(num_contributions=w), lambda w: protocols.bsp(), False,
    ),
    "local SGD of one step is BSP": (
        lambda w: protocols.local_sgd(num_local_steps=1), lambda w: protocols.bsp(), False,
    ),
    "no backup workers is BSP": (lambda w: protocols.backup_workers(num_backup=0), lambda w: protocols.bsp(), False),
    "WBSP at equal speeds is BSP": (lambda w: protocols.worker_busy(), lambda w: protocols.bsp(), True),
    "SSP as max-plus law is SSP as event queue": (
        lambda w: protocols.ssp(staleness=2), lambda w: _queued_ssp(2), False,
    ),
}  # fmt: skip
"""What is said -> the two protocols for W workers, and whether it is said for equal speeds only."""


def _queued_ssp(staleness: int) -> Protocol:
    """SSP by its waiting rule, in the event queue."""
    rule = protocols.ssp(staleness=staleness).rule
    assert rule is not None

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule by the event queue, also where messages do not get in each other's way."""
        return simulation.event_schedule(rule(durations.shape[1]), durations, network)

    return Protocol(schedule)


def commits(schedule: Schedule) -> list[tuple[float, list[tuple[int, ...]]]]:
    """The time (seconds) of each commit that happens, and its contributions (worker, unit, version, work), sorted."""
    fields = (schedule.worker, schedule.unit, schedule.version, schedule.work)
    contributions = np.stack([np.asarray(field) for field in fields], -1)  # int[E, C, 4]
    contributions_of_commit = [
        sorted(tuple(map(int, (worker, *unit_version_work))) for worker, *unit_version_work in commit if worker >= 0)
        for commit in contributions
    ]
    commit_times = np.asarray(schedule.time)
    return [
        (float(time), contributions)
        for time, contributions in zip(commit_times, contributions_of_commit, strict=True)
        if np.isfinite(time)
    ]


def difference(one: Schedule, other: Schedule) -> float:
    """The largest difference between the times of their commits, relative to these; inf if the commits differ.

    Times below a second count as one; without a commit it is inf, too.
    """
    commits_of_one, commits_of_other = commits(one), commits(other)
    contributions_of_one = [contributions for _, contributions in commits_of_one]
    contributions_of_other = [contributions for _, contributions in commits_of_other]
    if not commits_of_one or contributions_of_one != contributions_of_other:
        return float("inf")
    times_of_one, times_of_other = [time for time, _ in commits_of_one], [time for time, _ in commits_of_other]
    return max(
        abs(time - other_time) / max(other_time, 1.0)
        for time, other_time in zip(times_of_one, times_of_other, strict=True)
    )


def identities(*, num_workers: int, num_units: int, num_draws: int) -> dict[str, Any]:
    """For each identity: on how many draws of durations it was tried, how often it held, the largest difference.

    Half of the draws are exponential, half of a few values only, so that many events happen at the same moment.

    Args:
      num_workers: W.
      num_units: T.
      num_draws: sets of durations.
    """
    rows = []
    with jax.enable_x64(True):
        for name, (make_one, make_other, has_equal_speeds) in IDENTITIES.items():
            schedule_one = jax.jit(make_one(num_workers).schedule)
            schedule_other = jax.jit(make_other(num_workers).schedule)
            draws = [_drawn_durations(i, num_units, num_workers, has_equal_speeds) for i in range(num_draws)]
            differences = [
                difference(schedule_one(durations, Network()), schedule_other(durations, Network()))
                for durations in draws
            ]
            num_held = sum(difference_of_draw < 1e-9 for difference_of_draw in differences)
            rows.append({"name": name, "draws": num_draws, "held": num_held, "largest": max(differences)})
    return {"workers": num_workers, "units": num_units, "rows": rows}


def _drawn_durations(draw: int, num_units: int, num_workers: int, has_equal_speeds: bool) -> jax.Array:
    """float[T, W] seconds: exponential for even draws, of four values for odd ones; one column repeated if equal."""
    key = jax.random.fold_in(jax.random.key(0), draw)
    shape = (num_units, 1 if has_equal_speeds else num_workers)
    tied_values, has_ties = jnp.asarray([0.5, 1.0, 1.5, 3.0]), draw % 2 == 1
    durations = jax.random.choice(key, tied_values, shape) if has_ties else jax.random.exponential(key, shape)
    return jnp.broadcast_to(durations, (num_units, num_workers))


WAVEFRONTS: dict[str, Callable[[int], Protocol]] = {
    "ASP": lambda w: protocols.asp(),
    "SSP(3)": lambda w: protocols.ssp(staleness=3),
    "DSSP": lambda w: protocols.dssp(),
    "groups of four": lambda w: protocols.grouped(groups=protocols.contiguous_groups(w, num_groups=w // 4)),
    "K-async (half)": lambda w: protocols.k_async(num_contributions=w // 2),
    "BSP": lambda w: protocols.bsp(),
}
"""Name -> the protocol for W workers whose wavefronts are counted."""

_versions_alive = jax.jit(versions_alive)  # the engine's own count of the most versions that are alive at once


def wavefronts(*, num_workers: int, num_units: int) -> dict[str, Any]:
    """For each protocol: commits, gradients, wavefronts, the gradients of a wavefront, and past versions kept.

    Args:
      num_workers: W.
      num_units: T.
    """
    model = stragglers.exponential(mean=1.0)
    durations = stragglers.sample_durations(model, jax.random.key(0), num_units, num_workers)
    rows = []
    for name, make_protocol in WAVEFRONTS.items():
        schedule_program = jax.jit(make_protocol(num_workers).schedule)
        schedule = jax.tree.map(np.asarray, schedule_program(durations, Network()))
        is_commit = np.isfinite(schedule.time)  # [E]
        num_gradients = int((schedule.worker[is_commit] >= 0).sum())  # worker -1 pads
        newest_read = schedule.version[is_commit].max(axis=1)  # over contributions, of which -1 pads
        count = num_wavefronts(newest_read)
        rows.append({
            "name": name, "commits": int(is_commit.sum()), "gradients": num_gradients, "wavefronts": count,
            "width": num_gradients / count, "staleness": float(_staleness(schedule).mean()),
            "versions": int(_versions_alive(jax.tree.map(jnp.asarray, schedule))),
        })  # fmt: skip
    return {"workers": num_workers, "units": num_units, "rows": rows}


def num_wavefronts(newest_read: np.ndarray) -> int:
    """How many wavefronts the commits fall into; a wavefront ends before a commit that reads one of its own versions.

    Version v is the parameters after v commits, so those that a wavefront makes come after the number of its first
    commit, which is from 0.

    Args:
      newest_read: int[E], the newest version that each commit reads.
    """
    first_commit_of_wavefront, count = 0, 1
    for commit, version in enumerate(newest_read):
        reads_own_wavefront = version > first_commit_of_wavefront
        if reads_own_wavefront:
            first_commit_of_wavefront, count = commit, count + 1
    return count


def _staleness(schedule: Schedule) -> np.ndarray:
    """int[contributions]: the staleness of each contribution, the commits since the version that was read."""
    return np.asarray(schedule.staleness)[np.asarray(schedule.worker) >= 0]
