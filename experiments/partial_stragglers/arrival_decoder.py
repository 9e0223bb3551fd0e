"""Optimal decoding of a fixed code for many rounds at once, each stopped at several moments.

Workers arrive one after the other, so the sets of one round are nested, and one Cholesky factor of the messages' Gram
matrix `G`, its rows in the order of arrival, solves for all of them: a set is a leading block. For sets of more than
half of the workers the few that are missing are taken out of the solution of all instead: with `P = G^-1` and C the
missing ones, `y = P (b - E_C z)` with `P_CC z = (P b)_C`, and again one factor, of the rows of P in the reverse order,
solves for all. Together that is a quarter of the work of one whole factor or less. It needs a G that is not near to
singular.

The factor is a tree of blocks with the inverses of small diagonal blocks, so that all is batched products: XLA hands
a batch of factorisations or triangular solves to LAPACK one by one on a CPU, which is ten times slower.

Letters: S rounds, D moments, W workers, N chunks, K chunks a worker holds, R holders of a chunk, L blocks.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.base import Assignment, default_float, holders

RIDGE = 1e-12
"""Added to the diagonal of G, relative to its largest eigenvalue, so that messages may depend on each other."""

MAX_CONDITION = 1e8
"""Where G has a larger condition number, P loses too many digits, and every set is solved as a leading block."""

_LEAF = 16
_BLOCK = 50
"""Rounds that are solved together: few enough for the cache, many enough for the processor."""


class Arrivals(NamedTuple):
    """How a fixed code decodes what has arrived.

    Attributes:
      weights: float[W, S, deadlines, L], of the message of each worker in each output block; 0 for those not arrived.
      residual: float[S, deadlines], the Frobenius distance of the decoded coefficients of all chunks from the identity.
    """

    weights: jax.Array
    residual: jax.Array


class _Code(NamedTuple):
    """What does not depend on who arrives: G, P, b and P b, and the coefficients by chunk, with the holders; arrays."""

    gram: Any  # float[W, W]
    inverse: Any  # float[W, W]
    right: Any  # float[W, L]
    all_arrived: Any  # float[W, L]
    encode: Any  # float[R, N, L]
    workers: Any  # int32[R, N]


class _Sizes(NamedTuple):
    """Static sizes: rows of either factor, and which moments it serves."""

    first: int
    first_moments: tuple[int, ...]
    missing: int
    missing_moments: tuple[int, ...]


def arrival_decoder(
    assignment: Assignment, coefficients: np.ndarray
) -> Callable[[np.ndarray | jax.Array, np.ndarray | jax.Array], Arrivals]:
    """Optimal (least-squares) decoding of one message a worker, after any number of arrivals.

    Args:
      assignment: who holds what.
      coefficients: float[W, K, L], of block l of the chunk in slot k in the message of a worker.

    Returns:
      A function `(order int[S, W], counts int[S, deadlines]) -> Arrivals`: the workers in the order of their arrival,
      and how many have arrived at each moment. It looks at `counts` to choose the sizes of its arrays, so it cannot be
      traced. Messages that depend on each other share their weight: to the least norm, up to `RIDGE`.

    Raises:
      ValueError: if shapes do not fit, a count is not between 0 and W, or JAX is not switched to 64 bits.
    """
    coefficients = _masked_coefficients(assignment, coefficients)
    code, condition = _constants(assignment, coefficients)

    def decode(order: np.ndarray | jax.Array, counts: np.ndarray | jax.Array) -> Arrivals:
        if default_float() != np.float64:
            raise ValueError(
                "arrival_decoder needs float64, since forming G squares the condition number; JAX is set to float32. "
                "Call it within jax.enable_x64(True)."
            )
        counts = _whole_counts(assignment, order, counts)
        on_device, order = jax.device_put(code), jnp.asarray(order, jnp.int32)
        sizes = _sizes(counts, assignment.num_workers, condition <= MAX_CONDITION)
        blocks = [
            _decode_block(on_device, sizes, order[i : i + _BLOCK], counts[i : i + _BLOCK])
            for i in range(0, len(counts), _BLOCK)
        ]
        return Arrivals(
            weights=jnp.concatenate([block.weights for block in blocks], axis=1),
            residual=jnp.concatenate([block.residual for block in blocks]),
        )

    return decode


def _masked_coefficients(assignment: Assignment, coefficients: np.ndarray) -> np.ndarray:
    array = np.asarray(coefficients, np.float64)
    if array.ndim != 3 or array.shape[:2] != assignment.chunks.shape or not array.shape[2]:
        raise ValueError(
            f"coefficients must be float[W, K, L] with W={assignment.num_workers} and K={assignment.load}; "
            f"got shape {array.shape}."
        )
    return np.where((assignment.chunks >= 0)[..., None], array, 0.0)


def _whole_counts(assignment: Assignment, order: Any, counts: Any) -> np.ndarray:
    """int32[S, deadlines]: the counts; a `ValueError` for a wrong shape, or one that is no number of workers."""
    num_workers, array = assignment.num_workers, np.asarray(counts)
    if np.ndim(order) != 2 or np.shape(order)[1] != num_workers or array.ndim != 2 or len(array) != len(order):
        raise ValueError(
            f"order must be int[S, {num_workers}] and counts int[S, deadlines]; got {np.shape(order)} and "
            f"{array.shape}."
        )
    if array.dtype.kind not in "iu" or array.size == 0 or array.min() < 0 or array.max() > num_workers:
        raise ValueError(f"counts must be whole numbers between 0 and {num_workers}, the workers; got {array}.")
    return array.astype(np.int32)


def _constants(assignment: Assignment, coefficients: np.ndarray) -> tuple[_Code, float]:
    """The code, and the condition number of G."""
    num_workers, num_blocks = len(coefficients), coefficients.shape[2]
    matrix = np.zeros((num_workers, assignment.num_chunks, num_blocks))
    worker, slot = np.nonzero(assignment.chunks >= 0)
    matrix[worker, assignment.chunks[worker, slot]] = coefficients[worker, slot]
    right = matrix.sum(axis=1)
    flat = matrix.reshape(num_workers, -1)
    values, vectors = np.linalg.eigh(flat @ flat.T)
    values = values.clip(0) + RIDGE * values.max()
    gram, inverse = (vectors * values) @ vectors.T, (vectors / values) @ vectors.T
    held = holders(assignment)
    by_chunk = np.where((held.workers >= 0)[..., None], coefficients[held.workers, held.slots], 0.0)
    workers = np.ascontiguousarray(held.workers.T.clip(0).astype(np.int32))
    code = _Code(
        gram=gram, inverse=inverse, right=right, all_arrived=inverse @ right, encode=np.swapaxes(by_chunk, 0, 1),
        workers=workers,
    )  # fmt: skip
    return code, float(values.max() / values.min())


def _sizes(counts: np.ndarray, num_workers: int, invertible: bool) -> _Sizes:
    """Each moment goes to the factor that has fewer rows for it; to the first if P is no good."""
    most, least = counts.max(axis=0), counts.min(axis=0)
    first = (most <= num_workers - least) | (not invertible)

    def rows(needed: np.ndarray) -> int:
        return -(-int(needed.max(initial=0)) // _LEAF) * _LEAF

    return _Sizes(
        first=rows(most[first]),
        first_moments=tuple(np.flatnonzero(first).tolist()),
        missing=rows(num_workers - least[~first]),
        missing_moments=tuple(np.flatnonzero(~first).tolist()),
    )


@functools.partial(jax.jit, static_argnums=1)
def _decode_block(code: _Code, sizes: _Sizes, order: jax.Array, counts: jax.Array) -> Arrivals:
    weights = _weights(code, sizes, order, counts)
    return Arrivals(weights, _residual(code.encode, code.workers, weights))


def _weights(code: _Code, sizes: _Sizes, order: jax.Array, counts: jax.Array) -> jax.Array:
    """float[W, S, deadlines, L]."""
    num_workers = order.shape[1]
    ranks = np.arange(num_workers, dtype=np.int32)[None]
    rank = jnp.put_along_axis(jnp.zeros_like(order), order, jnp.broadcast_to(ranks, order.shape), axis=1, inplace=False)
    parts = []
    if sizes.first_moments:
        leading_counts = counts[:, np.array(sizes.first_moments)]
        parts.append(_leading(code.gram, code.right, order, rank, leading_counts, sizes.first))
    if sizes.missing_moments:
        gone = num_workers - counts[:, np.array(sizes.missing_moments)]
        back = num_workers - 1 - rank
        out = _leading(code.inverse, code.all_arrived, order[:, ::-1], back, gone, sizes.missing)
        taken = (code.inverse @ out.reshape(num_workers, -1)).reshape(out.shape)
        arrived = back.T[:, :, None, None] >= gone[None, :, :, None]
        parts.append(jnp.where(arrived, code.all_arrived[:, None, None] - taken, 0))
    in_order = np.argsort(np.array(sizes.first_moments + sizes.missing_moments))
    joined = jnp.concatenate(parts, axis=2)
    return joined if (np.diff(in_order) == 1).all() else joined[:, :, in_order]


def _leading(
    table: jax.Array, right: jax.Array, order: jax.Array, rank: jax.Array, counts: jax.Array, size: int
) -> jax.Array:
    """Solves `table[o, o] x = right[o]` for o the first `counts` of `order`: float[W, S, deadlines, L], else 0."""
    num_workers, num_blocks = right.shape
    num_rounds, num_moments = counts.shape
    if not size:
        return jnp.zeros((num_workers, num_rounds, num_moments, num_blocks), right.dtype)
    used = order[:, :size]
    padding = size - used.shape[1]  # a stand-in row is the identity
    tree = _factor(_Gram(table, jnp.pad(used, ((0, 0), (0, padding)), constant_values=-1)), None)
    forward = _forward(tree, jnp.pad(right[used], ((0, 0), (0, padding), (0, 0))))
    inside = np.arange(size, dtype=np.int32)[None, :, None] < counts[:, None, :]
    masked = jnp.where(inside[..., None], forward[:, :, None, :], 0)
    solved = _backward(tree, masked.reshape(num_rounds, size, num_moments * num_blocks))
    row = jnp.minimum(rank.T, size - 1)
    by_worker = solved[np.arange(num_rounds, dtype=np.int32)[None], row].reshape(num_workers, *masked.shape[::2], -1)
    return jnp.where((rank.T[:, :, None] < counts[None])[..., None], by_worker, 0)


def _residual(encode: jax.Array, workers: jax.Array, weights: jax.Array) -> jax.Array:
    """float[S, deadlines]: from the weights, by the non-zero coefficients only."""
    num_blocks = encode.shape[2]
    flat = weights.reshape(weights.shape[0], -1)
    total = jnp.zeros_like(flat[0])
    for b in range(num_blocks):
        wanted = jnp.broadcast_to(jnp.eye(num_blocks, dtype=weights.dtype)[b], weights.shape[1:]).reshape(1, -1)
        decoded = sum((encode[r, :, b][:, None] * flat[held] for r, held in enumerate(workers)), -wanted)
        total = total + (decoded**2).sum(axis=0)  # over chunks alone: with the outermost axis it is vectorised
    return jnp.sqrt(total.reshape(weights.shape[1:]).sum(axis=-1))


class _Gram(NamedTuple):
    """The rows and columns `order` of a symmetric table, read only where they are needed; -1 is the identity."""

    table: jax.Array
    order: jax.Array

    def block(self, rows: slice, columns: slice) -> jax.Array:
        one, other = self.order[:, rows, None], self.order[:, None, columns]
        index = one.clip(0) * self.table.shape[1] + other.clip(0)
        same = np.equal.outer(np.arange(rows.start, rows.stop), np.arange(columns.start, columns.stop))[None]
        values = self.table.reshape(-1).at[index].get(mode="promise_in_bounds")
        return jnp.where((one >= 0) & (other >= 0), values, jnp.asarray(same, values.dtype))


class _Node(NamedTuple):
    """The factor [[first, 0], [below, last]]; a leaf is an array: the inverse of its own diagonal block."""

    first: Any
    below: jax.Array
    last: Any


def _factor(gram: _Gram, update: jax.Array | None, start: int = 0, stop: int | None = None) -> Any:
    """The Cholesky factor of rows `start` to `stop` less `update`."""
    stop = gram.order.shape[1] if stop is None else stop
    size = stop - start
    if size <= _LEAF:
        block = gram.block(slice(start, stop), slice(start, stop))
        return _inverse_factor(block if update is None else block - update)
    half = (size // _LEAF + 1) // 2 * _LEAF
    first = _factor(gram, None if update is None else update[:, :half, :half], start, start + half)
    corner = gram.block(slice(start + half, stop), slice(start, start + half))
    below = _divide(first, corner if update is None else corner - update[:, half:, :half])
    square = below @ jnp.swapaxes(below, 1, 2)
    rest = square if update is None else update[:, half:, half:] + square
    return _Node(first, below, _factor(gram, rest, start + half, stop))


def _inverse_factor(block: jax.Array) -> jax.Array:
    """The inverse of the Cholesky factor of `float[S, n, n]`, in place, with the rounds innermost."""
    size = block.shape[1]
    row = np.arange(size, dtype=np.int32)[:, None]

    def step(k: jax.Array, matrix: jax.Array) -> jax.Array:
        scale = jax.lax.rsqrt(matrix[k, k])[None]
        column = matrix[:, k] * scale
        column = jnp.where(row > k, column, jnp.where(row == k, 1 / scale - 1, 0))
        unit = jnp.asarray(row == k, block.dtype)  # column k turns from the block's into that of the inverse
        matrix = jnp.where((row == k)[None], unit[:, None], matrix)
        return matrix - column[:, None] * (matrix[k] * scale)[None]

    inverse = jax.lax.fori_loop(0, size, step, jnp.transpose(block, (1, 2, 0)))
    return jnp.tril(jnp.transpose(inverse, (2, 0, 1)))


def _divide(node: Any, rows: jax.Array) -> jax.Array:
    """`rows` times the inverse of the transposed factor."""
    if not isinstance(node, _Node):
        return rows @ jnp.swapaxes(node, 1, 2)
    half = node.below.shape[2]
    first = _divide(node.first, rows[:, :, :half])
    last = _divide(node.last, rows[:, :, half:] - first @ jnp.swapaxes(node.below, 1, 2))
    return jnp.concatenate([first, last], axis=2)


def _forward(node: Any, right: jax.Array) -> jax.Array:
    """The inverse of the factor times `right`."""
    if not isinstance(node, _Node):
        return node @ right
    half = node.below.shape[2]
    first = _forward(node.first, right[:, :half])
    return jnp.concatenate([first, _forward(node.last, right[:, half:] - node.below @ first)], axis=1)


def _backward(node: Any, right: jax.Array) -> jax.Array:
    """The inverse of the transposed factor times `right`."""
    if not isinstance(node, _Node):
        return jnp.swapaxes(node, 1, 2) @ right
    half = node.below.shape[2]
    last = _backward(node.last, right[:, half:])
    rest = right[:, :half] - jnp.swapaxes(node.below, 1, 2) @ last
    return jnp.concatenate([_backward(node.first, rest), last], axis=1)
