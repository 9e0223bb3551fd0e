"""Tries laws on random instances of the bounded model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax import _validate
from gcjax.algebra import commands
from gcjax.algebra.command import Command
from gcjax.algebra.laws.meaning import Instances
from gcjax.algebra.laws.table import EVENTS, LAWS, STATES, Law
from gcjax.algebra.laws.terms import Claim
from gcjax.algebra.refinement import Trace, refines
from gcjax.algebra.steps import events, shared_memory
from gcjax.algebra.traces import Model


class Counterexample(NamedTuple):
    """Where a law fails.

    Attributes:
      claim: the claim that does.
      instance: the number of the random instance.
      by: the side that accepts the trace: "left" or "right".
      trace: the shortest trace that only this side accepts.
      left: what is on the left, in this instance.
      right: what is on the right.
    """

    claim: Claim
    instance: int
    by: str
    trace: Trace
    left: Command
    right: Command

    def __str__(self) -> str:
        """The claim and the trace."""
        return f"{self.claim}\nonly the {self.by} side has the trace\n{self.trace}"


class Result(NamedTuple):
    """What became of a law.

    Attributes:
      law: the row.
      outcome: "holds", "refuted" or "out of reach".
      counterexample: of a refuted one.
    """

    law: Law
    outcome: str
    counterexample: Counterexample | None = None

    @property
    def is_expected(self) -> bool:
        """Whether it came out as the table says."""
        return self.outcome == {"axiom": "holds", "law": "holds"}.get(self.law.kind, self.law.kind)


def check_all(
    *,
    num_states: int = 2,
    max_steps: int = 4,
    num_instances: int = 32,
    rng_key: jax.Array | None = None,
    laws: Sequence[Law] = LAWS,
) -> list[Result]:
    """Tries laws on random instances.

    Laws of events are tried where there are as many steps: with `num_states - 1` pairs of events.

    Args:
      num_states: S of shared memory, at least 2.
      max_steps: the most steps of a trace.
      num_instances: how many random instances; the variables of all laws are the same in each.
      rng_key: what they are drawn from; `jax.random.key(0)` if None.
      laws: the rows to try.
    """
    num_states = _validate.integer("num_states", num_states, minimum=2, hint="With one state a relation says nothing.")
    num_instances = _validate.integer("num_instances", num_instances, minimum=1)
    key = jax.random.key(0) if rng_key is None else rng_key
    spaces = {STATES: shared_memory(num_states), EVENTS: events(num_states - 1)}
    instances = {name: Instances(Model(space, max_steps), key, num=num_instances) for name, space in spaces.items()}
    return [check(law, instances[law.space]) for law in laws]


def check(law: Law, instances: Instances) -> Result:
    """Tries one law on these instances: "holds", "refuted" with the first counterexample, or "out of reach"."""
    if law.kind == "out of reach":
        return Result(law, law.kind)
    value_of_term: dict[Any, Any] = {}  # so that each is computed once
    for claim in law.claims:
        left, right = instances.values(claim.left, value_of_term), instances.values(claim.right, value_of_term)
        counterexample = _counterexample(claim, left, right)
        if counterexample is not None:
            return Result(law, "refuted", counterexample)
    return Result(law, "holds")


def _counterexample(claim: Claim, left: Command, right: Command) -> Counterexample | None:
    """The first instance in which a claim is false; the sides have a leading axis of instances."""
    relation = commands.includes if claim.relation == ">=" else commands.equal
    refuting_instances = np.flatnonzero(~np.asarray(jax.vmap(relation)(left, right)))
    if not refuting_instances.size:
        return None
    instance = int(refuting_instances[0])
    left_side, right_side = (Command(side.traces[instance], side.model) for side in (left, right))
    only_right = refines(left_side, right_side).trace  # a trace that the left side does not have; None if it has all
    only_left = None if only_right is not None else refines(right_side, left_side).trace
    trace, side_with_trace = (only_left, "left") if only_right is None else (only_right, "right")
    assert trace is not None
    return Counterexample(
        claim=claim, instance=instance, by=side_with_trace, trace=trace, left=left_side, right=right_side
    )
