"""Repetition, as fixed points. A trace of n steps is settled after n + 1 rounds, so these are exact."""

from collections.abc import Callable

import jax

from gcjax.algebra.command import Command, choice, sequence
from gcjax.algebra.primitives import abort, magic, nil


@jax.jit
def star(c: Command) -> Command:
    """Any finite number of times c: the least `x = nil or c;x`."""
    return _fixed_point(lambda x: choice(nil(c.model), sequence(c, x)), magic(c.model))


@jax.jit
def omega(c: Command) -> Command:
    """Any number of times c, forever included: the greatest `x = nil or c;x`."""
    return _fixed_point(lambda x: choice(nil(c.model), sequence(c, x)), abort(c.model))


@jax.jit
def infinite(c: Command) -> Command:
    """Forever c: the greatest `x = c;x`."""
    return _fixed_point(lambda x: sequence(c, x), abort(c.model))


def _fixed_point(function: Callable[[Command], Command], start: Command) -> Command:
    """The function applied n + 1 times to `start`, n the most steps of a trace.

    `start` is `magic` for the least fixed point, `abort` for the greatest. Each time settles the traces of one more
    step, the first time the empty one.
    """
    num_trace_lengths = start.model.max_steps + 1
    return jax.lax.fori_loop(0, num_trace_lengths, lambda _, command: function(command), start)
