"""Worker-busy synchronous parallel, in the committed and in the eager variant (Yang et al. 2024).

A round lasts from one reason to read to the next: from commit to commit, or, in the eager variant, from push to push of
one fixed worker, the trigger. What is asked of both: all that read in a round read the same version. The eager variant
does not give that.

`round_version` is the version with which the round began. How long a step takes is left open: anybody may push next.
States are finite since only the order of versions counts, all versions from before this round count as one, and a third
push before a commit as the second.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, zeros
from gcjax.specifications.event_counts import latest_values, num_before
from gcjax.specifications.events import BEGIN, COMMIT, KINDS, UNIT, Event
from gcjax.specifications.first_arrivals import all_have_pushed
from gcjax.specifications.rounds import (
    adds_one_unit,
    after_commit,
    begin_action,
    commits_all_earlier_messages,
    enough_at_commits,
    is_commit,
)

MAX_PENDING_PUSHES = 2
"""More pushes of a worker before a commit count as these."""


class Busy(NamedTuple):
    """The state.

    Attributes:
      version: int[], the newest that can be read.
      round_version: int[], the version with which this round has begun.
      pending_units: int[W], the pushes of each worker since the last commit, of one unit each.
      read: int[W], the version that each has read last.
      busy: int[W], whether each is in a local step.
      next_read: int[W], with overlap, the version that each reads during its step, for the next one; otherwise 0.
    """

    version: Numbers
    round_version: Numbers
    pending_units: Numbers
    read: Numbers
    busy: Numbers
    next_read: Numbers


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
    return Specification.of_all_workers(num_workers, members=partial(_with_members, num_workers, overlap))


def _with_members(num_workers: int, overlap: bool, alive: Any) -> Specification:
    """WBSP if the workers `alive bool[W]` take part: they all are in each commit."""

    def commit(state: Busy, server: jax.Array) -> tuple[Busy, jax.Array]:
        """The state after a commit of all pushes, which begins a round, and whether all have pushed; one server."""
        return after_commit(state, round_version=state.version + 1), all_have_pushed(state, alive)

    def server_rule(before: Busy, after: Busy, server: jax.Array) -> jax.Array:
        """bool[]: whether the server makes the next version of at least one push of everybody, and begins a round."""
        return is_commit(before, after) & (after.round_version == after.version) & all_have_pushed(before, alive)

    def state_after_join(state: Busy, worker: jax.Array) -> Busy:
        """The state in which the worker is in no local step (`busy` 0), so that it begins one."""
        return state._replace(busy=state.busy.at[worker].set(0))

    commit_action = Action("commit", commit, event=COMMIT, matches=commits_all_earlier_messages)
    server = Role.of_servers(Busy, ("version", "round_version", "pending_units"), (commit_action,), server_rule)
    if overlap:
        begin_actions = [
            begin_action("pull", _with_newest_as_next_read(_begin)),
            begin_action("go on", _with_newest_as_next_read(_begin_with_read_version)),
            begin_action("go on, read after a commit", _with_newest_as_next_read(_begin_with_version_after_next_read)),
        ]
    else:
        begin_actions = [begin_action("begin", _begin)]  # with the newest version, whether it has to be read or not
    own_fields = "pending_units", "read", "busy", *("next_read",) * overlap
    worker = Role.of_workers(
        Busy, num_workers, own_fields, (_PUSH, *begin_actions), rule=partial(_worker_rule, overlap)
    )
    specification = _busy_specification(
        f"worker_busy({num_workers} workers{', overlap' * overlap})", num_workers, worker, overlap
    )
    return specification._replace(
        server=server,
        num_servers=1,
        step_property=enough_at_commits(partial(all_have_pushed, alive=alive)),
        replay=partial(_states_before_events, overlap),
        state_after_join=state_after_join,
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
    trigger = _validate.integer("trigger", trigger, maximum=num_workers - 1, hint="The trigger is a worker.")

    def push(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
        """The state after a push, which is a version at once, and whether the worker is in a step.

        If it is the push of the worker `trigger`, a round begins with this version.
        """
        after, enabled = _push(state, worker)
        version = state.version + 1
        round_version = jnp.where(worker == trigger, version, state.round_version)
        return after._replace(version=version, round_version=round_version), enabled

    def rule(before: Busy, after: Busy, worker: jax.Array) -> jax.Array:
        """bool[]: whether a push makes a version, only the trigger's begins a round, and reads are of the newest.

        `pending_units int[W]` counts the pushes of each; a round begins with the version `round_version`.
        """
        num_pushes = after.pending_units[worker] - before.pending_units[worker]
        makes_version = (num_pushes >= 0) & (num_pushes <= 1) & (after.version == before.version + num_pushes)
        begins_round = (num_pushes == 1) & (worker == trigger)
        round_version = jnp.where(begins_round, after.version, before.round_version)
        may_read = _keeps_read_or_reads_newest(before, after, worker)
        return makes_version & (after.round_version == round_version) & may_read

    actions = Action("push", push), Action("pull", _pull), Action("go on", _go_on)
    own_fields, shared_fields = ("pending_units", "read", "busy"), ("version", "round_version")
    worker = Role.of_workers(Busy, num_workers, own_fields, actions, rule, shared_fields)
    return _busy_specification(f"worker_busy_eager({num_workers} workers, trigger {trigger})", num_workers, worker)


def all_read_same_version(state: Busy) -> jax.Array:
    """bool[]: whether all that have read in this round have read the same version.

    The round began with version `state.round_version`, so they are those whose `state.read int[W]` is no older.
    """
    round_version = state.round_version
    has_read_in_round = state.read >= round_version
    newest_read = jnp.max(jnp.where(has_read_in_round, state.read, round_version))
    return (~has_read_in_round | (state.read == newest_read)).all()


def _push(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    """The state after the worker's push, with which its local step ends, and whether it is in one."""
    after = state._replace(pending_units=state.pending_units.at[worker].add(1), busy=state.busy.at[worker].set(0))
    return after, state.busy[worker] == 1


def _pull(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    """The state in which the worker begins a step with the newest version, and whether it may.

    It may if it is idle and has not read in this round, which began with `round_version`.
    """
    after, is_idle = _begin(state, worker)
    has_not_read_in_round = state.read[worker] < state.round_version
    return after, is_idle & has_not_read_in_round


def _go_on(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    """The state in which the worker begins a step with what it has read, and whether it may.

    It may if it is idle and has read in this round, which began with `round_version`.
    """
    is_idle = state.busy[worker] == 0
    after = state._replace(busy=state.busy.at[worker].set(1))
    has_read_in_round = state.read[worker] >= state.round_version
    return after, is_idle & has_read_in_round


def _begin(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    """The state in which the worker begins a step with the newest version, and whether it is idle."""
    after = state._replace(read=state.read.at[worker].set(state.version), busy=state.busy.at[worker].set(1))
    return after, state.busy[worker] == 0


def _begin_with_read_version(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    """The state in which the worker begins a step without reading now, and whether it is idle: `busy` 0, not 1.

    It has the version that it has read last, or by now the newer one that it was reading during its last step.
    """
    newer_version = jnp.maximum(state.read[worker], state.next_read[worker])
    after = state._replace(read=state.read.at[worker].set(newer_version), busy=state.busy.at[worker].set(1))
    return after, state.busy[worker] == 0


def _begin_with_version_after_next_read(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
    """The state in which the worker begins a step with the version after `next_read`, and whether it is idle.

    If it began the step before at the very moment of a commit, it may have read before this or after it; a record shows
    that only when it begins again.
    """
    version = jnp.minimum(state.next_read[worker] + 1, state.version)
    after = state._replace(read=state.read.at[worker].set(version), busy=state.busy.at[worker].set(1))
    return after, (state.busy[worker] == 0) & (version >= state.read[worker])


def _with_newest_as_next_read(
    move: Callable[[Busy, jax.Array], tuple[Busy, jax.Array]],
) -> Callable[[Busy, jax.Array], tuple[Busy, jax.Array]]:
    """The move with which a worker begins to read meanwhile: what is the newest version now.

    That is `next_read`: the worker must have read it when it begins again.
    """

    def move_with_next_read(state: Busy, worker: jax.Array) -> tuple[Busy, jax.Array]:
        """As `move`, and then the version before the move is the worker's `next_read`."""
        after, enabled = move(state, worker)
        return after._replace(next_read=state.next_read.at[worker].set(state.version)), enabled

    return move_with_next_read


_PUSH = Action("push", _push, UNIT, adds_one_unit)


def _worker_rule(overlap: bool, before: Busy, after: Busy, worker: jax.Array) -> jax.Array:
    """bool[]: whether a worker pushes what it has begun, or begins with a version that it may have.

    That is the newest; with overlap any that is no older than what it has read last and than `next_read`, which it has
    read meanwhile. A push ends a step, `busy` 1; with overlap it is allowed with `busy` 0, too.
    """
    busy_before, busy_after, read = before.busy[worker], after.busy[worker], after.read[worker]
    same_read = (read == before.read[worker]) & (after.next_read[worker] == before.next_read[worker])
    has_one_more = after.pending_units[worker] == before.pending_units[worker] + 1
    pushes = ((busy_before == 1) | overlap) & (busy_after == 0) & has_one_more & same_read
    min_read = jnp.maximum(before.read[worker], before.next_read[worker]) if overlap else before.version
    expected_next_read = before.version if overlap else before.next_read[worker]
    may_read = (read >= min_read) & (read <= before.version) & (after.next_read[worker] == expected_next_read)
    begins = (
        (busy_before == 0)
        & (busy_after == 1)
        & (after.pending_units[worker] == before.pending_units[worker])
        & may_read
    )
    return pushes | begins


def _states_before_events(overlap: bool, state: Busy, events: Event, rows: np.ndarray) -> Busy:
    """The states before the events with the numbers `rows`, as arrays [rows, ...], if the first happens in this state.

    Commits and units are counted, and the last value of each worker is kept, instead of taking step by step.
    """
    is_begin, is_unit, is_commit = (events.kind == KINDS.index(kind) for kind in (BEGIN, UNIT, COMMIT))
    num_workers = state.pending_units.size

    def latest(is_event: np.ndarray, values: np.ndarray, initial: np.ndarray) -> np.ndarray:
        """int32[rows, W]: the value at a worker's last event before each row, `initial` before the first one."""
        return latest_values(rows, is_event, events.worker, values, initial)

    unit_events, commit_events = np.flatnonzero(is_unit), np.flatnonzero(is_commit)
    num_commits = np.searchsorted(commit_events, rows).astype(np.int32)  # before each row
    row_of_last_commit = np.append(0, commit_events)[num_commits]  # 0 if there is none
    num_arrived, num_arrived_at_commit = (
        num_before(x, unit_events, events.worker[unit_events], num_workers) for x in (rows, row_of_last_commit)
    )
    pending_before = np.where((num_commits == 0)[:, None], state.pending_units, 0)
    version_of_event = state.version + np.cumsum(is_commit, dtype=np.int32) - is_commit  # int32[events], before each
    next_read = np.broadcast_to(state.next_read, num_arrived.shape)
    if overlap:
        next_read = latest(is_begin, version_of_event, state.next_read)
    # A round begins with each commit. A worker is busy from a BEGIN, whose value is True, to a UNIT, whose is False.
    return Busy(
        version=state.version + num_commits,
        round_version=state.round_version + num_commits,
        pending_units=pending_before + num_arrived - num_arrived_at_commit,
        read=latest(is_begin, events.version, state.read),
        busy=latest(is_begin | is_unit, is_begin, state.busy),
        next_read=next_read,
    )


def _keeps_read_or_reads_newest(before: Busy, after: Busy, worker: jax.Array) -> jax.Array:
    """bool[]: whether what a worker has read last stays, or becomes the newest version; and `busy` is 0 or 1."""
    read, busy = after.read[worker], after.busy[worker]
    return ((read == before.read[worker]) | (read == before.version)) & (busy >= 0) & (busy <= 1)


def _busy_specification(name: str, num_workers: int, worker: Role, overlap: bool = False) -> Specification:
    """The parts that both variants share: the states, and that all that read in a round read the same version."""
    zero, zero_per_worker = np.int32(0), zeros(num_workers)
    all_busy, two_values = zero_per_worker + 1, zero_per_worker + 2  # at first all are in a local step
    num_version_ranks, num_round_ranks, num_read_ranks = 4, 2, 3  # of canonical states, at most
    return Specification(
        name,
        num_workers,
        initial=Busy(zero, zero, zero_per_worker, zero_per_worker, busy=all_busy, next_read=zero_per_worker),
        sizes=Busy(
            version=num_version_ranks,
            round_version=num_round_ranks,
            pending_units=zero_per_worker + MAX_PENDING_PUSHES + 1,
            read=zero_per_worker + num_read_ranks,
            busy=two_values,
            next_read=zero_per_worker + (num_read_ranks if overlap else 1),
        ),
        worker=worker,
        claim="all that read in a round read the same version",
        invariant=all_read_same_version,
        canonicalise=partial(_canonical_state, overlap),
    )


def _canonical_state(overlap: bool, state: Busy) -> Busy:
    """The state with versions as ranks, all from before this round as one; `MAX_PENDING_PUSHES` pushes at most."""
    old_version = state.round_version - 1  # stands for all versions from before this round
    read_or_old, next_read_or_old = jnp.maximum(state.read, old_version), jnp.maximum(state.next_read, old_version)
    workers_versions = [read_or_old, next_read_or_old] if overlap else [read_or_old]
    versions = jnp.concatenate([*workers_versions, jnp.stack([old_version, state.round_version, state.version])])
    is_repeated = jnp.tril(versions[:, None] == versions[None], -1).any(axis=1)  # has been there before; counts once

    def rank_of(version: jax.Array) -> jax.Array:
        """int, like `version`: how many different ones of `versions` are below it."""
        return (~is_repeated & (versions < version[..., None])).sum(axis=-1)

    ranks = {
        "version": rank_of(state.version),
        "round_version": rank_of(state.round_version),
        "read": rank_of(read_or_old),
        "next_read": rank_of(next_read_or_old) * overlap,
    }
    return state._replace(pending_units=jnp.minimum(state.pending_units, MAX_PENDING_PUSHES), **ranks)
