"""Assignments beyond the paper's: as many chunks as one likes, and workers with unequal loads."""

from collections.abc import Sequence

import gin
import jax
import numpy as np

from gcjax import _validate
from gcjax._generators import generator_of_key
from gcjax.codes.base import Assignment


@gin.configurable(module="experiments.partial_stragglers")
def balanced(*, num_workers: int, num_chunks: int, loads: Sequence[int], rng_key: jax.Array) -> Assignment:
    """A random assignment with given loads, in which all chunks have equally many holders, or almost.

    Workers come in random order; each takes the chunks that have the fewest holders so far, ties broken at random.

    Args:
      num_workers: W.
      num_chunks: N.
      loads: the loads of the first workers; they are repeated until all workers have one.
      rng_key: a JAX key.

    Raises:
      ValueError: if a load is not between 1 and N, or the loads add up to less than N.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    for load in loads:
        _validate.integer("an entry of loads", load, minimum=1, maximum=num_chunks)
    load_of_worker = np.resize(np.asarray(loads, dtype=np.int64), num_workers)
    if load_of_worker.sum() < num_chunks:
        raise ValueError(
            f"the loads must add up to at least num_chunks={num_chunks}, or nobody holds some chunk; "
            f"got {load_of_worker.sum()}."
        )
    generator = generator_of_key(rng_key)
    num_holders = np.zeros(num_chunks, dtype=np.int64)
    chunks = np.full((num_workers, load_of_worker.max()), -1, dtype=np.int32)  # [W, K], -1 pads
    for worker in generator.permutation(num_workers):
        random_tie_breaks = generator.random(num_chunks)
        fewest_holders_first = np.lexsort((random_tie_breaks, num_holders))  # the last key counts first
        chunks_of_worker = fewest_holders_first[: load_of_worker[worker]]
        chunks[worker, : chunks_of_worker.size] = np.sort(chunks_of_worker)
        num_holders[chunks_of_worker] += 1
    return Assignment(chunks, num_chunks)
