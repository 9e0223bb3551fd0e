"""Operators with one mistake each, which the laws must notice."""

import functools

import jax.numpy as jnp
import numpy as np

from gcjax.algebra import commands, steps
from gcjax.algebra.command import ABORTED, INCOMPLETE, TERMINATED, Command, abort_closed
from gcjax.algebra.primitives import atomic
from gcjax.algebra.steps import PROGRAM
from gcjax.algebra.synchronise import pairs
from gcjax.algebra.traces import words


def table(change):
    """The table of `||` with its rows changed: `change(space, left, right, both)` is a row, or None for no row."""

    def changed(space):
        rows = [change(space, *row) for row in steps.parallel(space).tolist()]
        return np.asarray([row for row in rows if row], np.int32)

    return commands.synchronise(changed)


def _one_program(space, left, right):
    return PROGRAM in (space.kinds[left], space.kinds[right])


def _any_environments(space):
    number = space.num_states
    extra = [(number + s, number + t, number + s) for s in range(number) for t in range(number)]
    return np.concatenate([steps.parallel(space), np.asarray(extra, np.int32)])


def _mixed_kinds(space):
    number = space.num_states
    extra = [(s, number + s, s) for s in range(number)]
    return np.concatenate([steps.conjunction(space), np.asarray(extra, np.int32)])


def _program_meets(space):
    meets = [(a, b, a) for a, b in enumerate(space.complements) if b >= 0]
    return np.concatenate([steps.parallel(space), np.asarray(meets, np.int32)])


def synchronised(found, close=True, step_table=steps.parallel):
    """`||` with another rule for the statuses: `found(one, other) -> bool[3, S, P]`."""

    def together(c, d):
        left, right, both = pairs(step_table, c.model)
        rows = jnp.stack(found(c.traces[:, :, left], d.traces[:, :, right]))
        traces = jnp.zeros(c.model.shape, bool).at[:, :, both].max(rows)
        return abort_closed(c.model, traces) if close else Command(traces, c.model)

    return together


def _aborts(x, y):
    return x[ABORTED] & y[INCOMPLETE] | x[INCOMPLETE] & y[ABORTED]


def glued(*, middle=True, keep=(INCOMPLETE, ABORTED)):
    """`;` that goes on from the first state, or keeps other traces of its first part as they are."""

    def sequence(c, d):
        prefix, suffix, end = words(c.model)
        states = end[:, prefix] if middle else np.arange(len(end))[:, None, None]
        after = (c.traces[TERMINATED][:, prefix] & d.traces[:, states, suffix]).any(axis=2)
        kept = jnp.zeros_like(c.traces)
        for status in keep:
            kept = kept.at[status].set(c.traces[status])
        if ABORTED in keep:
            kept = kept.at[TERMINATED].set(kept[TERMINATED] | c.traces[ABORTED])
        return Command(after | kept, c.model)

    return sequence


def rounds(first, number, nil=True):
    """An iteration that starts elsewhere, or stops too early."""

    def iterate(c):
        x = first(c.model)
        for _ in range(c.model.max_steps + 2 if number is None else number):
            x = commands.sequence(c, x) | commands.nil(c.model) if nil else commands.sequence(c, x)
        return x

    return iterate


def any_environment(model, r):
    return commands.environment_step(model)


def both_kinds(model, g):
    return commands.omega(commands.program_step(model, g) | commands.environment_step(model, g))


def rely_magic(model, r):
    return commands.omega(commands.program_step(model) | commands.environment_step(model, r))


def rely_once(model, r):
    broken = commands.environment_step(model, ~r) >> commands.abort(model)
    return commands.program_step(model) | commands.environment_step(model, r) | broken


def from_the_target(model, r):
    own = np.asarray(model.space.kinds) == PROGRAM
    return atomic(model, r.T[:, np.asarray(model.space.targets)] & own)


def _model_free(function):
    return functools.wraps(function)(lambda model, *values: function(*values))


_ON_COMMANDS = [
    ("parallel", "two programs step at once", commands.synchronise(steps.csp)),
    ("parallel", "no two environments",
     table(lambda space, a, b, c: _one_program(space, a, b) and (a, b, c))),
    ("parallel", "environments to anywhere", commands.synchronise(_any_environments)),
    ("parallel", "a program's step is lost", table(lambda space, a, b, c: (a, b, max(a, b)))),
    ("parallel", "only the left program", table(lambda space, a, b, c: (a, b, c) if a <= b else None)),
    ("parallel", "nothing follows an abort",
     synchronised(lambda x, y: (x[0] & y[0], x[1] & y[1], _aborts(x, y)), False)),
    ("parallel", "both must abort", synchronised(lambda x, y: x & y)),
    ("parallel", "the other terminates at an abort",
     synchronised(lambda x, y: (x[0] & y[0], x[1] & y[1], x[2] & y[0] | x[0] & y[2]))),
    ("parallel", "one may end first",
     synchronised(lambda x, y: (x[0] & y[1] | x[1] & y[0], x[1] & y[1], _aborts(x, y)))),
    ("weak_conjunction", "abort is ignored", commands.meet),
    ("weak_conjunction", "a program agrees with an environment", commands.synchronise(_mixed_kinds)),
    ("weak_conjunction", "parallel", commands.parallel),
    ("csp_parallel", "parallel", commands.parallel),
    ("csp_parallel", "only together", commands.weak_conjunction),
    ("ccs_parallel", "parallel", commands.parallel),
    ("ccs_parallel", "complements make an event", commands.synchronise(_program_meets)),
    ("sequence", "from the first state", glued(middle=False)),
    ("sequence", "loses what is incomplete", glued(keep=(ABORTED,))),
    ("sequence", "loses aborts", glued(keep=(INCOMPLETE,))),
    ("sequence", "terminates early", glued(keep=(TERMINATED, INCOMPLETE, ABORTED))),
    ("star", "from abort", rounds(commands.abort, None)),
    ("star", "stops after two rounds", rounds(commands.magic, 2)),
    ("omega", "from magic", rounds(commands.magic, None)),
    ("omega", "stops after two rounds", rounds(commands.abort, 2)),
    ("infinite", "from magic", rounds(commands.magic, None, nil=False)),
    ("infinite", "may stop", commands.omega),
    ("choice", "meet", commands.meet),
    ("meet", "choice", commands.choice),
    ("meet", "weak conjunction", commands.weak_conjunction),
]  # fmt: skip

_CONSTRUCTORS = [
    ("test", "of the complement", lambda model, p: commands.test(model, ~p)),
    ("test", "aborts", commands.assertion),
    ("assertion", "is a test", commands.test),
    ("program_step", "backwards", from_the_target),
    ("program_step", "of the environment", commands.environment_step),
    ("environment_step", "to anywhere", any_environment),
    ("guarantee", "of the environment too", both_kinds),
    ("guarantee", "of one step", lambda model, g: commands.program_step(model, g) | commands.environment_step(model)),
    ("rely", "does not abort", rely_magic),
    ("rely", "of one step", rely_once),
    ("rely", "on the program", lambda model, r: commands.rely(model, r) & commands.guarantee(model, r)),
    ("specification", "backwards", lambda model, q: commands.specification(model, q.T)),
    ("specification", "of nothing", lambda model, q: commands.chaos(model)),
    ("skip", "chaos", commands.chaos),
    ("chaos", "abort", commands.abort),
    ("nil", "magic", commands.magic),
]

MUTANTS = [(name, mistake, _model_free(function)) for name, mistake, function in _ON_COMMANDS] + _CONSTRUCTORS
"""The name of the operator, what is wrong, and the operator as the laws call it."""
