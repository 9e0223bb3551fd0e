"""Error feedback: what a message has lost is added to the next one (Seide et al. 2014; Karimireddy et al. 2019)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.compression.base import Compression, float32_at_least, rounded_to, validated
from gcjax.equality import comparable


class ErrorFeedback(NamedTuple):
    """What a worker keeps.

    Attributes:
      residual: a pytree like the message, in float32 or wider: what its messages have lost so far.
      inner: the state of the compression.
    """

    residual: Any
    inner: Any


@comparable
def error_feedback(compression: Compression) -> Compression:
    """A compression whose worker adds to each message what the earlier ones have lost.

    All that a worker has sent, and what it still keeps, add up to what it would have sent uncompressed. It is not
    linear: what is added depends on which messages were sent before, and under a code on who was late.

    Args:
      compression: loses less than the message: `is_contraction`.

    Raises:
      ValueError: if it is no compression, or can lose more than the message, as unbiased estimates from few numbers
        do: the residual would grow without end.

    Source: Seide et al. 2014; for any compression that is a contraction Karimireddy et al. 2019.

    Example:
      >>> compression = gcjax.compression.error_feedback(gcjax.compression.top_k(share=0.5))
      >>> message, key = jnp.array([2.0, 1.5]), jax.random.key(0)
      >>> estimate, state = compression.compress(message, compression.init(key, message), key)
      >>> estimate.tolist(), compression.compress(message, state, key)[0].tolist()
      ([2.0, 0.0], [0.0, 3.0])
    """
    inner = validated(compression)
    if not inner.is_contraction:
        raise ValueError(
            "error feedback needs a compression that loses less than the message (is_contraction); got one that can "
            "lose more. Take random_k(..., rescale=False), qsgd with more levels than the square root of bucket_size "
            "on all workers, or int8 with smaller blocks."
        )

    def init(rng_key: jax.Array, message: Any, *worker: Any) -> ErrorFeedback:
        """The state before the first message (for its shapes): nothing is lost yet. `worker`: if `inner` takes it."""
        residual = jax.tree.map(lambda x: jnp.zeros_like(x, float32_at_least(jnp.asarray(x))), message)
        return ErrorFeedback(residual, inner.init(rng_key, message, *worker))

    def compress(message: Any, state: ErrorFeedback, rng_key: jax.Array) -> tuple[Any, ErrorFeedback]:
        """The estimate of the message plus the residual (what was lost before), and the state with what is lost now."""
        message_plus_residual = jax.tree.map(lambda x, lost: x.astype(lost.dtype) + lost, message, state.residual)
        # What is beyond the range of the type stays a residual.
        rounded_sum = jax.tree.map(lambda total, x: rounded_to(x.dtype, total), message_plus_residual, message)
        estimate, inner_state = inner.compress(rounded_sum, state.inner, rng_key)
        residual = jax.tree.map(lambda total, x: total - x.astype(total.dtype), message_plus_residual, estimate)
        return estimate, ErrorFeedback(residual, inner_state)

    return Compression(
        init, compress, inner.num_bytes, same_key=inner.same_key, is_contraction=False, num_workers=inner.num_workers
    )
