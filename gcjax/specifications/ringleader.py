"""Ringleader ASGD (Maranjyan, Richtárik 2026): rounds in which each worker brings one commit.

Times are left open: anybody may push next. So it is when several push at the moment of the first commit of a round: who
has brought it shows when that worker begins, as it reads the newest version. Several gradients of a worker in the table
count as one, and delays are kept up to one above the bound that is promised, as no rule asks for more.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, is_own_entry, zeros
from gcjax.specifications.events import BEGIN, COMMIT, UNIT, Event
from gcjax.specifications.rounds import commits_all, has_read


class Table(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      read: int[W], the version that each worker has read last; -1 at first.
      busy: int[W], whether each is between reading and pushing.
      pending_units: int[W], the gradients of each that the next commit is the first to apply.
      later: int[W], those for the first commit of the next round.
      committed: int[W], whether each is known to have brought a commit in this round, or a push that is one now.
      must_read: int[W], whether each is to read the newest version when it begins.
      unknown: int[], whether who has brought the first commit of this round is still to begin, and so unknown.
    """

    version: Numbers
    read: Numbers
    busy: Numbers
    pending_units: Numbers
    later: Numbers
    committed: Numbers
    must_read: Numbers
    unknown: Numbers


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
        Action("begin", program.begin, event=BEGIN, matches=_begins),
        Action("begin, with the newest version", program.begin_with_newest, event=BEGIN, matches=_begins),
        Action("push", program.push, event=UNIT, matches=_pushes),
    )

    def own_entries(worker: Any) -> Table:
        """What the worker may change."""
        is_own = is_own_entry(num_workers, worker)
        return Table(False, is_own, is_own, is_own, is_own, is_own, is_own, unknown=True)

    return Specification(
        f"ringleader({num_workers} workers)",
        num_workers,
        initial=Table(
            np.int32(0), read=no_version, busy=zero, pending_units=zero, later=zero, committed=zero, must_read=zero + 1,
            unknown=np.int32(0),
        ),
        sizes=Table(
            version=program.max_delay + 2, read=zero + program.max_delay + 2, busy=two_values, pending_units=two_values,
            later=two_values, committed=two_values, must_read=two_values, unknown=2,
        ),
        worker=Role(actions=actions, frame=own_entries, rule=program.worker_rule),
        claim=f"each worker brings one commit in a round; no gradient has a delay above {program.max_delay}",
        server=Role(
            actions=(Action("commit", program.commit, event=COMMIT, matches=commits_all),),
            frame=lambda server: Table(
                version=True, read=False, busy=False, pending_units=True, later=True, committed=True, must_read=True,
                unknown=True,
            ),
            rule=program.server_rule,
            only_actions=True,
        ),
        num_servers=1,
        invariant=program.invariant,
        step_property=program.step_property,
        canonicalise=program.canonicalise,
    )  # fmt: skip


def _begins(before: Table, after: Table, event: Event) -> jax.Array:
    """bool[]: whether the worker begins, at once, with the version that the event shows."""
    return has_read(before, after, event) & (after.busy[event.worker] == 1) & ~event.waited


def _pushes(before: Table, after: Table, event: Event) -> jax.Array:
    """bool[]: whether the step gives the worker one gradient more."""
    num_before, num_after = (state.pending_units[event.worker] + state.later[event.worker] for state in (before, after))
    return num_after == num_before + 1


class _Program(NamedTuple):
    """So many workers, and a server that commits what they bring."""

    num_workers: int

    @property
    def max_delay(self) -> int:
        """The commits between a version and the first that applies a gradient of it, at most."""
        return 2 * self.num_workers - 2

    def collects(self, state: Table) -> jax.Array:
        """bool[]: whether the round has no commit yet."""
        return (state.committed == 0).all() & (state.unknown == 0)

    def num_commits(self, state: Table) -> jax.Array:
        """int32[]: the commits of this round, with one that a push brings now."""
        return state.committed.sum() + state.unknown

    def has_push(self, state: Table) -> jax.Array:
        """bool[]: whether there is a push that the server commits before it takes another one."""
        return ~self.collects(state) & (state.pending_units > 0).any()

    def others_can_be_first(self, state: Table, worker: jax.Array) -> jax.Array:
        """bool[]: whether somebody else can have brought the first commit of the round: it is still to begin."""
        is_other = jnp.arange(self.num_workers, dtype=jnp.int32) != worker
        return (is_other & (state.busy == 0) & (state.committed == 0)).any()

    def begin(self, state: Table, worker: jax.Array) -> tuple[Table, jax.Array]:
        """The state in which the worker goes on with its version, and whether it may: it has brought no commit."""
        after = state._replace(busy=state.busy.at[worker].set(1))
        may_not_be_first = (state.unknown == 0) | self.others_can_be_first(state, worker)
        return after, (state.busy[worker] == 0) & (state.must_read[worker] == 0) & may_not_be_first

    def begin_with_newest(self, state: Table, worker: jax.Array) -> tuple[Table, jax.Array]:
        """The state in which the worker has read the newest version, and whether it may: it has brought a commit."""
        must_read_now = state.must_read[worker] == 1
        is_first = ~must_read_now & (state.unknown == 1) & (state.committed[worker] == 0)
        after = state._replace(
            read=state.read.at[worker].set(state.version),
            busy=state.busy.at[worker].set(1),
            must_read=state.must_read.at[worker].set(0),
            committed=state.committed.at[worker].add(is_first.astype(jnp.int32)),
            unknown=jnp.where(is_first, 0, state.unknown),
        )
        return after, (state.busy[worker] == 0) & ((must_read_now & ~self.has_push(state)) | is_first)

    def push(self, state: Table, worker: jax.Array) -> tuple[Table, jax.Array]:
        """The state with a gradient more, and whether it may come: nothing else is to be committed first."""
        collects, has_committed = self.collects(state), state.committed[worker] == 1
        brings, is_later = ~collects & ~has_committed, ~collects & has_committed
        after = state._replace(
            busy=state.busy.at[worker].set(0),
            pending_units=state.pending_units.at[worker].add((~is_later).astype(jnp.int32)),
            later=state.later.at[worker].add(is_later.astype(jnp.int32)),
            committed=state.committed.at[worker].add(brings.astype(jnp.int32)),
            must_read=state.must_read.at[worker].set(brings.astype(jnp.int32)),
        )
        return after, (state.busy[worker] == 1) & ~self.has_push(state)

    def worker_rule(self, before: Table, after: Table, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker begins, or pushes into the table that its gradient belongs to."""
        gives = after.pending_units[worker] - before.pending_units[worker], after.later[worker] - before.later[worker]
        brought = after.committed[worker] - before.committed[worker]
        is_claimed = (before.unknown == 1) & (after.unknown == 0)
        starts = (before.busy[worker] == 0) & (after.busy[worker] == 1) & (gives[0] == 0) & (gives[1] == 0)
        stops = (before.busy[worker] == 1) & (after.busy[worker] == 0)
        same_read, reads_newest = after.read[worker] == before.read[worker], after.read[worker] == before.version
        same_unknown = after.unknown == before.unknown
        somebody_else = (before.unknown == 0) | self.others_can_be_first(before, worker)
        goes_on = same_read & (before.must_read[worker] == 0) & (brought == 0) & same_unknown & somebody_else
        had_to_read = (before.must_read[worker] == 1) & ~self.has_push(before) & (brought == 0) & same_unknown
        was_first = (before.must_read[worker] == 0) & (before.committed[worker] == 0) & (brought == 1)
        reads = reads_newest & jnp.where(is_claimed, was_first, had_to_read)
        is_open = ~self.collects(before)
        is_own_commit = is_open & (before.committed[worker] == 0)
        collects_or_brings = (gives[0] == 1) & (gives[1] == 0) & (~is_open | is_own_commit)
        for_next_round = (gives[0] == 0) & (gives[1] == 1) & is_open & (before.committed[worker] == 1)
        says_so = (brought == is_own_commit.astype(jnp.int32)) & (after.must_read[worker] == brought)
        pushes = (collects_or_brings | for_next_round) & same_read & says_so & same_unknown
        begins = starts & (goes_on | reads) & (after.must_read[worker] == 0)
        return begins | (stops & pushes & ~self.has_push(before))

    def may_commit(self, state: Table) -> jax.Array:
        """bool[]: whether all are in the table, and one of them can have come now; or somebody has brought a commit."""
        all_in_table = (state.pending_units > 0).all() & (state.busy == 0).any()
        return jnp.where(self.collects(state), all_in_table, self.has_push(state))

    def commit(self, state: Table, server: jax.Array) -> tuple[Table, jax.Array]:
        """The state after a commit of what there is for it, and whether there may be one."""
        unknown = jnp.where(self.collects(state), 1, state.unknown)
        ends_round = self.num_commits(state._replace(unknown=unknown)) == self.num_workers
        was_first = ends_round & (unknown == 1) & (state.committed == 0)
        after = state._replace(
            version=state.version + 1,
            pending_units=jnp.where(ends_round, state.later, 0),
            later=jnp.where(ends_round, 0, state.later),
            committed=jnp.where(ends_round, 0, state.committed),
            must_read=jnp.where(was_first, 1, state.must_read),
            unknown=jnp.where(ends_round, 0, unknown),
        )
        return after, self.may_commit(state)

    def server_rule(self, before: Table, after: Table, server: jax.Array) -> jax.Array:
        """bool[]: whether the server commits what it may, and begins a new round after W commits."""
        is_first = self.collects(before)
        is_round_over = self.num_commits(before) + is_first.astype(jnp.int32) == self.num_workers
        next_tables = jnp.where(
            is_round_over,
            (after.pending_units == before.later).all() & (after.later == 0).all() & (after.committed == 0).all(),
            (after.pending_units == 0).all()
            & (after.later == before.later).all()
            & (after.committed == before.committed).all(),
        )
        is_unknown = is_first | (before.unknown == 1)
        is_found_out = is_round_over & is_unknown  # it is who is not known to have brought another one
        must_read = jnp.where(is_found_out & (before.committed == 0), 1, before.must_read)
        next_unknown = (is_unknown & ~is_round_over).astype(jnp.int32)
        says_so = (after.must_read == must_read).all() & (after.unknown == next_unknown)
        return (after.version == before.version + 1) & self.may_commit(before) & next_tables & says_so

    def invariant(self, state: Table) -> jax.Array:
        """bool[]: whether what is in the tables, or under way, is not too old already."""
        is_used = (state.pending_units > 0) | (state.later > 0) | (state.busy > 0)
        return (~is_used | (state.version - state.read <= self.max_delay)).all() & (state.read <= state.version).all()

    def step_property(self, before: Table, after: Table, component: jax.Array) -> jax.Array:
        """bool[]: whether the first commit of a round takes all, and another one what one worker has brought."""
        is_commit, has_work = after.version > before.version, before.pending_units > 0
        takes_one = (before.pending_units.sum() == 1) & (~has_work | (before.committed == 1)).all()
        return ~is_commit | jnp.where(self.collects(before), has_work.all(), takes_one)

    def canonicalise(self, state: Table) -> Table:
        """The state with the largest version, each worker's read with its delay, and gradients in a table as one."""
        newest = jnp.full_like(state.version, self.max_delay + 1)
        delay = jnp.minimum(state.version - state.read, self.max_delay + 1)
        return state._replace(
            version=newest,
            read=newest - delay,
            pending_units=jnp.minimum(state.pending_units, 1),
            later=jnp.minimum(state.later, 1),
        )
