"""Bounded staleness: the clocks of the workers, and how far apart they are (Valiant 1990; Ho et al. 2013).

The state is the units that each worker has pushed. Beginning a unit and pushing it are one step: while a unit is under
way the slowest worker only comes closer, so a unit that was allowed to begin is allowed to be pushed. Clocks count from
the slowest, which loses nothing, since all rules are about differences.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, is_own_entry, zeros
from gcjax.specifications.event_counts import num_before, rows_of_kind
from gcjax.specifications.events import BEGIN, UNIT, Event
from gcjax.specifications.rounds import averaging_with_members


class Clocks(NamedTuple):
    """Attributes: clock: int[W], the units that each worker has pushed."""

    clock: Numbers


@comparable
def ssp(num_workers: int = 3, *, staleness: int = 2) -> Specification:
    """SSP: nobody is more than s + 1 units ahead of anybody.

    A worker's clock grows by one, if it is at most s ahead of the slowest (Ho et al. 2013).
    There are `(s + 2)^W - (s + 1)^W` states.

    Args:
      num_workers: W.
      staleness: s.
    """
    specification = bounded_staleness("ssp", num_workers, program_staleness=staleness, promised_staleness=staleness)
    # `members`: what is promised if only some of the workers take part.
    return specification._replace(members=partial(_bounded_with_members, num_workers, staleness))


@comparable
def bsp(num_workers: int = 3, *, staleness: int = 0) -> Specification:
    """BSP refines SSP(s): its program keeps to the guarantee of SSP, and nobody is more than one unit ahead.

    A worker begins a unit when nobody is behind it (Valiant 1990).

    Args:
      num_workers: W.
      staleness: s of the guarantee; the program is that of BSP.
    """
    # A commit is one unit of everybody, so there are as many as the slowest has units.
    specification = bounded_staleness(
        "bsp", num_workers, program_staleness=0, promised_staleness=staleness, commits_are_rounds=True
    )
    num_local_steps = 1  # BSP is local SGD with one step a round, always one (`dynamic` False)
    return specification._replace(members=partial(averaging_with_members, "bsp", num_workers, num_local_steps, False))


MOST_ITERATIONS = 2**30
"""Bounds of how far workers may be apart are at most so large, so that twice as much is an int32."""


def push_event_arguments(*, commits_are_rounds: bool) -> dict[str, Any]:
    """Arguments of an `Action` by which a worker's clock, the units it has pushed, grows by one: how events show it.

    The arrival of a unit (UNIT) stands for it. It must be allowed when the unit begins (BEGIN), with the newest
    version: while it is under way the others only come closer, so what was allowed then is so when it arrives.

    Args:
      commits_are_rounds: whether commit e takes unit e of everybody; otherwise each unit is a commit. So the commits so
        far, which are the newest version, are the least of all clocks, or their sum.
    """

    def matches(before: Any, after: Any, event: Event) -> jax.Array:
        """bool[]: whether a step is the event's unit, the next one of its worker, begun with the newest version.

        `clock int[W]` counts the units that each worker has pushed, so that the next one has this number.
        """
        if after is before:  # said at once, as this is asked of each state: a push changes it
            return jnp.zeros((), bool)
        clock_before, clock_after = before.clock[event.worker], after.clock[event.worker]
        pushes = (event.unit == clock_before) & (clock_after == clock_before + 1)
        if not commits_are_rounds:
            return pushes & (event.version == before.clock.sum())
        is_in_round = (event.commit == event.unit) & (event.size == before.clock.size)
        return pushes & is_in_round & (event.version == before.clock.min())

    def is_next_commit(before: Any, after: Any, event: Event) -> jax.Array:
        """bool[]: whether the unit that has arrived is the next commit, and no message before it is in none."""
        return (event.commit == before.clock.sum()) & ~event.leaves_out_messages

    arguments = {"event": UNIT, "enabled_at": BEGIN, "matches": matches}
    return arguments if commits_are_rounds else {**arguments, "matches_effect": is_next_commit}


def pushing_workers(
    num_workers: int,
    push: Callable[[Clocks, jax.Array], tuple[Clocks, jax.Array]],
    guarantee: Callable[[Clocks, Clocks, jax.Array], jax.Array],
    *,
    commits_are_rounds: bool,
) -> Role:
    """The role of workers with one action, `push`: their entry of `clock int[W]`, the units pushed, grows by one.

    Args:
      num_workers: W.
      push: `(state, worker) -> (after, bool[])`, the second one whether the worker may.
      guarantee: `(before, after, worker) -> bool[]`, whether a step of a worker, which changes no other entry, is one
        that it promises.
      commits_are_rounds: as in `push_event_arguments`.
    """
    action = Action("push", push, **push_event_arguments(commits_are_rounds=commits_are_rounds))
    return Role.of_workers(Clocks, num_workers, ("clock",), (action,), guarantee)


def replay_clocks(state: Any, events: Event, rows: np.ndarray) -> Any:
    """The states before the events `rows`, as arrays [rows, ...], if `state` is that before the first event of all.

    `clock int[W]` counts the UNIT events of each worker; other fields stay.
    """
    units = rows_of_kind(events, UNIT)
    clock = state.clock + num_before(rows, units, events.worker[units], state.clock.size)
    constant_fields = {name: np.broadcast_to(x, (rows.size, *np.shape(x))) for name, x in state._asdict().items()}
    return type(state)(**{**constant_fields, "clock": clock})


def bounded_staleness(
    name: str,
    num_workers: int,
    *,
    program_staleness: int,
    promised_staleness: int,
    commits_are_rounds: bool = False,
) -> Specification:
    """Workers that begin a unit only if they are at most so many units ahead of the slowest.

    Args:
      name: of the protocol.
      num_workers: W.
      program_staleness: how far ahead of the slowest a worker may be that begins a unit.
      promised_staleness: the same, as the guarantee promises; at least that of the program if this keeps to it.
      commits_are_rounds: as in `push_event_arguments`.
    """
    check_num_workers(num_workers)
    promised_staleness = _validate.integer("staleness", promised_staleness, maximum=MOST_ITERATIONS)

    def push(state: Clocks, worker: jax.Array) -> tuple[Clocks, jax.Array]:
        """The state with one unit more of the worker, and whether it may push: at most so far ahead of the slowest."""
        clock = state.clock
        new_clock = clock + is_own_entry(num_workers, worker).astype(clock.dtype)
        return Clocks(new_clock), clock[worker] - clock.min() <= program_staleness

    def guarantee(before: Clocks, after: Clocks, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker pushes one unit, being at most the promised staleness ahead of the slowest."""
        clock = before.clock[worker]
        return (after.clock[worker] == clock + 1) & (clock - before.clock.min() <= promised_staleness)

    def rely(before: Clocks, after: Clocks, worker: jax.Array) -> jax.Array:
        """bool[]: whether at most one other worker pushes one unit, and ends within the promised staleness + 1.

        That is counted from the slowest; who is further ahead already may stay so.
        """
        increments = after.clock - before.clock
        at_most_one_other = (increments[worker] == 0) & (increments >= 0).all() & (increments.sum() <= 1)
        max_clock = jnp.maximum(before.clock.max(), before.clock.min() + promised_staleness + 1)
        return at_most_one_other & (after.clock.max() <= max_clock)

    return Specification(
        f"{name}({num_workers} workers, staleness {promised_staleness})",
        num_workers,
        initial=Clocks(zeros(num_workers)),
        sizes=Clocks(np.full(num_workers, max(program_staleness, promised_staleness) + 2)),  # clocks 0, ..., s + 1
        worker=pushing_workers(num_workers, push, guarantee, commits_are_rounds=commits_are_rounds),
        claim=f"nobody is more than {promised_staleness + 1} ahead of anybody",
        invariant=lambda state: state.clock.max() - state.clock.min() <= promised_staleness + 1,
        rely=rely,
        canonicalise=counted_from_slowest,
        replay=replay_clocks,
    )


def counted_from_slowest(state: Clocks) -> Clocks:
    """The state with clocks counted from the slowest, whose clock is then 0."""
    return Clocks(state.clock - state.clock.min())


class MemberClocks(NamedTuple):
    """Clocks where workers leave and join, so that they are no longer the numbers of pushes.

    Attributes:
      clock: int[W]; who joins gets that of the slowest, if its own is not above it.
      pushed: int[W], the units that each worker has pushed.
      version: int[], the commits so far, one for each push.
    """

    clock: Numbers
    pushed: Numbers
    version: Numbers


def _bounded_with_members(num_workers: int, staleness: int, alive: jax.Array) -> Specification:
    """SSP if the workers `alive bool[W]` take part: nobody is more than s + 1 units ahead of anybody of them.

    Runs are held against it, in whose states numbers grow beyond `sizes`.
    """

    def slowest_of_alive(clock: jax.Array) -> jax.Array:
        """int[]: the least clock of those who take part; of nobody, a large number."""
        return jnp.min(jnp.where(alive, clock, np.iinfo(np.int32).max))

    def push(state: MemberClocks, worker: jax.Array) -> tuple[MemberClocks, jax.Array]:
        """The state with one unit more of the worker, and whether it may push."""
        after = MemberClocks(state.clock.at[worker].add(1), state.pushed.at[worker].add(1), state.version + 1)
        return after, state.clock[worker] <= slowest_of_alive(state.clock) + staleness

    def guarantee(before: MemberClocks, after: MemberClocks, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker pushes one unit, at most s ahead of the slowest who takes part."""
        has_pushed = (after.clock[worker] == before.clock[worker] + 1) & (after.version == before.version + 1)
        return has_pushed & (before.clock[worker] <= slowest_of_alive(before.clock) + staleness)

    def matches(before: MemberClocks, after: MemberClocks, event: Event) -> jax.Array:
        """bool[]: whether a step is the event's unit, begun with the newest version from before the step.

        `pushed int[W]` are the units of each so far, so that its next one has this number; each makes a version.
        """
        pushes = (event.unit == before.pushed[event.worker]) & (after.version == before.version + 1)
        return pushes & (event.version == before.version)

    def state_after_join(state: MemberClocks, worker: jax.Array) -> MemberClocks:
        """The state in which the worker is not behind the slowest; not behind the fastest of all, if nobody takes part.

        So its joining holds nobody up. Its clock stays if it is above that.
        """
        least_clock = jnp.where(jnp.any(alive), slowest_of_alive(state.clock), state.clock.max())
        return state._replace(clock=state.clock.at[worker].max(least_clock))

    def matches_effect(before: MemberClocks, after: MemberClocks, event: Event) -> jax.Array:
        """bool[]: whether the unit that has arrived is in the next commit."""
        return event.commit == before.version

    action = Action("push", push, UNIT, matches, enabled_at=BEGIN, matches_effect=matches_effect)
    return Specification(
        f"ssp({num_workers} workers, staleness {staleness})",
        num_workers,
        initial=MemberClocks(clock=zeros(num_workers), pushed=zeros(num_workers), version=np.int32(0)),
        sizes=MemberClocks(clock=zeros(num_workers) + staleness + 2, pushed=zeros(num_workers) + 1, version=1),
        worker=Role.of_workers(MemberClocks, num_workers, ("clock", "pushed"), (action,), guarantee, ("version",)),
        claim=f"nobody is more than {staleness + 1} ahead of anybody",
        invariant=lambda state: (~alive | (state.clock - slowest_of_alive(state.clock) <= staleness + 1)).all(),
        state_after_join=state_after_join,
    )


class Cached(NamedTuple):
    """Attributes: clock: int[W], the units pushed; seen_clock: int[W], up to which a worker has seen everybody's."""

    clock: Numbers
    seen_clock: Numbers


@comparable
def ssp_cached(num_workers: int = 3, *, staleness: int = 2) -> Specification:
    """SSP with cached reads: what a worker has seen is at most s + 1 units old.

    A worker goes on with what it has read for as long as this contains all that is more than s units old, and otherwise
    reads anew, what everybody has pushed up to the clock of the slowest (Ho et al. 2013).

    Args:
      num_workers: W.
      staleness: s.
    """
    check_num_workers(num_workers)
    staleness = _validate.integer("staleness", staleness)

    def push(state: Cached, worker: jax.Array) -> tuple[Cached, jax.Array]:
        """The state with one unit more of the worker, and whether what it has seen is new enough for that."""
        is_new_enough = state.clock[worker] - state.seen_clock[worker] <= staleness
        return state._replace(clock=state.clock.at[worker].add(1)), is_new_enough

    def refresh(state: Cached, worker: jax.Array) -> tuple[Cached, jax.Array]:
        """The state in which the worker has seen all up to the slowest's clock, and whether that is new to it.

        `seen_clock int[W]`: up to which clock each has seen everybody's units.
        """
        slowest = state.clock.min()
        return state._replace(seen_clock=state.seen_clock.at[worker].set(slowest)), state.seen_clock[worker] < slowest

    def guarantee(before: Cached, after: Cached, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker pushes a unit, or reads what is new to it, at most up to the slowest's clock.

        It may push if it has seen (`seen_clock int[W]`) everybody's units up to s before its own clock.
        """
        clock_before, clock_after = before.clock[worker], after.clock[worker]
        seen_before, seen_after = before.seen_clock[worker], after.seen_clock[worker]
        may_push = (clock_before <= seen_before + staleness) & (seen_after == seen_before)
        reads = (clock_after == clock_before) & (seen_after > seen_before) & (seen_after <= before.clock.min())
        return ((clock_after == clock_before + 1) & may_push) | reads

    def invariant(state: Cached) -> jax.Array:
        """bool[]: whether what workers have seen is at most s + 1 units old, and none of it newer than the slowest."""
        is_new_enough = state.clock - state.seen_clock <= staleness + 1
        return (is_new_enough & (state.seen_clock <= state.clock.min())).all()

    def canonicalise(state: Cached) -> Cached:
        """The state counted from what the worker that has seen least has seen."""
        min_seen = state.seen_clock.min()
        return Cached(state.clock - min_seen, state.seen_clock - min_seen)

    return Specification(
        f"ssp_cached({num_workers} workers, staleness {staleness})",
        num_workers,
        initial=Cached(clock=zeros(num_workers), seen_clock=zeros(num_workers)),
        # Of canonical states: the slowest clock is s + 1 at most, so nobody has seen more, and clocks go up to 2 s + 2.
        sizes=Cached(clock=np.full(num_workers, 2 * staleness + 3), seen_clock=np.full(num_workers, staleness + 2)),
        worker=Role.of_workers(
            Cached, num_workers, Cached._fields, (Action("push", push), Action("read", refresh)), guarantee
        ),
        claim=f"reads are at most as new as the slowest and at most {staleness + 1} units old",
        invariant=invariant,
        canonicalise=canonicalise,
    )
