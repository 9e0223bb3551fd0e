"""The first K gradients (Dutta et al. 2018); backup workers (Chen et al. 2016); softsync (Zhang et al. 2016).

The server commits at the K-th push, before it takes the next one. Times are left open: anybody may push next. How old a
version that a worker works on is, is one bit, since no rule asks for more: staleness has no bound where nobody is cut
off.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, own, zeros
from gcjax.specifications.events import BEGIN, COMMIT, UNIT, Event
from gcjax.specifications.rounds import commits_all, has_read, has_worked, rounds


class Arrivals(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      read: int[W], the version that each worker has read last; -1 at first.
      busy: int[W], whether each is computing.
      work: int[W], the pushes of each that are in no commit yet.
    """

    version: Numbers
    read: Numbers
    busy: Numbers
    work: Numbers


@comparable
def k_sync(num_workers: int = 3, *, num_contributions: int = 2) -> Specification:
    """K-sync: a commit takes one gradient each of K workers, on the version that it replaces.

    Args:
      num_workers: W.
      num_contributions: K, at most W.
    """
    return _cancelled("k_sync", num_workers, num_contributions, distinct=True)


@comparable
def k_batch_sync(num_workers: int = 3, *, num_contributions: int = 2) -> Specification:
    """K-batch-sync: a commit takes K gradients, all on the version that it replaces.

    Args:
      num_workers: W.
      num_contributions: K.
    """
    return _cancelled("k_batch_sync", num_workers, num_contributions, distinct=False)


@comparable
def backup_workers(num_workers: int = 3, *, num_backup: int = 1) -> Specification:
    """Backup workers: a commit takes one gradient each of W - b workers, on the version that it replaces.

    Args:
      num_workers: W.
      num_backup: b, below W.
    """
    check_num_workers(num_workers)
    _validate.integer("num_backup", num_backup, maximum=num_workers - 1, hint="Somebody must be waited for.")
    return _cancelled("backup_workers", num_workers, num_workers - num_backup, distinct=True)


@comparable
def k_async(num_workers: int = 3, *, num_contributions: int = 2) -> Specification:
    """K-async: a commit takes one gradient each of K workers, who then read a newer version than before.

    Args:
      num_workers: W.
      num_contributions: K, at most W.
    """
    return _uncancelled("k_async", num_workers, num_contributions, distinct=True)


@comparable
def k_batch_async(num_workers: int = 3, *, num_contributions: int = 2) -> Specification:
    """K-batch-async: a commit takes K gradients, and nobody waits; the latter shows in times only, so in runs.

    Args:
      num_workers: W.
      num_contributions: K.
    """
    return _uncancelled("k_batch_async", num_workers, num_contributions, distinct=False)


@comparable
def staleness_aware(num_workers: int = 3, *, num_contributions: int = 1) -> Specification:
    """Staleness-aware: a commit takes K gradients, and nobody waits; the factors are left out.

    Args:
      num_workers: W.
      num_contributions: K.
    """
    return _uncancelled("staleness_aware", num_workers, num_contributions, distinct=False)


def _check_num_contributions(num_workers: int, count: int, distinct: bool) -> int:
    check_num_workers(num_workers)
    return _validate.integer("num_contributions", count, minimum=1, maximum=num_workers if distinct else None)


def _cancelled(name: str, num_workers: int, count: int, *, distinct: bool) -> Specification:
    """Rounds, since a commit cuts off all others."""
    _check_num_contributions(num_workers, count, distinct)
    each = f"one gradient each of {count} workers" if distinct else f"{count} gradient{'s' * (count > 1)}"
    return rounds(
        f"{name}({num_workers} workers, takes {count})",
        num_workers,
        max_work=1 if distinct else count,
        room=lambda state: state.work.sum() < count,
        enough=lambda state: state.work.sum() == count,
        within=lambda state: (state.work.sum() <= count) & (~np.bool_(distinct) | (state.work <= 1).all()),
        claim=f"a commit takes {each}, on the version that it replaces",
    )


def _uncancelled(name: str, num_workers: int, count: int, *, distinct: bool) -> Specification:
    """A commit lets the others go on with the version that they have read."""
    _check_num_contributions(num_workers, count, distinct)
    max_work = 1 if distinct else count

    def begin(state: Arrivals, worker: jax.Array) -> tuple[Arrivals, jax.Array]:
        after = state._replace(read=state.read.at[worker].set(state.version), busy=state.busy.at[worker].set(1))
        return after, (state.busy[worker] == 0) & (~np.bool_(distinct) | (state.work[worker] == 0))

    def push(state: Arrivals, worker: jax.Array) -> tuple[Arrivals, jax.Array]:
        after = state._replace(busy=state.busy.at[worker].set(0), work=state.work.at[worker].add(1))
        return after, (state.busy[worker] == 1) & (state.work.sum() < count)

    def rule(before: Arrivals, after: Arrivals, worker: jax.Array) -> jax.Array:
        done, was, now = after.work[worker] - before.work[worker], before.busy[worker], after.busy[worker]
        room = (after.work[worker] <= max_work) & (before.work.sum() < count)
        pushes = (was == 1) & (now == 0) & (done == 1) & room & (after.read[worker] == before.read[worker])
        waited = (before.work[worker] == 0) if distinct else True
        return pushes | ((was == 0) & (now == 1) & (done == 0) & waited & (after.read[worker] == before.version))

    def commit(state: Arrivals, server: jax.Array) -> tuple[Arrivals, jax.Array]:
        return state._replace(version=state.version + 1, work=jnp.zeros_like(state.work)), state.work.sum() >= count

    def committed(before: Arrivals, after: Arrivals, server: jax.Array) -> jax.Array:
        return (after.version == before.version + 1) & (after.work == 0).all() & (before.work.sum() == count)

    def step_property(before: Arrivals, after: Arrivals, component: jax.Array) -> jax.Array:
        exact = (after.version == before.version) | ((before.work.sum() == count) & (before.work <= max_work).all())
        begins = after.busy > before.busy
        return exact & (~begins | (after.read > before.read)).all() if distinct else exact

    def canonicalise(state: Arrivals) -> Arrivals:
        read = (state.read >= state.version).astype(jnp.int32)
        return state._replace(version=jnp.ones_like(state.version), read=read)

    def begins(before: Arrivals, after: Arrivals, event: Event) -> jax.Array:
        begins = has_read(before, after, event) & (after.busy[event.worker] == 1)
        return begins & (np.bool_(distinct) | ~event.waited)

    each = f"{count} gradient{'s' * (count > 1)}"
    each = f"one gradient each of {count} workers, who then read a newer version" if distinct else each
    return Specification(
        f"{name}({num_workers} workers, takes {count})",
        num_workers,
        initial=Arrivals(np.int32(0), zeros(num_workers) - 1, zeros(num_workers), zeros(num_workers)),
        sizes=Arrivals(2, zeros(num_workers) + 2, zeros(num_workers) + 2, zeros(num_workers) + max_work + 1),
        worker=Role(
            (Action("begin", begin, BEGIN, begins), Action("push", push, UNIT, has_worked)),
            lambda worker: Arrivals(False, *(own(num_workers, worker),) * 3),
            rule,
        ),
        claim=f"a commit takes {each}",
        server=Role(
            (Action("commit", commit, COMMIT, commits_all),),
            lambda server: Arrivals(True, False, False, True),
            committed,
            only_actions=True,
        ),
        num_servers=1,
        invariant=lambda state: (state.work.sum() <= count) & (state.read <= state.version).all(),
        step_property=step_property,
        canonicalise=canonicalise,
    )
