"""The words of a waiting rule: what it may look at, what it decides, and what a worker does in a turn.

Letters: T units sampled per worker, W workers, C contributions to a commit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.turns import Work

MANY_UNITS = 1 << 30
"""The units of a turn that lasts until it is stopped."""


class View(NamedTuple):
    """What a rule may look at.

    Attributes:
      now: float[] seconds.
      num_commits: int32[], the commits so far, which is the newest version.
      clock: int32[W], the messages of each worker that have arrived.
      num_uncommitted: int32[W], those that are not in a commit yet.
      idle: bool[W], who is between two turns.
      alive: bool[W], who takes part: nobody waits for who does not.
      version: int32[W], the version that each worker has read last; -1 at first.
      begin_time: float[W] seconds, when each worker's last turn began; 0 at first.
      memory: what the rule keeps in mind.
      progress: int32[W], the units of its last turn that each worker has done, where the server stops turns; else None.
      stopped: bool[W], whom the server has stopped and who has not pushed yet, where it stops turns; else None.
      compute_seconds: float[], how long the worker whose message came last has computed for it.
      counts: sums over the workers, where somebody keeps them; else None. `num_messages` and `all_have_pushed` know.
    """

    now: jax.Array
    num_commits: jax.Array
    clock: jax.Array
    num_uncommitted: jax.Array
    idle: jax.Array
    alive: jax.Array
    version: jax.Array
    begin_time: jax.Array
    memory: Any
    progress: Any = None
    stopped: Any = None
    compute_seconds: Any = None
    counts: "Counts | None" = None


class Counts(NamedTuple):
    """What a server counts as it goes, so that nobody has to add it up over all workers at every message.

    Attributes:
      messages: int32[], those that are in no commit yet, the sum of `View.num_uncommitted`.
      silent: int32[], the workers who are alive and have none of these.
    """

    messages: jax.Array
    silent: jax.Array


def counts_of(view: View) -> Counts:
    """The counts, added up."""
    is_silent = view.alive & (view.num_uncommitted == 0)
    return Counts(view.num_uncommitted.sum(dtype=jnp.int32), is_silent.sum(dtype=jnp.int32))


class TurnPlan(NamedTuple):
    """What a worker does once it has the parameters; every array [W].

    Attributes:
      num_units: int32, the units of the turn.
      compute_start: float seconds, when the first one begins.
      stop: float, when the last one ends; inf if it never does.
      send_start: float, when sending begins, or receiving where parameters are exchanged.
      first_unit_on_version: int32, the first unit that is computed on the parameters just received.
    """

    num_units: jax.Array
    compute_start: jax.Array
    stop: jax.Array
    send_start: jax.Array
    first_unit_on_version: jax.Array


def turn_of(work: Work, first_unit: jax.Array, ready_time: jax.Array, num_units: jax.Array | int) -> TurnPlan:
    """Turns of `num_units`, [W] or one number, from `first_unit int32[W]` on, from `ready_time float[W]` on.

    They are sent when they are done.
    """
    stop = ready_time + work.seconds(first_unit, num_units)
    units_of_each = jnp.broadcast_to(jnp.asarray(num_units, first_unit.dtype), first_unit.shape)
    return TurnPlan(
        num_units=units_of_each, compute_start=ready_time, stop=stop, send_start=stop, first_unit_on_version=first_unit
    )


def slowest_clock(view: View) -> jax.Array:
    """int32[]: the fewest messages of anybody who is alive; the largest number if nobody is."""
    return jnp.min(jnp.where(view.alive, view.clock, jnp.iinfo(jnp.int32).max))


def num_messages(view: View) -> jax.Array:
    """int32[]: the messages that are in no commit yet."""
    return view.num_uncommitted.sum(dtype=jnp.int32) if view.counts is None else view.counts.messages


def all_have_pushed(view: View) -> jax.Array:
    """bool[]: whether everybody who is alive has a message that is in no commit yet, and there is one."""
    counts = counts_of(view) if view.counts is None else view.counts
    return (counts.silent == 0) & (counts.messages > 0)


def round_begin(view: View) -> jax.Array:
    """float[] seconds, when the first of those began who have a turn under way or a message in no commit.

    Only who is alive counts; now if there is nobody.
    """
    takes_part = view.alive & (~view.idle | (view.num_uncommitted > 0))
    return jnp.min(jnp.where(takes_part, view.begin_time, view.now))


def _each_message(view: View, worker: jax.Array) -> jax.Array:
    """bool[], true, whatever the message."""
    del view, worker
    return jnp.ones((), bool)


def _all_may_begin(view: View) -> jax.Array:
    """bool[W], true: every idle worker may begin a turn."""
    return jnp.ones_like(view.idle)


def all_under_way(view: View, worker: jax.Array) -> jax.Array:
    """bool[W], true: a commit cuts off every turn that is under way."""
    del worker
    return jnp.ones_like(view.idle)


def _unchanged_memory(view: View, worker: jax.Array) -> Any:
    """The memory as it is: a message changes nothing in it."""
    del worker
    return view.memory


class Rule(NamedTuple):
    """A protocol's rule; all functions are pure.

    Attributes:
      commits: `(view, worker) -> bool[]`, whether the message of this worker, counted already, brings a commit; each
        does if it is not said.
      ready: `(view) -> bool[W]`, who may begin a turn; asked for idle workers only. Everybody if it is not said.
      accepts: `(view, worker) -> bool[]`, whether the message of this worker, which has arrived and is not counted yet,
        counts for a commit; one that does not is ignored, and its worker goes on. Each does if it is not said. It is
        not for rules that say `one_contribution_per_worker`, `splits_by_version` or `stop`.
      postpones: `(view, worker) -> int32[]`, how many commits the message of this worker, counted already, lets pass
        before the one that it is in; none if it is not said. It is not for rules that say `takes`, and a server on the
        real clock does not know it.
      takes: `(view, worker) -> bool[W]`, whose messages the commit takes; everybody's if None.
      pulls: `(view) -> bool[W]`, whose turn begins with receiving the parameters; by default, who has an old version.
      num_units: the units of a turn, a number or `(view) -> int32[W]`, or `int32[]` for all.
      memory: `(num_workers, dtype) -> memory`, what the rule keeps in mind at first.
      remember: `(view, worker) -> memory`, after a message; `view.num_commits` counts the commit that it brought.
      remembers_commits: whether `remember` is also asked after a commit that no message brings, but a worker that
        leaves, or an alarm.
      cuts_off: `(view, worker) -> bool[W]`, whose turns the commit cuts off; nobody's if None.
      pulls_before_push: whether the parameters are received after computing and before sending, not before computing.
      needs_everybody: whether each commit needs a message of everybody, so that there is none any more, and the run
        comes to a halt, once a worker that owes one never ends its unit.
      weight: of a contribution in its commit, a number, or `(staleness int32[..., C], work int32[..., C]) ->
        float[..., C or 1]`, from the commits since it was read and the units in it (0 where there is none).
      num_contributions: C, the most messages that a commit can take.
      splits_by_version: whether what a message has of the version before the one just read is a contribution of its
        own; C is then twice the messages.
      one_contribution_per_worker: whether all messages of a worker to a commit are one contribution, for each version
        that they are based on, in the columns w, W + w, ...; C is then W times the versions.
      alarm: `(view) -> float[]` seconds, when to look again, although nothing has happened: `commits` is then asked, if
        there is a message in no commit; inf for never. A time that is over is no alarm.
      stop: `(view) -> float[]` seconds, when the server stops all turns under way, as far as is known by now; inf if
        it is not known. All who have done a unit then push what they have done. No turn is stopped before somebody has
        done a unit, nor while a message is under way or in no commit. The event queue does not simulate it.
      remember_unit: `(view, worker) -> memory`, after a unit of a turn that the server stops.
      turn_seconds: `(view) -> float[W]`, or `float[]` for all, if a turn is as many units as fill so many seconds, one
        at least; instead of `num_units`. It may be asked when the parameters have come; `view.begin_time` says when
        each worker's turn has begun.
      overlaps: whether workers go on computing while they send and receive: a push has all units that are done when the
        parameters have come (`TurnPlan.first_unit_on_version`), one at least, and the server's `num_units` says
        nothing.
      code_row: `(view) -> int32[W]`, the row of its code that each worker has in a turn that begins now; that of its
        own number if None.
      skips_undone_units: whether the turns after `e` commits begin with unit `e * num_units`: what was not done is
        skipped.
      waits_for_commit: whether whoever may not begin once its own message has been dealt with may do so after a commit
        at the earliest, or after an alarm, or when somebody leaves or joins. The event queue then asks `ready` of
        everybody only after these, and otherwise of the sender alone. It always may if all may begin.
    """

    commits: Callable[[View, jax.Array], jax.Array] = _each_message
    ready: Callable[[View], jax.Array] = _all_may_begin
    accepts: Callable[[View, jax.Array], jax.Array] = _each_message
    postpones: Callable[[View, jax.Array], jax.Array] = lambda view, worker: jnp.zeros_like(view.num_commits)
    takes: Callable[[View, jax.Array], jax.Array] | None = None
    pulls: Callable[[View], jax.Array] = lambda view: view.version < view.num_commits
    num_units: int | Callable[[View], jax.Array] = 1
    memory: Callable[[int, Any], Any] = lambda num_workers, dtype: ()
    remember: Callable[[View, jax.Array], Any] = _unchanged_memory
    remembers_commits: bool = False
    cuts_off: Callable[[View, jax.Array], jax.Array] | None = None
    pulls_before_push: bool = False
    needs_everybody: bool = False
    weight: Any = 1.0
    num_contributions: int = 1
    splits_by_version: bool = False
    one_contribution_per_worker: bool = False
    alarm: Callable[[View], jax.Array] | None = None
    stop: Callable[[View], jax.Array] | None = None
    remember_unit: Callable[[View, jax.Array], Any] = _unchanged_memory
    turn_seconds: Callable[[View], jax.Array] | None = None
    overlaps: bool = False
    code_row: Callable[[View], jax.Array] | None = None
    skips_undone_units: bool = False
    waits_for_commit: bool = False

    @property
    def asks_after_commits(self) -> bool:
        """Whether only a commit can let others begin than the sender of a message."""
        return self.waits_for_commit or self.ready is _all_may_begin

    def units_of(self, view: View) -> Any:
        """The units of a turn that begins now, `num_units`: int, or int32[] or int32[W] if it is a function."""
        return self.num_units(view) if callable(self.num_units) else self.num_units


def first_view(rule: Rule, is_present: jax.Array, dtype: Any) -> View:
    """The view at 0 s of workers of whom some take part, `is_present bool[W]`, with times of this type."""
    num_workers = is_present.size
    zeros = jnp.zeros(num_workers, jnp.int32)
    return View(
        now=jnp.zeros((), dtype),
        num_commits=jnp.zeros((), jnp.int32),
        clock=zeros,
        num_uncommitted=zeros,
        idle=is_present,
        alive=is_present,
        version=zeros - 1,  # none
        begin_time=jnp.zeros(num_workers, dtype),
        memory=rule.memory(num_workers, dtype),
        compute_seconds=jnp.zeros((), dtype),
    )


def round_rule(num_workers: int, num_units: int) -> Rule:
    """The rule of rounds: everybody does so many units, a commit takes the mean of all, and then all begin anew.

    A worker whose message is in no commit waits for that; nobody waits for who is not alive.
    """
    return Rule(
        commits=lambda view, worker: all_have_pushed(view),
        ready=lambda view: view.num_uncommitted == 0,
        waits_for_commit=True,
        num_units=num_units,
        needs_everybody=True,
        weight=1.0 / num_workers,
        num_contributions=num_workers,
        one_contribution_per_worker=True,
    )


def stopped_rule(stop: Callable[[View], jax.Array], num_workers: int, num_units: Any = MANY_UNITS) -> Rule:
    """The rule of rounds that the server stops: a commit takes what all have pushed whom it has stopped.

    Args:
      stop: `(view) -> float[]` seconds, as in `Rule`.
      num_workers: W.
      num_units: the most units of a turn.
    """

    def ready(view: View) -> jax.Array:
        """bool[W], the same for all: whether the round is over and committed, so that the next one may begin."""
        round_is_over = ~view.stopped.any() & (view.num_uncommitted == 0).all()
        return jnp.broadcast_to(round_is_over, view.idle.shape)

    return Rule(
        commits=lambda view, worker: ~view.stopped.any(),  # nobody whom the server has stopped still owes a push
        ready=ready,
        num_units=num_units,
        cuts_off=all_under_way,
        num_contributions=num_workers,
        one_contribution_per_worker=True,
        stop=stop,
    )


def group_rule(group_of: Callable[[View], jax.Array], num_workers: int, num_contributions: int) -> Rule:
    """The rule of groups: a commit takes a message of everybody in a group, who waits for it; groups are on their own.

    Args:
      group_of: `(view) -> int32[W]`, the group of each worker.
      num_workers: W.
      num_contributions: C, the workers of the largest group.
    """

    def members_of_own_group(view: View, worker: jax.Array) -> jax.Array:
        """bool[W]: who is in the group of this worker."""
        return group_of(view) == group_of(view)[worker]

    def commits(view: View, worker: jax.Array) -> jax.Array:
        """bool[]: whether all of this worker's group who are alive have a message in no commit, and there is one."""
        is_member, has_message = members_of_own_group(view, worker), view.num_uncommitted > 0
        nobody_is_missing = (has_message | ~is_member | ~view.alive).all()
        return nobody_is_missing & (has_message & is_member).any()

    return Rule(
        commits=commits,
        ready=lambda view: view.num_uncommitted == 0,
        waits_for_commit=True,
        takes=members_of_own_group,
        weight=1.0 / num_workers,
        num_contributions=num_contributions,
    )
