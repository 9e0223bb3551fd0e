"""Lower bounds on `q_max` over all orders: upper bounds on the smallest slack (see `slack`)."""

import numpy as np

from gcjax.codes.base import Assignment, Holders
from gcjax.codes.processing_order.slack import FAR, Rests, rests_of, spare

ROUNDS = 40  # in which the weights of the chunks are improved
SHARPNESS = 8.0  # of the weights at the end: a chunk with 1/8 less spare weighs e times as much
LARGEST_TABLE = 600  # load times holders counted, beyond which `by_counting` is not tried
CUTS = 100  # linear programs that it solves at most for one value
SCALE = 10**6  # its prices are rounded to multiples of 1/SCALE and then checked in whole numbers


def largest_smallest_spare(assignment: Assignment, inverse: Holders, copies: int) -> int:
    """No order has a smallest spare above this: the least of three bounds."""
    rests = rests_of(assignment, inverse, copies)
    first = rests._replace(values=np.append(np.repeat(rests.loads, assignment.load), FAR))
    bound = int(spare(first).min())  # every chunk first at all its holders
    mean, weights = by_weights(assignment, rests)
    bound = by_counting(rests, np.ones(weights.size, dtype=bool), copies, min(bound, mean))
    heavy = weights > weights.max() / 2
    return bound if heavy.all() else by_counting(rests, heavy, copies, bound)


def by_weights(assignment: Assignment, rests: Rests) -> tuple[int, np.ndarray]:
    """The smallest spare is at most any weighted mean of all spares.

    The R - L + 1 smallest rests of a chunk add up to at most the share (R - L + 1) / R of all its rests. So with
    weights p that add up to 1, the smallest spare is at most the sum of p·share·rest over all pairs of worker and
    chunk, which is largest if every worker processes its chunks by falling p·share. This holds for all weights; good
    ones are found by letting the weights and a mean over orders respond to each other (Frank and Wolfe 1956).

    Returns:
      The bound, and the weights float[N] that give it.
    """
    held = rests.chunks < rests.counted.size
    counts = np.bincount(rests.chunks[held], minlength=rests.counted.size)
    share = rests.counted / counts
    slots = np.arange(1, assignment.load + 1)
    rows = np.arange(rests.loads.size)[:, None]

    def added_up(values: np.ndarray) -> np.ndarray:
        return share * np.bincount(rests.chunks[held], weights=values[held], minlength=share.size)

    mean = added_up(np.broadcast_to((rests.loads[:, None] + 1) / 2, held.shape))
    bound, chosen = np.inf, np.ones(share.size)
    for step in range(ROUNDS):
        weights = np.exp((mean.min() - mean) * SHARPNESS * step / ROUNDS)
        prices = np.where(held, np.append(weights * share, 0)[rests.chunks], -1)
        order = np.argsort(-prices, axis=1, kind="stable")
        values = np.zeros(held.shape)
        values[rows, order] = np.maximum(rests.loads[:, None] + 1 - slots, 0)
        best = added_up(values)
        value = float(weights @ best / weights.sum())
        if value < bound:
            bound, chosen = value, weights
        if mean.min() >= np.floor(bound + 1e-9):
            break  # some mean over orders is as good: no weights can lower the whole number
        mean += (best - mean) * 2 / (step + 2)
    return int(np.floor(bound + 1e-9)), chosen


def by_counting(rests: Rests, some: np.ndarray, copies: int, bound: int) -> int:
    """The largest value up to `bound` of the smallest spare that counting the rests does not refute.

    Only the chunks `some` (bool[N]) are looked at. Of k rests that they have at a worker, the i-th largest is at most
    the load + 1 - i, and larger ones do no harm: so let them be these. A chunk with the spare t takes rests of which
    the `counted` smallest add up to at least t. Put a price on every rest: if all rests together cost more than the
    chunks could take, each with the dearest rests for which it has the spare t, no order gives all of them the spare
    t. Prices come from a linear program with a row for each set of rests that a chunk can take, made when needed
    (Gilmore and Gomory 1961).
    """
    load = int(rests.loads.max())
    if load * int(rests.counted[some].max()) > LARGEST_TABLE:
        return bound
    number = np.append(some, False)[rests.chunks].sum(axis=1)[:, None]
    sizes, loads = np.arange(1, load + 1), rests.loads[:, None]
    supply = ((sizes <= loads) & (sizes > loads - number)).sum(axis=0)
    kinds, numbers = np.unique(rests.counted[some], return_counts=True)
    low, high = -1, bound  # `low` is not refuted, above `high` all is
    middle = bound
    while low < high:
        if _refuted(middle, supply, kinds, numbers, copies):
            high = middle - 1
        else:
            low = middle
        middle = (low + high + 1) // 2
    return high


def _refuted(value: int, supply: np.ndarray, kinds: np.ndarray, numbers: np.ndarray, copies: int) -> bool:
    """Whether prices prove that not all chunks can have the spare `value`."""
    from scipy.optimize import linprog

    load, chunks = supply.size, numbers.sum()
    cost = np.concatenate([-supply, numbers]) / chunks
    limits = [(-1.0, 1.0)] * load + [(-float(k + copies), float(k + copies)) for k in kinds]
    rows: list[np.ndarray] = []
    for _ in range(CUTS):
        solved = linprog(cost, np.array(rows) if rows else None, np.zeros(len(rows)) if rows else None, bounds=limits)
        if solved.x is None or solved.fun > -1e-9:
            return False
        prices = np.rint(solved.x[:load] * SCALE).astype(np.int64)
        worth, taken = _dearest(prices, value, int(kinds.max()), copies)
        if (worth[kinds] < -FAR // 2).any() or int(supply @ prices) > int(numbers @ worth[kinds]):
            return True
        new = [np.concatenate([taken[k], -(kinds == k).astype(float)]) for k in kinds]
        new = [row for row in new if row @ solved.x > 1e-9]
        if not new:
            return False
        rows += new
    return False


def _dearest(prices: np.ndarray, value: int, counted: int, copies: int) -> tuple[np.ndarray, np.ndarray]:
    """The dearest rests with which a chunk has the spare `value`.

    Args:
      prices: int[K], of the rests 1 ... K.
      value: t.
      counted: the most holders that count.
      copies: L; L - 1 further rests are none of them smaller than those that count.

    Returns:
      int[counted + 1] prices and int[counted + 1, K] rests taken, by the number of holders that count.
    """
    worth = np.full((counted + 1, value + 1), -FAR)  # by the rests still to be taken and what they must add up to
    taken = np.zeros((counted + 1, value + 1, prices.size), np.int32)
    for rest in range(prices.size, 0, -1):
        top = rest - 1 + int(prices[rest - 1 :].argmax())
        worth[0, 0] = (copies - 1) * prices[top]
        taken[0, 0] = (copies - 1) * (np.arange(prices.size) == top)
        needed = np.maximum(np.arange(value + 1) - rest, 0)
        for j in range(1, counted + 1):
            with_rest = worth[j - 1, needed] + prices[rest - 1]
            better = with_rest > worth[j]
            worth[j, better] = with_rest[better]
            taken[j, better] = taken[j - 1, needed[better]]
            taken[j, better, rest - 1] += 1
    return worth[:, value], taken[:, value]
