"""Servers of groups that are synchronous inside: what workers and servers may do, for `gcjax.specifications.groups`.

Each group has a server, which is an environment of all others; the central server is the version that they share. A
group is known by its lowest worker, and so is its server; the servers of other workers do nothing. A worker on its own
is a group of one. Times are left open: any group may be next.

`pushes_of_others` counts the pushes of other groups since a group has read; it is there to say what is promised: a push
is stale by at most these. Version, read and these pushes can all grow without bound, but only `version - read -
pushes_of_others` matters, so that states are kept with none.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.specifications.base import Action, Role, Specification, is_own_entry, zeros
from gcjax.specifications.decodable_rounds import Decodable
from gcjax.specifications.events import BEGIN, COMMIT, UNIT, Event
from gcjax.specifications.group_states import Groups, states_before_events
from gcjax.specifications.rounds import adds_one_unit
from gcjax.wording import counted


class Grouping(NamedTuple):
    """What the protocols differ in.

    Attributes:
      levels: int[levels, W], the group of each worker when groups have been halved so often.
      num_local_steps: H, the units of each member before a push.
      any_num_steps: whether a push may have more.
      has_group_servers: whether groups have servers, where messages can wait for their commit, and workers between two
        pushes; otherwise each message makes a commit when it arrives, and nobody waits.
      codes: of each group its workers, in the order of its code, and what that can decode; none without codes. A push
        then takes what the members have done, once it can be decoded, in any order.
    """

    levels: np.ndarray
    num_local_steps: int
    any_num_steps: bool = False
    has_group_servers: bool = True
    codes: tuple[tuple[tuple[int, ...], Decodable], ...] = ()

    @property
    def loads(self) -> np.ndarray:
        """int32[W]: the units of each worker in a push: `num_local_steps`, or up to the load of its group's code."""
        loads = np.full(self.levels.shape[1], self.num_local_steps, np.int32)
        for workers, decodable in self.codes:
            loads[list(workers)] = decodable.load
        return loads


def groups_specification(name: str, num_workers: int, grouping: Grouping) -> Specification:
    """The specification of groups that read and push in turn; `name` is the protocol's, for people."""
    _validate.integer("num_local_steps", grouping.num_local_steps, minimum=1)
    zero_per_worker, zero = zeros(num_workers), np.int32(0)
    one_value, two_values = zero_per_worker + 1, zero_per_worker + 2
    program, steps = _Program(num_workers, grouping), grouping.num_local_steps
    unit = Action("unit", program.unit, event=UNIT, matches=adds_one_unit)
    is_each_alone = len(set(grouping.levels[0].tolist())) == num_workers
    contents = counted(steps, "unit") + ("" if is_each_alone else " of each member")
    contents = "work" if grouping.any_num_steps else contents
    contents = "what its group's code decodes" if grouping.codes else contents
    return Specification(
        name,
        num_workers,
        initial=Groups(zero, grouping.levels[0].astype(np.int32), *(zero_per_worker,) * 4, level=zero),
        sizes=Groups(  # of canonical states: version 1, reads 1, or 0 where a push is too stale, no pushes of others
            version=2,
            group=zero_per_worker + num_workers,
            pending_units=zero_per_worker + grouping.loads + 1,
            read=two_values,
            pushes_of_others=one_value,
            num_unread_pushes=two_values,
            level=len(grouping.levels),
        ),
        worker=Role.of_workers(Groups, num_workers, ("pending_units",), (unit,), program.unit_rule),
        claim=f"a push has {contents} in it, and is stale by at most the others' pushes since its read",
        server=Role.of_servers(Groups, Groups._fields, program.actions(), program.server_rule),
        num_servers=num_workers,
        invariant=program.invariant,
        step_property=program.push_property,
        canonicalise=program.canonicalise,
        replay=states_before_events if len(grouping.levels) == 1 else None,
    )


class _Program(NamedTuple):
    """What workers do, and the servers of groups: server W + g takes the steps of the group of lowest worker g."""

    num_workers: int
    grouping: Grouping

    def members(self, state: Groups, server: jax.Array) -> jax.Array:
        """bool[W]: who is in the group of server W + g, whose lowest worker is g; nobody if there is none such."""
        return state.group == server - self.num_workers

    def may_do_another(self, pending_units: jax.Array, worker: jax.Array) -> jax.Array:
        """bool[]: whether a worker that has done so much may do another unit before the push."""
        return (pending_units < jnp.asarray(self.grouping.loads)[worker]) | self.grouping.any_num_steps

    def is_complete(self, pending_units: jax.Array) -> jax.Array:
        """bool[W]: whether each has done what a push takes of it; with codes whether its group's can be decoded.

        A push sends what a group has done since its read, `pending_units int[W]`, and makes a version, alone.
        """
        steps = self.grouping.num_local_steps
        if not self.grouping.codes:
            return pending_units >= steps if self.grouping.any_num_steps else pending_units == steps
        is_decodable = jnp.zeros(self.num_workers, bool)
        for workers, decodable in self.grouping.codes:
            members = np.array(workers)
            is_decodable = is_decodable.at[members].set(decodable.is_decodable(pending_units[members]))
        return is_decodable

    def unit(self, state: Groups, worker: jax.Array) -> tuple[Groups, jax.Array]:
        """The state with one unit more of the worker, and whether it may do it.

        It may between its group's read and push, if nobody of its group has done less; a code asks for no order.
        `pending_units int[W]` are those since the read; `num_unread_pushes`, at a group's lowest worker, is 1 from push
        to read.
        """
        is_member = state.group == state.group[worker]
        min_pending_units = jnp.min(jnp.where(is_member, state.pending_units, state.pending_units[worker]))
        group_has_read = state.num_unread_pushes[state.group[worker]] == 0
        nobody_is_behind = (state.pending_units[worker] == min_pending_units) | bool(self.grouping.codes)
        enabled = group_has_read & nobody_is_behind & self.may_do_another(state.pending_units[worker], worker)
        return state._replace(pending_units=state.pending_units.at[worker].add(1)), enabled

    def unit_rule(self, before: Groups, after: Groups, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker does one unit, no member of its group is behind it, and its group has read.

        `group int[W]` is the lowest worker of each one's group; `num_unread_pushes` is 1 there from push to read.
        `pending_units int[W]` are each one's since the read. With codes nobody waits for who is behind.
        """
        pending_units = before.pending_units[worker]
        is_behind = (before.group == before.group[worker]) & (before.pending_units < pending_units)
        group_has_read = before.num_unread_pushes[before.group[worker]] == 0
        waits_for_nobody = ~is_behind.any() | bool(self.grouping.codes)
        may_do_unit = waits_for_nobody & self.may_do_another(pending_units, worker) & group_has_read
        return (after.pending_units[worker] == pending_units + 1) & may_do_unit

    def actions(self) -> tuple[Action, ...]:
        """Push and read; if groups can be halved (more levels), a read may begin that, or keep its group as it is."""
        push = Action(
            name="push", move=self.push, event=COMMIT, matches=self._is_commit_of_event, actor=self._server_of_event
        )
        moves_of_read = {"read": self.read}
        if len(self.grouping.levels) > 1:
            moves_of_read |= {
                "read, halve next": self._read_and_halve,
                "read, stay together": self._read_and_stay_together,
            }
        return push, *(
            Action(name=name, move=move, event=BEGIN, matches=self._is_read_of_event, actor=self._server_of_event)
            for name, move in moves_of_read.items()
        )

    def _server_of_event(self, state: Groups, event: Event) -> jax.Array:
        """int[]: the server of the worker's group, as a component: W and the group's lowest worker."""
        return self.num_workers + state.group[event.worker]

    def _is_commit_of_event(self, before: Groups, after: Groups, event: Event) -> jax.Array:
        """bool[]: whether this makes the version that the event shows, of all that its group has done and sent.

        The event's worker is the lowest in the commit; `group int[W]` is the lowest worker of each one's group.
        """
        is_member = before.group == before.group[event.worker]
        same_size = jnp.sum(jnp.where(is_member, before.pending_units, 0)) == event.size
        # With codes the lowest of the group may have done nothing, and is not in the commit then.
        is_lowest = (event.worker == before.group[event.worker]) | bool(self.grouping.codes)
        leaves_out_messages = event.num_skipped_messages > 0
        if not self.grouping.has_group_servers:
            leaves_out_messages |= event.leaves_out_messages
        return (after.version == event.commit + 1) & same_size & is_lowest & ~leaves_out_messages

    def _is_read_of_event(self, before: Groups, after: Groups, event: Event) -> jax.Array:
        """bool[]: whether the worker's group has read the version that the event shows, and is the one it works in.

        `event.group` is the lowest worker, and `event.size` the number of workers, in the commit that its work is in.
        """
        group = after.group[event.worker]
        size_is_unknown = event.size == 0  # the unit is in no commit that would show how large the group is
        same_size = size_is_unknown | (event.size == jnp.sum(after.group == group))
        same_group = group == event.group
        if self.grouping.codes:  # who has done nothing is not in the commit, and may be the lowest
            same_size, same_group = event.size <= jnp.sum(after.group == group), after.group[event.group] == group
        has_read = (after.num_unread_pushes[group] == 0) & (after.read[group] == event.version)
        waited_wrongly = event.waited & (not self.grouping.has_group_servers)
        is_read_of_group = has_read & same_group & same_size
        may_work = self.may_do_another(after.pending_units[event.worker], event.worker)
        return is_read_of_group & may_work & ~waited_wrongly

    def push(self, state: Groups, server: jax.Array) -> tuple[Groups, jax.Array]:
        """The state after a push (a version made of its members' work) of the server's group, and whether it may be.

        `pushes_of_others int[W]` counts, at each group's lowest worker, what other groups have pushed since its read.
        """
        # The entry of the group's lowest worker is that of the group. Of a worker instead of a server the number is
        # negative, and it has no members, so that nothing may be pushed.
        lowest_member = server - self.num_workers
        is_member, is_entry_of_group = self.members(state, server), is_own_entry(self.num_workers, lowest_member)
        has_enough = (
            self.is_complete(state.pending_units)
            if self.grouping.codes
            else state.pending_units >= self.grouping.num_local_steps
        )
        is_done = has_enough | ~is_member
        version = state.version + 1
        pushes_of_others = state.pushes_of_others + (self._is_lowest_member(state) & ~is_entry_of_group).astype(
            jnp.int32
        )
        after = state._replace(
            version=version,
            pushes_of_others=pushes_of_others,
            num_unread_pushes=jnp.where(is_entry_of_group, 1, state.num_unread_pushes),
        )
        return after, is_member.any() & is_done.all() & (state.num_unread_pushes[lowest_member] == 0)

    def read(self, state: Groups, server: jax.Array) -> tuple[Groups, jax.Array]:
        """The state after the group's read, and whether it has pushed; the group is split as the present level says."""
        return self._read_at_level(state, server, state.level)

    def _read_and_halve(self, state: Groups, server: jax.Array) -> tuple[Groups, jax.Array]:
        """The state after the group's read with which all groups begin to be halved, and whether this may be."""
        after, enabled = self._read_at_level(state, server, state.level + 1)
        return after, enabled & (state.level < len(self.grouping.levels) - 1)

    def _read_at_level(self, state: Groups, server: jax.Array, level: jax.Array) -> tuple[Groups, jax.Array]:
        """The state in which the group has read, split as at this level, and whether it has pushed before.

        `level`: how often groups have been halved; a row of `levels int[levels, W]`, each worker's group then. One
        beyond the last row counts as that; `num_unread_pushes` is 1 from push to read.
        """
        is_member = self.members(state, server)
        after = state._replace(
            read=jnp.where(is_member, state.version, state.read),
            pushes_of_others=jnp.where(is_member, 0, state.pushes_of_others),
            num_unread_pushes=jnp.where(is_member, 0, state.num_unread_pushes),
            pending_units=jnp.where(is_member, 0, state.pending_units),
            level=level,
        )
        if len(self.grouping.levels) > 1:
            group_at_level = jnp.asarray(self.grouping.levels).at[level].get(mode="clip")
            after = after._replace(group=jnp.where(is_member, group_at_level, state.group))
        group_exists, lowest_member = is_member.any(), server - self.num_workers
        return after, group_exists & (state.num_unread_pushes[lowest_member] == 1)

    def _read_and_stay_together(self, state: Groups, server: jax.Array) -> tuple[Groups, jax.Array]:
        """The state after a read with which a group stays whole that would be split, and whether that may be."""
        after, enabled = self.read(state, server)
        return after._replace(group=state.group), enabled & (after.group != state.group).any()

    def server_rule(self, before: Groups, after: Groups, server: jax.Array) -> jax.Array:
        """bool[]: whether a server pushes and reads alternately, for its own members, and others count its pushes.

        Nothing else changes. `num_unread_pushes` and `pushes_of_others` count at a group's lowest worker; elsewhere
        they are 0. Only a read changes `level`, how often groups have been halved.
        """
        is_member, lowest_member = before.group == server - self.num_workers, self._lowest_member_or_0(server)
        is_push = before.num_unread_pushes[lowest_member] == 0
        num_pushes = is_push.astype(jnp.int32)
        is_unchanged = (
            (after.group == before.group) & (after.pending_units == before.pending_units) & (after.read == before.read)
        )
        others_count_push = jnp.where(self._is_lowest_member(before), num_pushes, 0)
        num_new_pushes = after.pushes_of_others - before.pushes_of_others
        is_right_for_other = (
            is_unchanged & (num_new_pushes == others_count_push) & (after.num_unread_pushes == before.num_unread_pushes)
        )
        has_pushed = self.is_complete(before.pending_units) & is_unchanged & (num_new_pushes == 0)
        only_at_lowest = is_own_entry(self.num_workers, lowest_member) | (after.num_unread_pushes <= 0)
        is_right_for_member = jnp.where(is_push, has_pushed, self._has_read(before, after)) & only_at_lowest
        alternates = after.num_unread_pushes[lowest_member] == 1 - before.num_unread_pushes[lowest_member]
        return (
            is_member.any()
            & jnp.where(is_member, is_right_for_member, is_right_for_other).all()
            & (after.version == before.version + num_pushes)
            & alternates
            & jnp.where(is_push, after.level == before.level, self._is_kept_or_split(before, after, is_member))
        )

    def _has_read(self, before: Groups, after: Groups) -> jax.Array:
        """bool[W]: who has read the newest version and begins anew; its group is the same if there is one level."""
        has_read = (after.read == before.version) & (after.pushes_of_others == 0) & (after.pending_units == 0)
        return has_read & (after.group == before.group) if len(self.grouping.levels) == 1 else has_read

    def _is_kept_or_split(self, before: Groups, after: Groups, is_member: jax.Array) -> jax.Array:
        """bool[]: whether a read leaves the members' group as it is, or splits it as at the new level.

        `level`: how often groups have been halved; a row of `levels int[levels, W]`, each worker's group then. A read
        may go one level on.
        """
        is_same_level = after.level == before.level
        if len(self.grouping.levels) == 1:
            return is_same_level
        is_split_at_level = after.group == jnp.asarray(self.grouping.levels).at[after.level].get(mode="clip")
        is_split = (is_split_at_level | ~is_member).all()
        stays_as_it_is = is_same_level & ((after.group == before.group) | ~is_member).all()
        is_same_or_next_level = is_same_level | (after.level == before.level + 1)
        return (is_split | stays_as_it_is) & is_same_or_next_level & (after.level < len(self.grouping.levels))

    def invariant(self, state: Groups) -> jax.Array:
        """bool[]: whether each group has the number of a member, and nobody is more than one unit ahead in it.

        With codes nobody has done more than its load. A group's number is its lowest worker: `group int[W]`.
        """
        if (self.grouping.levels == np.arange(self.num_workers)).all():  # nobody has others in its group
            return (state.group == np.arange(self.num_workers)).all()
        group_number_is_of_member = (state.group[state.group] == state.group).all()
        if self.grouping.codes:
            return (state.pending_units <= jnp.asarray(self.grouping.loads)).all() & group_number_is_of_member
        # At the lowest worker of each group.
        max_of_group = jnp.zeros_like(state.pending_units).at[state.group].max(state.pending_units)
        return (max_of_group[state.group] - state.pending_units <= 1).all() & group_number_is_of_member

    def push_property(self, before: Groups, after: Groups, server: jax.Array) -> jax.Array:
        """bool[]: whether a push has all units of each member, and its staleness is at most the others' pushes.

        Those since its group's read are `pushes_of_others`, kept at the lowest member. A step that makes no version is
        no push, and passes.
        """
        is_member, lowest_member = before.group == server - self.num_workers, self._lowest_member_or_0(server)
        staleness = before.version - before.read[lowest_member]
        has_bounded_staleness = staleness <= before.pushes_of_others[lowest_member]
        is_complete = self.is_complete(before.pending_units)
        return (after.version == before.version) | (has_bounded_staleness & (is_complete | ~is_member).all())

    def canonicalise(self, state: Groups) -> Groups:
        """The state with version 1, no pushes of others, and reads 1 less the staleness beyond pushes of others.

        Where a push may have any number of units, those above `num_local_steps` are not counted.
        """
        staleness = jnp.where(self._is_lowest_member(state), state.version - state.read - state.pushes_of_others, 0)
        pending_units = state.pending_units
        if self.grouping.any_num_steps:
            pending_units = jnp.minimum(pending_units, self.grouping.num_local_steps)
        return state._replace(
            version=jnp.ones_like(state.version),
            pending_units=pending_units,
            read=1 - staleness,
            pushes_of_others=0 * state.pushes_of_others,
        )

    def _lowest_member_or_0(self, server: jax.Array) -> jax.Array:
        """int[]: the lowest worker of the server's group; 0 for workers, for whom rules are computed and not used."""
        return jnp.maximum(server - self.num_workers, 0)

    def _is_lowest_member(self, state: Groups) -> jax.Array:
        """bool[W]: which workers are the lowest of a group."""
        return state.group == jnp.arange(self.num_workers)
