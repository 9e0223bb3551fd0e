"""The smallest commands: doing nothing, everything, a test, one step.

Letters: S states, A steps.
"""

import functools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.algebra.command import INCOMPLETE, TERMINATED, Command, choice, relation, sequence, states
from gcjax.algebra.steps import ENVIRONMENT, PROGRAM
from gcjax.algebra.traces import Model


def magic(model: Model) -> Command:
    """Can do nothing, not even terminate: the smallest command."""
    traces = np.zeros(model.shape, bool)
    traces[INCOMPLETE, :, 0] = True
    return Command(jnp.asarray(traces), model)


def abort(model: Model) -> Command:
    """Can do anything: the largest command."""
    return Command(jnp.asarray(np.ones(model.shape, bool)), model)


def nil(model: Model) -> Command:
    """Terminates at once."""
    return test(model, np.ones(model.space.num_states, bool))


@functools.partial(jax.jit, static_argnums=0)
def test(model: Model, p: jax.Array | np.ndarray) -> Command:
    """Terminates at once if the state is in the set p: bool[S]; otherwise `magic`."""
    nothing = magic(model)
    return Command(nothing.traces.at[TERMINATED, :, 0].set(states(model, "p", p)), model)


@functools.partial(jax.jit, static_argnums=0)
def assertion(model: Model, p: jax.Array | np.ndarray) -> Command:
    """Terminates at once if the state is in the set p: bool[S]; otherwise aborts."""
    p = states(model, "p", p)
    return choice(test(model, p), sequence(test(model, ~p), abort(model)))


def program_step(
    model: Model, r: jax.Array | np.ndarray | None = None, *, steps: Iterable[int] | None = None
) -> Command:
    """One step of the program, then termination.

    Args:
      model: the traces that there are.
      r: bool[S, S], from which state the step leads to which; all if None.
      steps: the steps that it can be, by their numbers in the space, which name the events there; all of the program
        if None.
    """
    return _step(model, PROGRAM, r, steps)


def environment_step(
    model: Model, r: jax.Array | np.ndarray | None = None, *, steps: Iterable[int] | None = None
) -> Command:
    """One step of the environment, then termination; the arguments are those of `program_step`."""
    return _step(model, ENVIRONMENT, r, steps)


@functools.partial(jax.jit, static_argnums=0)
def atomic(model: Model, allowed: jax.Array | np.ndarray) -> Command:
    """One step, then termination.

    Args:
      model: the traces that there are.
      allowed: bool[S, A], which steps it can be from which state.
    """
    space = model.space
    traces = magic(model).traces
    return Command(traces.at[: INCOMPLETE + 1, :, 1 : 1 + space.num_steps].set(allowed), model)


def _step(model: Model, kind: int, r: jax.Array | np.ndarray | None, steps: Iterable[int] | None) -> Command:
    """One step of this kind, PROGRAM or ENVIRONMENT, within r and among the steps if given; then termination."""
    space = model.space
    is_allowed = np.asarray(space.kinds) == kind  # bool[A]
    if steps is not None:
        chosen = sorted(steps)
        for step in chosen:
            _validate.choice("steps", str(step), map(str, np.flatnonzero(is_allowed).tolist()))
        is_allowed = np.isin(np.arange(space.num_steps), chosen)
    allowed_states = relation(model, "r", np.ones((space.num_states,) * 2, bool) if r is None else r)
    return _step_within(model, allowed_states, is_allowed)


@functools.partial(jax.jit, static_argnums=0)
def _step_within(model: Model, r: jax.Array, is_allowed: np.ndarray) -> Command:
    """One of the steps bool[A] that leads from a state to one within r, bool[S, S]; then termination."""
    return atomic(model, r[:, np.asarray(model.space.targets)] & is_allowed)
