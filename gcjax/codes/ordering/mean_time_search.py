"""A local search for the processing order with the least mean completion time over samples of the speeds.

The moves are exchanges of two chunks of a worker that bring forward a chunk which in some sample is the last to be
complete; no other exchange can lower the mean. Ties, which are many if speeds take few values, are broken by the mean
of the sum over chunks of a high power of their times, so that a worst chunk among several still counts.
"""

from typing import NamedTuple

import numpy as np

from gcjax.codes.base import Assignment, holders, numbers_in_groups

POWER = 8  # of the times, for ties
MAX_PASSES = 100  # over all moves, from each of the first orders
MAX_ORDERS = 8  # from which the search begins: the best of those given
BATCH = 2_000_000  # numbers held at a time while moves are tried


class Moves(NamedTuple):
    """Exchanges of the chunks in `early_slot[i]` and the later `late_slot[i]` of worker `worker[i]`."""

    worker: np.ndarray
    early_slot: np.ndarray
    late_slot: np.ndarray


class Search(NamedTuple):
    """What the search knows of an order; `chunks`, `slots` and `chunk_times` are changed in place.

    Attributes:
      seconds: float[W + 1, S], seconds a chunk of each worker; inf for the W-th, which is none.
      chunks: int[W, K].
      workers: int[N, R], the holders of each chunk; W where there is none.
      slots: int[N, R], where they hold it.
      chunk_times: float[N, S], when each chunk is complete.
      time_scale: float[S], the completion times of the first order, or 1 where they are 0.
      num_blocks: L.
    """

    seconds: np.ndarray
    chunks: np.ndarray
    workers: np.ndarray
    slots: np.ndarray
    chunk_times: np.ndarray
    time_scale: np.ndarray
    num_blocks: int


def completion_times(assignment: Assignment, seconds: np.ndarray, num_blocks: int) -> np.ndarray:
    """float64[S]: the completion time of an order, in each of the samples `float[S, W]` of the seconds a chunk.

    That is when the last chunk has `num_blocks` finished holders.
    """
    chunk_holders = holders(assignment)
    is_held = chunk_holders.workers >= 0
    num_chunks_until = np.maximum(chunk_holders.slots + 1, 1)  # [N, R]; 1 for no holder, whose time is inf
    times = []
    for sample_seconds in seconds:
        finish_by_holder = np.where(is_held, sample_seconds[chunk_holders.workers] * num_chunks_until, np.inf)
        chunk_times = np.partition(finish_by_holder, num_blocks - 1, axis=1)[:, num_blocks - 1]
        times.append(chunk_times.max())
    return np.array(times)


def improved_order(orders: list[Assignment], seconds: np.ndarray, *, num_blocks: int) -> Assignment:
    """The best order that the search finds, beginning with the best of the given ones.

    Args:
      orders: of one assignment.
      seconds: float[S, W], with finite completion times.
      num_blocks: L.
    """

    def mean_time(assignment: Assignment) -> float:
        """The mean completion time of an order over the samples `seconds`."""
        return float(completion_times(assignment, seconds, num_blocks).mean())

    promising = sorted(dict.fromkeys(orders), key=mean_time)[:MAX_ORDERS]
    return min((_local_optimum(order, seconds, num_blocks) for order in promising), key=mean_time)


def _local_optimum(assignment: Assignment, seconds: np.ndarray, num_blocks: int) -> Assignment:
    """The order in which no move helps any more, or the one after `MAX_PASSES`, from the order given.

    A move exchanges two chunks of a worker; `seconds` are float[S, W], samples of a worker's seconds a chunk.
    """
    search = _initial_search(assignment, seconds, num_blocks)
    for _ in range(MAX_PASSES):
        moves = _candidate_moves(search)
        latest = _latest_chunks(search)
        gains = _move_gains(search, latest, moves)
        best_first = np.lexsort((-gains[1], -gains[0]))  # by the mean time, ties by the powers
        helpful_moves = [move_id for move_id in best_first if _is_improvement(gains[:, move_id])]
        is_changed = False
        for move_id in helpful_moves:  # an earlier move may have changed what this one gains
            move = Moves(*(array[move_id : move_id + 1] for array in moves))
            if _is_improvement(_move_gains(search, latest, move)[:, 0]):
                _apply_move(search, move)
                latest, is_changed = _latest_chunks(search), True
        if not is_changed:
            break
    return assignment._replace(chunks=search.chunks)


def _is_improvement(gain: np.ndarray) -> bool:
    """Whether a move lowers the mean time, or keeps it and lowers the powers; `gain float[2]` is of `_move_gains`."""
    return bool(gain[0] > 1e-12 or (gain[0] > -1e-12 and gain[1] > 1e-9))


def _initial_search(assignment: Assignment, seconds: np.ndarray, num_blocks: int) -> Search:
    """What the search knows of the order to begin with, in the samples `float[S, W]`."""
    chunk_holders = holders(assignment)
    is_held = chunk_holders.workers >= 0
    first_completion = completion_times(assignment, seconds, num_blocks)
    num_samples = len(seconds)
    never_for_no_worker = np.full((num_samples, 1), np.inf)
    seconds_by_worker = np.append(seconds, never_for_no_worker, axis=1).T.copy()
    search = Search(
        seconds=seconds_by_worker,
        chunks=assignment.chunks.copy(),
        workers=np.where(is_held, chunk_holders.workers, assignment.num_workers),
        slots=np.where(is_held, chunk_holders.slots, 0),
        chunk_times=np.zeros((assignment.num_chunks, num_samples)),
        time_scale=np.where(first_completion > 0, first_completion, 1.0),
        num_blocks=num_blocks,
    )
    num_batches = 1 + search.chunk_times.size // BATCH  # so that few numbers are held at a time
    for chunk_ids in np.array_split(np.arange(assignment.num_chunks), num_batches):
        search.chunk_times[chunk_ids] = _chunk_times(search, chunk_ids, search.slots[chunk_ids])
    return search


def _chunk_times(search: Search, chunks: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """float[n, S]: when the given chunks are complete if they stood at the given slots int[n, R]."""
    finish_by_holder = search.seconds[search.workers[chunks]] * (slots[..., None] + 1)  # [n, R, S]; inf for no holder
    return np.partition(finish_by_holder, search.num_blocks - 1, axis=1)[:, search.num_blocks - 1]


def _candidate_moves(search: Search) -> Moves:
    """The exchanges that bring forward a chunk which is the last to be complete in some sample, to any earlier slot."""
    last_chunks = np.flatnonzero((search.chunk_times >= search.chunk_times.max(axis=0)).any(axis=1))
    chunk_index, holder_rank = np.nonzero(search.slots[last_chunks] > 0)  # where a slot comes before; 0 for no holder
    chunk = last_chunks[chunk_index]
    worker, late_slot = search.workers[chunk, holder_rank], search.slots[chunk, holder_rank]
    pair_of_move = np.repeat(np.arange(worker.size), late_slot)  # as many moves of each pair as slots come before
    return Moves(worker[pair_of_move], early_slot=numbers_in_groups(late_slot), late_slot=late_slot[pair_of_move])


def _latest_chunks(search: Search) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays [2, S]: the two chunks that are complete last, the very last first, and when they are.

    There is one row if there is one chunk.
    """
    num_latest = min(2, len(search.chunk_times))
    chunks = np.argpartition(-search.chunk_times, np.arange(num_latest), axis=0)[:num_latest]
    return chunks, np.take_along_axis(search.chunk_times, chunks, axis=0)


def _move_gains(search: Search, latest: tuple[np.ndarray, np.ndarray], moves: Moves) -> np.ndarray:
    """float[2, n]: by how much each move lowers the mean completion time (relative) and the mean sum of powers.

    Let t_c be the time in a sample at which chunk c is complete, T the largest t_c and σ the scale; t' and T' are those
    after the move. A move exchanges chunk a, which comes earlier then, with chunk b, which comes later. No other time
    changes, and `t'_b >= t_b`. So with means over the samples, the gains are

        mean(T - T') / mean(σ),    T' = max(t'_a, t'_b, the largest t_c with c != a),
        mean(sum over c in {a, b} of (t_c / σ)^POWER - (t'_c / σ)^POWER).

    Args:
      search: the present order.
      latest: what `_latest_chunks` says of it; the largest t_c with c != a is one of these two.
      moves: n moves.
    """
    max_holders, num_samples = search.slots.shape[1], search.chunk_times.shape[1]
    num_batches = 1 + moves.worker.size * max_holders * num_samples // BATCH
    gains = [np.zeros((2, 0))]
    for batch in np.array_split(np.arange(moves.worker.size), num_batches):
        gains.append(_batch_gains(search, latest, Moves(*(array[batch] for array in moves))))
    return np.concatenate(gains, axis=1)


def _batch_gains(search: Search, latest: tuple[np.ndarray, np.ndarray], moves: Moves) -> np.ndarray:
    """float[2, n]: the gains in the mean of time and of powers (`_move_gains`) of n moves; holds arrays [2, n, S]."""
    worker, early_slot, late_slot = moves
    moved_forward, moved_back = search.chunks[worker, late_slot], search.chunks[worker, early_slot]
    old_times = np.stack([search.chunk_times[moved_forward], search.chunk_times[moved_back]])
    new_forward_times = _times_after(search, worker, moved_forward, early_slot)
    new_times = np.stack([new_forward_times, _times_after(search, worker, moved_back, late_slot)])
    latest_chunks, latest_times = latest
    is_other = latest_chunks[:, None] != moved_forward[:, None]  # [2, n, S]
    latest_other_time = np.where(is_other, latest_times[:, None], 0).max(axis=0)
    new_completion = np.maximum(new_times.max(axis=0), latest_other_time)
    old_powers, new_powers = (old_times / search.time_scale) ** POWER, (new_times / search.time_scale) ** POWER
    power_gains = (old_powers - new_powers).sum(axis=0).mean(axis=-1)
    return np.stack([(latest_times[0] - new_completion).mean(axis=-1) / search.time_scale.mean(), power_gains])


def _times_after(search: Search, worker: np.ndarray, chunks: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """float[n, S]: when each of n chunks is complete if its slot at one worker were the given one.

    `worker`, `chunks` and `slots` are int[n]; at its other holders the chunk stays where it is.
    """
    return _chunk_times(
        search, chunks, np.where(search.workers[chunks] == worker[:, None], slots[:, None], search.slots[chunks])
    )


def _apply_move(search: Search, move: Moves) -> None:
    """Exchanges the two chunks of one move, in place."""
    worker, early_slot, late_slot = (int(array[0]) for array in move)
    moved_forward, moved_back = search.chunks[worker, late_slot], search.chunks[worker, early_slot]
    search.chunks[worker, early_slot], search.chunks[worker, late_slot] = moved_forward, moved_back
    for chunk, slot in ((moved_forward, early_slot), (moved_back, late_slot)):
        search.slots[chunk, search.workers[chunk] == worker] = slot
    exchanged_chunks = np.array([moved_forward, moved_back])
    search.chunk_times[exchanged_chunks] = _chunk_times(search, exchanged_chunks, search.slots[exchanged_chunks])
