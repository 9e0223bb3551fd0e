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
"""The most parts of a worker that are looked for."""
SAMPLES = 4096
"""Random states on which it is tried whether moves depend on others."""
AT_ONCE = 64
"""States that are made canonical at once."""


class LowerBound(NamedTuple):
    """What there is at bound.

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
    bound = min_states(stepper)
    if bound.states > MAX_STATES:
        raise ValueError(
            f"{stepper.specification.name} must have at most {MAX_STATES} states that can be reached; it has "
            f"{bound.states:.2g} or more, for each worker has {bound.parts} by itself. At most "
            f"{int(math.log(MAX_STATES) / math.log(bound.parts))} workers can fit. Use fewer, or smaller parameters."
        )


def min_states(stepper: Stepper) -> LowerBound:
    """The states that there are at least; 1 where workers do not go on without each other."""
    spec, layout = stepper.specification, stepper.layout
    own_entries = [np.flatnonzero(frame_entries(layout, spec.worker, w)) for w in range(spec.num_workers)]
    if len({len(entries) for entries in own_entries}) > 1 or spec.num_workers < 2:
        return LowerBound(1.0, 1)
    canonical = _canonical_rows(stepper)
    first = canonical(np.concatenate([np.ravel(x) for x in spec.initial]).astype(np.int32)[None])[0]
    # A part is what the entries of one worker have in a state; edges are the moves between parts.
    parts, edges = _parts(stepper, first, own_entries[-1], canonical)
    part_numbers = np.random.default_rng(0).integers(len(parts), size=(SAMPLES, spec.num_workers))
    rows = np.broadcast_to(first, (SAMPLES, first.size)).copy()  # random states: a random part for each worker
    for worker, entries in enumerate(own_entries):
        rows[:, entries] = np.asarray(parts)[part_numbers[:, worker]]
    if not _moves_independently(stepper, rows[: stepper.chunk], part_numbers, own_entries, edges):
        return LowerBound(1.0, 1)
    # Different rows are different states if they stay as they are when made canonical; the share of such rows is
    # estimated, less four standard deviations.
    num_canonical = int((canonical(rows) == rows).all(axis=1).sum())
    min_share = max(num_canonical - 4 * num_canonical**0.5, 0) / SAMPLES
    return LowerBound(states=min_share * float(len(parts)) ** spec.num_workers, parts=len(parts))


def _canonical_rows(stepper: Stepper) -> Callable[[np.ndarray], np.ndarray]:
    """The function that makes rows int32[n, D] canonical, `AT_ONCE` at a time, so that one program is compiled."""
    spec, layout = stepper.specification, stepper.layout
    program = jax.jit(jax.vmap(lambda row: layout.flatten(spec.canonicalise(layout.unflatten(row)))))

    def canonical(rows: np.ndarray) -> np.ndarray:
        """int32[n, D], the canonical states of these; `program` is compiled for `AT_ONCE` of them."""
        batches = [rows[i : i + AT_ONCE] for i in range(0, len(rows), AT_ONCE)]
        return np.concatenate([np.asarray(program(fill_up(batch, AT_ONCE)))[: len(batch)] for batch in batches])

    return canonical


_Edge = tuple[int, int, np.ndarray]
"""A move of a worker alone: the number of its part before, the action, and its part after, not canonical."""


def _parts(
    stepper: Stepper, first: np.ndarray, entries: np.ndarray, canonical: Callable[[np.ndarray], np.ndarray]
) -> tuple[list[np.ndarray], list[_Edge]]:
    """The parts that the last worker reaches while nobody else moves, and the moves between them.

    A part is what its own entries, int[entries], have in a state; `first` is the first state, int32[D].
    """
    parts, edges = [first[entries]], []
    other_entries, worker = np.setdiff1d(np.arange(first.size), entries), stepper.specification.num_workers - 1
    for number in range(MAX_PARTS):
        if number == len(parts):
            break
        row = first.copy()
        row[entries] = parts[number]
        moves = stepper.program(row[None])
        is_own = moves.component == worker
        for after, action in zip(moves.after[is_own], moves.action[is_own], strict=True):
            canonical_after = canonical(after[None])[0]
            others_before = first[other_entries]
            others_after = after[other_entries], canonical_after[other_entries]
            if any((entries_after != others_before).any() for entries_after in others_after):
                continue
            if not any((canonical_after[entries] == part).all() for part in parts) and len(parts) < MAX_PARTS:
                parts.append(canonical_after[entries])
                edges.append((number, int(action), after[entries]))
    return parts, edges


def _moves_independently(
    stepper: Stepper, rows: np.ndarray, part_numbers: np.ndarray, own_entries: list[np.ndarray], edges: list[_Edge]
) -> bool:
    """Whether all workers can take the moves `edges` in all of these states, and these change only their own entries.

    Args:
      stepper: of the specification.
      rows: int32[n, D], the states.
      part_numbers: int[N, W], the number of the part that each worker has in each state; n <= N.
      own_entries: of each worker.
      edges: the moves of a worker alone.
    """
    moves = stepper.program(rows)
    move_numbers = {key: n for n, key in enumerate(zip(moves.state, moves.component, moves.action, strict=True))}
    for part_number, action, part_after in edges:
        for n, worker in np.argwhere(part_numbers[: len(rows)] == part_number):
            expected = rows[n].copy()
            expected[own_entries[worker]] = part_after
            index = move_numbers.get((n, worker, action))
            if index is None or (moves.after[index] != expected).any():
                return False
    return True
