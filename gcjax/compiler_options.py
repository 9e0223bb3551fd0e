"""Options of XLA's compiler, where this version of it has them."""

import contextlib
import functools
from typing import Any

import jax

_QUICK_TO_COMPILE: dict[str, Any] = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}
"""With fewer optimisations and XLA's older way to compile fused operations, which JAX 0.12 has no more."""

_IN_ONE_THREAD: dict[str, Any] = {
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    "xla_cpu_copy_insertion_use_region_analysis": True,
}
"""In an order of operations that saves memory, and with a closer look at which arrays must be copied.

XLA's usual order is one for many threads: to hand operations over took half of the time of a queue of 10,000 workers.
"""


@functools.cache
def small_operations(*, run_briefly: bool = False) -> dict[str, Any]:
    """Options for programs of many small operations on a CPU: event queues, batched solves.

    With JAX 0.10 they take 0.5 to 0.7 times as long to compile as without. Event queues of a thousand workers and more
    take 0.4 to 1 times as long to run, those of a few 0.9 to 1.15 times. The rule of a live run of 16 workers and more
    takes 0.4 to 0.7 times as long. Training steps would run longer.

    Args:
      run_briefly: whether they take longer to compile than to run: hardly optimised, they take about half as long to
        compile, and four times as long to run.

    Returns:
      Values of `jax.jit(..., compiler_options=...)`, those that XLA has; empty on other devices.
    """
    if jax.default_backend() != "cpu":
        return {}
    wanted = _QUICK_TO_COMPILE | _IN_ONE_THREAD
    if run_briefly:
        wanted["xla_backend_optimization_level"] = 0
    if jax.config.read("jax_disable_most_optimizations"):  # there are fewer already
        del wanted["xla_backend_optimization_level"]
    options: dict[str, Any] = {}
    for name, value in wanted.items():
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # there is no such option
            jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
            options[name] = value
    return options
