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
    program = _Program(count, distinct)
    each = f"{count} gradient{'s' * (count > 1)}"
    each = f"one gradient each of {count} workers, who then read a newer version" if distinct else each
    return Specification(
        f"{name}({num_workers} workers, takes {count})",
        num_workers,
        initial=Arrivals(np.int32(0), zeros(num_workers) - 1, zeros(num_workers), zeros(num_workers)),
        sizes=Arrivals(2, zeros(num_workers) + 2, zeros(num_workers) + 2, zeros(num_workers) + program.max_work + 1),
        worker=Role(
            (Action("begin", program.begin, BEGIN, program.begins), Action("push", program.push, UNIT, has_worked)),
            lambda worker: Arrivals(False, *(own(num_workers, worker),) * 3),
            program.rule,
        ),
        claim=f"a commit takes {each}",
        server=Role(
            (Action("commit", program.commit, COMMIT, commits_all),),
            lambda server: Arrivals(True, False, False, True),
            program.committed,
            only_actions=True,
        ),
        num_servers=1,
        invariant=lambda state: (state.work.sum() <= count) & (state.read <= state.version).all(),
        step_property=program.step_property,
        canonicalise=program.canonicalise,
    )


class _Program(NamedTuple):
    """Pushes that a commit takes K of, from one worker each if they are to be distinct; nobody is cut off."""

    num_contributions: int
    distinct: bool

    @property
    def max_work(self) -> int:
        """The most pushes of a worker in a commit."""
        return 1 if self.distinct else self.num_contributions

    def begin(self, state: Arrivals, worker: jax.Array) -> tuple[Arrivals, jax.Array]:
        after = state._replace(read=state.read.at[worker].set(state.version), busy=state.busy.at[worker].set(1))
        return after, (state.busy[worker] == 0) & (~np.bool_(self.distinct) | (state.work[worker] == 0))

    def push(self, state: Arrivals, worker: jax.Array) -> tuple[Arrivals, jax.Array]:
        after = state._replace(busy=state.busy.at[worker].set(0), work=state.work.at[worker].add(1))
        return after, (state.busy[worker] == 1) & (state.work.sum() < self.num_contributions)

    def rule(self, before: Arrivals, after: Arrivals, worker: jax.Array) -> jax.Array:
        done, was, now = after.work[worker] - before.work[worker], before.busy[worker], after.busy[worker]
        room = (after.work[worker] <= self.max_work) & (before.work.sum() < self.num_contributions)
        pushes = (was == 1) & (now == 0) & (done == 1) & room & (after.read[worker] == before.read[worker])
        waited = (before.work[worker] == 0) if self.distinct else True
        return pushes | ((was == 0) & (now == 1) & (done == 0) & waited & (after.read[worker] == before.version))

    def commit(self, state: Arrivals, server: jax.Array) -> tuple[Arrivals, jax.Array]:
        after = state._replace(version=state.version + 1, work=jnp.zeros_like(state.work))
        return after, state.work.sum() >= self.num_contributions

    def committed(self, before: Arrivals, after: Arrivals, server: jax.Array) -> jax.Array:
        return (
            (after.version == before.version + 1)
            & (after.work == 0).all()
            & (before.work.sum() == self.num_contributions)
        )

    def step_property(self, before: Arrivals, after: Arrivals, component: jax.Array) -> jax.Array:
        whole = (before.work.sum() == self.num_contributions) & (before.work <= self.max_work).all()
        exact = whole | (after.version == before.version)
        begins = after.busy > before.busy
        return exact & (~begins | (after.read > before.read)).all() if self.distinct else exact

    def canonicalise(self, state: Arrivals) -> Arrivals:
        read = (state.read >= state.version).astype(jnp.int32)
        return state._replace(version=jnp.ones_like(state.version), read=read)

    def begins(self, before: Arrivals, after: Arrivals, event: Event) -> jax.Array:
        reads = has_read(before, after, event) & (after.busy[event.worker] == 1)
        return reads & (np.bool_(self.distinct) | ~event.waited)
