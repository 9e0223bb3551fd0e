"""Lower bounds on `q_max` over all orders: upper bounds on the smallest slack (see `slack`)."""

import numpy as np

from gcjax.codes.base import Assignment, Holders
from gcjax.codes.ordering.slack import INFINITE, RemainingWork, remaining_work, slack

NUM_STEPS = 40  # in which the weights of the chunks are improved
SHARPNESS = 8.0  # of the weights at the end: a chunk with 1/8 less slack weighs e times as much
ROUNDING = 1e-9  # by which a sum of floats may miss a whole number or zero
MAX_TABLE_ENTRIES = 600  # load times holders counted, beyond which `slack_bound_by_counting` is not tried
MAX_PROGRAMS = 100  # linear programs that are solved for one value of the slack
PRICE_SCALE = 10**6  # prices are rounded to multiples of 1/PRICE_SCALE and then checked in whole numbers


def min_slack_bound(assignment: Assignment, chunk_holders: Holders, num_blocks: int) -> int:
    """No order has a smallest slack (over the chunks) above this: the least of three bounds.

    The slack of a chunk is the least work, in chunks of all workers, that is left undone while fewer than L =
    `num_blocks` holders have finished it.
    """
    work = remaining_work(assignment, chunk_holders, num_blocks)
    # Every chunk as if all its holders processed it first: no order gives it more slack.
    as_if_first_everywhere = work._replace(
        flat_remaining_work=np.append(np.repeat(work.loads, assignment.load), INFINITE)
    )
    first_bound = int(slack(as_if_first_everywhere).min())
    # The weights float[N] are large for the chunks that bind most.
    mean_bound, weights = weighted_mean_bound(assignment, work)
    all_chunks = np.ones(weights.size, dtype=bool)
    bound = slack_bound_by_counting(work, all_chunks, num_blocks, known_bound=min(first_bound, mean_bound))
    # Once more for the chunks that bind most, if these are not all.
    is_binding = weights > weights.max() / 2
    return bound if is_binding.all() else slack_bound_by_counting(work, is_binding, num_blocks, known_bound=bound)


def weighted_mean_bound(assignment: Assignment, work: RemainingWork) -> tuple[int, np.ndarray]:
    """The smallest slack is at most any weighted mean of all slacks.

    The R - L + 1 smallest remaining works r of a chunk add up to at most the share (R - L + 1) / R of all of them. So
    with weights p that add up to 1, the smallest slack is at most the sum of p·share·r over all pairs of worker and
    chunk, which is largest if every worker processes its chunks by falling p·share. This holds for all weights; good
    ones are found by letting the weights and a mean over orders respond to each other (Frank and Wolfe 1956).

    Returns:
      The bound, and the weights float[N] that give it.
    """
    is_held = work.chunks < work.num_slack_terms.size  # bool[W, K]; N stands for no chunk
    num_holders = np.bincount(work.chunks[is_held], minlength=work.num_slack_terms.size)
    counted_share = work.num_slack_terms / num_holders  # float[N], (R - L + 1) / R
    positions = np.arange(1, assignment.load + 1)
    worker_ids = np.arange(work.loads.size)[:, None]

    def slack_bounds(remaining_works: np.ndarray) -> np.ndarray:
        """float[N]: at least the slack of each chunk: `counted_share`, (R - L + 1) / R, of its remaining works' sum.

        `remaining_works float[W, K]` are those of `work.chunks int[W, K]`, where there is one: `is_held`.
        """
        sums = np.bincount(work.chunks[is_held], weights=remaining_works[is_held], minlength=counted_share.size)
        return counted_share * sums

    mean_remaining_work = np.broadcast_to((work.loads[:, None] + 1) / 2, is_held.shape)
    mean_over_orders = slack_bounds(mean_remaining_work)
    bound, best_weights = np.inf, np.ones(counted_share.size)
    for step in range(NUM_STEPS):
        weights = np.exp((mean_over_orders.min() - mean_over_orders) * SHARPNESS * step / NUM_STEPS)
        price_of_chunk_or_none = np.append(weights * counted_share, 0)
        prices = np.where(is_held, price_of_chunk_or_none[work.chunks], -1)  # [W, K]; slots without a chunk come last
        by_falling_price = np.argsort(-prices, axis=1, kind="stable")
        best_works = np.zeros(is_held.shape)
        best_works[worker_ids, by_falling_price] = np.maximum(work.loads[:, None] + 1 - positions, 0)
        best_order_bounds = slack_bounds(best_works)
        weighted_mean = float(weights @ best_order_bounds / weights.sum())
        if weighted_mean < bound:
            bound, best_weights = weighted_mean, weights
        whole_bound = np.floor(bound + ROUNDING)
        is_as_good_as_a_mean_over_orders = mean_over_orders.min() >= whole_bound
        if is_as_good_as_a_mean_over_orders:
            break  # no weights can lower the whole number
        mean_over_orders += (best_order_bounds - mean_over_orders) * 2 / (step + 2)  # the step of Frank and Wolfe
    return int(np.floor(bound + ROUNDING)), best_weights


def slack_bound_by_counting(work: RemainingWork, selected: np.ndarray, num_blocks: int, known_bound: int) -> int:
    """The largest value up to `known_bound` of the smallest slack that counting the remaining works does not refute.

    Only the chunks `selected` (bool[N]) are looked at. Of k remaining works that they have at a worker, the i-th
    largest is at most the load + 1 - i, and larger ones do no harm: so let them be these. A chunk with the slack t
    takes remaining works of which the `num_slack_terms` smallest add up to at least t. Put a price on every remaining
    work: if all together cost more than the chunks could take, each with the costliest ones that give it the slack t,
    no order gives all of them the slack t. Prices come from a linear program with a row for each set of remaining works
    that a chunk can take, made when needed (Gilmore and Gomory 1961).
    """
    load = int(work.loads.max())
    if load * int(work.num_slack_terms[selected].max()) > MAX_TABLE_ENTRIES:
        return known_bound
    is_selected_chunk_or_none = np.append(selected, False)
    num_selected = is_selected_chunk_or_none[work.chunks].sum(axis=1)[:, None]  # of each worker
    work_values, loads = np.arange(1, load + 1), work.loads[:, None]
    num_of_each_work = ((work_values <= loads) & (work_values > loads - num_selected)).sum(axis=0)
    num_slack_terms_of_kind, num_chunks_of_kind = np.unique(work.num_slack_terms[selected], return_counts=True)
    largest_possible, upper_bound = -1, known_bound  # what is above `upper_bound` is refuted; no slack is below 0
    target_slack = known_bound
    while largest_possible < upper_bound:
        if _slack_is_impossible(
            target_slack, num_of_each_work, num_slack_terms_of_kind, num_chunks_of_kind, num_blocks
        ):
            upper_bound = target_slack - 1
        else:
            largest_possible = target_slack
        target_slack = (largest_possible + upper_bound + 1) // 2
    return upper_bound


def _slack_is_impossible(
    target: int,
    num_of_each_work: np.ndarray,
    num_slack_terms_of_kind: np.ndarray,
    num_chunks_of_kind: np.ndarray,
    num_blocks: int,
) -> bool:
    """Whether prices prove that not all chunks can have the slack `target`.

    Args:
      target: t.
      num_of_each_work: int[K], how many remaining works of 1 ... K there are.
      num_slack_terms_of_kind: int[kinds], the different numbers of remaining works that count for a chunk.
      num_chunks_of_kind: int[kinds], the chunks of each kind.
      num_blocks: L.
    """
    from scipy.optimize import linprog

    load = num_of_each_work.size
    # The variables are K prices and J worths, what a chunk of each of the J kinds takes at most.
    cost = np.concatenate([-num_of_each_work, num_chunks_of_kind]) / num_chunks_of_kind.sum()
    max_worths = [float(num_slack_terms + num_blocks) for num_slack_terms in num_slack_terms_of_kind]
    variable_bounds = [(-1.0, 1.0)] * load + [(-max_worth, max_worth) for max_worth in max_worths]
    set_rows: list[np.ndarray] = []  # float[K + J] each: the price of a set less the worth of its kind is at most 0
    for _ in range(MAX_PROGRAMS):
        constraints = (np.array(set_rows), np.zeros(len(set_rows))) if set_rows else (None, None)
        solution = linprog(cost, *constraints, bounds=variable_bounds)
        if solution.x is None or solution.fun > -ROUNDING:
            return False
        whole_prices = np.rint(solution.x[:load] * PRICE_SCALE).astype(np.int64)
        worths, num_taken = _costliest_sets(whole_prices, target, int(num_slack_terms_of_kind.max()), num_blocks)
        kind_worths = worths[num_slack_terms_of_kind]
        is_impossible = (kind_worths < -INFINITE // 2).any()  # no set gives the slack t
        if is_impossible or int(num_of_each_work @ whole_prices) > int(num_chunks_of_kind @ kind_worths):
            return True
        costliest_rows = [
            np.concatenate([num_taken[num_slack_terms], -(num_slack_terms_of_kind == num_slack_terms).astype(float)])
            for num_slack_terms in num_slack_terms_of_kind
        ]
        violated_rows = [row for row in costliest_rows if row @ solution.x > ROUNDING]
        if not violated_rows:
            return False
        set_rows += violated_rows
    return False


def _costliest_sets(
    prices: np.ndarray, target: int, max_slack_terms: int, num_blocks: int
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
      max_slack_terms: J, the most remaining works that count.
      num_blocks: L.

    Returns:
      `V_1(j, t)` int[J + 1], and how often each remaining work is taken for it, int[J + 1, K].
    """
    largest_price = np.full((max_slack_terms + 1, target + 1), -INFINITE)  # V_r(j, s), for r from K down to 1
    num_taken = np.zeros((max_slack_terms + 1, target + 1, prices.size), np.int32)
    needed_sums = np.arange(target + 1)
    for work in range(prices.size, 0, -1):
        costliest_from_here = work - 1 + int(prices[work - 1 :].argmax())
        largest_price[0, 0] = (num_blocks - 1) * prices[costliest_from_here]
        num_taken[0, 0] = (num_blocks - 1) * (np.arange(prices.size) == costliest_from_here)
        sum_still_needed = np.maximum(needed_sums - work, 0)
        for num_slack_terms in range(1, max_slack_terms + 1):
            price_with_work = largest_price[num_slack_terms - 1, sum_still_needed] + prices[work - 1]
            is_better = price_with_work > largest_price[num_slack_terms]
            largest_price[num_slack_terms, is_better] = price_with_work[is_better]
            num_taken[num_slack_terms, is_better] = num_taken[num_slack_terms - 1, sum_still_needed[is_better]]
            num_taken[num_slack_terms, is_better, work - 1] += 1
    return largest_price[:, target], num_taken[:, target]
