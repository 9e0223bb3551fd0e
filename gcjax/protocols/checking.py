"""What ran against what was promised: a schedule, step by step, under the guarantees of a specification.

The specification is one of `gcjax.algebra.specifications`, of as many workers; it was checked on its own that programs
that keep to its guarantees have its property, and here it is checked that this run kept to them.

Letters: X events, W workers.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra.specifications import Specification, shown
from gcjax.protocols.group_history import GroupHistory, group_blocks, group_history
from gcjax.protocols.history import BEGIN, FIELDS, Fields, History, blocks, history, together
from gcjax.protocols.schedule import Schedule
from gcjax.protocols.sequential_history import SequentialHistory, sequential_blocks, sequential_history

CLOCKS = {"clock", "granted", "free"}
BROKEN = ("guarantee", "property", "arrival")
LEAST = 64  # steps that are looked at at once

AnyHistory = History | GroupHistory | SequentialHistory


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
    """Whether a schedule keeps to a specification.

    The schedule becomes a history: workers begin (and read), push, and the server commits. Each of these steps must be
    in the guarantee of who takes it, and the property must hold at it and after it. Where a specification knows clocks
    only, so that beginning a unit and pushing it are one step, that step must be allowed when the unit begins.

    Args:
      schedule: of one run.
      specification: of the same number of workers, for example `gcjax.algebra.specifications.ssp(workers=8)`.

    Raises:
      ValueError: if the numbers of workers differ, or the schedule is of a batch.
    """
    state: Any = type(specification.initial)
    found, parts = _observed(schedule, specification)
    if found.num_workers != specification.num_workers:
        raise ValueError(
            f"the specification must have as many workers as the schedule; {specification.name} has "
            f"{specification.num_workers}, the schedule {found.num_workers}."
        )
    last = {name: np.asarray(x, np.int32)[None] for name, x in zip(state._fields, specification.initial, strict=True)}
    for part, after in parts:
        before = {name: np.concatenate([last[name], after[name][:-1]]) for name in state._fields}
        judged = _at_begin if set(state._fields) <= CLOCKS else _at_each
        before, after, broken = judged(specification, found, part, before, after)
        bad = np.c_[broken, found.late[part]]
        if bad.any():
            return _first(specification, found, part, before, after, bad)
        last = {name: x[-1:] for name, x in after.items()}
    return Kept(specification, found.kind.size)


def _observed(schedule: Schedule, specification: Specification) -> tuple[AnyHistory, Iterator[tuple[slice, Fields]]]:
    """The events of a schedule, as far as the states of a specification tell of them, and the states after them."""
    names = type(specification.initial)._fields
    initial = {name: np.asarray(x, np.int32)[None] for name, x in zip(names, specification.initial, strict=True)}
    grouping = specification.grouping
    if grouping is not None:
        groups = group_history(schedule, grouping.levels, exchanges=grouping.exchanges)
        return groups, group_blocks(groups, initial)
    if specification.round_units:
        slots = len(getattr(specification.initial, "plain", [0]))  # SR-SGC does one task in a round
        rounds = sequential_history(schedule, round_units=specification.round_units, slots=slots)
        return rounds, sequential_blocks(rounds, specification)
    _check_fields(specification, names)
    found = history(schedule)
    if not specification.num_servers:
        found = together(found)
    return found, blocks(found, initial)


def _at_each(
    specification: Specification, found: AnyHistory, part: slice, before: Fields, after: Fields
) -> tuple[Fields, Fields, np.ndarray]:
    return before, after, _broken(specification, before, after, found.worker[part])


def _at_begin(
    specification: Specification, found: AnyHistory, part: slice, before: Fields, after: Fields
) -> tuple[Fields, Fields, np.ndarray]:
    """As if each unit that begins were pushed at once; it must be the next one of its worker."""
    rows = np.flatnonzero(found.kind[part] == BEGIN)
    worker, place = found.worker[part][rows], np.arange(rows.size)
    now = {name: x[rows] for name, x in before.items()}
    then = {**now, "clock": now["clock"].copy()}
    then["clock"][place, worker] += 1
    broken = np.zeros((found.worker[part].size, 2), bool)
    if rows.size:
        broken[rows] = _broken(specification, now, then, worker)
        broken[rows, 0] |= found.unit[part][rows] != now["clock"][place, worker]
    told = {**after, "clock": after["clock"]}
    if broken.any():
        told["clock"] = after["clock"].copy()
        told["clock"][rows] = then["clock"]
    return before, told, broken


def _check_fields(specification: Specification, names: tuple[str, ...]) -> None:
    unknown = sorted(set(names) - set(FIELDS))
    if unknown:
        raise ValueError(
            f"a schedule says only {', '.join(FIELDS)}; the states of {specification.name} also have "
            f"{', '.join(unknown)}. Check it on small instances with gcjax.algebra.specifications.check."
        )


@lru_cache(maxsize=32)
def _judge(specification: Specification) -> Callable[[Any, Any, np.ndarray], jax.Array]:
    """`(before, after, component) -> bool[B, 2]`: whether each step breaks the guarantee, and the property."""

    def one(before: Any, after: Any, component: jax.Array) -> jax.Array:
        nothing = jnp.stack([(a == b).all() for a, b in zip(before, after, strict=True)]).all()
        kept = nothing | specification.guarantee(before, after, component)
        holds = specification.invariant(after) & specification.step_property(before, after, component)
        return jnp.stack([~kept, ~holds])

    return jax.jit(jax.vmap(one))


def _broken(specification: Specification, before: Fields, after: Fields, component: np.ndarray) -> np.ndarray:
    """bool[B, 2]; the steps are padded to a power of two with the first state, so that few sizes are compiled."""
    count = component.size
    padding = max(LEAST, 1 << (count - 1).bit_length()) - count

    def padded(x: np.ndarray, fill: np.ndarray) -> np.ndarray:
        return np.concatenate([x, np.broadcast_to(fill, (padding, *x.shape[1:]))])

    state: Any = type(specification.initial)
    states = (state(*(padded(x[name], before[name][:1]) for name in state._fields)) for x in (before, after))
    was, now = states
    return np.asarray(_judge(specification)(was, now, padded(component, component[:1])))[:count]


def _first(
    specification: Specification,
    found: AnyHistory,
    part: slice,
    before: Fields,
    after: Fields,
    bad: np.ndarray,
) -> Kept:
    """What is said about the first bad step of a block."""
    at = int(np.flatnonzero(bad.any(axis=1))[0])
    event = part.start + at
    state: Any = type(specification.initial)
    kind = int(found.kind[event])
    return Kept(
        specification,
        event + 1,
        BROKEN[int(np.flatnonzero(bad[at])[0])],
        float(found.time[event]),
        specification.component_name(int(found.worker[event])),
        found.names[kind],
        int(found.unit[event]),
        state(*(before[name][at] for name in state._fields)),
        state(*(after[name][at] for name in state._fields)),
    )
