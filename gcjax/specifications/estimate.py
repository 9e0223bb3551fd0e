"""A number of states that there are at least, before they are explored: those that workers reach each for itself.

The moves of a worker that change only what is its own, and that it can take whatever the others have done so, can be
put together in any order. So c such states of a worker make c^W of all; two of them are different states if both stay
as they are when canonical. That moves do not depend on the others is tried out, on random states.

Letters: W workers, D entries of a state, c states of a worker.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from gcjax.specifications.moves import Stepper, fill_up, frame_entries
from gcjax.specifications.reachability import MAX_STATES

MAX_PARTS = 32
SAMPLES = 4096
AT_ONCE = 64


class LowerBound(NamedTuple):
    """What there is at least.

    Attributes:
      states: of all workers.
      parts: c, the states of each worker.
    """

    states: float
    parts: int


def check_size(stepper: Stepper) -> None:
    """Raises an error if there are too many states to explore, as far as that is known before.

    Raises:
      ValueError: if there are.
    """
    if math.prod(stepper.layout.sizes.tolist()) <= MAX_STATES:
        return
    least = min_states(stepper)
    if least.states > MAX_STATES:
        raise ValueError(
            f"{stepper.specification.name} must have at most {MAX_STATES} states that can be reached; it has "
            f"{least.states:.2g} or more, for each worker has {least.parts} by itself. At most "
            f"{int(math.log(MAX_STATES) / math.log(least.parts))} workers can fit. Use fewer, or smaller parameters."
        )


def min_states(stepper: Stepper) -> LowerBound:
    """The states that there are at least; 1 where workers do not go on without each other."""
    spec, layout = stepper.specification, stepper.layout
    places = [np.flatnonzero(frame_entries(layout, spec.worker, w)) for w in range(spec.num_workers)]
    if len({len(place) for place in places}) > 1 or spec.num_workers < 2:
        return LowerBound(1.0, 1)
    normal = _normal(stepper)
    first = normal(np.concatenate([np.ravel(x) for x in spec.initial]).astype(np.int32)[None])[0]
    parts, edges = _parts(stepper, first, places[-1], normal)
    draw = np.random.default_rng(0)
    chosen = draw.integers(len(parts), size=(SAMPLES, spec.num_workers))
    rows = np.broadcast_to(first, (SAMPLES, first.size)).copy()
    for worker, place in enumerate(places):
        rows[:, place] = np.asarray(parts)[chosen[:, worker]]
    if not _free(stepper, rows[: stepper.chunk], chosen, places, edges):
        return LowerBound(1.0, 1)
    fixed = int((normal(rows) == rows).all(axis=1).sum())
    return LowerBound(max(fixed - 4 * fixed**0.5, 0) / SAMPLES * float(len(parts)) ** spec.num_workers, len(parts))


def _normal(stepper: Stepper) -> Callable[[np.ndarray], np.ndarray]:
    """What normalises states, int32[n, D] to the same, some at once, so that one program is compiled."""
    spec, layout = stepper.specification, stepper.layout
    program = jax.jit(jax.vmap(lambda row: layout.flatten(spec.canonicalise(layout.unflatten(row)))))

    def normal(rows: np.ndarray) -> np.ndarray:
        parts = [rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE)]
        return np.concatenate([np.asarray(program(fill_up(part, AT_ONCE)))[: len(part)] for part in parts])

    return normal


_Edge = tuple[int, int, np.ndarray]
"""A move of a worker alone: the number of its part before, the action, and its part after, not canonical."""


def _parts(
    stepper: Stepper, first: np.ndarray, place: np.ndarray, normal: Callable[[np.ndarray], np.ndarray]
) -> tuple[list[np.ndarray], list[_Edge]]:
    """What is the last worker's own, in the states that it reaches while nobody else moves, and how."""
    parts, edges = [first[place]], []
    rest, worker = np.setdiff1d(np.arange(first.size), place), stepper.specification.num_workers - 1
    for number in range(MAX_PARTS):
        if number == len(parts):
            break
        row = first.copy()
        row[place] = parts[number]
        moves = stepper.program(row[None])
        own = moves.component == worker
        for after, action in zip(moves.after[own], moves.action[own], strict=True):
            then = normal(after[None])[0]
            if (after[rest] != first[rest]).any() or (then[rest] != first[rest]).any():
                continue
            if not any((then[place] == part).all() for part in parts) and len(parts) < MAX_PARTS:
                parts.append(then[place])
                edges.append((number, int(action), after[place]))
    return parts, edges


def _free(stepper: Stepper, rows: np.ndarray, chosen: np.ndarray, places: list[np.ndarray], edges: list[_Edge]) -> bool:
    """Whether all workers can take the moves in all of these states, and change the same."""
    moves = stepper.program(rows)
    after = {key: n for n, key in enumerate(zip(moves.state, moves.component, moves.action, strict=True))}
    for before, action, part in edges:
        for n, worker in np.argwhere(chosen[: len(rows)] == before):
            expected = rows[n].copy()
            expected[places[worker]] = part
            index = after.get((n, worker, action))
            if index is None or (moves.after[index] != expected).any():
                return False
    return True
