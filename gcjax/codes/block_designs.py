"""Gradient coding with block designs (Kadhe, Koyluoglu, Ramchandran, ISIT 2019, arXiv 1904.13373)."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.codes.assignments.block_designs import block_design, design
from gcjax.codes.base import GradientCode
from gcjax.codes.fixed import fixed_code
from gcjax.equality import comparable


@comparable
def bibd(num_workers: int, *, load: int) -> GradientCode:
    """A block design with constant decoding, which is optimal for it: who is missing does not matter, only how many.

    With f whole workers every message has the weight `r / (r + λ (f - 1))`, and the squared residual is
    `N - r² f / (r + λ (f - 1))`; with everybody it is 0 (Kadhe et al. 2019). λ is how many chunks two workers share.
    One message a worker, of one block: L = M = 1.

    Args:
      num_workers: n = W.
      load: K = r.

    Raises:
      ValueError: if no such design is known here.
    """
    num_shared = design(num_workers, load).num_shared_blocks  # λ, the chunks that two workers share
    assignment = block_design(num_workers, load=load)

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 1, 1], one message and block: r / (r + λ (f - 1)) for all, f the workers that have finished.

        r is the load, λ = `num_shared` the chunks that two workers share.
        """
        num_finished = jnp.sum(progress >= load, dtype=jnp.int32)
        weight = load / (load + num_shared * (num_finished - 1)).clip(1).astype(encode.dtype)
        return jnp.broadcast_to(weight, (num_workers, 1, 1))

    plain_sums = np.ones((num_workers, load))

    def last_arrival(arrivals: jax.Array) -> jax.Array:
        """float[] seconds: when all messages are there, by `arrivals float[W, 1]`; only then is the sum exact."""
        return arrivals.max()

    return fixed_code(assignment, plain_sums, decode=decode, completion=last_arrival)
