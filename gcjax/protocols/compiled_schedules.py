"""Schedules, each made by a program of its own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax._one_kernel import tracing_whole_program
from gcjax.protocols.schedule import Schedule


def compiled_schedule(schedule: Callable[..., Schedule], *inputs: Any) -> Schedule:
    """The schedule that a pure function makes of some inputs; traced and compiled once for equal functions."""
    if hasattr(schedule, "lower"):  # it is jitted by whoever made it, with options of its own
        return schedule(*inputs)
    is_whole_program = not _validate.is_traced(jnp.zeros(()))  # nothing else is being traced
    return _compiled_schedule(schedule, is_whole_program, *inputs)


@partial(jax.jit, static_argnums=(0, 1))
def _compiled_schedule(schedule: Callable[..., Schedule], is_whole_program: bool, *inputs: Any) -> Schedule:
    """The schedule that the function makes of the inputs; compiled for each function and each shape of inputs.

    `is_whole_program`: whether this is a program of its own, and not a part of another one that is being traced.
    """
    with tracing_whole_program(is_whole_program):
        return schedule(*inputs)
