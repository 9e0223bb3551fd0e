"""Bounded staleness: the clocks of the workers, and how far apart they are (Valiant 1990; Ho et al. 2013).

The state is the units that each worker has pushed. Beginning a unit and pushing it are one step: while a unit is under
way the slowest worker only comes closer, so a unit that was allowed to begin is allowed to be pushed. Clocks count from
the slowest, which loses nothing, since all rules are about differences.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, own, zeros
from gcjax.specifications.events import BEGIN, KINDS, UNIT, Event

Newest = Callable[[jax.Array], jax.Array]
"""`clock int[W] -> int[]`: the commits so far."""


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
    return bounded("ssp", num_workers, program=staleness, guarantee=staleness)


@comparable
def bsp(num_workers: int = 3, *, staleness: int = 0) -> Specification:
    """BSP refines SSP(s): its program keeps to the guarantee of SSP, and nobody is more than one unit ahead.

    A worker begins a unit when nobody is behind it (Valiant 1990).

    Args:
      num_workers: W.
      staleness: s of the guarantee; the program is that of BSP.
    """
    return bounded("bsp", num_workers, program=0, guarantee=staleness, newest=jnp.min)


def push_event(newest: Newest) -> dict[str, Any]:
    """What actions say of events by which a worker's clock grows by one: it may begin, and reads the newest version.

    While the unit is under way the others only come closer, so what was allowed when it began is so when it arrives.

    Args:
      newest: the commits so far.
    """

    def matches(before: Any, after: Any, event: Event) -> jax.Array:
        was, now = before.clock[event.worker], after.clock[event.worker]
        return (event.unit == was) & (now == was + 1) & (event.version == newest(before.clock))

    return {"event": UNIT, "enabled_at": BEGIN, "matches": matches}


def replay_clocks(state: Any, events: Event) -> Any:
    """The states before events, the units that have arrived being counted; the other entries stay as they are."""
    arrived = np.zeros((events.kind.size + 1, state.clock.size), np.int32)
    rows = np.flatnonzero(events.kind == KINDS.index(UNIT))
    arrived[rows + 1, events.worker[rows]] = 1
    arrived[0] = state.clock
    others = {name: np.broadcast_to(x, (events.kind.size, *np.shape(x))) for name, x in state._asdict().items()}
    return type(state)(**{**others, "clock": np.cumsum(arrived[:-1], axis=0, dtype=np.int32)})


def bounded(name: str, num_workers: int, *, program: int, guarantee: int, newest: Newest = jnp.sum) -> Specification:
    """A program that allows to be so many units ahead, against a guarantee that does.

    Args:
      name: of the protocol.
      num_workers: W.
      program: how far ahead of the slowest a worker may be that goes on.
      guarantee: the same, as promised.
      newest: the commits so far, which is the version that whoever begins reads.
    """
    check_num_workers(num_workers)
    _validate.integer("staleness", guarantee)

    def push(state: Clocks, worker: jax.Array) -> tuple[Clocks, jax.Array]:
        clock = state.clock
        return Clocks(clock.at[worker].add(1)), clock[worker] - clock.min() <= program

    def rule(before: Clocks, after: Clocks, worker: jax.Array) -> jax.Array:
        own_clock = before.clock[worker]
        return (after.clock[worker] == own_clock + 1) & (own_clock <= before.clock.min() + guarantee)

    def rely(before: Clocks, after: Clocks, worker: jax.Array) -> jax.Array:
        steps = after.clock - before.clock
        same = (steps[worker] == 0) & (steps >= 0).all() & (steps.sum() <= 1)
        return same & (after.clock.max() <= jnp.maximum(before.clock.max(), before.clock.min() + guarantee + 1))

    return Specification(
        f"{name}({num_workers} workers, staleness {guarantee})",
        num_workers,
        initial=Clocks(zeros(num_workers)),
        sizes=Clocks(np.full(num_workers, max(program, guarantee) + 2)),
        worker=Role(
            (Action("push", push, **push_event(newest)),), lambda worker: Clocks(own(num_workers, worker)), rule
        ),
        claim=f"nobody is more than {guarantee + 1} ahead of anybody",
        invariant=lambda state: state.clock.max() - state.clock.min() <= guarantee + 1,
        rely=rely,
        canonicalise=relative,
        replay=replay_clocks,
    )


def relative(state: Clocks) -> Clocks:
    """Clocks counted from the slowest."""
    return Clocks(state.clock - state.clock.min())


class Cached(NamedTuple):
    """Attributes: clock: int[W], the units pushed; seen: int[W], up to which clock a worker has seen everybody's."""

    clock: Numbers
    seen: Numbers


@comparable
def ssp_cached(num_workers: int = 3, *, staleness: int = 2) -> Specification:
    """SSP with cached reads: what a worker has seen is at most s + 1 units old.

    A worker goes on with what it has read for as long as this contains all that is more than s units old, and otherwise
    reads anew, what everybody has pushed up to the clock of the slowest (Ho et al. 2013, section 3).

    Args:
      num_workers: W.
      staleness: s.
    """
    check_num_workers(num_workers)
    _validate.integer("staleness", staleness)

    def push(state: Cached, worker: jax.Array) -> tuple[Cached, jax.Array]:
        fresh = state.clock[worker] - state.seen[worker] <= staleness
        return state._replace(clock=state.clock.at[worker].add(1)), fresh

    def refresh(state: Cached, worker: jax.Array) -> tuple[Cached, jax.Array]:
        slowest = state.clock.min()
        return state._replace(seen=state.seen.at[worker].set(slowest)), state.seen[worker] < slowest

    def rule(before: Cached, after: Cached, worker: jax.Array) -> jax.Array:
        was, now, seen, sees = (x[worker] for x in (before.clock, after.clock, before.seen, after.seen))
        pushes = (now == was + 1) & (was <= seen + staleness) & (sees == seen)
        return pushes | ((now == was) & (sees > seen) & (sees <= before.clock.min()))

    def invariant(state: Cached) -> jax.Array:
        old = state.clock - state.seen <= staleness + 1
        return (old & (state.seen <= state.clock.min())).all()

    def canonicalise(state: Cached) -> Cached:
        least = state.seen.min()
        return Cached(state.clock - least, state.seen - least)

    return Specification(
        f"ssp_cached({num_workers} workers, staleness {staleness})",
        num_workers,
        initial=Cached(zeros(num_workers), zeros(num_workers)),
        sizes=Cached(np.full(num_workers, 2 * staleness + 3), np.full(num_workers, staleness + 2)),
        worker=Role(
            (Action("push", push), Action("read", refresh)), lambda w: Cached(*(own(num_workers, w),) * 2), rule
        ),
        claim=f"reads are at most as new as the slowest and at most {staleness + 1} units old",
        invariant=invariant,
        canonicalise=canonicalise,
    )
