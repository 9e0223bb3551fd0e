"""Whether a specification holds: each component on its own, all together by the theory, and all together by trying.

1. Each component on its own: its program, in any environment on which it relies, keeps to its guarantee, and the
   property holds in every state that it comes to.
2. Composition: what each relies on contains the guarantees of all others, and doing nothing. By the law for parallel
   introduction, all components together then have the property, and that has been found without their product.
3. The product: all programs together, step by step; every step is in its guarantee, and the property holds.
4. Progress: there is no state in which nobody can move. That follows from no law here, since traces are finite and
   guarantees say what steps are, not that there are any; so it is tried out. It says nothing about fairness.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from gcjax.specifications.base import Specification, layout
from gcjax.specifications.estimate import check_size
from gcjax.specifications.moves import Stepper
from gcjax.specifications.reachability import Exploration, Step, explore
from gcjax.wording import counted

NUM_REPEATS = 3
"""Searches of which the fastest counts."""
VIOLATIONS = {
    "guarantee": "takes a step that it does not guarantee",
    "property": "the property does not hold",
    "rely": "another component guarantees a step on which it does not rely",
    "progress": "nobody can move",
}


class Finding(NamedTuple):
    """What one part of the check has found; true in a condition if it holds.

    Attributes:
      part: what was checked, "worker 0 alone" for example.
      holds: whether it holds, in the states that were looked at.
      states: the states that were reached; 0 if none had to be.
      transitions: the steps that were looked at.
      reason: what does not hold; empty if it does.
      counterexample: a shortest way to it.
      is_complete: whether all states were looked at; otherwise it ended where the property fails.
    """

    part: str
    holds: bool
    states: int = 0
    transitions: int = 0
    reason: str = ""
    counterexample: tuple[Step, ...] = ()
    is_complete: bool = True

    def __bool__(self) -> bool:
        """Whether it holds."""
        return self.holds


class Result(NamedTuple):
    """What was found about a specification; true in a condition if everything holds.

    Attributes:
      specification: what was checked.
      components: each component on its own.
      composition: whether each relies only on what the others guarantee.
      product: all programs together.
      progress: whether somebody can always move.
    """

    specification: Specification
    components: tuple[Finding, ...]
    composition: Finding
    product: Finding
    progress: Finding

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them."""
        return (*self.components, self.composition, self.product, self.progress)

    @property
    def by_composition(self) -> bool:
        """Whether the parallel introduction law gives the property."""
        return bool(self.composition) and all(self.components)

    @property
    def holds(self) -> bool:
        """Whether everything does, progress included."""
        return all(self.findings)

    def __bool__(self) -> bool:
        """As `holds`."""
        return self.holds

    def __str__(self) -> str:
        """In words, a line for each part."""
        return "\n".join(
            [f"{self.specification.name}:", *(f"  {p.part}: {self.finding_in_words(p)}" for p in self.findings)]
        )

    def finding_in_words(self, finding: Finding) -> str:
        """What the finding says in words; it is one of `findings`, or an equal one with another `part`."""
        if not finding.holds:
            return f"fails after {counted(len(finding.counterexample), 'step')}: {finding.reason}"
        if not finding.is_complete:
            return "holds up to where the property fails; not looked at behind that"
        if finding is self.composition:
            conclusion = (
                "so the property follows" if self.by_composition else "but not every component keeps to its part"
            )
            return f"each relies only on what the others guarantee, {conclusion}"
        if finding is self.progress:
            return "somebody can always move (tried out: no law gives it; without fairness)"
        return f"holds: {self.specification.claim}"


def check(specification: Specification) -> Result:
    """Checks a specification; a small instance of a protocol.

    That is each component on its own, in any environment on which it relies; whether that is what the others guarantee;
    all programs together; and that somebody can always move.

    Raises:
      ValueError: if the instance is too large; told before anything is explored where workers do not wait for each
        other.

    Example:
      >>> result = gcjax.specifications.check(gcjax.specifications.ssp(2, staleness=1))
      >>> result.holds, result.by_composition
      (True, True)
    """
    stepper = Stepper(specification, layout(specification))
    check_size(stepper)
    explorations_alone = [
        explore(specification, component, stepper=stepper) for component in range(specification.num_components)
    ]
    names = [specification.component_name(component) for component in range(specification.num_components)]
    product = explore(specification, stepper=stepper)
    components = [
        _shortest_failure(f"{name} alone", exploration, "guarantee", "property")
        for name, exploration in zip(names, explorations_alone, strict=True)
    ]
    return Result(
        specification=specification,
        components=tuple(components),
        composition=_composition(specification, explorations_alone, names),
        product=_shortest_failure("all together", product, "guarantee", "property"),
        progress=_shortest_failure("progress", product, "progress"),
    )


def _shortest_failure(part: str, exploration: Exploration, *kinds: str) -> Finding:
    """The finding that an exploration gives: its shortest failure of these kinds, or that there is none."""
    failures = [(len(exploration.failures[kind]), kind) for kind in kinds if kind in exploration.failures]
    if not failures:
        return Finding(
            part,
            holds=True,
            states=exploration.states,
            transitions=exploration.transitions,
            is_complete=exploration.is_complete,
        )
    _, kind = min(failures)  # that with the fewest steps
    return Finding(
        part=part,
        holds=False,
        states=exploration.states,
        transitions=exploration.transitions,
        reason=VIOLATIONS[kind],
        counterexample=exploration.failures[kind],
    )


def _composition(specification: Specification, explorations: list[Exploration], names: list[str]) -> Finding:
    """Whether each component, `names`, is content with all that the others guarantee, and with their doing nothing.

    `explorations` are those of each component, which have looked at the guaranteed steps from all its states.
    """
    for name, exploration in zip(names, explorations, strict=True):
        if "rely" in exploration.failures:
            counterexample, reason = exploration.failures["rely"], f"{name}: {VIOLATIONS['rely']}"
            return Finding("composition", holds=False, reason=reason, counterexample=counterexample)
    if specification.rely is not None:
        state = specification.canonicalise(specification.initial)
        for component, name in enumerate(names):
            if not bool(specification.rely(state, state, jnp.asarray(component))):
                counterexample = (Step("environment", "nothing", state, state),)
                reason = f"{name} relies on the others to do something"
                return Finding("composition", holds=False, reason=reason, counterexample=counterexample)
    return Finding("composition", holds=True, is_complete=all(e.is_complete for e in explorations))


def states_per_second(specification: Specification) -> float:
    """The states that the product reaches in a second, in the fastest search after one that compiles.

    Each is looked at once, with the moves of all components, their guarantees and the property.
    """
    stepper = Stepper(specification, layout(specification))
    explore(specification, stepper=stepper)
    explorations = [explore(specification, stepper=stepper) for _ in range(NUM_REPEATS)]
    return float(np.max([exploration.states / exploration.seconds for exploration in explorations]))
