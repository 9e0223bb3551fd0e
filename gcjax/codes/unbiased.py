"""Unbiased codes for workers that are late with known probabilities (Song and Choi 2025, arXiv 2510.22539).

Worker w is late with probability p_w, independently of the others. It sends `sum over k of a_wk / (1 - p_w) *
gradient k`, and the server adds up what arrives. With `sum over holders w of a_wk = 1` for every chunk k the estimate
is unbiased, and its variance is `sum over w of p_w / (1 - p_w) * |sum over k of a_wk * gradient k|^2`. The weights a
with the least of it have a closed form.

If the messages are compressed by an unbiased compression whose estimates have a variance of ω_w times the squared
length of the message, the estimate of the sum stays unbiased, and p_w becomes p_w + ω_w above the line (Song and Choi
2026, arXiv 2605.15890).

From the papers, as their authors' released code has it: the shares for gradients that are all alike, where worker w
contributes in proportion to (1 - p_w) / (p_w + ω_w). Ours: both forms for an arbitrary assignment, and how the
contribution of a worker is spread over its chunks. How many bits each worker is to get says
`gcjax.codes.bit_allocation`; `gcjax.compression.qsgd(levels=2**bits - 1)` sends them.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.base import Assignment, GradientCode, check_assignment
from gcjax.codes.fixed import fixed_code
from gcjax.codes.straggler_probabilities import valid_probabilities
from gcjax.equality import comparable


@comparable
def unbiased(
    assignment: Assignment,
    *,
    straggler_probabilities: Sequence[float] | float,
    message_noise: Sequence[float] | float = 0.0,
    aligned: bool = False,
) -> GradientCode:
    """An unbiased estimate of the sum, of the least variance that plain adding of messages allows. L = M = 1.

    Only whole loads count. Even with everybody the estimate is not exact, unless nobody is ever late: what arrives is
    scaled up for what does not. So end rounds with `gcjax.codes.stopping.deadline` or `fastest`.

    Args:
      assignment: who holds what.
      straggler_probabilities: float[W], p_w, at least 0 and below 1; or one number for all workers.
      message_noise: float[W], ω_w, at least 0, or one number for all: the variance of what the server makes of a
        message, over its squared length. 0 for whole messages; inf for a worker that sends nothing; of
        `gcjax.compression.random_k` 1 / share - 1, of `qsgd` at most min(n / s^2, sqrt(n) / s) with s levels and
        buckets of n numbers. It changes nothing if p and ω are the same for all workers.
      aligned: the gradients for which the variance is the least: by default, of equal norms and uncorrelated (it is the
        mean squared residual then); if True, all alike. Then a chunk's weight may be negative, and a system of N
        equations is solved once, when the code is made.

    Raises:
      ValueError: if nobody who sends holds a chunk, a probability is not in [0, 1), or a noise is negative, or
        `aligned` meets a worker without either.

    Example:
      >>> assignment = gcjax.codes.assignments.cyclic(3, load=2)
      >>> code = gcjax.codes.unbiased(assignment, straggler_probabilities=(0.5, 0.5, 0.2))
      >>> weights = code.plan([2, 2, 2]).encode[1, 0, :, 0]  # chunk 1 is on workers 0 and 1, 2 on 1 and 2
      >>> [f"{weight:.2f}" for weight in weights]
      ['1.00', '0.40']
    """
    check_assignment(assignment)
    probabilities = valid_probabilities(straggler_probabilities, assignment.num_workers)
    noise = _valid_message_noise(message_noise, assignment.num_workers)
    is_silent = np.isinf(noise)
    senders = assignment._replace(chunks=np.where(is_silent[:, None], -1, assignment.chunks).astype(np.int32))
    # float[W], of messages of length 1; any number for who sends none.
    variances = np.where(is_silent, 1.0, (probabilities + np.where(is_silent, 0, noise)) / (1 - probabilities))
    if not np.isin(np.arange(assignment.num_chunks), senders.chunks).all():
        missing_chunk = np.setdiff1d(np.arange(assignment.num_chunks), senders.chunks)[0]
        nobody = "nobody who sends anything" if is_silent.any() else "nobody"
        raise ValueError(f"an unbiased code needs a holder of every chunk; {nobody} holds chunk {missing_chunk}.")
    if aligned and (variances == 0).any():
        raise ValueError(
            f"aligned=True needs straggler_probabilities above 0; got 0 for worker {np.argmin(variances)}. "
            "Pass a small probability for workers that are never late."
        )
    shares = _aligned_shares(senders, 1 / variances) if aligned else _shares(senders, variances)

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 1, 1]: 1 for every message."""
        return jnp.ones((assignment.num_workers, 1, 1), encode.dtype)

    never = assignment.load + 1  # so many chunks nobody finishes
    num_chunks_needed = np.where(is_silent, never, assignment.loads.clip(1))[:, None]
    coefficients = shares / (1 - probabilities)[:, None]
    return fixed_code(assignment, coefficients, num_chunks_needed=num_chunks_needed, decode=decode)


def _valid_message_noise(message_noise: Sequence[float] | float, num_workers: int) -> np.ndarray:
    """float64[W]: the noise ω of each worker; raises `ValueError` for another shape, or one that is negative."""
    noise = np.asarray(_validate.number("message_noise", message_noise), np.float64)
    if noise.shape not in ((), (num_workers,)):
        raise ValueError(
            f"message_noise must be one number or float[{num_workers}], one a worker; got shape {noise.shape}."
        )
    return np.broadcast_to(noise, num_workers)


def _shares(assignment: Assignment, variances: np.ndarray) -> np.ndarray:
    """float64[W, K], a_wk for uncorrelated gradients: in proportion to 1 / variance among the holders of a chunk.

    a_wk is the share that worker w has in the chunk in its slot k: those of a chunk add up to 1; 0 without a chunk.
    Holders without any of the `variances float64[W]`, where there are some, share a chunk among themselves.
    """
    is_held, chunks = assignment.chunks >= 0, assignment.chunks.clip(0)  # slots without a chunk add 0 to chunk 0
    is_safe = variances == 0
    precisions = np.where(is_safe, 1.0, 1 / np.where(is_safe, 1.0, variances))  # any number, if equal, for safe ones
    safe_holders = _sums_by_chunk(assignment, is_safe.astype(np.float64))  # [N], how many
    has_safe_holder = (safe_holders > 0)[chunks]
    weights = np.where(is_held & (is_safe[:, None] | ~has_safe_holder), precisions[:, None], 0.0)
    return weights / np.bincount(chunks.ravel(), weights.ravel(), assignment.num_chunks)[chunks]


def _aligned_shares(assignment: Assignment, precisions: np.ndarray) -> np.ndarray:
    """float64[W, K]: the shares a_wk with the least variance of the decoded sum if all gradients are alike.

    Only the total share of each worker, the sum over k of a_wk, matters then; of the shares with the best totals these
    are the ones with the least variance for other gradients, as in `_shares`. Where workers are connected by chunks
    that they share, totals in proportion to the precisions, 1 / variance, are reached, and are the best. That leaves
    a_wk = (x_k + y_w) times the precision of w, with multipliers x of the chunks and y of the workers, and for x a
    singular, consistent system of N equations.
    """
    is_held, chunks, loads = assignment.chunks >= 0, assignment.chunks.clip(0), assignment.loads.clip(1)
    total_shares = _total_shares(assignment, precisions)
    held_by_worker = np.zeros((assignment.num_workers, assignment.num_chunks))  # 0/1
    held_by_worker[np.nonzero(is_held)[0], assignment.chunks[is_held]] = 1
    weighted_holding = held_by_worker * precisions[:, None]
    system = np.diag(weighted_holding.sum(axis=0)) - weighted_holding.T @ (held_by_worker / loads[:, None])  # [N, N]
    x = np.linalg.lstsq(system, 1 - held_by_worker.T @ (total_shares / loads), rcond=None)[0]  # [N]
    y = (total_shares / precisions - held_by_worker @ x) / loads  # [W]
    return np.where(is_held, (x[chunks] + y[:, None]) * precisions[:, None], 0.0)


def _total_shares(assignment: Assignment, precisions: np.ndarray) -> np.ndarray:
    """float64[W]: the sum over k of a_wk of each worker: its part of the chunks of the workers connected with it.

    The chunks that workers share connect them; the parts are in proportion to the `precisions float64[W]`, 1 / variance
    of the worker's message.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    num_workers = assignment.num_workers
    workers, slots = np.nonzero(assignment.chunks >= 0)
    nodes_of_chunks = num_workers + assignment.chunks[workers, slots]
    num_nodes = num_workers + assignment.num_chunks
    graph = csr_matrix((np.ones(workers.size), (workers, nodes_of_chunks)), (num_nodes, num_nodes))
    component = connected_components(graph, directed=False)[1]  # int[W + N], of each worker, then of each chunk
    chunks_of_component = np.bincount(component[num_workers:], minlength=component.max() + 1)
    precision_of_component = np.bincount(component[:num_workers], precisions, component.max() + 1)
    component_of_worker = component[:num_workers]
    return precisions * chunks_of_component[component_of_worker] / precision_of_component[component_of_worker]


def _sums_by_chunk(assignment: Assignment, values: np.ndarray) -> np.ndarray:
    """float64[N]: the sums of `values float64[W]` over the holders of each chunk."""
    workers, slots = np.nonzero(assignment.chunks >= 0)
    return np.bincount(assignment.chunks[workers, slots], values[workers], assignment.num_chunks)
