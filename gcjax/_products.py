"""Products of arrays in their full precision.

By default JAX rounds the factors of products of float32 to fewer bits on accelerators: to TensorFloat-32 (11 bits) on
GPUs, to bfloat16 (8 bits) on TPUs. For a network that is the user's choice. Codes are not exact any more then, and
means of workers and sums of gradients lose digits that no network has lost before; so all products outside of networks
are formed with these.
"""

from functools import partial

import jax
import jax.numpy as jnp

einsum = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
matmul = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
tensordot = partial(jnp.tensordot, precision=jax.lax.Precision.HIGHEST)
