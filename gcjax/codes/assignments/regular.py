"""Assignments in which all workers hold equally many chunks."""

import jax
import numpy as np

from gcjax import _validate, memory
from gcjax.codes.assignments.conversions import from_graph
from gcjax.codes.base import Assignment, host_seed


def cyclic(num_workers: int, *, load: int) -> Assignment:
    """Worker w holds chunks w, w+1, ..., w+load-1 (mod W), in this order (Tandon et al. 2017).

    Args:
      num_workers: W, also the number of chunks.
      load: K.

    Raises:
      ValueError: if the load exceeds the number of chunks.

    Example:
      >>> gcjax.codes.assignments.cyclic(4, load=2).chunks.tolist()
      [[0, 1], [1, 2], [2, 3], [3, 0]]
    """
    num_workers, load = _valid_load(num_workers, load)
    chunks = (np.arange(num_workers)[:, None] + np.arange(load)) % num_workers
    return Assignment(chunks.astype(np.int32), num_workers)


def repetition(num_workers: int, *, load: int) -> Assignment:
    """Groups of `load` workers all hold the same `load` chunks (Tandon et al. 2017, fractional repetition).

    Args:
      num_workers: W, also the number of chunks.
      load: K, also the size of a group.

    Raises:
      ValueError: if `load` does not divide `num_workers`.
    """
    num_workers, load = _valid_load(num_workers, load)
    if num_workers % load:
        below = num_workers - num_workers % load
        raise ValueError(
            f"repetition needs a load that divides the workers; got load={load}, num_workers={num_workers}. "
            f"Use num_workers={below} or {below + load}, or gcjax.codes.assignments.cyclic."
        )
    first_chunk_of_group = np.arange(num_workers)[:, None] // load * load
    return Assignment((first_chunk_of_group + np.arange(load)).astype(np.int32), num_workers)


def random_regular(num_workers: int, *, load: int, rng_key: jax.Array) -> Assignment:
    """The adjacency of a random `load`-regular graph: chunks = workers = vertices (Raviv et al. 2018).

    Args:
      num_workers: W, also the number of chunks.
      load: K, the degree of the graph.
      rng_key: a JAX key; the same key gives the same graph.

    Raises:
      ValueError: if no such graph exists (`num_workers * load` odd, or `load >= num_workers`).
    """
    import networkx as nx

    num_workers, load = _valid_load(num_workers, load)
    if load >= num_workers or (num_workers * load) % 2:
        raise ValueError(
            "a regular graph needs load < num_workers and num_workers * load even; "
            f"got num_workers={num_workers}, load={load}. Change either by one."
        )
    return from_graph(nx.random_regular_graph(load, num_workers, seed=host_seed(rng_key)))


def _valid_load(num_workers: int, load: int) -> tuple[int, int]:
    """Both as ints; raises `ValueError` unless 1 <= load <= W, and the table of chunks fits into memory."""
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    load = _validate.integer("load", load, minimum=1, maximum=num_workers, hint="A worker holds a chunk at most once.")
    description = f"assignments of {load} chunks to each of {num_workers} workers"
    num_bytes = np.dtype(np.int64).itemsize * num_workers * load
    memory.check_fits(description, num_bytes, "Lower num_workers or the load.")
    return num_workers, load
