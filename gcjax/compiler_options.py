"""Options of XLA's compiler, where this version of it has them."""

import functools
from typing import Any

import jax

_SMALL_OPERATIONS = {"xla_cpu_use_fusion_emitters": False}


@functools.cache
def for_small_operations() -> dict[str, Any]:
    """Options for programs that do small operations in loops on a CPU, as the schedules of event queues do.

    With XLA's older way to compile fused operations such programs take about 0.6 times as long to compile with JAX
    0.10, and 0.8 times as long to run; training steps run longer with it.

    Returns:
      Values of `jax.jit(..., compiler_options=...)`; empty where XLA has no such option, as in JAX 0.12.
    """
    try:
        jax.jit(lambda: 0, compiler_options=_SMALL_OPERATIONS).lower().compile()
    except jax.errors.JaxRuntimeError:  # there is no such option
        return {}
    return _SMALL_OPERATIONS
