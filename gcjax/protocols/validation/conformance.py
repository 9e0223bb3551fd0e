"""What ran against what was promised: the events of a record, replayed as steps of a specification.

The specification is one of `gcjax.specifications`, of as many workers; it was checked on its own that programs
that keep to its guarantees have its property, and here it is checked that this run kept to them.

Letters: X events, B events of a block, W workers.
"""

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.protocols.schedule import Schedule
from gcjax.protocols.validation.events import Events, events
from gcjax.specifications import Specification, shown
from gcjax.specifications.base import Action
from gcjax.specifications.events import COMMIT, KINDS, Event

BROKEN = ("arrival", "guarantee", "property")
BLOCK = 1 << 20  # numbers in an array of a block, more or less
LEAST = 64  # events that are replayed at once

MEANT, AGREES, RESTS, FITS = range(4)  # how well an action fits an event

State = Any


class Kept(NamedTuple):
    """Whether a run kept to a specification; true in a condition if it did.

    Attributes:
      specification: what it was held against.
      events: the steps that were looked at.
      broken: what the first bad one breaks: "guarantee", "property" or "arrival"; empty if there is none.
      time: float seconds, when it happened.
      who: the worker, or the server.
      does: what it did.
      unit: of the worker, or the commit of the server.
      before: the state before the step.
      after: the state after it.
    """

    specification: Specification
    events: int
    broken: str = ""
    time: float = 0.0
    who: str = ""
    does: str = ""
    unit: int = -1
    before: Any = None
    after: Any = None

    def __bool__(self) -> bool:
        """Whether every step is in the guarantee of its component, and the property holds throughout."""
        return not self.broken

    def __str__(self) -> str:
        """In words."""
        if self:
            return f"All {self.events} steps keep to {self.specification.name}: {self.specification.claim}."
        why = {
            "guarantee": f"is not a step that the {self.who.split()[0]} guarantees",
            "property": f"breaks the property: {self.specification.claim}",
            "arrival": "uses what was not there yet",
        }[self.broken]
        what = f"{self.who}: {self.does} {self.unit} at {self.time:g} s {why}, in {self.specification.name}."
        return f"{what}\n  before: {shown(self.before)}\n  after:  {shown(self.after)}"


def check(schedule: Schedule, specification: Specification) -> Kept:
    """Whether a record keeps to a specification.

    The events of the record are replayed, one after the other: each must be a step that an action of the specification
    stands for and that agrees with what the record shows, of a version read or of the units in a commit; it must be in
    the guarantee of who takes it, and the property must hold at it and after it. So the commits of the record are made
    of the pushes of the record, and of nothing else.

    Args:
      schedule: of one run.
      specification: of the same number of workers, for example `gcjax.specifications.ssp(workers=8)`.

    Raises:
      ValueError: if the numbers of workers differ, or the schedule is of a batch, or the specification does not say
        which events its actions stand for.
    """
    trace = events(schedule, _kinds(specification))
    if trace.num_workers != specification.num_workers:
        raise ValueError(
            f"the specification must have as many workers as the schedule; {specification.name} has "
            f"{specification.num_workers}, the schedule {trace.num_workers}."
        )
    state = _arrays(specification.initial)
    size = max(1 << (BLOCK // sum(np.size(x) for x in state)).bit_length(), LEAST)
    for begin in range(0, trace.time.size, size):
        part = jax.tree.map(lambda x, begin=begin: x[begin : begin + size], trace.event)
        after, bad = _replayed(specification, state, part)
        bad = np.c_[trace.late[begin : begin + size], bad]
        if bad.any():
            return _first(specification, trace, begin, state, bad)
        state = after
    return Kept(specification, trace.time.size)


def _actions(specification: Specification) -> list[tuple[int, Action]]:
    """Those that stand for events, each with the number of its role."""
    roles = enumerate(specification.roles())
    return [(number, action) for number, (role, _) in roles for action in role.actions if action.event]


def _judged(specification: Specification) -> set[str]:
    """The events at which actions must be allowed."""
    return {action.asked or action.event for _, action in _actions(specification)}


def _kinds(specification: Specification) -> set[str]:
    """The events that its actions stand for."""
    kinds = _judged(specification) | {action.event for _, action in _actions(specification)}
    if not kinds:
        raise ValueError(
            f"the actions of {specification.name} stand for no events, so that no schedule can be held against it. Say "
            "Action(..., event=...), or check it on small instances with gcjax.specifications.model_checking."
        )
    return kinds


def _arrays(state: State) -> State:
    return type(state)(*(np.asarray(x, np.int32) for x in state))


def _replayed(specification: Specification, state: State, part: Event) -> tuple[State, np.ndarray]:
    """The state after some events, and bool[B, 2], whether each breaks the guarantee, and the property.

    Where the states can be counted, only the events that are judged are looked at.
    """
    count = part.kind.size
    if specification.observed is None:
        last, broken = _in_turn(specification)(state, _padded(part))
        return _arrays(last), np.asarray(broken)[:count]
    states = _arrays(specification.observed(state, jax.tree.map(_with_none, part)))
    before, after = (jax.tree.map(lambda x, i=i: x[i : i + count], states) for i in (0, 1))
    judged = np.isin(part.kind, [KINDS.index(kind) for kind in _judged(specification)])
    if judged.all():
        return jax.tree.map(lambda x: x[count], states), _broken(specification, before, after, part)
    bad = np.zeros((count, 2), bool)
    bad[judged] = _broken(specification, *jax.tree.map(lambda x: x[judged], (before, after, part)))
    return jax.tree.map(lambda x: x[count], states), bad


def _broken(specification: Specification, before: State, after: State, part: Event) -> np.ndarray:
    """bool[B, 2]: what each event breaks that happens in one state and should lead to another one."""
    bad = _at_once(specification)(_padded(before), _padded(after), _padded(part))
    return np.asarray(bad)[: part.kind.size]


def _with_none(x: np.ndarray) -> np.ndarray:
    """With an event of no kind behind the others."""
    return np.append(x, x.dtype.type(-1))


def _padded(rows: Any) -> Any:
    """Arrays `[B, ...]` up to a power of two, so that few sizes are compiled; the events are of no kind."""

    def padded(x: np.ndarray) -> np.ndarray:
        padding = max(LEAST, 1 << (len(x) - 1).bit_length()) - len(x)
        return np.concatenate([x, np.full((padding, *x.shape[1:]), -1, x.dtype)]) if padding else x

    return jax.tree.map(padded, rows)


@lru_cache(maxsize=32)
def _in_turn(specification: Specification) -> Callable[[State, Event], tuple[State, jax.Array]]:
    """The events one after the other."""
    step = _step(specification)

    def one(state: State, event: Event) -> tuple[State, jax.Array]:
        taken = step(state, event)
        return taken.next, taken.bad

    return jax.jit(lambda state, part: jax.lax.scan(one, state, part))


@lru_cache(maxsize=32)
def _at_once(specification: Specification) -> Callable[[State, State, Event], jax.Array]:
    """All events at once, from the states before them; each step must lead to the state before the next one."""
    step = _step(specification)

    def one(before: State, after: State, event: Event) -> jax.Array:
        taken = step(before, event)
        leads = jnp.stack([(x == y).all() for x, y in zip(taken.next, after, strict=True)]).all()
        return taken.bad.at[0].set(taken.bad[0] | ~leads)

    return jax.jit(jax.vmap(one))


class _Taken(NamedTuple):
    """A step: the state that follows, what the step is judged by, who takes it, and what it breaks, bool[2]."""

    next: State
    after: State
    component: jax.Array
    bad: jax.Array


def _step(specification: Specification) -> Callable[[State, Event], _Taken]:
    """`(state, event) -> the step`: of the actions that stand for the event, the one that can be meant.

    That is the first that may be taken and agrees with the event; or nothing, if this agrees, as for those of a group
    behind the first; or the first that agrees, since a program may do less than is guaranteed; or the first.
    """
    actions = _actions(specification)
    judged, advancing = _judged(specification), {action.event for _, action in actions}

    def step(state: State, event: Event) -> _Taken:
        rank, after, component = jnp.asarray(-1), state, event.worker
        for role, action in actions:
            choice = _choice(specification, role, action, state, event)
            better = choice[0] > rank
            after = jax.tree.map(lambda x, y, better=better: jnp.where(better, x, y), choice[1], after)
            component = jnp.where(better, choice[2], component)
            rank = jnp.maximum(rank, choice[0])
        nothing = jnp.stack([(a == b).all() for a, b in zip(after, state, strict=True)]).all()
        kept = (rank >= AGREES) & (nothing | specification.guarantee(state, after, component))
        holds = specification.invariant(after) & specification.step_property(state, after, component)
        advances = _is_one_of(event, advancing)
        following = jax.tree.map(lambda x, y: jnp.where(advances, x, y), after, state)
        return _Taken(following, after, component, jnp.stack([~kept, ~holds]) & _is_one_of(event, judged))

    return step


def _is_one_of(event: Event, kinds: Collection[str]) -> jax.Array:
    return jnp.stack([event.kind == KINDS.index(kind) for kind in kinds]).any()


def _choice(
    specification: Specification, role: int, action: Action, state: State, event: Event
) -> tuple[jax.Array, State, jax.Array]:
    """How well an action fits an event, the state that it leads to, and who takes it."""
    if action.by is not None:
        component = action.by(state, event)
    else:
        component = event.worker if role == 0 else jnp.full_like(event.worker, specification.num_workers)
    moved, enabled = action.move(state, component)
    moved = jax.tree.map(lambda x, y: jnp.asarray(x).astype(y.dtype), moved, state)
    judged = _is_one_of(event, [action.asked or action.event])
    shows = judged | _is_one_of(event, [action.event])
    agrees, rests = ~judged | action.agrees(state, moved, event), judged & action.agrees(state, state, event)
    rank = jnp.where(agrees, jnp.where(enabled, FITS, jnp.where(rests, RESTS, AGREES)), jnp.where(rests, RESTS, MEANT))
    after = jax.tree.map(lambda x, y: jnp.where(rank == RESTS, x, y), state, moved)
    return jnp.where(shows, rank, -1), after, component


def _first(specification: Specification, trace: Events, begin: int, state: State, bad: np.ndarray) -> Kept:
    """What is said about the first bad step of the events from `begin` on, which begin in this state."""
    at = int(np.flatnonzero(bad.any(axis=1))[0])
    event = jax.tree.map(lambda x: x[begin : begin + at + 1], trace.event)
    if at:
        state = _replayed(specification, state, jax.tree.map(lambda x: x[:-1], event))[0]
    last = Event(*(x[-1] for x in event))
    taken = _step(specification)(jax.tree.map(jnp.asarray, state), jax.tree.map(jnp.asarray, last))
    kind = KINDS[int(last.kind)]
    return Kept(
        specification,
        begin + at + 1,
        BROKEN[int(np.flatnonzero(bad[at])[0])],
        float(trace.time[begin + at]),
        specification.component_name(int(taken.component)),
        kind,
        int(last.commit if kind == COMMIT else last.unit),
        _arrays(state),
        _arrays(taken.after),
    )
