"""No coding: every chunk on one worker."""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, memory
from gcjax.codes.base import Assignment, GradientCode
from gcjax.codes.fixed import fixed_code
from gcjax.codes.partial import partial
from gcjax.equality import comparable


@comparable
def uncoded(num_workers: int, *, load: int = 1) -> GradientCode:
    """Every chunk is held by one worker; the sum is exact iff everybody has finished. N = W·load, L = M = 1.

    Whatever chunks are finished count, in any progress. L are blocks, M messages a worker.

    Args:
      num_workers: W.
      load: K, the chunks of each worker.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    load = _validate.integer("load", load, minimum=1)
    num_bytes = np.dtype(np.int32).itemsize * num_workers * load
    memory.check_fits(f"{load} chunks of each of {num_workers} workers", num_bytes, "Lower num_workers or the load.")
    chunks = np.arange(num_workers * load, dtype=np.int32).reshape(num_workers, load)
    return partial(Assignment(chunks, num_workers * load))


@comparable
def ignore_stragglers(num_workers: int) -> GradientCode:
    """No redundancy: sum what has arrived and scale it up by N / (number that arrived) (Chen et al. 2016).

    Meant for the stopping rule `fastest(n - s)` (`gcjax.codes.stopping`), which ignores s stragglers; the factor is
    then n / (n - s). One chunk a worker, one message, one block (L = M = 1). The estimate is unbiased if any worker is
    equally likely to be late, exact only if nobody is. `gcjax.protocols.k_sync` is the same without a code.

    Args:
      num_workers: n = W = N.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    assignment = Assignment(np.arange(num_workers, dtype=np.int32)[:, None], num_workers)

    def decode(progress: jax.Array, encode: jax.Array) -> jax.Array:
        """float[W, 1, 1], one message and block: N over how many have arrived, by `progress int32[W]`, 1 or 0."""
        factor = num_workers / progress.sum().clip(1).astype(encode.dtype)
        return jnp.broadcast_to(factor, (num_workers, 1, 1))

    plain_messages = np.ones((num_workers, 1))
    return fixed_code(assignment, plain_messages, decode=decode, completion=lambda arrivals: arrivals.max())
