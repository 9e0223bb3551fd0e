"""What a program guarantees, what it relies on, and what it is to bring about.

Hayes, "Generalised rely-guarantee concurrency: an algebraic foundation", Formal Aspects of Computing 28 (2016).
Specifications are of partial correctness: nothing here demands that a program terminates.

Letters: S states.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra.command import TERMINATED, Command, check_relation, choice, sequence
from gcjax.algebra.iteration import omega
from gcjax.algebra.primitives import abort, environment_step, program_step
from gcjax.algebra.traces import Model, words


def skip(model: Model) -> Command:
    """Lets the environment do any number of steps."""
    return omega(environment_step(model))


def chaos(model: Model) -> Command:
    """Any number of steps of any kind, without aborting."""
    return omega(choice(program_step(model), environment_step(model)))


def guarantee(model: Model, g: jax.Array | np.ndarray) -> Command:
    """Every step of the program is in g: bool[S, S]."""
    return omega(choice(program_step(model, check_relation(model, "g", g)), environment_step(model)))


def rely(model: Model, r: jax.Array | np.ndarray) -> Command:
    """Aborts once a step of the environment is not in r: bool[S, S]."""
    r = check_relation(model, "r", r)
    abort_after_other_step = sequence(environment_step(model, ~r), abort(model))
    return omega(choice(choice(program_step(model), environment_step(model, r)), abort_after_other_step))


def specification(model: Model, q: jax.Array | np.ndarray) -> Command:
    """Any steps, but if it terminates, then from start to end in q: bool[S, S].

    It is the choice over all states s of `test(s) >> chaos >> test(image of s under q)`.
    """
    q = check_relation(model, "q", q)
    return _with_allowed_ends(chaos(model), q)


@jax.jit
def _with_allowed_ends(c: Command, q: jax.Array) -> Command:
    """The command without the terminated traces whose start and end are not in q, bool[S, S]."""
    # end: int32[S, N], in which state the trace of each start and word ends.
    is_allowed_end = jnp.take_along_axis(q, jnp.asarray(words(c.model).end), axis=1)  # bool[S, N]
    return Command(c.traces.at[TERMINATED].set(c.traces[TERMINATED] & is_allowed_end), c.model)
