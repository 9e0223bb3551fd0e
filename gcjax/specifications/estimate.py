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

from gcjax.specifications.moves import Stepper, frame_entries, padded_to
from gcjax.specifications.reachability import MAX_STATES

MAX_WORKER_STATES = 32
"""The most states of a worker that are looked for."""
NUM_SAMPLES = 4096
"""Random states on which it is tried whether moves depend on others."""
NUM_DEVIATIONS = 4
"""Standard deviations by which the estimated share of canonical states is lowered."""
ROWS_AT_ONCE = 64
"""States that are made canonical at once."""


class LowerBound(NamedTuple):
    """How many states there are at least.

    Attributes:
      states: of all workers together, c^W times the estimated share of canonical ones.
      worker_states: c, the states of each worker by itself; at most `MAX_WORKER_STATES` are looked for.
    """

    states: float
    worker_states: int


_NOTHING_KNOWN = LowerBound(states=1.0, worker_states=1)


def check_size(stepper: Stepper) -> None:
    """Raises a `ValueError` if there are too many states to explore, as far as that is known before."""
    if math.prod(stepper.layout.sizes.tolist()) <= MAX_STATES:
        return
    bound = min_states(stepper)
    if bound.states > MAX_STATES:
        max_workers = int(math.log(MAX_STATES) / math.log(bound.worker_states))
        raise ValueError(
            f"{stepper.specification.name} must have at most {MAX_STATES} states that can be reached; it has "
            f"{bound.states:.2g} or more, for each worker has {bound.worker_states} by itself. At most "
            f"{max_workers} workers can fit. Use fewer, or smaller parameters."
        )


def min_states(stepper: Stepper) -> LowerBound:
    """The states that there are at least, estimated by random samples; 1 where workers wait for each other.

    A row int32[D] is a state as one array; `own_entries[w]` are the places that worker w may change.
    """
    spec, layout = stepper.specification, stepper.layout
    own_entries = [np.flatnonzero(frame_entries(layout, spec.worker, w)) for w in range(spec.num_workers)]
    if len({len(entries) for entries in own_entries}) > 1 or spec.num_workers < 2:
        return _NOTHING_KNOWN
    canonical = _canonical_rows(stepper)
    initial_row = canonical(np.concatenate([np.ravel(x) for x in spec.initial]).astype(np.int32)[None])[0]
    # A worker's state is what its own entries have in a state of all; its moves go from one to another. Those of the
    # last worker are found here, and tried with all of them below.
    worker_states, worker_moves = _worker_states(stepper, initial_row, own_entries[-1], canonical)
    state_numbers = np.random.default_rng(0).integers(len(worker_states), size=(NUM_SAMPLES, spec.num_workers))
    # Random states: a random one of its states for each worker.
    rows = np.broadcast_to(initial_row, (NUM_SAMPLES, initial_row.size)).copy()
    for worker, entries in enumerate(own_entries):
        rows[:, entries] = np.asarray(worker_states)[state_numbers[:, worker]]
    if not _moves_independently(stepper, rows[: stepper.states_at_once], state_numbers, own_entries, worker_moves):
        return _NOTHING_KNOWN
    # Different rows are different states if they stay as they are when made canonical; the share of such rows is
    # estimated, less `NUM_DEVIATIONS` standard deviations.
    num_canonical = int((canonical(rows) == rows).all(axis=1).sum())
    standard_deviation = num_canonical**0.5
    min_share = max(num_canonical - NUM_DEVIATIONS * standard_deviation, 0) / NUM_SAMPLES
    num_combinations = float(len(worker_states)) ** spec.num_workers
    return LowerBound(states=min_share * num_combinations, worker_states=len(worker_states))


def _canonical_rows(stepper: Stepper) -> Callable[[np.ndarray], np.ndarray]:
    """The function that makes rows int32[n, D] canonical, `ROWS_AT_ONCE` at a time, so that one program is compiled."""
    spec, layout = stepper.specification, stepper.layout
    program = jax.jit(jax.vmap(lambda row: layout.flatten(spec.canonicalise(layout.unflatten(row)))))

    def canonical(rows: np.ndarray) -> np.ndarray:
        """int32[n, D], the canonical states of these; `program` is compiled for `ROWS_AT_ONCE` of them."""
        batches = [rows[i : i + ROWS_AT_ONCE] for i in range(0, len(rows), ROWS_AT_ONCE)]
        return np.concatenate([np.asarray(program(padded_to(batch, ROWS_AT_ONCE)))[: len(batch)] for batch in batches])

    return canonical


_WorkerMove = tuple[int, int, np.ndarray]
"""A move of a worker alone: the number of its state before, the action, and its state after, not canonical."""


def _worker_states(
    stepper: Stepper, initial_row: np.ndarray, own_entries: np.ndarray, canonical: Callable[[np.ndarray], np.ndarray]
) -> tuple[list[np.ndarray], list[_WorkerMove]]:
    """The states that the last worker reaches while nobody else moves, and the moves between them.

    Its state is what its own entries, int[entries], have in a state of all; `initial_row` is the first one, int32[D].
    A move is (number of the state before, action, own entries after); only those that lead to a new state are kept.
    """
    worker_states, worker_moves = [initial_row[own_entries]], []
    other_entries = np.setdiff1d(np.arange(initial_row.size), own_entries)
    last_worker = stepper.specification.num_workers - 1
    for state_number in range(MAX_WORKER_STATES):
        if state_number == len(worker_states):
            break
        row = initial_row.copy()
        row[own_entries] = worker_states[state_number]
        moves = stepper.moves_of_all(row[None])
        is_own = moves.component == last_worker
        for after, action in zip(moves.after[is_own], moves.action[is_own], strict=True):
            canonical_after = canonical(after[None])[0]
            # A move that changes what is of others, or how it is counted in canonical states, is left out.
            others_before = initial_row[other_entries]
            others_after = after[other_entries], canonical_after[other_entries]
            if any((entries_after != others_before).any() for entries_after in others_after):
                continue
            is_known = any((canonical_after[own_entries] == known_state).all() for known_state in worker_states)
            if not is_known and len(worker_states) < MAX_WORKER_STATES:
                worker_states.append(canonical_after[own_entries])
                worker_moves.append((state_number, int(action), after[own_entries]))
    return worker_states, worker_moves


def _moves_independently(
    stepper: Stepper,
    rows: np.ndarray,
    state_numbers: np.ndarray,
    own_entries: list[np.ndarray],
    worker_moves: list[_WorkerMove],
) -> bool:
    """Whether all workers can take these moves in all of these states, and they change only their own entries.

    Args:
      stepper: of the specification.
      rows: int32[n, D], the states.
      state_numbers: int[N, W], the number of the state that each worker has in each row; n <= N.
      own_entries: of each worker.
      worker_moves: the moves of a worker alone.
    """
    moves = stepper.moves_of_all(rows)
    keys = zip(moves.state, moves.component, moves.action, strict=True)
    index_of_move = {key: move_index for move_index, key in enumerate(keys)}
    for state_before, action, entries_after in worker_moves:
        for row_number, worker in np.argwhere(state_numbers[: len(rows)] == state_before):
            expected_row = rows[row_number].copy()
            expected_row[own_entries[worker]] = entries_after
            move_index = index_of_move.get((row_number, worker, action))
            if move_index is None or (moves.after[move_index] != expected_row).any():
                return False
    return True
