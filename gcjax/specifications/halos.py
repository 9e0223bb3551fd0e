"""HALoS (Kim et al. 2025): groups whose servers exchange with a central one while their workers go on.

When a message of a group leaves, and when its answer arrives, is left open: that a group has merged an answer shows
when one of its workers begins with it, and must be so before the next commit of the group. So a commit has K pushes at
least, since those that come while an exchange is under way are in a commit, too.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, is_own_entry, zeros
from gcjax.specifications.events import COMMIT, UNIT, Event
from gcjax.specifications.groups import workers_of_groups
from gcjax.specifications.rounds import adds_one_unit, begin_action
from gcjax.wording import counted


class GroupVersions(NamedTuple):
    """The state; G groups.

    Attributes:
      version: int[], the commits of the central server so far.
      made_version: int[G], the version that the last commit of each group has made; 0 at first.
      merged_version: int[G], the version that each has merged last, as far as anybody has seen.
      read: int[W], what each worker's group had merged when it began last; -1 at first.
      remaining_units: int[W], the units of its push under way that have not arrived; with a number of steps that may be
        any, 2 before the first of them, then 1.
      pending_units: int[W], the units of each at its group's server that are in no commit yet.
    """

    version: Numbers
    made_version: Numbers
    merged_version: Numbers
    read: Numbers
    remaining_units: Numbers
    pending_units: Numbers


@comparable
def halos(
    num_workers: int = 3,
    *,
    groups: int | Sequence[Sequence[int]] = 2,
    num_local_steps: int = 1,
    num_contributions: int = 2,
    dynamic: bool = False,
) -> Specification:
    """HALoS: a commit takes all pushes that one group's server has got since its last one, K at least; nobody waits.

    Who begins has read, by its group, the version that the group's last commit has made, or that of the commit before,
    and none that is older than one that anybody of the group has read. Of more pushes of a worker than K to one commit,
    K count (Kim et al. 2025).

    Args:
      num_workers: W.
      groups: how many, neighbours together; or the workers of each.
      num_local_steps: H, the units of a push.
      num_contributions: K.
      dynamic: whether a push can have any number of units; K of these are then all that a commit must have.
    """
    check_num_workers(num_workers)
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    num_contributions = _validate.integer("num_contributions", num_contributions, minimum=1)
    group_of = {w: number for number, group in enumerate(workers_of_groups(groups, num_workers)) for w in group}
    program = _Program(tuple(group_of[w] for w in range(num_workers)), num_local_steps, num_contributions, dynamic)
    zero, zero_per_group = zeros(num_workers), zeros(program.num_groups)
    remaining_units_at_begin = "remaining_units", program.remaining_units_at_begin
    actions = (
        begin_action("begin", program.begin, *remaining_units_at_begin),
        begin_action("begin, with an answer", program.begin_with_answer, *remaining_units_at_begin),
        Action("unit", program.unit, event=UNIT, matches=adds_one_unit),
    )
    commit = Action("commit", program.commit, COMMIT, program.commits_units_of_group, actor=program.server_of_event)
    changed_by_commits = ("version", "made_version", "merged_version", "pending_units")
    steps = "a step or more" if dynamic else counted(num_local_steps, "step")
    return Specification(
        f"halos({num_workers} workers, {program.num_groups} groups, {steps}, K={num_contributions})",
        num_workers,
        initial=GroupVersions(
            np.int32(0), zero_per_group, zero_per_group, read=zero - 1, remaining_units=zero, pending_units=zero
        ),
        # Values of canonical states: versions are 2, 1 and 0, the last one, the one before, and older ones of a group.
        sizes=GroupVersions(
            version=3, made_version=zero_per_group + 3, merged_version=zero_per_group + 3, read=zero + 3,
            remaining_units=zero + program.remaining_units_at_begin + 1,
            pending_units=zero + program.max_pending_units + 1,
        ),
        worker=Role(actions, frame=program.own_entries, rule=program.worker_rule),
        claim=f"a commit takes all pushes of one group since its last one, {num_contributions} at least; nobody waits",
        server=Role.of_servers(GroupVersions, changed_by_commits, (commit,), program.server_rule),
        num_servers=program.num_groups,
        invariant=program.invariant,
        step_property=program.step_property,
        canonicalise=program.canonicalise,
        begins_before_commits=True,
    )  # fmt: skip


class _Program(NamedTuple):
    """What workers and the servers of groups do; server W + g is that of group g."""

    group_of_worker: tuple[int, ...]
    num_local_steps: int
    num_contributions: int
    any_num_steps: bool

    @property
    def num_groups(self) -> int:
        """G."""
        return max(self.group_of_worker) + 1

    @property
    def remaining_units_at_begin(self) -> int:
        """What `remaining_units` is when a worker has begun."""
        return 2 if self.any_num_steps else self.num_local_steps

    @property
    def min_units_of_commit(self) -> int:
        """The units that a commit must have: those of K pushes, or K where a push can have any number of units."""
        return self.num_contributions * (1 if self.any_num_steps else self.num_local_steps)

    @property
    def max_pending_units(self) -> int:
        """The most units of a worker in canonical states."""
        return self.min_units_of_commit + (0 if self.any_num_steps else self.num_local_steps - 1)

    def group_of(self, worker: Any) -> Any:
        """int[]: the group of a worker; a NumPy number if the worker is one."""
        return (np if isinstance(worker, np.integer) else jnp).asarray(self.group_of_worker)[worker]

    def members(self, group: jax.Array) -> jax.Array:
        """bool[W]: who is in the group."""
        return jnp.asarray(self.group_of_worker) == group

    def own_entries(self, worker: Any) -> GroupVersions:
        """What a worker may change (True): its own entries, and what its group is known to have merged."""
        is_own = is_own_entry(len(self.group_of_worker), worker)
        is_own_group = is_own_entry(self.num_groups, self.group_of(worker))
        return GroupVersions(
            version=False,
            made_version=False,
            merged_version=is_own_group,
            read=is_own,
            remaining_units=is_own,
            pending_units=is_own,
        )

    def is_idle(self, remaining_units: jax.Array) -> jax.Array:
        """bool[]: whether a worker's last push has arrived; of one with any number of units the first one is enough."""
        return remaining_units <= (1 if self.any_num_steps else 0)

    def begin(self, state: GroupVersions, worker: jax.Array) -> tuple[GroupVersions, jax.Array]:
        """The state in which the worker goes on from what its group has merged, and whether it may: it is idle.

        All of its last push has arrived, `remaining_units`; those of its new one then have not.
        """
        after = state._replace(
            read=state.read.at[worker].set(state.merged_version[self.group_of(worker)]),
            remaining_units=state.remaining_units.at[worker].set(self.remaining_units_at_begin),
        )
        return after, self.is_idle(state.remaining_units[worker])

    def begin_with_answer(self, state: GroupVersions, worker: jax.Array) -> tuple[GroupVersions, jax.Array]:
        """As `begin`, where the group now merges `made_version`, the answer to its last commit; it must be new.

        That is, not what the group has merged already, `merged_version int[G]`.
        """
        group = self.group_of(worker)
        has_answer = state.made_version[group] > state.merged_version[group]
        state = state._replace(merged_version=state.merged_version.at[group].set(state.made_version[group]))
        after, enabled = self.begin(state, worker)
        return after, enabled & has_answer

    def unit(self, state: GroupVersions, worker: jax.Array) -> tuple[GroupVersions, jax.Array]:
        """The state in which one unit more of the worker has arrived, and whether there is one under way.

        `pending_units` have arrived and are in no commit yet. With `any_num_steps` (a push may have any number)
        `remaining_units` are 2 before a push's first unit, and 1 from then on.
        """
        remaining_units = (
            jnp.ones_like(state.remaining_units[worker]) if self.any_num_steps else state.remaining_units[worker] - 1
        )
        after = state._replace(
            remaining_units=state.remaining_units.at[worker].set(remaining_units),
            pending_units=state.pending_units.at[worker].add(1),
        )
        return after, state.remaining_units[worker] > 0

    def worker_rule(self, before: GroupVersions, after: GroupVersions, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker begins with what its group has, or a unit of its push arrives.

        Of a group: `made_version` by its last commit, `merged_version` what its members get, which may lag by one.
        Of a worker: `remaining_units` of its push under way; `pending_units` have arrived and are in no commit yet.
        With `any_num_steps` (a push may have any number) `remaining_units` are 2 before its first unit, 1 from then on.
        """
        group = self.group_of(worker)
        remaining_before, remaining_after = before.remaining_units[worker], after.remaining_units[worker]
        same_merged_version = after.merged_version[group] == before.merged_version[group]
        merges_answer = (after.merged_version[group] == before.made_version[group]) & (
            before.made_version[group] > before.merged_version[group]
        )
        reads_merged_version = after.read[worker] == after.merged_version[group]
        same_pending_units = after.pending_units[worker] == before.pending_units[worker]
        begins = (
            self.is_idle(remaining_before)
            & (remaining_after == self.remaining_units_at_begin)
            & same_pending_units
            & reads_merged_version
            & (same_merged_version | merges_answer)
        )
        one_less = (remaining_after == 1) if self.any_num_steps else (remaining_after == remaining_before - 1)
        same_read = after.read[worker] == before.read[worker]
        arrives = (
            (remaining_before > 0)
            & one_less
            & (after.pending_units[worker] == before.pending_units[worker] + 1)
            & same_read
            & same_merged_version
        )
        return begins | arrives

    def server_of_event(self, state: GroupVersions, event: Event) -> jax.Array:
        """int[]: the server of the commit's group, as a component: servers are numbered behind the workers."""
        return len(self.group_of_worker) + self.group_of(event.worker)

    def commits_units_of_group(self, before: GroupVersions, after: GroupVersions, event: Event) -> jax.Array:
        """bool[]: whether the commit makes the version that the event shows, of all that its group has pushed.

        No message of a worker in it is left out that it has sent before.
        """
        num_units = jnp.sum(jnp.where(self.members(self.group_of(event.worker)), before.pending_units, 0))
        same_units = (num_units == event.size) & (event.num_skipped_messages == 0)
        return (after.version == event.commit + 1) & same_units

    def may_commit(self, state: GroupVersions, group: jax.Array) -> jax.Array:
        """bool[]: whether a group has K pushes or more that are in no commit yet, all of them whole.

        Its workers' `pending_units` say so; where a push may have any number of units, K units are enough.
        """
        pending_units = jnp.where(self.members(group), state.pending_units, 0)
        is_whole = self.any_num_steps | (pending_units % self.num_local_steps == 0).all()
        return is_whole & (pending_units.sum() >= self.min_units_of_commit)

    def commit(self, state: GroupVersions, server: jax.Array) -> tuple[GroupVersions, jax.Array]:
        """The state after a commit of all that the server's group has pushed, and whether there may be one.

        Then the group has merged the version that its commit before has made, `made_version int[G]`.
        """
        group = server - len(self.group_of_worker)
        version = state.version + 1
        after = state._replace(
            version=version,
            made_version=state.made_version.at[group].set(version),
            merged_version=state.merged_version.at[group].set(state.made_version[group]),
            pending_units=jnp.where(self.members(group), 0, state.pending_units),
        )
        return after, self.may_commit(state, group)

    def server_rule(self, before: GroupVersions, after: GroupVersions, server: jax.Array) -> jax.Array:
        """bool[]: whether the server's group commits all it has, having merged its commit before; none else does.

        `made_version` and `merged_version` are int[G], one entry a group; server W + g is that of group g.
        """
        group = server - len(self.group_of_worker)
        is_own, is_member = is_own_entry(self.num_groups, group), self.members(group)
        is_made_as_expected = after.made_version == jnp.where(is_own, before.version + 1, before.made_version)
        is_merged_as_expected = after.merged_version == jnp.where(is_own, before.made_version, before.merged_version)
        takes_all_of_group_alone = (jnp.where(is_member, after.pending_units, 0) == 0).all() & (
            is_member | (after.pending_units == before.pending_units)
        ).all()
        one_more = after.version == before.version + 1
        return (
            one_more
            & is_made_as_expected.all()
            & is_merged_as_expected.all()
            & takes_all_of_group_alone
            & self.may_commit(before, group)
        )

    def invariant(self, state: GroupVersions) -> jax.Array:
        """bool[]: whether nobody has read what its group has not merged, and no group merged what it has not made."""
        read_is_merged = state.read <= state.merged_version[jnp.asarray(self.group_of_worker)]
        return (
            read_is_merged.all()
            & (state.merged_version <= state.made_version).all()
            & (state.made_version <= state.version).all()
        )

    def step_property(self, before: GroupVersions, after: GroupVersions, component: jax.Array) -> jax.Array:
        """bool[]: whether a commit takes the units of K pushes, or more, all of one group, and no version goes back.

        That is neither the one that a worker has read, nor the one that a group has merged. A step that makes no
        version is no commit; what a commit takes is no longer among the `pending_units int[W]`.
        """
        is_commit, is_taken = after.version > before.version, after.pending_units < before.pending_units
        group = jnp.asarray(self.group_of_worker)
        taken_group = group[jnp.argmax(is_taken)]  # that of the first worker of whom it takes something
        takes_one_group = (~is_taken | (group == taken_group)).all()
        num_taken_units = jnp.sum(jnp.where(is_taken, before.pending_units, 0))
        has_enough_units = num_taken_units >= self.min_units_of_commit
        never_goes_back = (after.read >= before.read).all() & (after.merged_version >= before.merged_version).all()
        return never_goes_back & (~is_commit | (takes_one_group & has_enough_units))

    def canonicalise(self, state: GroupVersions) -> GroupVersions:
        """The state in which 2 stands for the version that a group has made last, 1 for the one that it had before.

        0 stands for older ones, and more pending units of a worker than those of K pushes count as these; what there is
        of a push that has not arrived whole is kept.
        """
        made_version = jnp.full_like(state.made_version, 2)
        merged_version = jnp.where(state.merged_version == state.made_version, 2, 1)
        group = jnp.asarray(self.group_of_worker)
        is_merged = state.read == state.merged_version[group]
        read = jnp.where(is_merged, merged_version[group], 0)
        pending_units = jnp.minimum(state.pending_units, self.min_units_of_commit)
        if not self.any_num_steps:
            pending_units = jnp.minimum(
                state.pending_units, self.min_units_of_commit + state.pending_units % self.num_local_steps
            )
        return GroupVersions(
            jnp.full_like(state.version, 2), made_version, merged_version, read, state.remaining_units, pending_units
        )
