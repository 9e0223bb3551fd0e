"""Who waits for whom on the real clock: a protocol's rule, asked event by event.

Letters: W workers.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from gcjax.compiler_options import small_operations
from gcjax.parameter_server.packed_view import Decision, PackedView, decision_of, packed, unpacked
from gcjax.protocols.simulation import decisions, rules
from gcjax.protocols.simulation.rules import Rule, View

MESSAGE, LEAVE, JOIN, NO_EVENT, UNIT = range(5)
"""What happens: a push of a worker arrives, the worker leaves, it joins, nobody does anything, or a unit is done."""


class RuleState:
    """What the rule knows of the workers, and what it decides.

    Attributes:
      alive: bool[W], who takes part.
      idle: bool[W], who is between two turns.
    """

    def __init__(self, rule: Rule, num_workers: int) -> None:
        """Nobody has joined yet."""
        self.view = first_view(rule, num_workers)
        self.alive = self.idle = np.zeros(num_workers, bool)
        self._has_times = rule.alarm is not None or rule.stop is not None or rule.turn_seconds is not None
        options = small_operations()
        self._decide = jax.jit(partial(_decide, rule), compiler_options=options)
        self._would_stop = jax.jit(partial(_would_stop, rule), compiler_options=options)

    @property
    def view(self) -> View:
        """What the rule knows, in NumPy arrays; only `memory` is as the rule has made it."""
        packed_view = self._packed_view
        return unpacked(
            packed_view._replace(integers=np.asarray(packed_view.integers), floats=np.asarray(packed_view.floats))
        )

    @view.setter
    def view(self, view: View) -> None:
        """Sets all that the rule knows."""
        self._packed_view = packed(view)

    @property
    def in_turn(self) -> np.ndarray:
        """bool[W]: who takes part, and is in a turn."""
        return self.alive & ~self.idle

    @property
    def not_asked(self) -> np.ndarray:
        """bool[W]: who is in a turn and not asked for a push, as it had done nothing when the others were asked."""
        return self.in_turn & ~self.view.stopped

    def decide(self, event_kind: int, worker: int, now: float, compute_seconds: float) -> Decision:
        """What follows from an event of a worker at `now` seconds, which the view has from then on.

        Args:
          event_kind: `MESSAGE`, `LEAVE`, ...
          worker: its number.
          now: seconds.
          compute_seconds: how long it computed in its last turn; it counts at a message only.
        """
        event = np.array((event_kind, worker, now, compute_seconds), self._packed_view.floats.dtype)
        self._packed_view = self._decide(self._packed_view, event)
        decision = decision_of(self._packed_view, has_times=self._has_times)
        self.alive, self.idle = decision.alive, decision.idle
        return decision

    def warm_up(self) -> None:
        """Compiles what is asked at each event."""
        event = np.array((NO_EVENT, 0, 0, 0), self._packed_view.floats.dtype)
        packed_view = self._decide(self._packed_view, event)
        jax.block_until_ready(self._decide(packed_view, event))  # once more: now the view is on the device
        self.would_stop_without(self.alive, 0.0)

    def make_idle(self, worker: int) -> None:
        """Ends the turn of a worker from which nothing will arrive; it may begin another, and must read for it."""
        view, is_worker = self.view, np.arange(self.alive.size) == worker
        self._set(
            idle=view.idle | is_worker,
            stopped=view.stopped & ~is_worker,
            version=np.where(is_worker, -1, view.version),  # what it has read for this turn, it has lost with it
        )

    def set_stopped(self, stopped: np.ndarray) -> None:
        """Says who has been stopped, `bool[W]`, and owes a push."""
        self._set(stopped=stopped)

    def resume_turns(self) -> None:
        """Takes back that turns were stopped, and the pushes that answered it: these turns go on as if nothing was.

        Where turns are stopped, every push that is in no commit yet is such an answer; `clock` counts pushes.
        """
        view, has_pushed = self.view, self.view.num_uncommitted > 0
        self._set(
            stopped=np.zeros_like(view.stopped),
            idle=view.idle & ~has_pushed,
            clock=view.clock - view.num_uncommitted,
            num_uncommitted=np.zeros_like(view.num_uncommitted),
        )

    def restart_turns(self) -> None:
        """Ends all turns, and takes back the pushes that are in no commit: who takes part begins anew, with reading."""
        view = self.view
        self._set(
            idle=view.alive,
            stopped=np.zeros_like(view.stopped),
            version=np.full_like(view.version, -1),  # none is read yet
            progress=np.zeros_like(view.progress),
            clock=view.clock - view.num_uncommitted,
            num_uncommitted=np.zeros_like(view.num_uncommitted),
        )

    def reset_progress(self, workers: np.ndarray) -> None:
        """Counts no unit of these workers, `bool[W]`, until they report another one."""
        self._set(progress=np.where(workers, 0, self.view.progress))

    def set_progress(self, worker: int, num_units: int) -> None:
        """Counts so many units of the worker's turn."""
        is_worker = np.arange(self.alive.size) == worker
        self._set(progress=np.where(is_worker, num_units, self.view.progress))

    def would_stop_without(self, workers: np.ndarray, now: float) -> bool:
        """Whether turns would be stopped by now, had these workers, `bool[W]`, not done anything."""
        return self._would_stop_in(self.view, workers, now)

    def would_stop_without_worker(self, worker: int, other_workers: np.ndarray, now: float, *, leaves: bool) -> bool:
        """Whether turns would be stopped by `now` seconds, had `worker` and `other_workers bool[W]` not done any unit.

        If `leaves`, the worker does not take part any more, and nobody waits for it.
        """
        is_worker = np.arange(self.alive.size) == worker
        view = self.view._replace(alive=self.alive & ~(is_worker & leaves))
        return self._would_stop_in(view, is_worker | other_workers, now)

    def set_read_version(self, worker: int, version: int) -> None:
        """Sets the version that a worker which joins has read last; without this call it is -1, for none."""
        is_worker = np.arange(self.alive.size) == worker
        self._set(version=np.where(is_worker, version, self.view.version))

    def set_memory(self, memory: Any) -> None:
        """Gives the rule another memory."""
        self._packed_view = self._packed_view._replace(memory=memory)

    def _set(self, **fields: Any) -> None:
        """Sets fields of the view, NumPy arrays."""
        self.view = self.view._replace(**fields)

    def _would_stop_in(self, view: View, workers: np.ndarray, now: float) -> bool:
        """Whether turns would be stopped by now in this view, had these workers, `bool[W]`, not done anything."""
        return bool(self._would_stop(packed(view), workers, view.begin_time.dtype.type(now)))


def first_view(rule: Rule, num_workers: int) -> View:
    """The view at 0 s, before anybody has joined."""
    nobody = jnp.zeros(num_workers, bool)
    view = rules.first_view(rule, nobody, jnp.result_type(float))
    return view._replace(progress=view.clock, stopped=nobody)


def traced_decision(rule: Rule, num_workers: int) -> ClosedJaxpr:
    """The program that decides what follows from an event, with the weights of contributions if they are computed."""
    packed_view = packed(first_view(rule, num_workers))
    event, counts = jnp.zeros(4, packed_view.floats.dtype), jnp.zeros(num_workers, jnp.int32)

    def decision_and_weights(packed_view: PackedView, event: jax.Array, counts: jax.Array) -> Any:
        """The view after an event; the weights of contributions of this staleness and work."""
        weights = rule.weight(counts, counts) if callable(rule.weight) else rule.weight
        return _decide(rule, packed_view, event), weights

    return jax.make_jaxpr(decision_and_weights)(packed_view, event, counts)


def _decide(rule: Rule, packed_view: PackedView, event: jax.Array) -> PackedView:
    """The view after an event, with the decision.

    First the event is counted, then it may bring a commit, which may cut off turns, and then turns begin or are to be
    stopped.

    `event`: float[4], its kind (`MESSAGE`, `LEAVE`, ...), the worker, its time in seconds, and for how many seconds the
    worker has computed in its last turn.
    """
    kind, worker = event[:2].astype(jnp.int32)
    now, compute_seconds = event[2:]
    view = unpacked(packed_view)._replace(now=now, compute_seconds=compute_seconds)
    view = decisions.with_membership(view, worker, kind == LEAVE, kind == JOIN)
    arrives = kind == MESSAGE
    is_accepted = decisions.accepts(rule, view, worker, arrives)
    view = decisions.with_message(view, worker, arrives, is_accepted)
    view = view._replace(stopped=view.stopped.at[worker].set(view.stopped[worker] & ~arrives))  # a push answers it
    may_be_enough_now = (kind == LEAVE) | (kind == JOIN) | (kind == NO_EVENT)
    may_commit = is_accepted | (may_be_enough_now & (view.num_uncommitted > 0).any())
    commit = decisions.commit_of(rule, view, worker, may_commit)
    view = decisions.with_commit(rule, view, worker, arrives, commit)
    view = _with_unit(rule, view, kind, worker)
    is_cut_off = jnp.zeros_like(view.idle)
    if rule.cuts_off is not None:
        is_cut_off = commit.happens & rule.cuts_off(view, worker) & view.alive & ~view.idle
    # -1: who is cut off has no version any more, and reads one for its next turn.
    view = view._replace(idle=view.idle | is_cut_off, version=jnp.where(is_cut_off, -1, view.version))
    begins = decisions.may_begin(rule, view)
    pulls = decisions.pulls(rule, view, begins)
    num_units = jnp.broadcast_to(jnp.asarray(rule.units_of(view), jnp.int32), begins.shape)
    code_row = jnp.arange(begins.size, dtype=jnp.int32) if rule.code_row is None else rule.code_row(view)  # int32[W]
    view = view._replace(begin_time=jnp.where(begins, now, view.begin_time))
    turn_seconds = jnp.zeros_like(view.begin_time) if rule.turn_seconds is None else rule.turn_seconds(view)
    view = view._replace(
        idle=view.idle & ~begins,
        version=jnp.where(pulls, view.num_commits, view.version),
        progress=jnp.where(begins, 0, view.progress),
    )
    stops_turns, alarm_time = _stop_and_alarm(rule, view)
    decision = Decision(
        has_commit=commit.happens, is_committed=commit.is_committed, is_cut_off=is_cut_off, begins=begins, pulls=pulls,
        version=view.version, num_units=num_units, code_row=code_row, alive=view.alive, idle=view.idle,
        progress=view.progress, is_accepted=is_accepted, stops_turns=stops_turns, alarm_time=alarm_time,
        turn_seconds=turn_seconds,
    )  # fmt: skip
    return packed(view, decision, numpy=jnp)


def _with_unit(rule: Rule, view: View, kind: jax.Array, worker: jax.Array) -> View:
    """The view in which the worker has done one unit more of its turn, if `kind` is `UNIT`; else the view as it is."""
    is_unit = kind == UNIT
    view = view._replace(progress=view.progress.at[worker].add(is_unit.astype(jnp.int32)))
    memory = rule.remember_unit(view, worker)
    return view._replace(memory=jax.tree.map(lambda new, old: jnp.where(is_unit, new, old), memory, view.memory))


def _stop_and_alarm(rule: Rule, view: View) -> tuple[jax.Array, jax.Array]:
    """bool[], whether the turns under way are to be stopped now; and float[] seconds, when to look again.

    inf for never; a time that is over does not count.
    """
    stop_time = _stop_time(rule, view)
    alarm_time = jnp.asarray(jnp.inf if rule.alarm is None else rule.alarm(view), view.now.dtype)
    next_time = jnp.minimum(*(jnp.where(time > view.now, time, jnp.inf) for time in (stop_time, alarm_time)))
    return stop_time <= view.now, next_time


def _stop_time(rule: Rule, view: View) -> jax.Array:
    """float[] seconds, when the rule stops the turns under way; inf if it does not, or none may be stopped now.

    They may be while no stop is unanswered, no push waits for its commit, and somebody has done a unit.
    """
    if rule.stop is None:
        return jnp.full((), jnp.inf, view.now.dtype)
    is_under_way = ~view.stopped.any() & (view.num_uncommitted == 0).all() & (view.progress > 0).any()
    return jnp.where(is_under_way, rule.stop(view), jnp.inf).astype(view.now.dtype)


def _would_stop(rule: Rule, packed_view: PackedView, workers: jax.Array, now: jax.Array) -> jax.Array:
    """bool[]: whether turns would be stopped by now if these workers, `bool[W]`, had not done anything."""
    view = unpacked(packed_view)
    no_messages = jnp.zeros_like(view.num_uncommitted)
    progress = jnp.where(workers, 0, view.progress)
    view = view._replace(now=now, progress=progress, stopped=no_messages > 0, num_uncommitted=no_messages)
    return _stop_time(rule, view) <= now
