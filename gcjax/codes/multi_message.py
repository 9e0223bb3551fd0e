"""Several messages a round, and clusters (Ozfatura, Gündüz, Ulukus 2019; Ozfatura, Ulukus, Gündüz 2020).

A worker that is slow, but not dead, contributes the messages that it has finished.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.assignments.regular import cyclic
from gcjax.codes.base import (
    Assignment,
    Coding,
    GradientCode,
    check_code,
    check_progress,
    gather_by_chunk,
    holders,
    key_with,
)
from gcjax.codes.completion import joint_code
from gcjax.codes.fixed import fixed_code
from gcjax.codes.replication import cyclic_coefficients
from gcjax.equality import comparable


@comparable
def multi_message(assignment: Assignment) -> GradientCode:
    """Uncoded computation with multi-message communication (UC-MMC): each finished chunk is a message of its own.

    The server averages the copies of a chunk. Exact as soon as every chunk has been finished by somebody; M = K, L = 1:
    as many messages a worker as chunks, of one block.

    Args:
      assignment: who holds what, in which order; cyclic in the paper.
    """
    chunk_holders = holders(assignment)
    num_messages = assignment.load

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, M, 1], one block: one over the number of copies of the chunk in each message, 0 if not finished.

        Message m has the chunk in slot m: `encode` is float[W, M, K, 1] with M = K.
        """
        is_finished = jnp.einsum("wkkb->wk", encode)  # message k has the coefficient 1 for a finished chunk k
        num_copies = gather_by_chunk(is_finished, chunk_holders).sum(axis=1)[assignment.chunks.clip(0)]  # [W, K]
        return (is_finished / num_copies.clip(1))[..., None]

    def completion(arrivals: jax.Array) -> jax.Array:
        """float[]: when the last chunk has its first copy, from `arrivals float[W, M]`; message m is of slot m.

        `chunk_holders` are the workers and slots of each chunk, int32[N, R], -1 pads.
        """
        is_held = chunk_holders.workers >= 0
        return jnp.where(is_held, arrivals[chunk_holders.workers, chunk_holders.slots], jnp.inf).min(axis=1).max()

    one_chunk_a_message = np.eye(num_messages)[None, :, :, None] * (assignment.chunks >= 0)[:, None, :, None]
    num_chunks_needed = np.broadcast_to(np.arange(1, num_messages + 1), assignment.chunks.shape)
    return fixed_code(
        assignment, one_chunk_a_message, num_chunks_needed=num_chunks_needed, decode=decode, completion=completion
    )


@comparable
def coded_multi_message(num_workers: int, *, levels: Sequence[int], rng_key: jax.Array) -> GradientCode:
    """Gradient coding with multi-message communication (GC-MMC): message m combines the first `levels[m]` chunks.

    Each message is that of a cyclic repetition code of its own: any n - l + 1 messages of a level l decode. The server
    decodes by least squares from the messages of all levels together, which can only be earlier. M = number of
    levels, K = the last level, L = 1.

    Args:
      num_workers: n = W = N.
      levels: chunks in each message, increasing; `(1, K)` sends the first chunk alone.
      rng_key: draws the codes.

    Raises:
      ValueError: if the levels do not increase between 1 and `num_workers`.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    levels = _validate.sequence("levels", levels)
    levels = [_validate.integer("each of levels", level, minimum=1, maximum=num_workers) for level in levels]
    if not levels or sorted(set(levels)) != levels:
        raise ValueError(f"levels must be chunk counts that increase, for example (1, 3); got {tuple(levels)}.")
    _validate.rng_key(rng_key)
    coefficients = np.zeros((num_workers, len(levels), levels[-1], 1))
    for message, level in enumerate(levels):
        level_key, num_stragglers = key_with(rng_key, level), level - 1
        coefficients[:, message, :level, 0] = cyclic_coefficients(num_workers, num_stragglers, level_key)

    def guaranteed_time(arrivals: jax.Array) -> jax.Array:
        """float[] seconds: when the first level l has n - l + 1 messages, n = W, from `arrivals float[W, M]`.

        Message m is that of level l = `levels[m]`, which combines l chunks.
        """
        sorted_arrivals = jnp.sort(arrivals, axis=0)
        level_times = [sorted_arrivals[num_workers - level, message] for message, level in enumerate(levels)]
        return jnp.stack(level_times).min()

    num_chunks_needed = np.broadcast_to(np.array(levels), (num_workers, len(levels)))
    return fixed_code(
        cyclic(num_workers, load=levels[-1]),
        coefficients,
        num_chunks_needed=num_chunks_needed,
        guaranteed_time=guaranteed_time,
    )


@comparable
def clustered(code: GradientCode, *, num_clusters: int) -> GradientCode:
    """Clustering: workers and chunks are split into clusters, each with a copy of the code (Ozfatura et al. 2019).

    Each cluster tolerates the stragglers of the code, so stragglers that are spread well are tolerated in larger
    numbers; with clusters of s+1 workers this is fractional repetition. W and N are those of the code times
    the clusters.

    Args:
      code: of one cluster.
      num_clusters: how many there are.
    """
    check_code(code, "clustered")
    num_clusters = _validate.integer("num_clusters", num_clusters, minimum=1)
    cluster = code.assignment
    first_chunk_of_cluster = np.arange(num_clusters, dtype=np.int32)[:, None, None] * cluster.num_chunks
    chunks_by_cluster = np.where(cluster.chunks >= 0, cluster.chunks + first_chunk_of_cluster, -1)
    chunks = chunks_by_cluster.reshape(-1, cluster.load).astype(np.int32)
    assignment = Assignment(chunks, num_clusters * cluster.num_chunks)

    def by_cluster(values: jax.Array) -> jax.Array:
        """From [W, ...] to [clusters, workers of a cluster, ...]."""
        return values.reshape(num_clusters, cluster.num_workers, *values.shape[1:])

    def by_worker(values: jax.Array) -> jax.Array:
        """From [clusters, workers of a cluster, ...] to [W, ...]."""
        return values.reshape(-1, *values.shape[2:])

    def plan(progress: jax.Array) -> Coding:
        """The plans of all clusters together, each of its own workers by `code`; their squared residuals add up."""
        coding = jax.vmap(code.plan)(by_cluster(check_progress(assignment, progress)))
        residual = jnp.sqrt(jnp.sum(coding.residual**2))
        return Coding(encode=by_worker(coding.encode), decode=by_worker(coding.decode), residual=residual)

    def last_part_completion(finish: jax.Array) -> jax.Array:
        """float[]: when the last cluster is first exact, from `finish float[W, K]`."""
        return jax.vmap(code.completion)(by_cluster(finish)).max()

    find_weights = code.weights_from_messages

    def weights_from_messages(messages: jax.Array, coding: Coding) -> jax.Array:
        """float[W, M, L]: the weights that the code finds in the messages of each cluster."""
        assert find_weights is not None
        coding_of_clusters = Coding(
            by_cluster(coding.encode), by_cluster(coding.decode), jnp.broadcast_to(coding.residual, num_clusters)
        )
        return by_worker(jax.vmap(find_weights)(by_cluster(messages), coding_of_clusters))

    return joint_code(
        assignment,
        code.num_blocks,
        code.num_messages,
        plan,
        last_part_completion=last_part_completion,
        sent=lambda progress: by_worker(jax.vmap(code.sent)(by_cluster(check_progress(assignment, progress)))),
        only_whole_loads=code.only_whole_loads,
        stays_exact=code.stays_exact,
        weights_from_messages=None if find_weights is None else weights_from_messages,
    )
