"""What the terms of laws mean in the bounded model, for many random instances at once.

Every operator is compiled once for a model, and all laws share these programs: compiling each law as a whole would take
minutes.

Letters: S states, A steps.
"""

import copy
import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.algebra import commands, random_commands
from gcjax.algebra.command import Command
from gcjax.algebra.laws import terms
from gcjax.algebra.laws.terms import Term
from gcjax.algebra.traces import Model

Operators = Mapping[str, Callable[..., Any]]
"""Name -> `(model, *values) -> value`, for one instance."""

_DRAW_OF_SORT = {
    terms.COMMAND: random_commands.command,
    terms.STEP: random_commands.step,
    terms.SET: random_commands.states,
    terms.RELATION: random_commands.relation,
}


def happens(model: Model, a: Command) -> Command:
    """The command `<a>` of event-based programs: a, with the environment's steps around it."""
    environment_steps = commands.skip(model)
    return environment_steps >> a >> environment_steps


def by_start(model: Model, q: jax.Array) -> Command:
    """The choice over all states s of `test(s) >> chaos >> test(image of s)`: the definition of a specification."""
    any_steps = commands.chaos(model)
    single_states = np.eye(model.space.num_states, dtype=bool)  # row s is the set {s}; row s of q its image
    options = [
        commands.test(model, start) >> any_steps >> commands.test(model, allowed_ends)
        for start, allowed_ends in zip(single_states, q, strict=True)
    ]
    return functools.reduce(commands.choice, options)


def reflexive_transitive(relation: jax.Array) -> jax.Array:
    """bool[S, S], the reflexive and transitive closure of a relation bool[S, S] (entry [s, t]: s leads to t)."""
    reached = relation | jnp.eye(len(relation), dtype=bool)
    # Paths twice as long each time; the longest shortest one has S - 1 steps.
    num_doublings = len(relation).bit_length()
    for _ in range(num_doublings):
        reached = _composition(reached, reached)
    return reached


def _composition(r: jax.Array, q: jax.Array) -> jax.Array:
    """bool[S, S], first r, then q."""
    return (r[:, :, None] & q[None]).any(axis=1)


def _operators_with_unused_model(*names: str) -> dict[str, Callable[..., Any]]:
    """The operators of `commands` that take no model, as functions of a model and their arguments."""

    def ignore_model(function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a first argument that it does not use."""
        return functools.wraps(function)(lambda model, *values: function(*values))

    return {name: ignore_model(getattr(commands, name)) for name in names}


OPERATORS: Operators = {
    **{name: getattr(commands, name) for name in ("nil", "magic", "abort", "skip", "chaos", "test", "assertion")},
    **{name: getattr(commands, name) for name in ("guarantee", "rely", "specification")},
    **{name: getattr(commands, name) for name in ("program_step", "environment_step")},
    **_operators_with_unused_model("choice", "meet", "sequence", "star", "omega", "infinite"),
    **_operators_with_unused_model("parallel", "weak_conjunction", "csp_parallel", "ccs_parallel"),
    "any_step": lambda model: commands.program_step(model) | commands.environment_step(model),
    "any_program_step": commands.program_step,
    "any_environment_step": commands.environment_step,
    "internal": lambda model: commands.program_step(model, steps=[model.space.internal]),
    "event": lambda model: commands.program_step(model, steps=[1]),
    "coevent": lambda model: commands.program_step(model, steps=[model.space.complements[1]]),
    "happens": happens,
    "by_start": by_start,
    "all_states": lambda model: np.ones(model.space.num_states, bool),
    "no_states": lambda model: np.zeros(model.space.num_states, bool),
    "everything": lambda model: np.ones((model.space.num_states,) * 2, bool),
    "nothing": lambda model: np.zeros((model.space.num_states,) * 2, bool),
    "union": lambda model, r, q: r | q,
    "intersection": lambda model, r, q: r & q,
    "complement": lambda model, r: ~r,
    "composition": lambda model, r, q: _composition(r, q),
    "restriction": lambda model, p, r: r & p[:, None],
    "reflexive_transitive": lambda model, r: reflexive_transitive(r),
}


class Instances:
    """Values for all terms, in `num` random instances; each term is evaluated once."""

    def __init__(self, model: Model, rng_key: jax.Array, *, num: int):
        """Draws nothing yet.

        Args:
          model: the traces that there are.
          rng_key: what all variables are drawn from.
          num: how many instances.
        """
        self._model, self._key, self._num_instances, self._operators = model, rng_key, num, OPERATORS
        self._value_of_variable: dict[str, Any] = {}

    def by(self, operators: Operators) -> "Instances":
        """The same instances, with another meaning of the names; variables that either draws are drawn for both.

        Args:
          operators: name in the terms -> function of the model and the operator's arguments.
        """
        other = copy.copy(self)
        other._operators = operators
        return other

    def values(self, term: Term, value_of_term: dict[Any, Any] | None = None) -> Any:
        """The value of a term in each instance, with a leading axis [instances].

        Args:
          term: the term.
          value_of_term: values so far; those of all parts of this term are added.
        """
        if term.arguments is None:
            return self._values_of_variable(term)
        value_of_term = {} if value_of_term is None else value_of_term
        key = _hashable_term(term)
        if key not in value_of_term:
            argument_values = [self.values(argument, value_of_term) for argument in term.arguments]
            value_of_term[key] = self._over_instances(self._operators[term.name], argument_values)
        return value_of_term[key]

    def _values_of_variable(self, term: Term) -> Any:
        """The values of a variable in each instance, drawn at its first use, from its name and the key."""
        if term.name not in self._value_of_variable:
            variable_key = jax.random.fold_in(self._key, zlib.crc32(term.name.encode()))
            instance_keys = jax.random.split(variable_key, self._num_instances)
            self._value_of_variable[term.name] = self._over_instances(_DRAW_OF_SORT[term.sort], [instance_keys])
        return self._value_of_variable[term.name]

    def _over_instances(self, operator: Callable[..., Any], argument_values: list[Any]) -> Any:
        """An operator in each instance; one without arguments is the same in all of them."""
        operator_on_model = functools.partial(operator, self._model)
        if argument_values:
            return jax.vmap(operator_on_model)(*argument_values)
        same_value = operator_on_model()
        return jax.tree.map(lambda x: jnp.asarray(np.broadcast_to(x, (self._num_instances, *x.shape))), same_value)


def _hashable_term(term: Term) -> Any:
    """A hashable that is equal for equal terms; `==` of terms makes a claim."""
    return term.name, term.sort, term.arguments and tuple(map(_hashable_term, term.arguments))
