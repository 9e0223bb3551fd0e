"""The first K pushes, and nobody is cut off: of gradients (Dutta et al. 2018; softsync, Zhang et al. 2016), or FedBuff.

The server commits at the K-th push, before it takes the next one; that of Decoupled DiLoCo takes what else has come by
the time that it commits. Times are left open: anybody may push next. A version that a worker works on is the newest or
an old one: how old it is no rule asks, and it has no bound where nobody is cut off.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, zeros
from gcjax.specifications.event_counts import last_before, num_before, num_before_own_row, rows_of_kind
from gcjax.specifications.events import BEGIN, COMMIT, UNIT, Event
from gcjax.specifications.first_arrivals import all_have_pushed, check_num_contributions
from gcjax.specifications.rounds import (
    adds_one_unit,
    after_commit,
    begin_action,
    commits_all_earlier_messages,
    counted_from_newest,
    is_commit,
)
from gcjax.wording import counted


class Arrivals(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      read: int[W], the version that each worker has read last; -1 at first.
      remaining_units: int[W], the units of each worker's push that have not arrived yet; 0 if it has begun none.
      pending_units: int[W], the units of each that are in no commit yet.
    """

    version: Numbers
    read: Numbers
    remaining_units: Numbers
    pending_units: Numbers


@comparable
def k_async(num_workers: int = 3, *, num_contributions: int = 2) -> Specification:
    """K-async: a commit takes one gradient each of K workers, who then read a newer version than before.

    Args:
      num_workers: W.
      num_contributions: K, at most W.
    """
    return _specification_without_cancelling("k_async", num_workers, num_contributions, one_push_per_worker=True)


@comparable
def k_batch_async(num_workers: int = 3, *, num_contributions: int = 2, may_wait: bool = False) -> Specification:
    """K-batch-async: a commit takes K gradients, and nobody waits.

    That nobody waits is a promise about times: runs are held against it, states cannot break it.

    Args:
      num_workers: W.
      num_contributions: K.
      may_wait: whether workers may wait all the same before they begin, as under a rule that bounds the staleness.
    """
    return _specification_without_cancelling(
        "k_batch_async", num_workers, num_contributions, one_push_per_worker=False, may_wait=may_wait
    )


@comparable
def staleness_aware(num_workers: int = 3, *, num_contributions: int = 1) -> Specification:
    """Staleness-aware: a commit takes K gradients, and nobody waits; the factors are left out.

    Args:
      num_workers: W.
      num_contributions: K.
    """
    return _specification_without_cancelling(
        "staleness_aware", num_workers, num_contributions, one_push_per_worker=False
    )


@comparable
def delay_adaptive(num_workers: int = 3) -> Specification:
    """Delay-adaptive: a commit takes one gradient, and nobody waits; the factors are left out (Koloskova et al. 2022).

    Args:
      num_workers: W.
    """
    return _specification_without_cancelling("delay_adaptive", num_workers, 1, one_push_per_worker=False)


@comparable
def fedbuff(num_workers: int = 3, *, num_local_steps: int = 2, num_contributions: int = 2) -> Specification:
    """FedBuff: a commit takes K pushes of H steps each, and nobody waits; the factors are left out.

    A worker begins each push with the newest version (Nguyen et al. 2022).

    Args:
      num_workers: W.
      num_local_steps: H.
      num_contributions: K.
    """
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    return _specification_without_cancelling(
        "fedbuff", num_workers, num_contributions, one_push_per_worker=False, units_per_push=num_local_steps
    )


@comparable
def decoupled_diloco(num_workers: int = 3, *, num_local_steps: int = 2, min_quorum: int = 2) -> Specification:
    """Decoupled DiLoCo: a commit takes all that has been pushed, H steps a push, by K workers at least; nobody waits.

    A worker begins each push with the newest version. How long the server goes on waiting is left open, and so is what
    learners weigh (Douillard et al. 2026). Of the pushes of a worker to one commit all but the first count the same.

    Args:
      num_workers: W.
      num_local_steps: H.
      min_quorum: K, at most W.
    """
    check_num_workers(num_workers)
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    min_quorum = _validate.integer("min_quorum", min_quorum, minimum=1, maximum=num_workers)
    name = f"decoupled_diloco({num_workers} workers, {num_local_steps} steps, quorum {min_quorum})"
    program = _QuorumProgram(min_quorum, one_push_per_worker=False, may_wait=False, units_per_push=num_local_steps)
    claim = f"a commit takes all pushes, of {num_local_steps} steps each, and of {min_quorum} workers at least"
    members = partial(_not_cancelling_with_members, name, num_workers, program, claim)
    return Specification.of_all_workers(num_workers, members)


def _specification_without_cancelling(
    name: str,
    num_workers: int,
    num_contributions: int,
    *,
    one_push_per_worker: bool,
    may_wait: bool = False,
    units_per_push: int = 1,
) -> Specification:
    """A commit takes K = `num_contributions` pushes; the other workers go on with the version that they have read.

    `one_push_per_worker`: whether the K pushes are of K different workers, who then wait for the commit;
    `units_per_push`: the units of each push.
    """
    check_num_contributions(num_workers, num_contributions, one_push_per_worker)
    may_wait = may_wait or one_push_per_worker
    program = _Program(num_contributions, one_push_per_worker, may_wait, units_per_push)
    contents = counted(num_contributions, "gradient")
    if one_push_per_worker:
        contents = f"one gradient each of {num_contributions} workers, who then read a newer version"
    elif units_per_push > 1:
        contents = f"{num_contributions} push{'es' if num_contributions > 1 else ''} of {units_per_push} steps"
    name = f"{name}({num_workers} workers, takes {num_contributions})"
    members = partial(_not_cancelling_with_members, name, num_workers, program, f"a commit takes {contents}")
    return Specification.of_all_workers(num_workers, members)


def _not_cancelling_with_members(
    name: str, num_workers: int, program: "_Program", claim: str, alive: Any
) -> Specification:
    """The specification of a program if the workers `alive bool[W]` take part.

    Canonical versions are 0 (older, or none read, which is -1 at first) and 1 (newest), so that `sizes` are 2.
    """
    program = program._replace(alive=alive)
    zero, two_values = zeros(num_workers), zeros(num_workers) + 2
    units_per_push, may_wait = program.units_per_push, program.may_wait
    begin = begin_action("begin", program.begin, "remaining_units", units_per_push, may_wait=may_wait)
    push = Action("push", program.add_unit, event=UNIT, matches=adds_one_unit)
    commit = Action("commit", program.commit, event=COMMIT, matches=commits_all_earlier_messages)
    return Specification(
        name,
        num_workers,
        initial=Arrivals(version=np.int32(0), read=zero - 1, remaining_units=zero, pending_units=zero),
        sizes=Arrivals(
            version=2,
            read=two_values,
            remaining_units=zero + units_per_push + 1,
            pending_units=zero + program.num_pending_values,
        ),
        worker=Role.of_workers(Arrivals, num_workers, Arrivals._fields[1:], (begin, push), program.worker_rule),
        claim=claim,
        server=Role.of_servers(Arrivals, ("version", "pending_units"), (commit,), program.server_rule),
        num_servers=1,
        invariant=lambda state: program.fits_into_commit(state) & (state.read <= state.version).all(),
        step_property=program.step_property,
        canonicalise=program.canonicalise,
        replay=partial(_states_before_events, units_per_push),
    )


def _states_before_events(units_per_push: int, state: Arrivals, events: Event, rows: np.ndarray) -> Arrivals:
    """The states before the events with the numbers `rows`, as arrays [rows, ...], if the first happens in this state.

    Units are counted since the last commit, which takes all, and since the worker last began a push.
    """
    num_workers, num_events = state.read.size, events.kind.size
    begin_rows, unit_rows, commit_rows = (rows_of_kind(events, kind) for kind in (BEGIN, UNIT, COMMIT))
    last_begin = last_before(rows, begin_rows, events.worker[begin_rows], num_workers)  # int[rows, W]
    has_begun = last_begin >= 0
    num_commits = np.searchsorted(commit_rows, rows).astype(np.int32)
    row_of_last_commit = np.append(-1, commit_rows)[num_commits]  # -1 if there is none

    worker_of_units = events.worker[unit_rows]
    num_units = num_before(rows, unit_rows, worker_of_units, num_workers)

    def num_units_since(own_rows: np.ndarray) -> np.ndarray:
        """int32[rows, W]: the units of each worker that have arrived since its own rows, `own_rows int[rows, W]`."""
        return num_units - num_before_own_row(own_rows, unit_rows, worker_of_units, num_events)

    units_before_events = np.where((num_commits == 0)[:, None], state.pending_units, 0)
    since_commit = num_units_since(np.broadcast_to(row_of_last_commit[:, None], last_begin.shape))
    return Arrivals(
        version=state.version + num_commits,
        read=np.where(has_begun, np.append(events.version, 0)[last_begin], state.read),  # 0 where it has begun none
        remaining_units=np.where(has_begun, units_per_push, state.remaining_units) - num_units_since(last_begin),
        pending_units=units_before_events + since_commit,
    )


class _Program(NamedTuple):
    """Workers and a server that commits K pushes, if `one_push_per_worker` of K different workers; nobody is cut off.

    Of different workers it takes fewer pushes once all who take part, `alive bool[W]`, have pushed. A push is of
    `units_per_push` units, which arrive one after the other.
    """

    num_contributions: int
    one_push_per_worker: bool
    may_wait: bool
    units_per_push: int
    alive: Any = None

    def may_commit(self, state: Arrivals) -> jax.Array:
        """bool[]: whether there are as many whole pushes as a commit takes, K.

        Of K different workers it takes fewer, once all who take part (`alive bool[W]`) have pushed.
        """
        has_k_pushes = (state.pending_units // self.units_per_push).sum() == self.num_contributions
        return has_k_pushes | (self.one_push_per_worker & all_have_pushed(state, self.alive))

    def fits_into_commit(self, state: Arrivals) -> jax.Array:
        """bool[]: whether a commit takes all pending pushes: there are at most K, with those that arrive just now."""
        num_begun_pushes = -(-state.pending_units // self.units_per_push)  # rounded up
        return num_begun_pushes.sum() <= self.num_contributions

    @property
    def max_pending_units(self) -> int:
        """The most pending units of one worker: those of all its pushes to one commit."""
        return (1 if self.one_push_per_worker else self.num_contributions) * self.units_per_push

    @property
    def num_pending_values(self) -> int:
        """How many values the canonical units of a worker have."""
        return self.max_pending_units + 1

    def begin(self, state: Arrivals, worker: jax.Array) -> tuple[Arrivals, jax.Array]:
        """The state in which the worker computes on the newest version, and whether it may begin: it is idle.

        Then all units of its last push have arrived (`remaining_units` 0). Its `pending_units` are in no commit yet.
        """
        remaining_units = state.remaining_units.at[worker].set(self.units_per_push)
        after = state._replace(read=state.read.at[worker].set(state.version), remaining_units=remaining_units)
        # With one push per worker, who has pushed waits for the commit.
        waits_for_commit = np.bool_(self.one_push_per_worker) & (state.pending_units[worker] > 0)
        return after, (state.remaining_units[worker] == 0) & ~waits_for_commit

    def add_unit(self, state: Arrivals, worker: jax.Array) -> tuple[Arrivals, jax.Array]:
        """The state in which one unit more of the worker's push has arrived, and whether the commit has room for it.

        `remaining_units int[W]` have not arrived, `pending_units` have, and are in no commit yet.
        """
        after = state._replace(
            remaining_units=state.remaining_units.at[worker].add(-1),
            pending_units=state.pending_units.at[worker].add(1),
        )
        return after, (state.remaining_units[worker] > 0) & self.fits_into_commit(after)

    def worker_rule(self, before: Arrivals, after: Arrivals, worker: jax.Array) -> jax.Array:
        """bool[]: whether one unit more of the worker's push arrives, or it begins a push with the newest version.

        `remaining_units int[W]` are those of a push that have not arrived, 0 if idle; `pending_units` are in no commit.
        """
        num_new_pending = after.pending_units[worker] - before.pending_units[worker]
        remaining_before, remaining_after = before.remaining_units[worker], after.remaining_units[worker]
        same_read = after.read[worker] == before.read[worker]
        one_less_remains = (remaining_before > 0) & (remaining_after == remaining_before - 1)
        adds_unit = (
            one_less_remains
            & (num_new_pending == 1)
            & same_read
            & (after.pending_units[worker] <= self.max_pending_units)
            & self.fits_into_commit(after)
        )
        # With one push per worker, who has pushed waits for the commit.
        waits_for_commit = np.bool_(self.one_push_per_worker) & (before.pending_units[worker] > 0)
        reads_newest = after.read[worker] == before.version
        begins_push = (
            (remaining_before == 0)
            & (remaining_after == self.units_per_push)
            & (num_new_pending == 0)
            & reads_newest
            & ~waits_for_commit
        )
        return adds_unit | begins_push

    def commit(self, state: Arrivals, server: jax.Array) -> tuple[Arrivals, jax.Array]:
        """The state after a commit of all pushes, and whether there are K."""
        return after_commit(state), self.may_commit(state)

    def server_rule(self, before: Arrivals, after: Arrivals, server: jax.Array) -> jax.Array:
        """bool[]: whether the server commits exactly K pushes."""
        return is_commit(before, after) & self.may_commit(before)

    def step_property(self, before: Arrivals, after: Arrivals, component: jax.Array) -> jax.Array:
        """bool[]: whether a commit takes K pushes; with one per worker, too, whether who begins reads a newer version.

        Who begins has more `remaining_units`, those of its push that have not arrived. Steps without a new version are
        no commits.
        """
        is_complete = self.may_commit(before) & (before.pending_units <= self.max_pending_units).all()
        commits_k = is_complete | (after.version == before.version)
        begins = after.remaining_units > before.remaining_units
        if not self.one_push_per_worker:
            return commits_k
        begins_on_newer_version = ~begins | (after.read > before.read)
        return commits_k & begins_on_newer_version.all()

    def canonicalise(self, state: Arrivals) -> Arrivals:
        """The state as `counted_from_newest`."""
        return counted_from_newest(state)


class _QuorumProgram(_Program):
    """Workers and a server that commits all pushes once they are of K different workers; it may wait for more."""

    __slots__ = ()

    def may_commit(self, state: Arrivals) -> jax.Array:
        """bool[]: whether K workers have pushed, or all of `alive bool[W]`, and no push has arrived in part only.

        `pending_units int[W]` are those in no commit yet.
        """
        has_pushed = state.pending_units >= self.units_per_push
        all_alive_have_pushed = (has_pushed | ~self.alive).all() & has_pushed.any()
        has_quorum = (has_pushed.sum() >= self.num_contributions) | all_alive_have_pushed
        return has_quorum & (state.pending_units % self.units_per_push == 0).all()

    def fits_into_commit(self, state: Arrivals) -> jax.Array:
        """bool[], true: there can be any number of pushes."""
        return jnp.ones_like(state.version, bool)

    @property
    def max_pending_units(self) -> int:
        """The most pending units of one worker: any number."""
        return np.iinfo(np.int32).max

    @property
    def num_pending_values(self) -> int:
        """How many values the canonical units of a worker have: less than those of two pushes."""
        return 2 * self.units_per_push

    def canonicalise(self, state: Arrivals) -> Arrivals:
        """The state as for all programs, without a worker's further whole pushes, which the quorum does not count."""
        num_more_pushes = (state.pending_units // self.units_per_push - 1).clip(0)
        return super().canonicalise(
            state._replace(pending_units=state.pending_units - num_more_pushes * self.units_per_push)
        )
