"""A local search for the processing order with the least mean completion time over samples of the speeds.

The moves are exchanges of two chunks of a worker that bring forward a chunk which in some sample is the last to be
complete; no other exchange can lower the mean. Ties, which are many if speeds take few values, are broken by the mean
of the sum over chunks of a high power of their times, so that a worst chunk among several still counts.
"""

from typing import NamedTuple

import numpy as np

from gcjax.codes.base import Assignment, holders

POWER = 8  # of the times, for ties
PASSES = 100  # over all moves, from each start
STARTS = 8  # from which the search begins: the best of those given
BATCH = 2_000_000  # numbers held at a time while moves are tried


class Moves(NamedTuple):
    """Exchanges of entries `early[i]` and `late[i]` of the chunk table of worker `worker[i]`, early < late."""

    worker: np.ndarray
    early: np.ndarray
    late: np.ndarray


class Search(NamedTuple):
    """What the search knows of an order; `chunks`, `slots` and `times` are changed in place.

    Attributes:
      seconds: float[W + 1, S], seconds a chunk of each worker; inf for the padding.
      chunks: int[W, K].
      workers: int[N, R], the holders of each chunk, padded with W.
      slots: int[N, R], where they hold it.
      times: float[N, S], when each chunk is complete.
      scale: float[S], the completion times of the start, or 1 where they are 0.
      copies: L.
    """

    seconds: np.ndarray
    chunks: np.ndarray
    workers: np.ndarray
    slots: np.ndarray
    times: np.ndarray
    scale: np.ndarray
    copies: int


def completion_times(assignment: Assignment, seconds: np.ndarray, copies: int) -> np.ndarray:
    """float64[S]: the completion time of an order in each of the samples `float[S, W]`."""
    inverse = holders(assignment)
    held = inverse.workers >= 0
    times = []
    for row in seconds:
        finish = np.where(held, row[inverse.workers] * np.maximum(inverse.slots + 1, 1), np.inf)
        times.append(np.partition(finish, copies - 1, axis=1)[:, copies - 1].max())
    return np.array(times)


def improve(starts: list[Assignment], seconds: np.ndarray, *, copies: int) -> Assignment:
    """The best order that the search finds from the best of the starts.

    Args:
      starts: orders of one assignment.
      seconds: float[S, W], with finite completion times.
      copies: L.
    """

    def mean(assignment: Assignment) -> float:
        return float(completion_times(assignment, seconds, copies).mean())

    promising = sorted(dict.fromkeys(starts), key=mean)[:STARTS]
    return min((_local_optimum(start, seconds, copies) for start in promising), key=mean)


def _local_optimum(assignment: Assignment, seconds: np.ndarray, copies: int) -> Assignment:
    search = _begin(assignment, seconds, copies)
    for _ in range(PASSES):
        moves = _moves(search)
        latest = _latest(search)
        gains = _gains(search, latest, moves)
        helpful = [i for i in np.lexsort((-gains[1], -gains[0])) if _helps(gains[:, i])]
        changed = False
        for i in helpful:  # an earlier move may have changed what this one gains
            move = Moves(*(part[i : i + 1] for part in moves))
            if _helps(_gains(search, latest, move)[:, 0]):
                _apply(search, move)
                latest, changed = _latest(search), True
        if not changed:
            break
    return assignment._replace(chunks=search.chunks)


def _helps(gain: np.ndarray) -> bool:
    return bool(gain[0] > 1e-12 or (gain[0] > -1e-12 and gain[1] > 1e-9))


def _begin(assignment: Assignment, seconds: np.ndarray, copies: int) -> Search:
    inverse = holders(assignment)
    held = inverse.workers >= 0
    scale = completion_times(assignment, seconds, copies)
    search = Search(
        seconds=np.append(seconds, np.full((len(seconds), 1), np.inf), axis=1).T.copy(),
        chunks=assignment.chunks.copy(),
        workers=np.where(held, inverse.workers, assignment.num_workers),
        slots=np.where(held, inverse.slots, 0),
        times=np.zeros((assignment.num_chunks, len(seconds))),
        scale=np.where(scale > 0, scale, 1.0),
        copies=copies,
    )
    for part in np.array_split(np.arange(assignment.num_chunks), 1 + search.times.size // BATCH):
        search.times[part] = _times(search, part, search.slots[part])
    return search


def _times(search: Search, chunks: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """float[n, S]: when the given chunks are complete if they stood at the given slots int[n, R]."""
    finish = search.seconds[search.workers[chunks]] * (slots[..., None] + 1)
    return np.partition(finish, search.copies - 1, axis=1)[:, search.copies - 1]


def _moves(search: Search) -> Moves:
    """The exchanges that bring forward a chunk which is the last to be complete in some sample."""
    last = np.flatnonzero((search.times >= search.times.max(axis=0)).any(axis=1))
    row, column = np.nonzero(search.slots[last] > 0)
    worker, late = search.workers[last[row], column], search.slots[last[row], column]
    moves = np.repeat(np.arange(worker.size), late)
    early = np.arange(moves.size) - np.repeat(np.cumsum(late) - late, late)
    return Moves(worker[moves], early, late[moves])


def _latest(search: Search) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays [2, S]: the two chunks that are complete last, the very last first, and when they are.

    There is one row if there is one chunk.
    """
    few = min(2, len(search.times))
    chunks = np.argpartition(-search.times, np.arange(few), axis=0)[:few]
    return chunks, np.take_along_axis(search.times, chunks, axis=0)


def _gains(search: Search, latest: tuple[np.ndarray, np.ndarray], moves: Moves) -> np.ndarray:
    """float[2, n]: by how much each move lowers the mean completion time (relative) and the sum of powers."""
    times, (top, highest) = search.times, latest
    batches = 1 + moves.worker.size * search.slots.shape[1] * times.shape[1] // BATCH
    gains = [np.zeros((2, 0))]
    for part in np.array_split(np.arange(moves.worker.size), batches):
        worker, early, late = (values[part] for values in moves)
        ahead, back = search.chunks[worker, late], search.chunks[worker, early]
        new = np.stack(
            [
                _times(
                    search,
                    chunk,
                    np.where(search.workers[chunk] == worker[:, None], slot[:, None], search.slots[chunk]),
                )
                for chunk, slot in ((ahead, early), (back, late))
            ]
        )
        others = top[:, None] != ahead[:, None]  # [2, n, S]; the chunk that goes back only gets later
        largest = np.maximum(new.max(axis=0), np.where(others, highest[:, None], 0).max(axis=0))
        old = np.stack([times[ahead], times[back]])
        powers = ((old / search.scale) ** POWER - (new / search.scale) ** POWER).sum(axis=0).mean(axis=-1)
        gains.append(np.stack([(highest[0] - largest).mean(axis=-1) / search.scale.mean(), powers]))
    return np.concatenate(gains, axis=1)


def _apply(search: Search, move: Moves) -> None:
    worker, early, late = (int(part[0]) for part in move)
    ahead, back = search.chunks[worker, late], search.chunks[worker, early]
    search.chunks[worker, early], search.chunks[worker, late] = ahead, back
    for chunk, slot in ((ahead, early), (back, late)):
        search.slots[chunk, search.workers[chunk] == worker] = slot
    both = np.array([ahead, back])
    search.times[both] = _times(search, both, search.slots[both])
