"""Gradient coding with block designs (Kadhe, Koyluoglu, Ramchandran, ISIT 2019, arXiv 1904.13373)."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes import design_constructions as designs
from gcjax.codes.assignments import from_matrix
from gcjax.codes.base import Assignment, GradientCode
from gcjax.codes.fixed import fixed_code
from gcjax.equality import comparable


def block_design(num_workers: int, *, load: int) -> Assignment:
    """Any two workers share the same number λ of chunks: workers are the points of a design, chunks its blocks.

    Args:
      num_workers: W = v.
      load: K = r, the blocks that a point is in. N, the number of blocks, follows.

    Raises:
      ValueError: if no such design is known here.
    """
    return from_matrix(designs.incidence(_design(num_workers, load)))


@comparable
def bibd(num_workers: int, *, load: int) -> GradientCode:
    """A block design with constant decoding, which is optimal for it: who is missing does not matter, only how many.

    With f whole workers every message has the weight `r / (r + λ (f - 1))`, and the squared residual is
    `N - r² f / (r + λ (f - 1))`; with everybody it is 0 (Kadhe et al. 2019, theorem 2). L = M = 1.

    Args:
      num_workers: n = W.
      load: K = r.

    Raises:
      ValueError: if no such design is known here.
    """
    shared = _design(num_workers, load).shared
    assignment = block_design(num_workers, load=load)

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        finished = jnp.sum(progress >= load, dtype=jnp.int32)
        weight = load / (load + shared * (finished - 1)).clip(1).astype(encode.dtype)
        return jnp.broadcast_to(weight, (num_workers, 1, 1))

    def completion(arrivals: jax.Array) -> jax.Array:
        return arrivals.max()

    return fixed_code(assignment, np.ones((num_workers, load)), decode=decode, completion=completion)


def _design(num_workers: int, load: int) -> designs.Design:
    _validate.integer("num_workers", num_workers, minimum=3)
    _validate.integer("load", load, minimum=1)
    found = designs.find(num_workers, load)
    if found is not None:
        return found
    options = {(d.points, d.replication) for d in designs.known(2 * num_workers) if d.points > 3}
    near = sorted(options, key=lambda o: abs(o[0] / num_workers - 1) + abs(o[1] / load - 1))[:4]
    raise ValueError(
        "a block design needs λ (W - 1) = K (k - 1) with whole λ and k, and at least as many blocks as points, and a "
        f"construction that is known here; there is none for num_workers={num_workers}, load={load}. The nearest are "
        + ", ".join(f"({v}, {r})" for v, r in near)
        + "."
    )
