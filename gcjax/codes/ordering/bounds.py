"""Lower bounds on `q_max` over all orders: upper bounds on the smallest slack (see `slack`)."""

import numpy as np

from gcjax.codes.base import Assignment, Holders
from gcjax.codes.ordering.slack import INFINITE, RemainingWork, remaining_work, slack

NUM_STEPS = 40  # in which the weights of the chunks are improved
SHARPNESS = 8.0  # of the weights at the end: a chunk with 1/8 less slack weighs e times as much
MAX_TABLE = 600  # load times holders counted, beyond which `counting_bound` is not tried
MAX_PROGRAMS = 100  # linear programs that are solved for one value of the slack
PRICE_SCALE = 10**6  # prices are rounded to multiples of 1/PRICE_SCALE and then checked in whole numbers


def min_slack_bound(assignment: Assignment, inverse: Holders, num_blocks: int) -> int:
    """No order has a smallest slack above this: the least of three bounds."""
    work = remaining_work(assignment, inverse, num_blocks)
    # Every chunk as if all its holders processed it first: no order gives it more slack.
    first_everywhere = work._replace(values=np.append(np.repeat(work.loads, assignment.load), INFINITE))
    bound = int(slack(first_everywhere).min())
    mean_bound, weights = weighted_mean_bound(assignment, work)
    bound = counting_bound(work, np.ones(weights.size, dtype=bool), num_blocks, min(bound, mean_bound))
    # Once more for the chunks that bind most, if these are not all.
    is_heavy = weights > weights.max() / 2
    return bound if is_heavy.all() else counting_bound(work, is_heavy, num_blocks, bound)


def weighted_mean_bound(assignment: Assignment, work: RemainingWork) -> tuple[int, np.ndarray]:
    """The smallest slack is at most any weighted mean of all slacks.

    The R - L + 1 smallest remaining works r of a chunk add up to at most the share (R - L + 1) / R of all of them. So
    with weights p that add up to 1, the smallest slack is at most the sum of p·share·r over all pairs of worker and
    chunk, which is largest if every worker processes its chunks by falling p·share. This holds for all weights; good
    ones are found by letting the weights and a mean over orders respond to each other (Frank and Wolfe 1956).

    Returns:
      The bound, and the weights float[N] that give it.
    """
    is_held = work.chunks < work.num_counted.size
    num_holders = np.bincount(work.chunks[is_held], minlength=work.num_counted.size)
    share = work.num_counted / num_holders
    slots = np.arange(1, assignment.load + 1)
    worker_ids = np.arange(work.loads.size)[:, None]

    def chunk_shares(values: np.ndarray) -> np.ndarray:
        """float[N]: of each chunk, the share of the sum of its remaining works `values float[W, K]`."""
        return share * np.bincount(work.chunks[is_held], weights=values[is_held], minlength=share.size)

    mean_slacks = chunk_shares(np.broadcast_to((work.loads[:, None] + 1) / 2, is_held.shape))
    bound, best_weights = np.inf, np.ones(share.size)
    for step in range(NUM_STEPS):
        weights = np.exp((mean_slacks.min() - mean_slacks) * SHARPNESS * step / NUM_STEPS)
        prices = np.where(is_held, np.append(weights * share, 0)[work.chunks], -1)
        order = np.argsort(-prices, axis=1, kind="stable")
        values = np.zeros(is_held.shape)
        values[worker_ids, order] = np.maximum(work.loads[:, None] + 1 - slots, 0)
        best_slacks = chunk_shares(values)
        weighted_mean = float(weights @ best_slacks / weights.sum())
        if weighted_mean < bound:
            bound, best_weights = weighted_mean, weights
        if mean_slacks.min() >= np.floor(bound + 1e-9):
            break  # some mean over orders is as good: no weights can lower the whole number
        mean_slacks += (best_slacks - mean_slacks) * 2 / (step + 2)
    return int(np.floor(bound + 1e-9)), best_weights


def counting_bound(work: RemainingWork, selected: np.ndarray, num_blocks: int, bound: int) -> int:
    """The largest value up to `bound` of the smallest slack that counting the remaining works does not refute.

    Only the chunks `selected` (bool[N]) are looked at. Of k remaining works that they have at a worker, the i-th
    largest is at most the load + 1 - i, and larger ones do no harm: so let them be these. A chunk with the slack t
    takes remaining works of which the `num_counted` smallest add up to at least t. Put a price on every remaining work:
    if all together cost more than the chunks could take, each with the costliest ones that give it the slack t, no
    order gives all of them the slack t. Prices come from a linear program with a row for each set of remaining works
    that a chunk can take, made when needed (Gilmore and Gomory 1961).
    """
    load = int(work.loads.max())
    if load * int(work.num_counted[selected].max()) > MAX_TABLE:
        return bound
    num_selected = np.append(selected, False)[work.chunks].sum(axis=1)[:, None]
    works, loads = np.arange(1, load + 1), work.loads[:, None]
    num_works = ((works <= loads) & (works > loads - num_selected)).sum(axis=0)
    counted_numbers, num_chunks_of_kind = np.unique(work.num_counted[selected], return_counts=True)
    low, high = -1, bound  # `low` is not refuted, above `high` all is
    middle = bound
    while low < high:
        if _is_refuted(middle, num_works, counted_numbers, num_chunks_of_kind, num_blocks):
            high = middle - 1
        else:
            low = middle
        middle = (low + high + 1) // 2
    return high


def _is_refuted(
    target: int, num_works: np.ndarray, counted_numbers: np.ndarray, num_chunks_of_kind: np.ndarray, num_blocks: int
) -> bool:
    """Whether prices prove that not all chunks can have the slack `target`.

    Args:
      target: t.
      num_works: int[K], how many remaining works of 1 ... K there are.
      counted_numbers: int[kinds], the different numbers of remaining works that count for a chunk.
      num_chunks_of_kind: int[kinds], the chunks of each kind.
      num_blocks: L.
    """
    from scipy.optimize import linprog

    load = num_works.size
    # The variables are K prices and J worths, what a chunk of each kind takes at most.
    cost = np.concatenate([-num_works, num_chunks_of_kind]) / num_chunks_of_kind.sum()
    variable_bounds = [(-1.0, 1.0)] * load + [(-float(k + num_blocks), float(k + num_blocks)) for k in counted_numbers]
    rows: list[np.ndarray] = []
    for _ in range(MAX_PROGRAMS):
        constraints = (np.array(rows), np.zeros(len(rows))) if rows else (None, None)
        solution = linprog(cost, *constraints, bounds=variable_bounds)
        if solution.x is None or solution.fun > -1e-9:
            return False
        prices = np.rint(solution.x[:load] * PRICE_SCALE).astype(np.int64)
        worths, num_taken = _costliest_sets(prices, target, int(counted_numbers.max()), num_blocks)
        kind_worths = worths[counted_numbers]  # far below 0 where no set gives the slack t
        if (kind_worths < -INFINITE // 2).any() or int(num_works @ prices) > int(num_chunks_of_kind @ kind_worths):
            return True
        violated_rows = [np.concatenate([num_taken[k], -(counted_numbers == k).astype(float)]) for k in counted_numbers]
        violated_rows = [row for row in violated_rows if row @ solution.x > 1e-9]
        if not violated_rows:
            return False
        rows += violated_rows
    return False


def _costliest_sets(
    prices: np.ndarray, target: int, max_counted: int, num_blocks: int
) -> tuple[np.ndarray, np.ndarray]:
    """The costliest remaining works with which a chunk has the slack t, by dynamic programming.

    Let V_r(j, s) be the largest price of j remaining works, none below r, that add up to at least s, together with
    L - 1 further ones that do not count: none below the largest of the j, or below r if j = 0. With the price π_r of
    the remaining work r,

        V_r(0, 0) = (L - 1) max(π_r, ..., π_K),
        V_r(j, s) = max(V_{r+1}(j, s), π_r + V_r(j - 1, max(s - r, 0)))    for j >= 1,

    and all others, V_{K+1} among them, are -infinity. What is asked for is V_1(j, t).

    Args:
      prices: int[K], π_1 ... π_K.
      target: t.
      max_counted: J, the most remaining works that count.
      num_blocks: L.

    Returns:
      `V_1(j, t)` int[max_counted + 1], and how often each remaining work is taken for it, int[max_counted + 1, K].
    """
    worth = np.full((max_counted + 1, target + 1), -INFINITE)  # V_r, for r from K down to 1
    taken = np.zeros((max_counted + 1, target + 1, prices.size), np.int32)
    sums = np.arange(target + 1)
    for r in range(prices.size, 0, -1):
        costliest = r - 1 + int(prices[r - 1 :].argmax())
        worth[0, 0] = (num_blocks - 1) * prices[costliest]
        taken[0, 0] = (num_blocks - 1) * (np.arange(prices.size) == costliest)
        missing = np.maximum(sums - r, 0)
        for j in range(1, max_counted + 1):
            worth_with_r = worth[j - 1, missing] + prices[r - 1]
            is_better = worth_with_r > worth[j]
            worth[j, is_better] = worth_with_r[is_better]
            taken[j, is_better] = taken[j - 1, missing[is_better]]
            taken[j, is_better, r - 1] += 1
    return worth[:, target], taken[:, target]
