"""Who waits for whom on the real clock: a protocol's rule, asked event by event.

Letters: W workers.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.protocols.simulation import decisions
from gcjax.protocols.simulation.rules import Rule, View

MESSAGE, LEAVE, JOIN, NO_EVENT, UNIT = range(5)
"""What happens: a push of a worker arrives, the worker leaves, it joins, nobody does anything, or a unit is done."""


class Decision(NamedTuple):
    """What follows from an event; NumPy arrays.

    Attributes:
      has_commit: bool[], whether there is a commit.
      is_committed: bool[W], whose pushes it takes.
      is_cut_off: bool[W], whose turns under way it cuts off.
      begins: bool[W], who begins a turn.
      pulls: bool[W], who of these gets the parameters first.
      version: int32[W], the version that each has read last, or reads now.
      num_units: int32[W], the units of a turn that begins.
      code_row: int32[W], the row of its code that each has in a turn that begins; its number if there is no code.
      alive: bool[W], who takes part now.
      idle: bool[W], who is between two turns now.
      progress: int32[W], the units done of each one's last turn; 0 where it has left.
      is_accepted: bool[], whether a message has arrived that the rule does not ignore.
      stops_turns: bool[], whether the turns under way are to be stopped now.
      alarm_time: float[] seconds, when to look again; inf for never.
      turn_seconds: float[W], what a turn that begins is to fill; 0 where it is as many units as `num_units` says.
    """

    has_commit: np.ndarray
    is_committed: np.ndarray
    is_cut_off: np.ndarray
    begins: np.ndarray
    pulls: np.ndarray
    version: np.ndarray
    num_units: np.ndarray
    code_row: np.ndarray
    alive: np.ndarray
    idle: np.ndarray
    progress: np.ndarray
    is_accepted: np.ndarray
    stops_turns: np.ndarray
    alarm_time: np.ndarray
    turn_seconds: np.ndarray


class RuleState:
    """What the rule knows of the workers, and what it decides.

    Attributes:
      view: the rule's own.
      alive: bool[W], who takes part.
      idle: bool[W], who is between two turns.
    """

    def __init__(self, rule: Rule, num_workers: int) -> None:
        """Nobody has joined yet."""
        self.view = first_view(rule, num_workers)
        self.alive = self.idle = np.zeros(num_workers, bool)
        self._decide = jax.jit(partial(_decide, rule))
        self._would_stop = jax.jit(partial(_would_stop, rule))

    def decide(self, kind: int, worker: int, now: float, compute_seconds: float) -> Decision:
        """What follows from an event of a worker at `now` seconds.

        Args:
          kind: `MESSAGE`, `LEAVE`, ...
          worker: its number.
          now: seconds.
          compute_seconds: how long it computed in its last turn; it counts at a message only.
        """
        seconds = self.view.now.dtype.type
        times = seconds(now), seconds(compute_seconds)
        self.view, rows = self._decide(self.view, np.int32(kind), np.int32(worker), *times)
        integers, floats = rows
        decision = _unpacked(np.asarray(integers), None if floats is None else np.asarray(floats))
        self.alive, self.idle = decision.alive, decision.idle
        return decision

    def warm_up(self) -> None:
        """Compiles what is asked at each event."""
        now = self.view.now.dtype.type(0)
        jax.block_until_ready(self._decide(self.view, np.int32(NO_EVENT), np.int32(0), now, now))
        jax.block_until_ready(self._would_stop(self.view, self.alive, now))

    def make_idle(self, worker: int) -> None:
        """Ends the turn of a worker from which nothing will arrive; it may begin another, and must read for it."""
        view = self.view
        self.view = view._replace(
            idle=view.idle.at[worker].set(True),
            stopped=view.stopped.at[worker].set(False),
            version=view.version.at[worker].set(-1),  # what it has read for this turn, it has lost with it
        )

    def set_stopped(self, stopped: np.ndarray) -> None:
        """Says who has been stopped, `bool[W]`, and owes a push."""
        self.view = self.view._replace(stopped=jnp.asarray(stopped))

    def resume_turns(self) -> None:
        """Takes back that turns were stopped, and the pushes that answered it: these turns go on as if nothing was.

        Where turns are stopped, every push that is in no commit yet is such an answer; `clock` counts pushes.
        """
        view, has_pushed = self.view, self.view.num_uncommitted > 0
        self.view = view._replace(
            stopped=jnp.zeros_like(view.stopped),
            idle=view.idle & ~has_pushed,
            clock=view.clock - view.num_uncommitted,
            num_uncommitted=jnp.zeros_like(view.num_uncommitted),
        )

    def restart_turns(self) -> None:
        """Ends all turns, and takes back the pushes that are in no commit: who takes part begins anew, with reading."""
        view = self.view
        self.view = view._replace(
            idle=view.alive,
            stopped=jnp.zeros_like(view.stopped),
            version=jnp.full_like(view.version, -1),  # none is read yet
            progress=jnp.zeros_like(view.progress),
            clock=view.clock - view.num_uncommitted,
            num_uncommitted=jnp.zeros_like(view.num_uncommitted),
        )

    def reset_progress(self, workers: np.ndarray) -> None:
        """Counts no unit of these workers, `bool[W]`, until they report another one."""
        self.view = self.view._replace(progress=jnp.where(workers, 0, self.view.progress))

    def would_stop_without(self, workers: np.ndarray, now: float) -> bool:
        """Whether turns would be stopped by now, had these workers, `bool[W]`, not done anything."""
        return bool(self._would_stop(self.view, workers, self.view.now.dtype.type(now)))

    def would_stop_without_worker(self, worker: int, others: np.ndarray, now: float, *, leaves: bool) -> bool:
        """Whether turns would be stopped by `now` seconds, had `worker` and `others bool[W]` not done any unit.

        If `leaves`, the worker does not take part any more, and nobody waits for it.
        """
        is_worker = np.arange(self.alive.size) == worker
        view = self.view._replace(alive=jnp.asarray(self.alive & ~(is_worker & leaves)))
        return bool(self._would_stop(view, is_worker | others, view.now.dtype.type(now)))

    def set_read_version(self, worker: int, version: int) -> None:
        """Sets the version that a worker which joins has read last; without this call it is -1, for none."""
        self.view = self.view._replace(version=self.view.version.at[worker].set(version))

    def set_memory(self, memory: Any) -> None:
        """Gives the rule another memory."""
        self.view = self.view._replace(memory=memory)


def first_view(rule: Rule, num_workers: int) -> View:
    """The view at 0 s, before anybody has joined; a version of -1 is none."""
    dtype, zeros = jnp.result_type(float), jnp.zeros(num_workers, jnp.int32)
    return View(
        now=jnp.zeros((), dtype),
        num_commits=jnp.zeros((), jnp.int32),
        clock=zeros,
        num_uncommitted=zeros,
        idle=zeros > 0,
        alive=zeros > 0,
        version=zeros - 1,
        begin_time=jnp.zeros(num_workers, dtype),
        memory=rule.memory(num_workers, dtype),
        progress=zeros,
        stopped=zeros > 0,
        compute_seconds=jnp.zeros((), dtype),
    )


def _decide(
    rule: Rule, view: View, kind: jax.Array, worker: jax.Array, now: jax.Array, compute_seconds: jax.Array
) -> tuple[View, tuple[jax.Array, jax.Array | None]]:
    """The view after an event of the worker at `now` seconds, and the fields of the `Decision`.

    They are the rows of int32[fields, W], and of float[2, W] (alarm time, turn seconds), or None if a rule has neither.
    `kind`: int32[], `MESSAGE`, `LEAVE`, ...; `worker`: int32[]; `compute_seconds`: float[], of its last turn.
    """
    view = view._replace(now=now, compute_seconds=compute_seconds)
    view = decisions.with_membership(view, worker, kind == LEAVE, kind == JOIN)
    arrives = kind == MESSAGE
    is_accepted = decisions.accepts(rule, view, worker, arrives)
    view = decisions.with_message(view, worker, arrives, is_accepted)
    view = view._replace(stopped=view.stopped.at[worker].set(view.stopped[worker] & ~arrives))
    may_be_enough_now = (kind == LEAVE) | (kind == NO_EVENT)
    may_commit = is_accepted | (may_be_enough_now & (view.num_uncommitted > 0).any())
    commit = decisions.commit_of(rule, view, worker, may_commit)
    view = decisions.with_commit(rule, view, worker, arrives, commit)
    view = _with_unit(rule, view, kind, worker)
    is_cut_off = jnp.zeros_like(view.idle)
    if rule.cuts_off is not None:
        is_cut_off = commit.happens & rule.cuts_off(view, worker) & view.alive & ~view.idle
    view = view._replace(idle=view.idle | is_cut_off, version=jnp.where(is_cut_off, -1, view.version))
    begins = decisions.may_begin(rule, view)
    pulls = decisions.pulls(rule, view, begins)
    num_units = jnp.broadcast_to(jnp.asarray(rule.units_of(view), jnp.int32), begins.shape)
    code_row = jnp.arange(begins.size, dtype=jnp.int32) if rule.code_row is None else rule.code_row(view)
    turn_seconds = jnp.zeros_like(view.begin_time) if rule.turn_seconds is None else rule.turn_seconds(view)
    view = view._replace(
        idle=view.idle & ~begins,
        version=jnp.where(pulls, view.num_commits, view.version),
        begin_time=jnp.where(begins, now, view.begin_time),
        progress=jnp.where(begins, 0, view.progress),
    )
    stops_turns, alarm_time = _stop_and_alarm(rule, view)
    fields = (
        commit.happens,
        commit.is_committed,
        is_cut_off,
        begins,
        pulls,
        view.version,
        num_units,
        code_row,
        view.alive,
        view.idle,
    )
    # As few arrays as can be, since each that is read by the host costs a transfer of its own.
    integers = jnp.stack(
        [
            jnp.broadcast_to(x, begins.shape).astype(jnp.int32)
            for x in (*fields, view.progress, is_accepted, stops_turns)
        ]
    )
    if rule.alarm is None and rule.stop is None and rule.turn_seconds is None:
        return view, (integers, None)
    return view, (integers, jnp.stack([jnp.broadcast_to(x, begins.shape) for x in (alarm_time, turn_seconds)]))


def _unpacked(integers: np.ndarray, floats: np.ndarray | None) -> Decision:
    """The decision from its rows: int32[fields, W], and float[2, W] or None where there is no time in it."""
    rows = dict(zip(Decision._fields, integers, strict=False))
    rows.update(zip(_MASKS, integers[_MASK_ROWS] != 0, strict=True))
    rows.update({name: integers[row, 0] != 0 for name, row in _FLAG_ROWS.items()})
    if floats is None:
        return Decision(**rows, alarm_time=_NEVER, turn_seconds=np.zeros(integers.shape[1]))
    return Decision(**rows, alarm_time=floats[0, 0], turn_seconds=floats[1])


_MASKS = "is_committed", "is_cut_off", "begins", "pulls", "alive", "idle"
_MASK_ROWS = np.array([Decision._fields.index(name) for name in _MASKS])
_FLAG_ROWS = {name: Decision._fields.index(name) for name in ("has_commit", "is_accepted", "stops_turns")}
_NEVER = np.asarray(np.inf)


def _with_unit(rule: Rule, view: View, kind: jax.Array, worker: jax.Array) -> View:
    """The view in which the worker has done one unit more of its turn, if `kind` is `UNIT`; else the view as it is."""
    is_unit = kind == UNIT
    view = view._replace(progress=view.progress.at[worker].add(is_unit.astype(jnp.int32)))
    memory = rule.remember_unit(view, worker)
    return view._replace(memory=jax.tree.map(lambda new, old: jnp.where(is_unit, new, old), memory, view.memory))


def _stop_and_alarm(rule: Rule, view: View) -> tuple[jax.Array, jax.Array]:
    """bool[], whether the turns under way are to be stopped now; and float[] seconds, when to look again, or inf."""
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


def _would_stop(rule: Rule, view: View, workers: jax.Array, now: jax.Array) -> jax.Array:
    """bool[]: whether turns would be stopped by now if these workers, `bool[W]`, had not done anything."""
    none = jnp.zeros_like(view.num_uncommitted)
    progress = jnp.where(workers, 0, view.progress)
    return _stop_time(rule, view._replace(now=now, progress=progress, stopped=none > 0, num_uncommitted=none)) <= now
