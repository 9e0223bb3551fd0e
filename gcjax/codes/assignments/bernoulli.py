"""Random sparse assignments (Charles, Papailiopoulos, Ellenberg 2017, arXiv 1711.06771: BGC and rBGC)."""

import jax
import numpy as np

from gcjax import _validate, memory
from gcjax._generators import generator_of_key
from gcjax.codes.base import Assignment


def bernoulli(
    num_workers: int, *, num_chunks: int, load: float, rng_key: jax.Array, regularised: bool = False
) -> Assignment:
    """Every worker holds every chunk with probability `load / num_chunks`, independently.

    A chunk may be held by nobody: then it is never in the sum, and the residual says so. A worker may hold nothing.

    Args:
      num_workers: W.
      num_chunks: N.
      load: the mean number of chunks of a worker.
      rng_key: draws the chunks.
      regularised: whether workers that draw more than twice the load keep only so many of them, at least one (rBGC);
        the table of chunks then stays narrow.

    Raises:
      ValueError: if the load exceeds the chunks.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    num_chunks = _validate.integer("num_chunks", num_chunks, minimum=1)
    _validate.single_number("load", load, above=True, maximum=num_chunks)
    num_bytes = np.dtype(np.int64).itemsize * num_workers
    memory.check_fits(f"the loads of {num_workers} workers", num_bytes, "Lower num_workers.")
    rng = generator_of_key(rng_key)
    loads = rng.binomial(num_chunks, load / num_chunks, size=num_workers)
    if regularised:
        loads = np.minimum(loads, max(1, int(2 * load)))
    return random_assignment(rng, loads, num_chunks)


def random_assignment(rng: np.random.Generator, loads: np.ndarray, num_chunks: int) -> Assignment:
    """Worker w holds `loads[w]` different chunks, any as likely as any other, in random order; -1 behind them."""
    chunks = np.full((loads.size, max(int(loads.max()), 1)), -1, np.int32)
    for worker, load in enumerate(loads):
        chunks[worker, :load] = rng.choice(num_chunks, load, replace=False)
    return Assignment(chunks, num_chunks)
