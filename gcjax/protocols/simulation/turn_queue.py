"""How turns begin in the event queue: who may begin, and what those do who have the parameters.

Mostly one worker begins, the sender of the last message: then nothing is done to the others, so that an event takes a
time that hardly grows with them. Several begin at once after commits, in a loop of one turn or none.

Letters: W workers, m those who are looked at, W or 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax._shared_loops import max_over_runs, read_first, run_if
from gcjax.protocols.simulation import decisions, presence
from gcjax.protocols.simulation.earliest import (
    earliest,
    earliest_of_blocks,
    first_index,
    index_of_earliest,
    with_changed_time,
)
from gcjax.protocols.simulation.event_state import ARRIVING, IDLE, State, WorkerStates, packed, replace_where
from gcjax.protocols.simulation.overlapping import overlapping_turn
from gcjax.protocols.simulation.rules import Rule, TurnPlan, turn_of
from gcjax.protocols.simulation.turns import Work
from gcjax.protocols.simulation.worker_selection import EVERYBODY, WorkerSelection
from gcjax.stragglers.absences import Changes
from gcjax.stragglers.network import Network

MAX_FEW_WORKERS = 128
"""Up to so many workers it takes less time to do everything to everybody than to see who alone it must be done to."""


class TurnQueue(NamedTuple):
    """What is simulated, and how turns begin.

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

    def begin_turns(
        self,
        state: State,
        selected_workers: WorkerSelection,
        selected_states: WorkerStates,
        begins: jax.Array,
        pulls: jax.Array,
    ) -> State:
        """The state in which those of `begins bool[m]` begin a turn: `pulls bool[m]` by receiving parameters.

        `selected_states` is what the `selected_workers` have done so far, which the state does not know yet. A server
        that takes time for messages answers when it has dealt with the last one.
        """
        answer_time = (
            state.view.now if self.network.service is None else jnp.maximum(state.view.now, state.server_free_time)
        )
        receive_seconds = selected_workers.entries_of(self.message_seconds(self.network.download))
        ready_time = jnp.where(pulls, answer_time + receive_seconds, answer_time)
        return self.with_computing_turns(state, selected_workers, selected_states, begins, ready_time, pulls)

    def phase_until_sent(
        self, selected_workers: WorkerSelection, stop: jax.Array, send_start: jax.Array
    ) -> tuple[int, jax.Array, jax.Array]:
        """The one phase of who computes and then sends; when it ends, [m], which is when the message arrives, [m]."""
        del stop
        arrival_time = send_start + selected_workers.entries_of(self.message_seconds(self.network.upload))
        if self.rule.pulls_before_push:
            arrival_time += selected_workers.entries_of(self.message_seconds(self.network.download))
        return ARRIVING, arrival_time, arrival_time

    def message_seconds(self, link_seconds: Any) -> jax.Array:
        """float[W] or []: seconds of a message: the latency and `link_seconds`, [W] or [], on the worker's own link."""
        dtype = self.work.durations.dtype
        return jnp.asarray(self.network.latency, dtype) + jnp.asarray(link_seconds, dtype)

    def with_begun_turns(self, state: State) -> State:
        """The state in which idle workers begin a turn, if the rule says so.

        Nobody begins before all that arrives at this moment has been dealt with. If nobody but the sender of the last
        message, or one other, may begin, nothing is done to the others.
        """
        if self.looks_at_everybody:
            return self.with_all_begun(state)
        may_begin = self._all_is_dealt_with(state) & state.is_running

        def first_and_count(state: State) -> tuple[jax.Array, jax.Array]:
            """int32[], the first who may begin, the last worker if nobody may; and int32[], how many may."""
            begins = decisions.may_begin(self.rule, self.with_constant_alive(state).view)
            return first_index(begins), begins.sum(dtype=jnp.int32)

        def only_sender(state: State) -> tuple[jax.Array, jax.Array]:
            """The sender, and whether it may begin, 1 or 0."""
            begins = decisions.may_begin(self.rule, self.with_constant_alive(state).view)
            return state.sender, begins[state.sender].astype(jnp.int32)

        asks_everybody = max_over_runs(state.asks_everybody.astype(jnp.int32)) > 0
        worker, num_begin = jax.lax.cond(asks_everybody, first_and_count, only_sender, state)
        state = run_if(may_begin & (num_begin > 1), self.with_all_begun, state)
        state = run_if(
            may_begin & (num_begin == 1),
            lambda state: self._with_begun(self.with_constant_alive(state), WorkerSelection(worker), may_begin),
            state,
        )
        return state._replace(asks_everybody=jnp.asarray(not self.rule.asks_after_commits) | ~may_begin)

    def with_all_begun(self, state: State) -> State:
        """The state in which all idle workers have begun a turn that may."""
        may_begin = self._all_is_dealt_with(state) & state.is_running
        return self._with_begun(self.with_constant_alive(state), EVERYBODY, may_begin)

    def _all_is_dealt_with(self, state: State) -> jax.Array:
        """bool[]: whether no more happens at this moment."""
        _, first_phase_end = self.first_phase_end(state)
        all_is_dealt_with, next_change = first_phase_end > state.view.now, self.next_change(state)
        return all_is_dealt_with if next_change is None else all_is_dealt_with & (next_change.time > state.view.now)

    def _with_begun(self, state: State, selected_workers: WorkerSelection, may_begin: jax.Array) -> State:
        """The state in which the idle of m `selected_workers` begin, if the rule and `may_begin bool[]` let them.

        A worker without a unit that was sampled does not begin any more, and sets the horizon.
        """

        def states_and_who_begins_and_pulls(state: State) -> tuple[WorkerStates, jax.Array, jax.Array]:
            """What the workers do, arrays [m], and bool[m] each, who of them may begin, and who reads then."""
            view = self.with_constant_alive(state).view
            masks = view.idle, view.alive, self.rule.ready(view)  # bool[W] each
            is_idle, is_alive, is_ready = map(selected_workers.entries_of, masks)
            may_begin_by_rule = is_idle & is_alive & is_ready
            pulls_by_rule = (
                jnp.zeros_like(may_begin_by_rule)
                if self.rule.pulls_before_push
                else selected_workers.entries_of(self.rule.pulls(view))
            )
            return selected_workers.entries_of(state.worker_states), may_begin_by_rule, pulls_by_rule

        selected_states, may_begin_by_rule, pulls_by_rule = self.read_before_writing(
            states_and_who_begins_and_pulls, state
        )
        now, turn = state.view.now, selected_states.current_turns.unpacked
        may_begin &= may_begin_by_rule
        next_unit = turn.first_unit + turn.num_begun  # after the units of the last turn
        has_no_unit = may_begin & (next_unit >= self.work.num_units)
        begins = may_begin & ~has_no_unit
        pulls = pulls_by_rule & begins
        version = jnp.where(pulls, state.view.num_commits, selected_states.version)
        turn = replace_where(
            turn, begins, first_unit=next_unit, num_begun=0, num_sent_units=0, commit=-1,
            begin=now, compute_start=jnp.inf, stop=jnp.inf, send_start=jnp.inf, arrive=jnp.inf,
        )  # fmt: skip
        selected_states = selected_states._replace(
            idle=selected_states.idle & ~begins & ~has_no_unit,  # who has no unit left is never asked again
            version=version,
            begin_time=jnp.where(begins, now, selected_states.begin_time),
            current_turns=packed(turn._replace(version=version)),
        )
        state = state._replace(
            horizon=jnp.where(has_no_unit.any(), jnp.minimum(state.horizon, now), state.horizon),
            somebody_is_stuck=state.somebody_is_stuck | has_no_unit.any(),
        )
        return self.with_earliest_phase_ends(
            self.begin_turns(state, selected_workers, selected_states, begins, pulls), selected_workers
        )

    def with_earliest_phase_ends(self, state: State, selected_workers: WorkerSelection) -> State:
        """The state with the earliest end of a phase in each block of workers, if any, after some have changed."""
        if state.earliest_phase_ends is None:
            return state
        if selected_workers.worker is None:  # everybody may have changed
            return state._replace(earliest_phase_ends=earliest_of_blocks(state.phase_end))
        return state._replace(
            earliest_phase_ends=with_changed_time(state.earliest_phase_ends, state.phase_end, selected_workers.worker)
        )

    def with_computing_turns(
        self,
        state: State,
        selected_workers: WorkerSelection,
        selected_states: WorkerStates,
        begins: jax.Array,
        ready_time: jax.Array,
        pulled: jax.Array,
    ) -> State:
        """The state in which workers have begun to compute their units.

        Those whose turn takes more units than were sampled do nothing instead, and set the horizon.

        Args:
          state: the simulation.
          selected_workers: the workers of whom the arrays `[m]` are.
          selected_states: what they have done so far, which the state does not know yet.
          begins: bool[m], who begins.
          ready_time: float[m] seconds, when each has the parameters.
          pulled: bool[m], whose parameters were received for this turn.
        """
        turn = selected_states.current_turns.unpacked
        state_so_far = state.with_worker_states(selected_workers, selected_states)
        plan = self._plan(state_so_far, selected_workers, turn.first_unit, ready_time)
        lacks_units = begins & (turn.first_unit + plan.num_units > self.work.num_units)
        computes = begins & ~lacks_units
        send_start = jnp.where(jnp.isfinite(plan.stop), plan.send_start, jnp.inf)
        phase, phase_end, arrive = self.phase_until_sent(selected_workers, plan.stop, send_start)
        turn = replace_where(
            turn, computes, num_begun=plan.num_units, num_sent_units=plan.num_units,
            first_unit_on_version=jnp.where(pulled, plan.first_unit_on_version, turn.first_unit),
            begin=jnp.minimum(turn.begin, plan.compute_start),  # the second, where workers never stop computing
            compute_start=plan.compute_start, stop=plan.stop, send_start=send_start, arrive=arrive,
        )  # fmt: skip
        selected_states = replace_where(
            selected_states._replace(current_turns=packed(turn)), lacks_units, phase=IDLE, phase_end=jnp.inf
        )
        selected_states = replace_where(selected_states, computes, phase=phase, phase_end=phase_end)
        is_stuck = lacks_units | (computes & jnp.isinf(phase_end))
        state = state._replace(
            horizon=jnp.where(lacks_units.any(), jnp.minimum(state.horizon, state.view.now), state.horizon),
            somebody_is_stuck=state.somebody_is_stuck | is_stuck.any(),
        )
        return state.with_worker_states(selected_workers, selected_states)

    def _plan(
        self, state: State, selected_workers: WorkerSelection, first_unit: jax.Array, ready_time: jax.Array
    ) -> TurnPlan:
        """What those do, arrays [m], who have the parameters at `ready_time`, from unit `first_unit int32[m]` on."""
        work, rule, view = self.work, self.rule, state.view
        if selected_workers.worker is not None:  # one worker alone, not everybody
            work = work._replace(worker=selected_workers.worker[None])
        if rule.overlaps:
            compute_begin_time = selected_workers.entries_of(self.compute_begin_time)
            return overlapping_turn(work, first_unit, ready_time, compute_begin_time)
        if rule.turn_seconds is not None:
            num_units = work.num_to_fill(first_unit, selected_workers.entries_of(rule.turn_seconds(view)))
        else:
            num_units = selected_workers.entries_of(rule.units_of(view))
        return turn_of(work, first_unit, ready_time, num_units)

    @property
    def compute_begin_time(self) -> jax.Array:
        """float[W] seconds: when the workers have the first parameters; those that never stop begin to compute then."""
        return self.network.arrivals_at_workers(jnp.zeros_like(self.work.durations[0]))

    @property
    def first_horizon(self) -> jax.Array:
        """float[] seconds: the horizon that is known before any event; inf where workers can wait between units."""
        if self.rule.overlaps:
            return (self.compute_begin_time + self.work.sums_from_unit_0[-1]).min()
        return jnp.full((), jnp.inf, self.work.durations.dtype)

    def with_constant_alive(self, state: State) -> State:
        """The state; where nobody leaves or joins, who is alive is a constant: the compiler leaves out what asks."""
        if self.changes is not None:
            return state
        return state._replace(view=state.view._replace(alive=jnp.ones_like(state.view.alive)))

    def first_phase_end(self, state: State) -> tuple[jax.Array, jax.Array]:
        """int32[], whose phase ends next, the lowest worker of several; and float[] seconds, when.

        The server takes the message that has come first, also if several wait for it, and when it is free.
        """
        if state.earliest_phase_ends is None:
            phase_ends = self.phase_ends(state)
            arrival_order = phase_ends if self.network.service is None else state.phase_end
            return first_index(arrival_order == earliest(arrival_order)), earliest(phase_ends)
        worker = index_of_earliest(state.earliest_phase_ends, state.phase_end)
        time = earliest(state.earliest_phase_ends)
        return worker, time if self.network.service is None else jnp.maximum(time, state.server_free_time)

    @property
    def looks_at_everybody(self) -> bool:
        """Whether events look at everybody: there are few, or when a transfer ends depends on the others."""
        return self.network.server is not None or self.work.num_workers <= MAX_FEW_WORKERS

    def read_before_writing(self, read: Callable[[State], Any], state: State) -> Any:
        """`read(state)`; of many workers before anything is written, so that nothing is copied."""
        return read(state) if self.looks_at_everybody else read_first(state.view.num_commits, read, state)

    def phase_ends(self, state: State) -> jax.Array:
        """float[W]: when the phase of each worker ends: the server deals with its message, which has come before."""
        return state.phase_end if self.network.service is None else jnp.maximum(state.phase_end, state.server_free_time)

    def next_change(self, state: State) -> Changes | None:
        """Who leaves or joins next, numbers; None where nobody ever does."""
        if self.changes is None or state.presence is None:
            return None
        return presence.next_change(self.changes, state.presence)
