"""Options of XLA's compiler, where this version of it has them."""

import contextlib
import functools
from typing import Any

import jax

_OLDER_FUSION = {"xla_cpu_use_fusion_emitters": False}
_FEWER_OPTIMISATIONS = {"xla_backend_optimization_level": 1}


@functools.cache
def quick_to_compile() -> dict[str, Any]:
    """Options for programs on a CPU that take long to compile and gain nothing by it: event queues, batched solves.

    With fewer optimisations and XLA's older way to compile fused operations they take 0.6 to 0.7 times as long to
    compile with JAX 0.10, and run as fast as before or faster; training steps run longer with the older way.

    Returns:
      Values of `jax.jit(..., compiler_options=...)`, those that XLA has: JAX 0.12 has no older way; empty on
      other devices.
    """
    if jax.default_backend() != "cpu":
        return {}
    options: dict[str, Any] = {}
    for option in (_FEWER_OPTIMISATIONS, _OLDER_FUSION):
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # there is no such option
            jax.jit(lambda: 0, compiler_options=option).lower().compile()
            options |= option
    return options
