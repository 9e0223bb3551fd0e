"""The event queue: messages that arrive are dealt with one after the other, and then workers begin.

All messages that arrive at one moment are dealt with before anybody begins at that moment, by the lowest worker first.
Who leaves or joins at that moment does so before them: the turn of a worker that leaves, and its message, are lost.
A turn begins by receiving the parameters if there is a newer version than the worker's, or if the rule says so.

Letters: T units sampled per worker, W workers, J turns of a worker, E commits.
"""

import jax
import jax.numpy as jnp

from gcjax._shared_loops import max_over_runs, run_if
from gcjax.protocols.simulation import decisions
from gcjax.protocols.simulation.earliest import earliest_of_blocks
from gcjax.protocols.simulation.event_state import (
    IDLE,
    PackedTurns,
    State,
    WorkerStates,
    packed,
    replace_where,
    with_ended_turn,
    with_ended_turns,
)
from gcjax.protocols.simulation.one_row_each import MAX_ONE_BY_ONE, with_rows
from gcjax.protocols.simulation.presence import nobody_has_changed, will_change, with_last_version
from gcjax.protocols.simulation.rules import Counts, View, counts_of, first_view, num_messages
from gcjax.protocols.simulation.turn_queue import TurnQueue
from gcjax.protocols.simulation.turns import FLOATS, INTEGERS, Turns
from gcjax.protocols.simulation.worker_selection import EVERYBODY, WorkerSelection, with_entry
from gcjax.stragglers.absences import Changes

_NUM_LOST_UNITS = 1
"""A turn that is cut off has begun a unit, which is lost."""


def initial_state(queue: "Queue", num_turns: int, num_commits: int) -> State:
    """The state in which nobody has begun, with room for J = `num_turns` turns of a worker and E = `num_commits`.

    The arrays of turns and of commits have one entry more, [J + 1, W] and [E + 1], to which goes what does not happen.
    """
    work, dtype = queue.work, queue.work.durations.dtype
    num_workers = work.num_workers
    zeros, never = jnp.zeros(num_workers, jnp.int32), jnp.full(num_workers, jnp.inf, dtype)
    all_idle = zeros  # IDLE is 0
    is_present = jnp.ones(num_workers, bool) if queue.is_present is None else queue.is_present
    view = first_view(queue.rule, is_present, dtype)
    no_turn = {"first_unit": work.num_units, "commit": -1, "version": -1}  # the other integers are 0
    no_turn_integers = jnp.asarray([no_turn.get(name, 0) for name in INTEGERS], jnp.int32)
    return State(
        view=view._replace(counts=counts_of(view)),
        phase=all_idle,
        phase_end=never,
        remaining_transfer=jnp.zeros(num_workers, dtype),
        num_turns=zeros,
        current_turns=packed(
            Turns(
                **{**dict.fromkeys(INTEGERS, zeros), "version": zeros - 1, "commit": zeros - 1},
                **dict.fromkeys(FLOATS, never),
            )
        ),
        ended_turns=PackedTurns(
            jnp.broadcast_to(no_turn_integers, (num_turns + 1, num_workers, len(INTEGERS))),
            jnp.full((num_turns + 1, num_workers, len(FLOATS)), jnp.inf, dtype),
        ),
        time=jnp.full(num_commits + 1, jnp.inf, dtype),
        horizon=queue.first_horizon,
        is_running=jnp.ones((), bool),
        server_free_time=jnp.zeros((), dtype),
        sender=jnp.zeros((), jnp.int32),
        asks_everybody=jnp.ones((), bool),
        somebody_is_stuck=jnp.zeros((), bool),
        earliest_phase_ends=None if queue.looks_at_everybody else earliest_of_blocks(never),
        presence=None if queue.changes is None else nobody_has_changed(num_workers),
    )


class Queue(TurnQueue):
    """The steps of the event queue, where every transfer has a link of its own: its length is known when it begins.

    Workers begin, if they may; then the next event is dealt with. A server that takes time for a message deals with the
    next one when it is free, in the order of arrival, and what it answers leaves when it has dealt with the message.
    """

    __slots__ = ()

    def step(self, state: State) -> State:
        """The state after the next event: idle workers begin, if they may, and then a phase ends or an alarm rings.

        Or somebody leaves or joins, before all else at that moment. A phase is a part of a worker's turn, or all of it.

        The simulation stops if no phase ever ends, or if the next one ends after the horizon. A rule that needs
        everybody for each commit also stops it once a worker that owes a message never ends its unit.
        """
        state = self.with_begun_turns(self.with_constant_alive(state))
        worker, next_time = self.first_phase_end(state)
        change, alarm_rings = self.next_change(state), jnp.zeros((), bool)
        alarm_time = jnp.full_like(next_time, jnp.inf)
        if self.rule.alarm is not None:
            alarm_time = jnp.asarray(self.rule.alarm(state.view), next_time.dtype)
            coming_alarm_time = jnp.where(alarm_time > state.view.now, alarm_time, jnp.inf)  # one that is over is none
            alarm_rings, next_time = coming_alarm_time < next_time, jnp.minimum(coming_alarm_time, next_time)
        no_phase_ends = alarm_rings  # at an alarm nobody's phase does
        if change is not None:  # it comes before a phase that ends at its moment, and goes together with an alarm
            rings_first = alarm_rings & (next_time <= change.time)
            alarm_rings, no_phase_ends = rings_first, alarm_rings | (change.time <= next_time)
            next_time = jnp.minimum(change.time, next_time)
        is_running = state.is_running & jnp.isfinite(next_time) & (next_time <= state.horizon)
        if self.rule.needs_everybody:
            # What happens at this very moment is still dealt with.
            is_at_this_moment = next_time == state.view.now
            comes_to_halt = ~is_at_this_moment & self._waits_for_ever(state, next_time)
            if self.rule.overlaps:  # units would not have run out, however few are sampled
                state = state._replace(horizon=jnp.where(is_running & comes_to_halt, jnp.inf, state.horizon))
            is_running &= ~comes_to_halt
        now = jnp.where(is_running, next_time, state.view.now)
        phase_ends = is_running & ~no_phase_ends
        # `arrives`: bool[], whether a message of this worker does.
        state, arrives = self.with_event_at(state._replace(is_running=is_running), now, worker, phase_ends)
        others_may_begin = alarm_rings & is_running
        # Also where phases end at the moment of an alarm, after the last of them: a message may still arrive.
        asks_for_commit = is_running & (alarm_time == next_time) & ~self.another_phase_ends(state)
        if change is not None:
            state, worker, has_changed = self._with_change(state, change, worker, arrives)
            asks_for_commit |= has_changed
            others_may_begin = jnp.ones((), bool)
        state = state._replace(sender=worker, asks_everybody=state.asks_everybody | others_may_begin)
        return self._with_message(state, worker, arrives, asks_for_commit)

    def _waits_for_ever(self, state: State, next_time: jax.Array) -> jax.Array:
        """bool[]: whether somebody that owes a message never ends its unit, and nothing ends it either.

        `somebody_is_stuck` says whether there may be one; if not, it need not be looked for. Only who has begun to
        compute before `next_time float[]`, the time of the next event, counts.
        """

        def somebody_never_ends(state: State) -> jax.Array:
            """bool[]: whether anybody at all computes for ever and has no message that waits for a commit."""
            never_ends = jnp.isinf(self.phase_ends(state))
            computes_for_ever = never_ends & (state.current_turns.unpacked.compute_start < next_time) & ~state.view.idle
            if self.changes is not None and state.presence is not None:
                computes_for_ever &= state.view.alive & ~will_change(self.changes, state.presence)
            has_no_message = state.view.num_uncommitted == 0
            return (computes_for_ever & has_no_message).any()

        if self.changes is not None or state.earliest_phase_ends is None:
            return somebody_never_ends(state)
        somebody_is_stuck = max_over_runs(state.somebody_is_stuck.astype(jnp.int32)) > 0
        return jax.lax.cond(somebody_is_stuck, somebody_never_ends, lambda state: jnp.zeros((), bool), state)

    def _with_change(
        self, state: State, change: Changes, worker: jax.Array, arrives: jax.Array
    ) -> tuple[State, jax.Array, jax.Array]:
        """The state in which somebody has left or joined, if it is time for it; what a leaving worker does is lost.

        Args:
          state: after `with_event_at`.
          change: the next one, of one worker at a time; `joins` or leaves.
          worker: int32[], whose message has arrived, if `arrives bool[]`.
          arrives: as said.

        Returns:
          The state; int32[], whose event it is, that of the message or of the change; and bool[], whether it is this.
        """
        assert state.presence is not None
        happens = state.is_running & (change.time == state.view.now)
        presence = with_last_version(state.presence, worker, arrives, state.view.version)
        presence = presence._replace(num_changes=presence.num_changes + happens.astype(jnp.int32))
        worker = jnp.where(happens, change.worker, worker)
        leaves, joins = happens & ~change.joins, happens & change.joins
        is_changing_worker = jnp.arange(self.work.num_workers, dtype=jnp.int32) == worker
        state = self._with_cut_off_turns(state, is_changing_worker & leaves)
        view = state.view
        if self.keeps_version:
            view = view._replace(version=jnp.where(is_changing_worker & joins, presence.last_version, view.version))
        view = decisions.with_membership(view, worker, leaves, joins)
        return state._replace(view=view, presence=presence), worker, happens

    def another_phase_ends(self, state: State) -> jax.Array:
        """bool[]: whether, behind an event, a phase ends at the same moment that may lead to a message at this moment.

        None does here, where a turn has one phase: a message that arrives is seen by the rule itself.
        """
        return jnp.zeros_like(state.is_running)

    def with_event_at(
        self, state: State, now: jax.Array, worker: jax.Array, phase_has_ended: jax.Array
    ) -> tuple[State, jax.Array]:
        """The state at `now float[]`; and bool[], whether a message of the worker arrives: if `phase_has_ended bool[]`.

        A turn has one phase here. A server that takes seconds for a message (`service`) is busy from now on, and the
        message counts as arrived now.
        """
        if self.network.service is not None:
            free_time = now + jnp.asarray(self.network.service, now.dtype)
            arrive_entry = worker, FLOATS.index("arrive")
            arrive = jnp.where(phase_has_ended, now, state.current_turns.floats[arrive_entry])
            state = state._replace(
                server_free_time=jnp.where(phase_has_ended, free_time, state.server_free_time),
                current_turns=state.current_turns._replace(
                    floats=state.current_turns.floats.at[arrive_entry].set(arrive)
                ),
            )
        return state._replace(view=state.view._replace(now=now)), phase_has_ended

    def _with_message(self, state: State, worker: jax.Array, arrives: jax.Array, asks_for_commit: jax.Array) -> State:
        """The state after the message of a worker has arrived, and after the commit that it may bring.

        An alarm, or a worker that has left or joined, may bring one, too.

        The worker's turn ends, and it becomes idle. Where the rule does not say whose messages a commit takes, each
        takes all since the last one, so that the commit of a message is known on arrival; otherwise it is known when
        it is taken. A message that the rule ignores is in none. If neither `arrives bool[]` nor `asks_for_commit
        bool[]` (the alarm, the change), nothing changes.
        """

        def sender_states_and_counts(
            state: State,
        ) -> tuple[WorkerStates, jax.Array, jax.Array, jax.Array, Counts, jax.Array]:
            """The worker's states and number of turns, arrays [1]; bool[], if its message comes, and if it counts.

            Then the counts of all, with it, and int32[], the worker's messages that are in no commit.
            """
            is_accepted = decisions.accepts(self.rule, state.view, worker, arrives)
            counts = decisions.counts_with_message(state.view, worker, is_accepted)
            sender_states, num_turns = WorkerSelection(worker).entries_of((state.worker_states, state.num_turns))
            num_own_messages = state.view.num_uncommitted[worker] + is_accepted.astype(jnp.int32)
            return sender_states, num_turns, arrives, is_accepted, counts, num_own_messages

        num_messages_in_front = num_messages(state.view)  # the others that are in no commit yet
        sender_states, num_turns, arrives, is_accepted, counts, num_own_messages = self.read_before_writing(
            sender_states_and_counts, state
        )
        state = state._replace(
            view=decisions.with_message(state.view, worker, arrives, is_accepted)._replace(counts=counts)
        )
        view, may_commit = state.view, is_accepted
        if self.rule.alarm is not None or self.changes is not None:
            may_commit |= asks_for_commit & (num_messages(view) > 0)
        happens = may_commit & self.rule.commits(view, worker)
        turn = sender_states.current_turns.unpacked
        if self.rule.takes is None:
            commit_number = view.num_commits + self.rule.postpones(view, worker)
            turn = replace_where(turn, is_accepted, commit=commit_number)
            turn = replace_where(turn, arrives, position=num_messages_in_front)
        sender_states = sender_states._replace(current_turns=packed(turn), idle=sender_states.idle | arrives)
        sender_states = replace_where(sender_states, arrives, phase=IDLE, phase_end=jnp.inf)
        state = with_ended_turn(state, arrives, worker, sender_states.current_turns, num_turns)
        state = self.with_earliest_phase_ends(
            state.with_worker_states(WorkerSelection(worker), sender_states), WorkerSelection(worker)
        )
        unused_entry = state.time.size - 1  # which means nothing
        commit_number = jnp.where(happens, view.num_commits, unused_entry)
        remembers = arrives if self._has_events_without_message else jnp.ones((), bool)  # each event is one
        compute_seconds = jnp.where(arrives, (turn.stop - turn.compute_start)[0], view.compute_seconds)
        view = state.view._replace(compute_seconds=compute_seconds)
        state = state._replace(
            time=with_entry(state.time, commit_number, view.now),
            asks_everybody=state.asks_everybody | happens,
            view=decisions.with_memory(self.rule, view, worker, remembers, happens),
        )
        if self.looks_at_everybody:
            return self._with_commit(state, worker, happens, view)
        changes_others = happens
        if self.rule.takes is None and self.rule.cuts_off is None and self.changes is None:
            is_alone = counts.messages == num_own_messages
            state = state._replace(view=decisions.without_own_messages(state.view, worker, happens & is_alone))
            changes_others = happens & ~is_alone
        return run_if(changes_others, lambda state: self._with_commit(state, worker, happens, view), state)

    @property
    def _has_events_without_message(self) -> bool:
        """Whether something else can happen than that a message arrives: an alarm, a change, the end of a transfer."""
        return self.rule.alarm is not None or self.changes is not None or self.network.server is not None

    def _with_commit(self, state: State, worker: jax.Array, happens: jax.Array, view_before: View) -> State:
        """The state in which the messages of the commit are taken, if it `happens bool[]`, and turns are cut off.

        Args:
          state: in which the commit is counted, and the message of the worker is remembered.
          worker: int32[], whose event has brought it.
          happens: as said.
          view_before: what the rule saw before, by which it says whose messages are taken.
        """
        state = self.with_constant_alive(state)
        is_committed = jnp.broadcast_to(happens, state.phase.shape)
        if self.rule.takes is not None:
            is_committed &= self.rule.takes(view_before, worker)
            has_message = view_before.num_uncommitted > 0  # whoever has left need not have one
            has_taken_message = is_committed if self.changes is None else is_committed & has_message
            state = self._with_commit_of_messages(state, has_taken_message, view_before.num_commits)
        state = state._replace(view=decisions.without_messages(state.view, is_committed))
        if self.rule.cuts_off is None:
            return state
        return self._with_cut_off_turns(state, happens & self.rule.cuts_off(state.view, worker))

    def _with_commit_of_messages(self, state: State, is_committed: jax.Array, commit_number: jax.Array) -> State:
        """The state in which the last messages of the workers of `is_committed bool[W]` are part of a commit.

        `commit_number int32[]` and the place in it are written to the turns that sent them, which have ended.
        """
        worker = jnp.arange(is_committed.size)
        position_in_commit = _num_before(is_committed)  # 0, 1, ... among those that are taken
        integers = state.ended_turns.integers  # [J + 1, W, fields]
        unused_row = integers.shape[0] - 1
        row = jnp.where(is_committed, state.num_turns - 1, unused_row)  # int32[W], of the last turn
        is_field = {name: jnp.arange(len(INTEGERS)) == INTEGERS.index(name) for name in ("commit", "position")}
        last_turns = jnp.where(is_field["commit"], commit_number, integers[row, worker])  # [W, fields]
        last_turns = jnp.where(is_field["position"], position_in_commit[:, None], last_turns)
        (integers,) = with_rows((integers,), row, (last_turns,))
        return state._replace(ended_turns=state.ended_turns._replace(integers=integers))

    def _with_cut_off_turns(self, state: State, may_cut_off: jax.Array) -> State:
        """The state in which turns under way of `may_cut_off bool[W]` are ended; the unit that each began is lost.

        They send nothing, and have no time (inf) of what would have come later than now.
        """
        is_cut_off, now, turns = may_cut_off & (state.phase != IDLE), state.view.now, state.current_turns.unpacked
        turns = replace_where(
            turns, is_cut_off, num_begun=_NUM_LOST_UNITS, num_sent_units=0,
            stop=jnp.minimum(turns.stop, now), send_start=jnp.inf, arrive=jnp.inf,
            compute_start=jnp.where(turns.compute_start > now, jnp.inf, turns.compute_start),
        )  # fmt: skip
        worker_states = state.worker_states._replace(current_turns=packed(turns), idle=state.view.idle | is_cut_off)
        worker_states = replace_where(worker_states, is_cut_off, phase=IDLE, phase_end=jnp.inf)
        state = with_ended_turns(state.with_worker_states(EVERYBODY, worker_states), is_cut_off)
        return self.with_earliest_phase_ends(state, EVERYBODY)


def _num_before(mask: jax.Array) -> jax.Array:
    """int32[W]: how many are true before each entry of `mask bool[W]`.

    Of a few all pairs are looked at, since a cumulative sum cannot be a part of one kernel.
    """
    if mask.size > MAX_ONE_BY_ONE:
        return jnp.cumsum(mask, dtype=jnp.int32) - mask.astype(jnp.int32)
    index = jnp.arange(mask.size)
    return (mask[None] & (index[None] < index[:, None])).sum(axis=1, dtype=jnp.int32)
