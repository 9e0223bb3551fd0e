"""Ringleader ASGD (Maranjyan, Richtárik 2026): rounds in which each worker brings one commit.

Times are left open: anybody may push next. So it is when several push at the moment of the first commit of a round: who
has brought it shows when that worker begins, as it reads the newest version. Several gradients of a worker in the table
count as one, and delays are kept up to one above the bound that is promised, as no rule asks for more.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, zeros
from gcjax.specifications.events import COMMIT, UNIT, Event
from gcjax.specifications.rounds import begin_action, commits_messages_in_order


class Table(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      read: int[W], the version that each worker has read last; -1 at first.
      busy: int[W], whether each is between reading and pushing.
      pending_units: int[W], the gradients of each that the next commit is the first to apply.
      next_round_units: int[W], the gradients of each for the first commit of the next round.
      brought_commit: int[W], whether each is known to have brought a commit in this round, or a push that is one now.
      must_read: int[W], whether each is to read the newest version when it begins.
      first_bringer_unknown: int[], whether who has brought the first commit of this round is still to begin.
    """

    version: Numbers
    read: Numbers
    busy: Numbers
    pending_units: Numbers
    next_round_units: Numbers
    brought_commit: Numbers
    must_read: Numbers
    first_bringer_unknown: Numbers


@comparable
def ringleader(num_workers: int = 3) -> Specification:
    """Ringleader ASGD: in a round each worker brings one commit, and no gradient has a delay above 2 W - 2.

    The first commit of a round takes gradients of everybody, each other one a gradient of who has brought none yet;
    nobody waits, and who has brought a commit reads what it has made.

    Args:
      num_workers: W.
    """
    check_num_workers(num_workers)
    program, zero = _Program(num_workers), zeros(num_workers)
    two_values, no_version = zero + 2, zero - 1
    actions = (
        begin_action("begin", program.begin),
        begin_action("begin, with the newest version", program.begin_with_newest),
        Action("push", program.push, event=UNIT, matches=_pushes),
    )
    commit = Action("commit", program.commit, event=COMMIT, matches=commits_messages_in_order)
    entries_of_workers, shared = Table._fields[1:-1], Table._fields[-1:]
    changed_by_commits = [name for name in Table._fields if name not in ("read", "busy")]
    return Specification(
        f"ringleader({num_workers} workers)",
        num_workers,
        initial=Table(
            np.int32(0), read=no_version, busy=zero, pending_units=zero, next_round_units=zero, brought_commit=zero,
            must_read=zero + 1, first_bringer_unknown=np.int32(0),
        ),
        # Values of canonical states: the version is one above the longest delay, all counts are 0 or 1.
        sizes=Table(
            version=program.max_delay + 2, read=zero + program.max_delay + 2, busy=two_values, pending_units=two_values,
            next_round_units=two_values, brought_commit=two_values, must_read=two_values, first_bringer_unknown=2,
        ),
        worker=Role.of_workers(Table, num_workers, entries_of_workers, actions, program.worker_rule, shared),
        claim=f"each worker brings one commit in a round; no gradient has a delay above {program.max_delay}",
        server=Role.of_servers(Table, changed_by_commits, (commit,), program.server_rule),
        num_servers=1,
        invariant=program.invariant,
        step_property=program.step_property,
        canonicalise=program.canonicalise,
    )  # fmt: skip


def _pushes(before: Table, after: Table, event: Event) -> jax.Array:
    """bool[]: whether the step gives the worker one gradient more, be it for the next commit or for the next round."""
    num_before, num_after = (
        state.pending_units[event.worker] + state.next_round_units[event.worker] for state in (before, after)
    )
    return num_after == num_before + 1


class _Program(NamedTuple):
    """So many workers, and a server that commits what they bring."""

    num_workers: int

    @property
    def max_delay(self) -> int:
        """The commits between a version and the first that applies a gradient of it, at most."""
        return 2 * self.num_workers - 2

    def has_no_commit(self, state: Table) -> jax.Array:
        """bool[]: whether the round has no commit yet."""
        return (state.brought_commit == 0).all() & (state.first_bringer_unknown == 0)

    def num_commits_of_round(self, state: Table) -> jax.Array:
        """int32[]: the commits of this round, with one that a push brings now."""
        return state.brought_commit.sum() + state.first_bringer_unknown

    def has_uncommitted_push(self, state: Table) -> jax.Array:
        """bool[]: whether there is a push that the server commits before it takes another one."""
        return ~self.has_no_commit(state) & (state.pending_units > 0).any()

    def others_can_be_first_bringer(self, state: Table, worker: jax.Array) -> jax.Array:
        """bool[]: whether somebody else can have brought the first commit of the round: it is still to begin.

        Who has brought it is idle (`busy` 0) until then, and not known to have brought one (`brought_commit` 0).
        """
        is_other = jnp.arange(self.num_workers, dtype=jnp.int32) != worker
        return (is_other & (state.busy == 0) & (state.brought_commit == 0)).any()

    def begin(self, state: Table, worker: jax.Array) -> tuple[Table, jax.Array]:
        """The state in which the worker goes on with its version, and whether it may: it has brought no commit since.

        It must be idle, and not have to read. If who has brought the round's first commit is unknown
        (`first_bringer_unknown` 1), that was somebody else, so there must be one who can have done it.
        """
        after = state._replace(busy=state.busy.at[worker].set(1))
        may_not_be_bringer = (state.first_bringer_unknown == 0) | self.others_can_be_first_bringer(state, worker)
        return after, (state.busy[worker] == 0) & (state.must_read[worker] == 0) & may_not_be_bringer

    def begin_with_newest(self, state: Table, worker: jax.Array) -> tuple[Table, jax.Array]:
        """The state in which the worker has read the newest version, and whether it may: it is idle, and must read.

        That is at first, and when it has brought a commit, which must have been made. If it need not read, it has
        brought the first commit of the round: so far it was unknown who had. Fields that say whether are 0 or 1.
        """
        must_read = state.must_read[worker] == 1
        is_first_bringer = ~must_read & (state.first_bringer_unknown == 1) & (state.brought_commit[worker] == 0)
        after = state._replace(
            read=state.read.at[worker].set(state.version),
            busy=state.busy.at[worker].set(1),
            must_read=state.must_read.at[worker].set(0),
            brought_commit=state.brought_commit.at[worker].add(is_first_bringer.astype(jnp.int32)),
            first_bringer_unknown=jnp.where(is_first_bringer, 0, state.first_bringer_unknown),
        )
        return after, (state.busy[worker] == 0) & ((must_read & ~self.has_uncommitted_push(state)) | is_first_bringer)

    def push(self, state: Table, worker: jax.Array) -> tuple[Table, jax.Array]:
        """The state with a gradient more, and whether it may come: nothing else is to be committed first.

        Before the first commit of a round all gradients wait for that one; then each worker's first one is a commit,
        after which the worker must read, and further ones, once it has brought its commit of this round
        (`brought_commit` 1), are for the next round. Fields that say whether are 0 or 1.
        """
        is_for_first_commit, has_brought_commit = self.has_no_commit(state), state.brought_commit[worker] == 1
        brings_commit = ~is_for_first_commit & ~has_brought_commit
        is_for_next_round = ~is_for_first_commit & has_brought_commit
        after = state._replace(
            busy=state.busy.at[worker].set(0),
            pending_units=state.pending_units.at[worker].add((~is_for_next_round).astype(jnp.int32)),
            next_round_units=state.next_round_units.at[worker].add(is_for_next_round.astype(jnp.int32)),
            brought_commit=state.brought_commit.at[worker].add(brings_commit.astype(jnp.int32)),
            must_read=state.must_read.at[worker].set(brings_commit.astype(jnp.int32)),
        )
        return after, (state.busy[worker] == 1) & ~self.has_uncommitted_push(state)

    def worker_rule(self, before: Table, after: Table, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker begins, or pushes into the table that its gradient belongs to."""
        return self._is_begin(before, after, worker) | self._is_push(before, after, worker)

    def _is_begin(self, before: Table, after: Table, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker begins: with its version, or with the newest one where it has brought a commit.

        One that reads the newest version though it need not has brought the first commit, which was not known before:
        `first_bringer_unknown` is 1 while nothing shows whose push made it.
        """
        had_to_read, brought_commit_before = before.must_read[worker] == 1, before.brought_commit[worker] == 1
        gets_busy = (before.busy[worker] == 0) & (after.busy[worker] == 1) & (after.must_read[worker] == 0)
        same_units = (after.pending_units[worker] == before.pending_units[worker]) & (
            after.next_round_units[worker] == before.next_round_units[worker]
        )
        same_brought_commit = after.brought_commit[worker] == before.brought_commit[worker]
        same_bringer_unknown = after.first_bringer_unknown == before.first_bringer_unknown
        may_not_be_bringer = (before.first_bringer_unknown == 0) | self.others_can_be_first_bringer(before, worker)
        same_read, reads_newest = after.read[worker] == before.read[worker], after.read[worker] == before.version
        keeps_version = same_read & ~had_to_read & same_brought_commit & same_bringer_unknown & may_not_be_bringer
        reads_own_commit = had_to_read & ~self.has_uncommitted_push(before) & same_brought_commit & same_bringer_unknown
        becomes_known = (before.first_bringer_unknown == 1) & (after.first_bringer_unknown == 0)
        is_first_bringer = ~had_to_read & ~brought_commit_before & (after.brought_commit[worker] == 1) & becomes_known
        return gets_busy & same_units & (keeps_version | (reads_newest & (reads_own_commit | is_first_bringer)))

    def _is_push(self, before: Table, after: Table, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker pushes while no push waits for its commit.

        A push counts for the commit to come (`pending_units`), or for the next round (`next_round_units`) if the worker
        has brought a commit of this one (`brought_commit` 1). With its commit the worker must read (`must_read` 1).
        """
        no_push_waits = ~self.has_uncommitted_push(before)
        gets_idle = (before.busy[worker] == 1) & (after.busy[worker] == 0)
        num_new_units = after.pending_units[worker] - before.pending_units[worker]
        num_new_next_round_units = after.next_round_units[worker] - before.next_round_units[worker]
        has_no_commit, brought_commit_before = self.has_no_commit(before), before.brought_commit[worker] == 1
        is_for_next_round = (~has_no_commit & brought_commit_before).astype(jnp.int32)
        brings_commit = (~has_no_commit & ~brought_commit_before).astype(jnp.int32)
        pushes_one = (num_new_units == 1 - is_for_next_round) & (num_new_next_round_units == is_for_next_round)
        brought_commit_is_right = after.brought_commit[worker] == before.brought_commit[worker] + brings_commit
        must_read_is_right = after.must_read[worker] == brings_commit
        same_read = after.read[worker] == before.read[worker]
        same_bringer_unknown = after.first_bringer_unknown == before.first_bringer_unknown
        rest_is_same = same_read & same_bringer_unknown
        return gets_idle & pushes_one & brought_commit_is_right & must_read_is_right & rest_is_same & no_push_waits

    def may_commit(self, state: Table) -> jax.Array:
        """bool[]: whether all are in the table, and one of them can have come now; or somebody has brought a commit.

        The first holds for the first commit of a round, which takes gradients of everybody; an idle worker, whose push
        was the last one, has brought it. The second holds for the others: there is a push that is to be committed.
        """
        all_in_table = (state.pending_units > 0).all() & (state.busy == 0).any()
        return jnp.where(self.has_no_commit(state), all_in_table, self.has_uncommitted_push(state))

    def commit(self, state: Table, server: jax.Array) -> tuple[Table, jax.Array]:
        """The state after a commit of all pending units, and whether there may be one; a round has W commits.

        Who brought the round's first commit, of everybody's gradients, is unknown until that worker begins. With the
        W-th commit a round ends, and gradients for the next one are its pending units. Fields that say whether: 0 or 1.
        """
        first_bringer_unknown = jnp.where(self.has_no_commit(state), 1, state.first_bringer_unknown)
        num_commits = self.num_commits_of_round(state._replace(first_bringer_unknown=first_bringer_unknown))
        ends_round = num_commits == self.num_workers
        # At the end of a round the first bringer is the only worker that is not known to have brought a commit.
        is_first_bringer = ends_round & (first_bringer_unknown == 1) & (state.brought_commit == 0)
        after = state._replace(
            version=state.version + 1,
            pending_units=jnp.where(ends_round, state.next_round_units, 0),
            next_round_units=jnp.where(ends_round, 0, state.next_round_units),
            brought_commit=jnp.where(ends_round, 0, state.brought_commit),
            must_read=jnp.where(is_first_bringer, 1, state.must_read),
            first_bringer_unknown=jnp.where(ends_round, 0, first_bringer_unknown),
        )
        return after, self.may_commit(state)

    def server_rule(self, before: Table, after: Table, server: jax.Array) -> jax.Array:
        """bool[]: whether the server commits what it may, and begins a new round after W commits.

        `brought_commit int[W]` is 1 for who is known to have brought one in this round, `first_bringer_unknown` 1 while
        nobody is known to have brought the first; who has brought one must read (`must_read` 1).
        """
        is_first_commit = self.has_no_commit(before)
        ends_round = self.num_commits_of_round(before) + is_first_commit.astype(jnp.int32) == self.num_workers
        begins_new_round = (
            (after.pending_units == before.next_round_units).all()
            & (after.next_round_units == 0).all()
            & (after.brought_commit == 0).all()
        )
        goes_on_in_round = (
            (after.pending_units == 0).all()
            & (after.next_round_units == before.next_round_units).all()
            & (after.brought_commit == before.brought_commit).all()
        )
        is_bringer_unknown = is_first_commit | (before.first_bringer_unknown == 1)
        # At the end of a round the first bringer is the only worker that is not known to have brought a commit.
        is_first_bringer = ends_round & is_bringer_unknown & (before.brought_commit == 0)
        expected_must_read = jnp.where(is_first_bringer, 1, before.must_read)
        expected_bringer_unknown = (is_bringer_unknown & ~ends_round).astype(jnp.int32)
        bringers_as_expected = (after.must_read == expected_must_read).all() & (
            after.first_bringer_unknown == expected_bringer_unknown
        )
        tables_as_expected = jnp.where(ends_round, begins_new_round, goes_on_in_round)
        is_one_commit = (after.version == before.version + 1) & self.may_commit(before)
        return is_one_commit & tables_as_expected & bringers_as_expected

    def invariant(self, state: Table) -> jax.Array:
        """bool[]: whether no gradient in the tables or under way is of a version older than `max_delay` commits."""
        is_used = (state.pending_units > 0) | (state.next_round_units > 0) | (state.busy > 0)
        return (~is_used | (state.version - state.read <= self.max_delay)).all() & (state.read <= state.version).all()

    def step_property(self, before: Table, after: Table, component: jax.Array) -> jax.Array:
        """bool[]: whether the first commit of a round takes all, and another one what one worker has brought.

        It takes all `pending_units int[W]`, the gradients of each. A step that makes no version is no commit.
        """
        is_commit, has_gradient = after.version > before.version, before.pending_units > 0
        takes_one = (before.pending_units.sum() == 1) & (~has_gradient | (before.brought_commit == 1)).all()
        return ~is_commit | jnp.where(self.has_no_commit(before), has_gradient.all(), takes_one)

    def canonicalise(self, state: Table) -> Table:
        """The state with a fixed version, reads by their delays to it, up to `max_delay + 1`, and gradients as one."""
        newest = jnp.full_like(state.version, self.max_delay + 1)
        delay = jnp.minimum(state.version - state.read, self.max_delay + 1)
        return state._replace(
            version=newest,
            read=newest - delay,
            pending_units=jnp.minimum(state.pending_units, 1),
            next_round_units=jnp.minimum(state.next_round_units, 1),
        )
