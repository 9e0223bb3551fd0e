"""The event queue: messages that arrive are dealt with one after the other, and then workers begin.

All messages that arrive at one moment are dealt with before anybody begins at that moment, by the lowest worker first.
Who leaves or joins at that moment does so before them: the turn of a worker that leaves, and its message, are lost.
A turn begins by receiving the parameters if there is a newer version than the worker's, or if the rule says so.

Letters: T units sampled per worker, W workers, J turns of a worker, E commits.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation import decisions
from gcjax.protocols.simulation.event_state import ARRIVING, IDLE, State, replace_where, with_ended_turns
from gcjax.protocols.simulation.overlapping import overlapping_turn
from gcjax.protocols.simulation.presence import (
    next_change,
    nobody_has_changed,
    will_change,
    with_last_version,
)
from gcjax.protocols.simulation.rules import Rule, View, turn_of
from gcjax.protocols.simulation.turns import FLOATS, INTEGERS, Turns, Work
from gcjax.stragglers.absences import Changes
from gcjax.stragglers.network import Network

_NUM_LOST_UNITS = 1
"""A turn that is cut off has begun a unit, which is lost."""


def initial_state(queue: "Queue", num_turns: int, num_commits: int) -> State:
    """The state in which nobody has begun, with room for `num_turns` turns of a worker and `num_commits` commits."""
    work, dtype = queue.work, queue.work.durations.dtype
    num_workers = work.num_workers
    zeros, never = jnp.zeros(num_workers, jnp.int32), jnp.full(num_workers, jnp.inf, dtype)
    all_idle = zeros  # IDLE is 0
    is_present = zeros == 0 if queue.is_present is None else queue.is_present
    no_turn = {"first": work.num_units, "commit": -1, "version": -1}  # the other integers are 0
    no_turn_integers = jnp.asarray([no_turn.get(name, 0) for name in INTEGERS], jnp.int32)
    return State(
        view=View(
            now=jnp.zeros((), dtype),
            commits=jnp.zeros((), jnp.int32),
            clock=zeros,
            num_uncommitted=zeros,
            idle=is_present,
            alive=is_present,
            version=zeros - 1,
            begin=jnp.zeros(num_workers, dtype),
            memory=queue.rule.memory(num_workers, dtype),
        ),
        phase=all_idle,
        phase_end=never,
        remaining_transfer=jnp.zeros(num_workers, dtype),
        num_turns=zeros,
        current=Turns(
            **{**dict.fromkeys(INTEGERS, zeros), "version": zeros - 1, "commit": zeros - 1},
            **dict.fromkeys(FLOATS, never),
        ),
        integers=jnp.broadcast_to(no_turn_integers, (num_turns, num_workers, len(INTEGERS))),
        floats=jnp.full((num_turns, num_workers, len(FLOATS)), jnp.inf, dtype),
        time=jnp.full(num_commits, jnp.inf, dtype),
        horizon=jnp.full((), jnp.inf, dtype),
        is_running=jnp.ones((), bool),
        server_free_time=jnp.zeros((), dtype),
        presence=None if queue.changes is None else nobody_has_changed(num_workers),
    )


class Queue(NamedTuple):
    """The steps of the event queue, where every transfer has a link of its own: its length is known when it begins.

    Workers begin, if they may; then the next event is dealt with. A server that takes time for a message deals with the
    next one when it is free, in the order of arrival, and what it answers leaves when it has dealt with the message.

    Attributes:
      rule: the protocol.
      work: the sampled units.
      network: the time of messages.
      changes: who leaves and joins; None where nobody does.
      is_present: bool[W], who is there at the beginning; None for everybody.
      keeps_version: whether a worker that comes back has what it had read when its last message arrived, since it has
        parameters of its own; otherwise it has no version.
    """

    rule: Rule
    work: Work
    network: Network
    changes: Changes | None = None
    is_present: jax.Array | None = None
    keeps_version: bool = False

    def step(self, state: State) -> State:
        """The state after the next event: idle workers begin, if they may, and then a phase ends or an alarm rings.

        Or somebody leaves or joins, before all else at that moment.

        The simulation stops if no phase ever ends, or if the next one ends after the horizon. A rule that needs
        everybody for each commit also stops it once a worker that owes a message never ends its unit.
        """
        if self.changes is None:  # a constant, by which the compiler leaves out what asks who is there
            everybody = jnp.ones_like(state.view.alive)
            state = state._replace(view=state.view._replace(alive=everybody))
        state = self._with_begun_turns(state)
        phase_end, change = self.phase_ends(state), self._next_change(state)
        # The server takes the message that has come first, also if several wait for it.
        arrival_order = phase_end if self.network.service is None else state.phase_end
        worker = jnp.argmin(arrival_order).astype(jnp.int32)
        next_time, alarm_rings = phase_end.min(), jnp.zeros((), bool)
        if self.rule.alarm is not None:
            alarm = self._alarm(state.view)
            alarm_rings, next_time = alarm < next_time, jnp.minimum(alarm, next_time)
        no_phase_ends = alarm_rings  # at an alarm nobody's phase does
        if change is not None:
            rings_first = alarm_rings & (next_time <= change.time)
            alarm_rings, no_phase_ends = rings_first, alarm_rings | (change.time <= next_time)
            next_time = jnp.minimum(change.time, next_time)
        is_running = state.is_running & jnp.isfinite(next_time) & (next_time <= state.horizon)
        if self.rule.everybody:
            # What happens at this very moment is still dealt with.
            is_at_this_moment = next_time == state.view.now
            is_running &= is_at_this_moment | ~self._waits_for_ever(state, phase_end, next_time)
        now = jnp.where(is_running, next_time, state.view.now)
        phase_ends = is_running & ~no_phase_ends
        state, arrives = self.with_event_at(state._replace(is_running=is_running), now, worker, phase_ends)
        asks_for_commit = alarm_rings & is_running
        if change is not None:
            state, worker, leaves = self._with_change(state, change, worker, arrives)
            asks_for_commit |= leaves
        return self._with_message(state, worker, arrives, asks_for_commit)

    def _waits_for_ever(self, state: State, phase_end: jax.Array, next_time: jax.Array) -> jax.Array:
        """bool[]: whether somebody that owes a message never ends its unit, and nothing ends it either."""
        never_ends = jnp.isinf(phase_end)
        computes_for_ever = never_ends & (state.current.compute_start < next_time) & ~state.view.idle
        if self.changes is not None and state.presence is not None:
            computes_for_ever &= state.view.alive & ~will_change(self.changes, state.presence)
        owes_message = state.view.num_uncommitted == 0
        return (computes_for_ever & owes_message).any()

    def _next_change(self, state: State) -> Changes | None:
        """Who leaves or joins next, numbers; None where nobody ever does."""
        if self.changes is None or state.presence is None:
            return None
        return next_change(self.changes, state.presence)

    def _with_change(
        self, state: State, change: Changes, worker: jax.Array, arrives: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        """The state in which somebody has left or joined, if it is time for it; what a leaving worker does is lost.

        Args:
          state: after `with_event_at`.
          change: the next one.
          worker: int32[], whose message has arrived, if `arrives bool[]`.
          arrives: as said.

        Returns:
          The state; int32[], whose event it is, that of the message or of the change; and bool[], whether it leaves.
        """
        assert state.presence is not None
        happens = state.is_running & (change.time == state.view.now)
        presence = with_last_version(state.presence, worker, arrives, state.view.version)
        presence = presence._replace(num_changes=presence.num_changes + happens.astype(jnp.int32))
        worker, leaves, joins = (
            jnp.where(happens, change.worker, worker),
            happens & ~change.joins,
            happens & change.joins,
        )
        is_changing_worker = jnp.arange(self.work.num_workers, dtype=jnp.int32) == worker
        state = self._with_cut_off_turns(state, is_changing_worker & leaves)
        view = state.view
        if self.keeps_version:
            view = view._replace(version=jnp.where(is_changing_worker & joins, presence.last_version, view.version))
        view = decisions.with_membership(view, worker, leaves, joins)
        return state._replace(view=view, presence=presence), worker, leaves

    def _alarm(self, view: View) -> jax.Array:
        """float[] seconds: when to look again although nothing has happened; inf for never."""
        assert self.rule.alarm is not None
        alarm = jnp.asarray(self.rule.alarm(view), view.now.dtype)
        return jnp.where(alarm > view.now, alarm, jnp.inf)

    def phase_ends(self, state: State) -> jax.Array:
        """float[W]: when the phase of each worker ends: the server deals with its message, which has come before."""
        return state.phase_end if self.network.service is None else jnp.maximum(state.phase_end, state.server_free_time)

    def with_event_at(
        self, state: State, now: jax.Array, worker: jax.Array, phase_has_ended: jax.Array
    ) -> tuple[State, jax.Array]:
        """The state at `now`, if `phase_has_ended bool[]` that of this worker; bool[], whether its message arrives so.

        Here it always does: the one phase of a turn ends then.
        """
        if self.network.service is not None:
            free_time = now + jnp.asarray(self.network.service, now.dtype)
            arrive = state.current.arrive.at[worker].set(jnp.where(phase_has_ended, now, state.current.arrive[worker]))
            state = state._replace(
                server_free_time=jnp.where(phase_has_ended, free_time, state.server_free_time),
                current=state.current._replace(arrive=arrive),
            )
        return state._replace(view=state.view._replace(now=now)), phase_has_ended

    def begin_turns(self, state: State, begins: jax.Array, pulls: jax.Array) -> State:
        """The state in which the workers of `begins bool[W]` begin a turn: `pulls bool[W]` by receiving parameters."""
        now = state.view.now if self.network.service is None else jnp.maximum(state.view.now, state.server_free_time)
        ready = jnp.where(pulls, now + self.message_seconds(self.network.download), now)
        return self.with_computing_turns(state, begins, ready, pulls)

    def phase_until_sent(self, stop: jax.Array, send_start: jax.Array) -> tuple[int, jax.Array, jax.Array]:
        """The phase of those who compute until `stop` and then send; when it ends, and when the message arrives."""
        del stop
        arrival_time = send_start + self.message_seconds(self.network.upload)
        if self.rule.exchanges:
            arrival_time += self.message_seconds(self.network.download)
        return ARRIVING, arrival_time, arrival_time

    def message_seconds(self, link_seconds: Any) -> jax.Array:
        """float[W] or []: seconds of a message; `link_seconds` are those on its own link, without the latency."""
        dtype = self.work.durations.dtype
        return jnp.asarray(self.network.latency, dtype) + jnp.asarray(link_seconds, dtype)

    def _with_begun_turns(self, state: State) -> State:
        """The state in which idle workers begin a turn, if the rule says so.

        Nobody begins before all that arrives at this moment has been dealt with. A worker without a unit that was
        sampled does not begin any more, and sets the horizon.
        """
        view, current = state.view, state.current
        all_is_dealt_with, next_change = self.phase_ends(state).min() > view.now, self._next_change(state)
        if next_change is not None:
            all_is_dealt_with &= next_change.time > view.now
        may_begin = all_is_dealt_with & state.is_running & decisions.may_begin(self.rule, view)
        next_unit = current.first + current.num_begun  # after the units of the last turn
        has_no_unit = may_begin & (next_unit >= self.work.num_units)
        horizon = jnp.where(has_no_unit.any(), jnp.minimum(state.horizon, view.now), state.horizon)
        view, begins = view._replace(idle=view.idle & ~has_no_unit), may_begin & ~has_no_unit
        pulls = decisions.pulls(self.rule, view, begins)
        current = replace_where(
            current, begins, first=next_unit, num_begun=0, work=0, commit=-1,
            begin=view.now, compute_start=jnp.inf, stop=jnp.inf, send_start=jnp.inf, arrive=jnp.inf,
        )  # fmt: skip
        version = jnp.where(pulls, view.commits, view.version)
        view = view._replace(idle=view.idle & ~begins, version=version, begin=jnp.where(begins, view.now, view.begin))
        state = state._replace(horizon=horizon, current=current._replace(version=version), view=view)
        return self.begin_turns(state, begins, pulls)

    def with_computing_turns(self, state: State, begins: jax.Array, ready_time: jax.Array, pulled: jax.Array) -> State:
        """The state in which workers have begun to compute the units that the rule plans.

        Those whose plan takes more units than were sampled do nothing instead, and set the horizon.

        Args:
          state: the simulation.
          begins: bool[W], who begins.
          ready_time: float[W] seconds, when each has the parameters.
          pulled: bool[W], whose parameters were received for this turn.
        """
        current = state.current
        if self.rule.plan is not None:
            plan = self.rule.plan(self.work, current.first, ready_time, state.view.memory)
        elif self.rule.overlaps:
            compute_began = self.network.arrivals_at_workers(jnp.zeros_like(self.work.durations[0]))
            plan = overlapping_turn(self.work, current.first, ready_time, compute_began)
        elif self.rule.turn_seconds is not None:
            num_units = self.work.until(current.first, self.rule.turn_seconds(state.view))
            plan = turn_of(self.work, current.first, ready_time, num_units)
        else:
            plan = turn_of(self.work, current.first, ready_time, self.rule.units_of(state.view))
        lacks_units = begins & (current.first + plan.num_units > self.work.num_units)
        horizon = jnp.where(lacks_units.any(), jnp.minimum(state.horizon, state.view.now), state.horizon)
        computes = begins & ~lacks_units
        send_start = jnp.where(jnp.isfinite(plan.stop), plan.send_start, jnp.inf)
        phase, phase_end, arrive = self.phase_until_sent(plan.stop, send_start)
        planned = replace_where(
            current, computes, num_begun=plan.num_units, work=plan.num_units,
            first_on_version=jnp.where(pulled, plan.first_on_version, current.first),
            begin=jnp.minimum(current.begin, plan.compute_start),
            compute_start=plan.compute_start, stop=plan.stop, send_start=send_start, arrive=arrive,
        )  # fmt: skip
        state = replace_where(state, lacks_units, phase=IDLE, phase_end=jnp.inf)
        state = replace_where(state, computes, phase=phase, phase_end=phase_end)
        return state._replace(current=planned, horizon=horizon)

    def _with_message(self, state: State, worker: jax.Array, arrives: jax.Array, asks_for_commit: jax.Array) -> State:
        """The state after the message of a worker has arrived, and after the commit that it may bring.

        An alarm, or a worker that has left, may bring one, too.

        The worker's turn ends, and it becomes idle. Where the rule does not say whose messages a commit takes, each
        takes all since the last one, so that the commit of a message is known on arrival; otherwise it is known when
        it is taken. A message that the rule ignores is in none. If neither `arrives bool[]` nor `asks_for_commit
        bool[]` (the alarm, the leaving), nothing changes.
        """
        current = state.current
        num_in_front = state.view.num_uncommitted.sum(dtype=jnp.int32)  # the others that are in no commit yet
        is_accepted = decisions.accepts(self.rule, state.view, worker, arrives)
        view = decisions.with_message(state.view, worker, arrives, is_accepted)
        may_commit = is_accepted
        if self.rule.alarm is not None or self.changes is not None:
            may_commit |= asks_for_commit & (view.num_uncommitted > 0).any()
        commit = decisions.commit_of(self.rule, view, worker, may_commit)
        if self.rule.takes is None:
            commit_number = view.commits + self.rule.postpones(view, worker)
            current = current._replace(
                commit=current.commit.at[worker].set(jnp.where(is_accepted, commit_number, current.commit[worker])),
                position=current.position.at[worker].set(num_in_front),
            )
        state = with_ended_turns(state._replace(current=current), arrives, worker)
        state = state._replace(
            phase=state.phase.at[worker].set(jnp.where(arrives, IDLE, state.phase[worker])),
            phase_end=state.phase_end.at[worker].set(jnp.where(arrives, jnp.inf, state.phase_end[worker])),
        )
        out_of_bounds = state.time.size
        commit_number = jnp.where(commit.happens, view.commits, out_of_bounds)  # out of bounds: dropped
        state = state._replace(time=state.time.at[commit_number].set(view.now, mode="drop"))
        if self.rule.takes is not None:
            taken = commit.taken
            if self.changes is not None:  # whoever has left need not have a message
                taken &= view.num_uncommitted > 0
            state = self._with_taken_messages(state, taken, view.commits)
        state = state._replace(view=decisions.with_commit(self.rule, view, worker, arrives, commit))
        if self.rule.cuts is None:
            return state
        return self._with_cut_off_turns(state, commit.happens & self.rule.cuts(state.view, worker))

    def _with_taken_messages(self, state: State, taken: jax.Array, commit_number: jax.Array) -> State:
        """The state in which the last messages of the workers of `taken bool[W]` are part of a commit."""
        worker = jnp.arange(taken.size)
        position_in_commit = jnp.cumsum(taken, dtype=jnp.int32) - 1  # 0, 1, ... among those that are taken
        last_turn = state.num_turns - 1
        out_of_bounds = state.integers.shape[0]
        entry = jnp.where(taken, last_turn, out_of_bounds), worker  # out of bounds: dropped
        integers = state.integers.at[(*entry, INTEGERS.index("commit"))].set(commit_number, mode="drop")
        integers = integers.at[(*entry, INTEGERS.index("position"))].set(position_in_commit, mode="drop")
        return state._replace(integers=integers)

    def _with_cut_off_turns(self, state: State, may_cut_off: jax.Array) -> State:
        """The state in which turns under way of `may_cut_off bool[W]` are ended; the unit that each began is lost."""
        is_cut_off, now, current = may_cut_off & (state.phase != IDLE), state.view.now, state.current
        cut_off_turns = replace_where(
            current, is_cut_off, num_begun=_NUM_LOST_UNITS, work=0,
            stop=jnp.minimum(current.stop, now), send_start=jnp.inf, arrive=jnp.inf,
            compute_start=jnp.where(current.compute_start > now, jnp.inf, current.compute_start),
        )  # fmt: skip
        state = with_ended_turns(state._replace(current=cut_off_turns), is_cut_off, jnp.arange(is_cut_off.size))
        state = replace_where(state, is_cut_off, phase=IDLE, phase_end=jnp.inf)
        return state._replace(view=state.view._replace(idle=state.view.idle | is_cut_off))
