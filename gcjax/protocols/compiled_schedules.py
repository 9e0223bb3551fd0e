"""Schedules compiled: traced once for equal pure functions, such as those of equal protocols, and shapes of inputs.

They are simulated on a CPU, also where there is an accelerator: event queues, which take one small operation after the
other, ran 4 to 8 times as long on an H200.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gcjax import _validate, compiler_options
from gcjax.equality import PureFunction
from gcjax.protocols.schedule import Schedule


def compiled_schedule(schedule: Callable[..., Schedule], *inputs: Any) -> Schedule:
    """The schedule that a pure function makes of some inputs; traced and compiled once for equal functions."""
    if hasattr(schedule, "lower"):  # it is jitted by whoever made it, with options of its own
        return schedule(*inputs)
    program = _program_without_options if _may_be_traced(schedule, inputs) else schedule_program()
    inputs_on_cpu = on_cpu(inputs)
    result = program(schedule, *inputs_on_cpu)
    if inputs_on_cpu is inputs:
        return result
    if _is_any_traced(result):  # by a parameter of the protocol
        return program(schedule, *inputs)
    return jax.tree.map(jnp.asarray, jax.device_get(result))  # to wherever JAX computes by default


def on_cpu(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a simulation on a CPU of this process, so that it runs there.

    As they are inside of a trace, and where JAX has no CPU, as with JAX_PLATFORMS=cuda.
    """
    if jax.default_backend() == "cpu" or _is_any_traced(inputs):
        return inputs
    try:
        cpu, *_ = jax.local_devices(backend="cpu")
    except RuntimeError:
        return inputs
    inputs_on_cpu = jax.device_put(inputs, cpu)
    return inputs if _is_any_traced(inputs_on_cpu) else inputs_on_cpu


def shapes_of_schedule(schedule: Callable[..., Schedule], *inputs: Any) -> Schedule:
    """The shapes and types of the schedule that a pure function makes of some inputs; traced once for equal ones."""
    if hasattr(schedule, "lower"):
        return jax.eval_shape(schedule, *inputs)
    return schedule_program().eval_shape(schedule, *inputs)


@functools.cache
def schedule_program() -> Any:
    """`(schedule, *inputs) -> Schedule`, to be compiled for each function and each shape of inputs."""
    return jax.jit(_schedule_of, static_argnums=0, compiler_options=compiler_options.small_operations())


def _schedule_of(schedule: Callable[..., Schedule], *inputs: Any) -> Schedule:
    """The schedule that the function makes of the inputs."""
    return schedule(*inputs)


_program_without_options = jax.jit(_schedule_of, static_argnums=0)


def _may_be_traced(schedule: Callable[..., Schedule], inputs: tuple[Any, ...]) -> bool:
    """Whether this may be a part of what JAX traces, which takes options of the compiler from the outermost jit alone.

    It is inside of a program, or an input is traced, or a parameter of the protocol, which is then in a closure.
    """
    is_in_program = _validate.is_traced(jnp.zeros(()))
    has_known_parameters = isinstance(schedule, PureFunction) and schedule.arguments_compare_by_value
    return is_in_program or not has_known_parameters or _is_any_traced(inputs)


def _is_any_traced(tree: Any) -> bool:
    """Whether JAX is tracing a leaf."""
    return any(map(_validate.is_traced, jax.tree.leaves(tree)))
