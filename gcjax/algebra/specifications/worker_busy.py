"""Worker-busy synchronous parallel, in the committed and in the eager variant (Yang et al. 2024).

A round lasts from one reason to read to the next: from commit to commit, or, in the eager variant, from push to push of
one fixed worker, the trigger. What is asked of both: all that read in a round read the same version. The eager variant
does not give that.

`start` is the version with which the round began. How long a step takes is left open: anybody may push next; whether
communication and computing overlap makes no difference here. States are finite since only the order of versions counts,
all versions from before this round count as one, and a third push before a commit as the second.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _checks
from gcjax.algebra.specifications.base import Action, Numbers, Role, Specification, check_workers, own, zeros
from gcjax.equality import comparable

MOST_WORK = 2


class Busy(NamedTuple):
    """The state.

    Attributes:
      version: int[], the newest that can be read.
      start: int[], the version with which this round has begun.
      work: int[W], the pushes of each worker since the last commit.
      read: int[W], the version that each has read last.
      busy: int[W], whether each is in a local step.
    """

    version: Numbers
    start: Numbers
    work: Numbers
    read: Numbers
    busy: Numbers


@comparable
def worker_busy(*, workers: int = 3) -> Specification:
    """WBSP: all that read in a round read the same version, and everybody is in each commit.

    A worker pushes after each local step, and then begins the next one, by reading if there is a version that it has
    not read; it changes no version. The server commits, and a round begins, when everybody has pushed (Yang et al.
    2024).

    Args:
      workers: W.
    """
    check_workers(workers)

    def commit(state: Busy, server: jax.Array) -> tuple[Busy, jax.Array]:
        new = state.version + 1
        return state._replace(version=new, start=new, work=jnp.zeros_like(state.work)), (state.work > 0).all()

    def committed(before: Busy, after: Busy, server: jax.Array) -> jax.Array:
        new = (after.version == before.version + 1) & (after.start == after.version)
        return new & (before.work >= 1).all() & (after.work == 0).all()

    def step_property(before: Busy, after: Busy, component: jax.Array) -> jax.Array:
        return (after.version == before.version) | (before.work >= 1).all()

    server = Role((Action("commit", commit),), lambda c: Busy(True, True, True, False, False), committed, True)
    found = _specification(f"worker_busy({workers} workers)", workers, Role((_PUSH, *_BEGIN), _mine(workers), _works))
    return found._replace(server=server, num_servers=1, step_property=step_property)


@comparable
def worker_busy_eager(*, workers: int = 3, trigger: int = 0) -> Specification:
    """Eager WBSP: all that read in a round read the same version; this does not hold.

    As in the released code, the server applies each push at once, and each push of one worker begins a round; the
    others read after their next push, when there may be newer versions (Yang et al. 2024).

    Args:
      workers: W.
      trigger: the worker whose pushes begin rounds; the slowest, as a rule.
    """
    check_workers(workers)
    _checks.integer("trigger", trigger, maximum=workers - 1, hint="The trigger is a worker.")

    def push(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
        after, enabled = _push(state, worker)
        new = state.version + 1
        return after._replace(version=new, start=jnp.where(worker == trigger, new, state.start)), enabled

    def rule(before: Busy, after: Busy, worker: jax.Array) -> jax.Array:
        pushed = after.work[worker] - before.work[worker]
        counted = (pushed >= 0) & (pushed <= 1) & (after.version == before.version + pushed)
        begins = (pushed == 1) & (worker == trigger)
        return counted & (after.start == jnp.where(begins, after.version, before.start)) & _reads(before, after, worker)

    worker = Role((Action("push", push), *_BEGIN), _mine(workers, shared=True), rule)
    return _specification(f"worker_busy_eager({workers} workers, trigger {trigger})", workers, worker)


def one_version(state: Busy) -> jax.Array:
    """bool[]: whether all that have read in this round have read the same version."""
    fresh = state.read >= state.start
    newest = jnp.max(jnp.where(fresh, state.read, state.start))
    return (~fresh | (state.read == newest)).all()


def _push(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    after = state._replace(work=state.work.at[worker].add(1), busy=state.busy.at[worker].set(0))
    return after, state.busy[worker] == 1


def _pull(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    after = state._replace(read=state.read.at[worker].set(state.version), busy=state.busy.at[worker].set(1))
    return after, (state.busy[worker] == 0) & (state.read[worker] < state.start)


def _go_on(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    idle = state.busy[worker] == 0
    return state._replace(busy=state.busy.at[worker].set(1)), idle & (state.read[worker] >= state.start)


_PUSH = Action("push", _push)
_BEGIN = (Action("pull", _pull), Action("go on", _go_on))


def _mine(workers: int, shared: bool = False) -> Callable[[jax.Array], Busy]:
    def writes(worker: jax.Array) -> Busy:
        return Busy(shared, shared, *(own(workers, worker),) * 3)

    return writes


def _works(before: Busy, after: Busy, worker: jax.Array) -> jax.Array:
    pushed = after.work[worker] - before.work[worker]
    return (pushed >= 0) & (pushed <= 1) & _reads(before, after, worker)


def _reads(before: Busy, after: Busy, worker: jax.Array) -> jax.Array:
    """What a worker has read last stays, or becomes the newest version."""
    read, busy = after.read[worker], after.busy[worker]
    return ((read == before.read[worker]) | (read == before.version)) & (busy >= 0) & (busy <= 1)


def _specification(name: str, workers: int, worker: Role) -> Specification:
    zero, each = np.int32(0), zeros(workers)
    return Specification(
        name,
        workers,
        initial=Busy(zero, zero, each, each, each + 1),
        sizes=Busy(4, 2, each + MOST_WORK + 1, each + 3, each + 2),
        worker=worker,
        claim="all that read in a round read the same version",
        invariant=one_version,
        normalise=_normal,
    )


def _normal(state: Busy) -> Busy:
    """Versions by their order only, those from before this round as one; pushes up to two."""
    read = jnp.maximum(state.read, state.start - 1)
    every = jnp.concatenate([read, jnp.stack([state.start - 1, state.start, state.version])])
    again = jnp.tril(every[:, None] == every[None], -1).any(axis=1)

    def rank(x: jax.Array) -> jax.Array:
        return (~again & (every < x[..., None])).sum(axis=-1)

    work = jnp.minimum(state.work, MOST_WORK)
    return Busy(rank(state.version), rank(state.start), work, rank(read), state.busy)
