"""The smallest commands: doing nothing, everything, a test, one step.

Letters: S states, A steps.
"""

import functools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra.command import INCOMPLETE, TERMINATED, Command, check_relation, check_states, choice, sequence
from gcjax.algebra.steps import ENVIRONMENT, PROGRAM, steps_of_kind
from gcjax.algebra.traces import Model


def magic(model: Model) -> Command:
    """Can do nothing, not even terminate: the smallest command."""
    traces = np.zeros(model.shape, bool)
    traces[INCOMPLETE, :, 0] = True  # the empty word, number 0: it has taken no step yet
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
    empty_word = 0
    return Command(magic(model).traces.at[TERMINATED, :, empty_word].set(check_states(model, "p", p)), model)


@functools.partial(jax.jit, static_argnums=0)
def assertion(model: Model, p: jax.Array | np.ndarray) -> Command:
    """Terminates at once if the state is in the set p: bool[S]; otherwise aborts."""
    p = check_states(model, "p", p)
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
    return _step_of_kind(model, PROGRAM, r, steps)


def environment_step(
    model: Model, r: jax.Array | np.ndarray | None = None, *, steps: Iterable[int] | None = None
) -> Command:
    """One step of the environment, then termination; the arguments are those of `program_step`."""
    return _step_of_kind(model, ENVIRONMENT, r, steps)


@functools.partial(jax.jit, static_argnums=0)
def atomic(model: Model, allowed: jax.Array | np.ndarray) -> Command:
    """One step, then termination.

    Args:
      model: the traces that there are.
      allowed: bool[S, A], which steps it can be from which state.
    """
    words_of_one_step = slice(1, 1 + model.space.num_steps)  # step a is word a + 1; word 0 is the empty one
    terminated_and_incomplete = slice(TERMINATED, INCOMPLETE + 1)
    traces = magic(model).traces.at[terminated_and_incomplete, :, words_of_one_step].set(allowed)
    return Command(traces, model)


def _step_of_kind(model: Model, kind: int, r: jax.Array | np.ndarray | None, steps: Iterable[int] | None) -> Command:
    """One step of this kind, PROGRAM or ENVIRONMENT, within r and among the steps if given; then termination."""
    is_allowed = steps_of_kind(model.space, kind, steps)  # bool[A]
    all_pairs = np.ones((model.space.num_states,) * 2, bool)
    return _step_within(model, check_relation(model, "r", all_pairs if r is None else r), is_allowed)


@functools.partial(jax.jit, static_argnums=0)
def _step_within(model: Model, r: jax.Array, is_allowed: np.ndarray) -> Command:
    """One of the steps bool[A] that leads from a state to one within r, bool[S, S]; then termination."""
    state_after_step = np.asarray(model.space.targets)
    is_within_r = r[:, state_after_step]  # bool[S, A]
    return atomic(model, is_within_r & is_allowed)
