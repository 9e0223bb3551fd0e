"""Worker-busy synchronous parallel, in the committed and in the eager variant (Yang et al. 2024).

A round lasts from one reason to read to the next: from commit to commit, or, in the eager variant, from push to push of
one fixed worker, the trigger. What is asked of both: all that read in a round read the same version. The eager variant
does not give that.

`start` is the version with which the round began. How long a step takes is left open: anybody may push next. States are
finite since only the order of versions counts, all versions from before this round count as one, and a third push
before a commit as the second.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, is_own_entry, zeros
from gcjax.specifications.events import BEGIN, COMMIT, KINDS, UNIT, Event
from gcjax.specifications.rounds import commits_all, has_read, has_worked

MAX_WORK = 2


class Busy(NamedTuple):
    """The state.

    Attributes:
      version: int[], the newest that can be read.
      start: int[], the version with which this round has begun.
      work: int[W], the pushes of each worker since the last commit.
      read: int[W], the version that each has read last.
      busy: int[W], whether each is in a local step.
      due: int[W], the version that each must have read when it begins again; 0 where it must read the newest.
    """

    version: Numbers
    start: Numbers
    work: Numbers
    read: Numbers
    busy: Numbers
    due: Numbers


@comparable
def worker_busy(num_workers: int = 3, *, overlap: bool = False) -> Specification:
    """WBSP: all that read in a round read the same version, and everybody is in each commit.

    A worker pushes after each local step, and then begins the next one, by reading if there is a version that it has
    not read; it changes no version. The server commits, and a round begins, when everybody has pushed (Yang et al.
    2024). If communication and computing overlap, it goes on with what it has while it reads: then it has read what was
    the newest version when it began before.

    Args:
      num_workers: W.
      overlap: whether communication and computing overlap.
    """
    check_num_workers(num_workers)

    def commit(state: Busy, server: jax.Array) -> tuple[Busy, jax.Array]:
        new = state.version + 1
        return state._replace(version=new, start=new, work=jnp.zeros_like(state.work)), (state.work > 0).all()

    def committed(before: Busy, after: Busy, server: jax.Array) -> jax.Array:
        new = (after.version == before.version + 1) & (after.start == after.version)
        return new & (before.work >= 1).all() & (after.work == 0).all()

    def step_property(before: Busy, after: Busy, component: jax.Array) -> jax.Array:
        return (after.version == before.version) | (before.work >= 1).all()

    server = Role(
        (Action("commit", commit, COMMIT, commits_all),),
        lambda c: Busy(True, True, True, False, False, False),
        committed,
        True,
    )
    if overlap:
        begin = [
            Action("pull", _overlapped(_begin), BEGIN, _begins),
            Action("go on", _overlapped(_keep), BEGIN, _begins),
        ]
    else:
        begin = [Action("begin", _begin, BEGIN, _begins)]  # with the newest version, whether it has to be read or not
    role = Role((_PUSH, *begin), _worker_frame(num_workers, due=overlap), partial(_worker_rule, overlap))
    specification = _specification(
        f"worker_busy({num_workers} workers{', overlap' * overlap})", num_workers, role, overlap
    )
    return specification._replace(
        server=server, num_servers=1, step_property=step_property, replay=partial(_replay_counts, overlap)
    )


@comparable
def worker_busy_eager(num_workers: int = 3, *, trigger: int = 0) -> Specification:
    """Eager WBSP: all that read in a round read the same version; this does not hold.

    As in the released code, the server applies each push at once, and each push of one worker begins a round; the
    others read after their next push, when there may be newer versions (Yang et al. 2024).

    Args:
      num_workers: W.
      trigger: the worker whose pushes begin rounds; the slowest, as a rule.
    """
    check_num_workers(num_workers)
    _validate.integer("trigger", trigger, maximum=num_workers - 1, hint="The trigger is a worker.")

    def push(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
        after, enabled = _push(state, worker)
        new = state.version + 1
        return after._replace(version=new, start=jnp.where(worker == trigger, new, state.start)), enabled

    def rule(before: Busy, after: Busy, worker: jax.Array) -> jax.Array:
        pushed = after.work[worker] - before.work[worker]
        counted = (pushed >= 0) & (pushed <= 1) & (after.version == before.version + pushed)
        begins = (pushed == 1) & (worker == trigger)
        return counted & (after.start == jnp.where(begins, after.version, before.start)) & _reads(before, after, worker)

    begin = Action("pull", _pull), Action("go on", _go_on)
    worker = Role((Action("push", push), *begin), _worker_frame(num_workers, shared=True), rule)
    return _specification(f"worker_busy_eager({num_workers} workers, trigger {trigger})", num_workers, worker)


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


def _begin(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    after = state._replace(read=state.read.at[worker].set(state.version), busy=state.busy.at[worker].set(1))
    return after, state.busy[worker] == 0


def _keep(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    """Going on with what has been read, of which there is at least what is due."""
    read = jnp.maximum(state.read[worker], state.due[worker])
    after = state._replace(read=state.read.at[worker].set(read), busy=state.busy.at[worker].set(1))
    return after, state.busy[worker] == 0


def _overlapped(
    move: Callable[[Busy, jax.Array], tuple[Busy, jax.Array]],
) -> Callable[[Busy, jax.Array], tuple[Busy, jax.Array]]:
    def moved(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
        after, enabled = move(state, worker)
        return after._replace(due=state.due.at[worker].set(state.version)), enabled

    return moved


def _begins(before: Busy, after: Busy, event: Event) -> jax.Array:
    """bool[]: whether the worker begins, at once, with the version that the event shows."""
    return has_read(before, after, event) & (after.busy[event.worker] == 1) & ~event.waited


_PUSH = Action("push", _push, UNIT, has_worked)


def _worker_frame(num_workers: int, *, shared: bool = False, due: bool = False) -> Callable[[jax.Array], Busy]:
    def frame(worker: jax.Array) -> Busy:
        own_entry = is_own_entry(num_workers, worker)
        return Busy(shared, shared, own_entry, own_entry, own_entry, own_entry & due)

    return frame


def _worker_rule(overlap: bool, before: Busy, after: Busy, worker: jax.Array) -> jax.Array:
    """A worker pushes what it has begun, or begins with the newest version; with overlap, with one that is due."""
    was, now, read = before.busy[worker], after.busy[worker], after.read[worker]
    same = (read == before.read[worker]) & (after.due[worker] == before.due[worker])
    pushes = ((was == 1) | overlap) & (now == 0) & (after.work[worker] == before.work[worker] + 1) & same
    newest = jnp.maximum(before.read[worker], before.due[worker]) if overlap else before.version
    due = before.version if overlap else before.due[worker]
    enough = (read >= newest) & (read <= before.version) & (after.due[worker] == due)
    begins = (was == 0) & (now == 1) & (after.work[worker] == before.work[worker]) & enough
    return pushes | begins


def _replay_counts(overlap: bool, state: Busy, events: Event) -> Busy:
    """The states before events, by counting commits and units, and by what each worker has read last."""
    begins, units, commits = (events.kind == KINDS.index(kind) for kind in (BEGIN, UNIT, COMMIT))
    num_events, num_workers = events.kind.size, state.work.size

    def accumulated(rows: np.ndarray, changes: np.ndarray | int, first: np.ndarray) -> np.ndarray:
        """int32[B, W]: the first values, changed at the events in these rows by so much for their workers."""
        entries = np.zeros((num_events + 1, num_workers), np.int32)
        entries[rows + 1, events.worker[rows]] = changes
        entries[0] = first
        return np.cumsum(entries[:-1], axis=0, dtype=np.int32)

    def latest(which: np.ndarray, values: np.ndarray, first: np.ndarray) -> np.ndarray:
        """int32[B, W]: the value at the last of these events of each worker before each event."""
        rows = np.flatnonzero(which)
        worker = events.worker[rows].astype(np.min_scalar_type(num_workers))  # the fewer bytes, the faster sorted
        rows = rows[np.argsort(worker, kind="stable")]
        worker, value = events.worker[rows], values[rows].astype(np.int32)
        previous = np.where(np.diff(worker, prepend=-1) != 0, np.asarray(first, np.int32)[worker], np.roll(value, 1))
        return accumulated(rows, value - previous, first)

    version = state.version + np.cumsum(commits, dtype=np.int32) - commits
    arrived = accumulated(np.flatnonzero(units), 1, state.work)
    behind_commit = np.where(commits, np.arange(1, num_events + 1), 0)
    last = np.maximum.accumulate(np.append(0, behind_commit)[:-1])  # behind the last commit
    taken = np.where((last > 0)[:, None], arrived[(last - 1).clip(0)], 0)
    return Busy(
        version=version,
        start=state.start + (version - state.version),
        work=arrived - taken,
        read=latest(begins, events.version, state.read),
        busy=latest(begins | units, begins, state.busy),
        due=latest(begins, version, state.due) if overlap else np.broadcast_to(state.due, arrived.shape),
    )


def _reads(before: Busy, after: Busy, worker: jax.Array) -> jax.Array:
    """What a worker has read last stays, or becomes the newest version."""
    read, busy = after.read[worker], after.busy[worker]
    return ((read == before.read[worker]) | (read == before.version)) & (busy >= 0) & (busy <= 1)


def _specification(name: str, num_workers: int, worker: Role, overlap: bool = False) -> Specification:
    zero, each = np.int32(0), zeros(num_workers)
    return Specification(
        name,
        num_workers,
        initial=Busy(zero, zero, each, each, each + 1, each),
        sizes=Busy(4, 2, each + MAX_WORK + 1, each + 3, each + 2, each + (3 if overlap else 1)),
        worker=worker,
        claim="all that read in a round read the same version",
        invariant=one_version,
        canonicalise=partial(_canonical, overlap),
    )


def _canonical(overlap: bool, state: Busy) -> Busy:
    """Versions by their order only, those from before this round as one; pushes up to two."""
    read, due = jnp.maximum(state.read, state.start - 1), jnp.maximum(state.due, state.start - 1)
    every = jnp.concatenate([read, *[due][:overlap], jnp.stack([state.start - 1, state.start, state.version])])
    again = jnp.tril(every[:, None] == every[None], -1).any(axis=1)

    def rank(x: jax.Array) -> jax.Array:
        return (~again & (every < x[..., None])).sum(axis=-1)

    work = jnp.minimum(state.work, MAX_WORK)
    return Busy(rank(state.version), rank(state.start), work, rank(read), state.busy, rank(due) * overlap)
