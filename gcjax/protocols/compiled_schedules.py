"""Schedules, each made by a program of its own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from gcjax.protocols.schedule import Schedule


def compiled_schedule(schedule: Callable[..., Schedule], *inputs: Any) -> Schedule:
    """The schedule that a pure function makes of some inputs; traced and compiled once for equal functions."""
    if hasattr(schedule, "lower"):  # it is jitted by whoever made it, with options of its own
        return schedule(*inputs)
    return _compiled_schedule(schedule, *inputs)


def shapes_of_schedule(schedule: Callable[..., Schedule], *inputs: Any) -> Schedule:
    """The shapes and types of the schedule that a pure function makes of some inputs; traced once for equal ones."""
    if hasattr(schedule, "lower"):
        return jax.eval_shape(schedule, *inputs)
    return _compiled_schedule.eval_shape(schedule, *inputs)


@partial(jax.jit, static_argnums=0)
def _compiled_schedule(schedule: Callable[..., Schedule], *inputs: Any) -> Schedule:
    """The schedule that the function makes of the inputs; compiled for each function and each shape of inputs."""
    return schedule(*inputs)
