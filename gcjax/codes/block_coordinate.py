"""Block coordinate gradient coding (Wang, Cui, Li, Zou, Xiong 2022, arXiv 2206.02450).

Parts of the gradient have redundancies of their own, s_0 <= s_1 <= ... A worker computes the first part on s_0 + 1
chunks and sends their combination, then the second on s_1 + 1 chunks, and so on. What a slow worker gets to first needs
nearly everybody, what it may never get to needs few: so the work of partial stragglers counts.

From the paper: the parts, their order, the time of a round, and the sizes that a closed form gives. Ours: the parts are
the L equal blocks of a gradient, several of which may have the same redundancy, so that the sizes of the paper are
rounded to multiples of d/L.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.assignments.proportional import rounded_by_largest_remainders
from gcjax.codes.base import Assignment, Coding, GradientCode, check_progress, key_with
from gcjax.codes.completion import joint_code
from gcjax.codes.replication import cyclic_repetition
from gcjax.equality import comparable


@comparable
def block_coordinate(num_workers: int, *, redundancies: Sequence[int], rng_key: jax.Array) -> GradientCode:
    """Blocks of the gradient with redundancies of their own: block b decodes from any n - s_b workers.

    N = W; L = M, the number of blocks; K = sum of all s_b + 1. One unit of work is one block of the gradient on one
    chunk, so it takes 1/L of the time of a chunk (`gcjax.stragglers.scaled`): a chunk stands in the assignment once for
    each block that a worker computes of it. Message b is sent when block b is done on s_b + 1 chunks; it is that of a
    cyclic repetition code (Tandon et al. 2017) with s_b stragglers. If worker w takes t_w a unit, a round takes
    `max over b of t_(n - s_b) * sum over i <= b of (s_i + 1)`, with t_(k) the k-th smallest of the t_w.

    Args:
      num_workers: n = W = N.
      redundancies: s_b for each of the L blocks, not decreasing, which loses nothing (Wang et al. 2022); see
        `gcjax.codes.block_redundancies`.
      rng_key: draws the codes of the redundancies.

    Raises:
      ValueError: if a redundancy is not below n, or they decrease.

    Example:
      >>> code = gcjax.codes.block_coordinate(3, redundancies=(0, 1), rng_key=jax.random.key(0))
      >>> code.assignment.chunks.tolist()  # block 0 on one chunk, block 1 on two
      [[0, 0, 1], [1, 1, 2], [2, 2, 0]]
      >>> bool(code.plan([3, 3, 1]).residual < 1e-6)  # the third worker has only done block 0
      True
    """
    redundancy_of_block = _valid_redundancies(redundancies, num_workers)
    num_blocks, block_ids = len(redundancy_of_block), np.arange(len(redundancy_of_block), dtype=np.int32)
    code_of_redundancy = {
        int(redundancy): cyclic_repetition(
            num_workers,
            num_stragglers=int(redundancy),
            rng_key=key_with(rng_key, redundancy),
        )
        for redundancy in np.unique(redundancy_of_block)
    }
    assignment = Assignment(
        np.concatenate(
            [code_of_redundancy[redundancy].assignment.chunks for redundancy in redundancy_of_block.tolist()], axis=1
        ),
        num_workers,
    )
    units_until_block_end = np.cumsum(redundancy_of_block + 1, dtype=np.int32)  # units that are done when a block is

    def plan(progress: jax.Array) -> Coding:
        """The plans of all blocks, each by the code of its redundancy; their squared residuals add up.

        Message b is of block b alone, of the chunks in the s_b + 1 slots before slot `units_until_block_end[b]`: encode
        float[W, L, K, L] and decode float[W, L, L], M = L, are 0 elsewhere. s_b is `redundancy_of_block[b]`. Progress
        is in units of work, a block of a chunk each.
        """
        progress = check_progress(assignment, progress)
        encode = jnp.zeros((num_workers, num_blocks, assignment.load, num_blocks), jnp.result_type(float))
        decode = jnp.zeros((num_workers, num_blocks, num_blocks), jnp.result_type(float))
        squared_residual = jnp.zeros((), jnp.result_type(float))
        for redundancy, code in code_of_redundancy.items():
            blocks_of_code = block_ids[redundancy_of_block == redundancy]
            block_ends = units_until_block_end[blocks_of_code, None]  # [blocks of the code, 1]
            is_block_done = progress[None] >= jnp.asarray(block_ends, jnp.int32)  # bool[blocks of the code, W]
            plans = jax.lax.map(code.plan, jnp.where(is_block_done, redundancy + 1, 0))
            slots = block_ends - (redundancy + 1) + np.arange(redundancy + 1, dtype=np.int32)
            # The code has one message and one block: [blocks of the code, W, 1, s + 1, 1] and, of decode, [..., 1, 1].
            encode = encode.at[:, blocks_of_code[:, None], slots, blocks_of_code[:, None]].set(
                jnp.moveaxis(plans.encode[:, :, 0, :, 0], 0, 1)
            )
            decode = decode.at[:, blocks_of_code, blocks_of_code].set(plans.decode[:, :, 0, 0].T)
            squared_residual = squared_residual + (plans.residual**2).sum()
        return Coding(encode, decode, jnp.sqrt(squared_residual))

    def last_part_completion(finish: jax.Array) -> jax.Array:
        """float[]: when the last block b is sent by the n - s_b workers it needs, of n = W, from `finish float[W, K]`.

        s_b is `redundancy_of_block[b]`; a block is sent with its last unit, in slot `units_until_block_end - 1`.
        """
        sent_times = jnp.sort(finish[:, units_until_block_end - 1], axis=0)  # [W, L]
        return sent_times[num_workers - 1 - redundancy_of_block, block_ids].max()

    def sent(progress: jax.Array) -> jax.Array:
        """bool[W, M]: message b is sent once block b is done on all its chunks."""
        return check_progress(assignment, progress)[:, None] >= jnp.asarray(units_until_block_end[None], jnp.int32)

    return joint_code(
        assignment, num_blocks, num_blocks, plan, last_part_completion=last_part_completion, sent=sent, stays_exact=True
    )


def block_redundancies(order_seconds: Sequence[float], *, num_blocks: int) -> tuple[int, ...]:
    """Redundancies of L blocks that suit the times of the workers: the closed form of Wang et al. 2022.

    If the k-th fastest worker took exactly t_k a unit, the round would be shortest with blocks that all decode at the
    same moment: a share of the gradient in proportion to `1 / t_n` with s = 0, and to
    `(1 / t_(n-s) - 1 / t_(n-s+1)) / (s + 1)` with s = 1, ..., n - 1. Shares are rounded to whole blocks by the largest
    remainders (ours). For random times the paper takes for t_k their means, or one over the mean of their inverses: two
    approximations of the sizes that are best on average.

    Args:
      order_seconds: float[W], t_1 <= ... <= t_n, above 0; inf for workers that never send. See
        `gcjax.codes.shifted_exponential_order_seconds`.
      num_blocks: L.

    Returns:
      s_b for each block, not decreasing.

    Raises:
      ValueError: if times are not above 0, decrease, or are all infinite.

    Example:
      >>> gcjax.codes.block_redundancies([1.0, 2.0, 6.0], num_blocks=8)  # shares 1/6, 1/6 and 1/6 before scaling
      (0, 0, 0, 1, 1, 1, 2, 2)
    """
    seconds = np.asarray(_validate.number("order_seconds", order_seconds, above=True), np.float64)
    num_blocks = _validate.integer("num_blocks", num_blocks, minimum=1)
    if seconds.ndim != 1 or not seconds.size or (seconds[1:] < seconds[:-1]).any() or np.isinf(seconds[0]):
        raise ValueError(
            "order_seconds must be the times of a unit of the fastest worker, the next one, ..., not decreasing, the "
            f"first finite; got {_validate.shorten(seconds)}."
        )
    rates = 1 / seconds[::-1]  # of the slowest first
    shares = np.diff(rates, prepend=0) / np.arange(1, seconds.size + 1)  # of s = 0, ..., n - 1
    counts = rounded_by_largest_remainders(shares / shares.sum() * num_blocks, num_blocks)
    return tuple(np.repeat(np.arange(seconds.size), counts).tolist())


def shifted_exponential_order_seconds(
    num_workers: int, *, shift: float, mean: float, kind: str = "mean"
) -> tuple[float, ...]:
    """What the k-th fastest of n workers takes for a unit, if their times are a shift plus an exponential time.

    Args:
      num_workers: n.
      shift: seconds, at least 0.
      mean: seconds, of the exponential part; above 0. As for `gcjax.stragglers.shifted_exponential`.
      kind: "mean", the expected k-th smallest time, `shift + mean * (1/n + 1/(n-1) + ... + 1/(n-k+1))`; or "harmonic",
        one over the expected inverse of it, by numerical integration; that needs a shift above 0.

    Returns:
      float[W] seconds, increasing.

    Raises:
      ValueError: if a number is out of its bounds.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    is_harmonic = _validate.choice("kind", kind, ("mean", "harmonic")) == "harmonic"
    _validate.single_number("shift", shift, above=is_harmonic, finite=True)
    _validate.single_number("mean", mean, above=True, finite=True)
    if is_harmonic:
        return tuple(1 / _mean_inverse(num_workers, k, shift, mean) for k in range(1, num_workers + 1))
    return tuple((shift + mean * np.cumsum(1 / np.arange(num_workers, 0, -1.0))).tolist())


def _mean_inverse(num_workers: int, k: int, shift: float, mean: float) -> float:
    """The mean of one over the k-th smallest of `num_workers` times, each `shift` and an exponential one of this mean.

    Such a time is `shift - mean log u` with u the k-th largest of as many uniform numbers, which is a beta variable.
    """
    from scipy.integrate import quad
    from scipy.special import betaincinv

    def inverse_at(share: float) -> float:
        """One over the time of which u is the quantile for `share`; the density of u is a peak that `quad` misses."""
        return 1 / (shift - mean * np.log(betaincinv(num_workers - k + 1, k, share)))

    return float(quad(inverse_at, 0, 1, limit=200)[0])


def _valid_redundancies(redundancies: Sequence[int], num_workers: int) -> np.ndarray:
    """int32[L]; raises `ValueError` unless they are whole, from 0 to n - 1, and do not decrease."""
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    whole_redundancies = [
        _validate.integer("each of redundancies", redundancy, minimum=0, maximum=num_workers - 1)
        for redundancy in _validate.sequence("redundancies", redundancies)
    ]
    if not whole_redundancies or sorted(whole_redundancies) != whole_redundancies:
        raise ValueError(f"redundancies must be whole numbers that do not decrease; got {tuple(whole_redundancies)}.")
    return np.asarray(whole_redundancies, np.int32)
