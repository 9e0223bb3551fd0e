"""From durations on which a protocol breaks a rule to the smallest ones that do it, as far as a few tries tell."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

MAX_ENTRIES = 32  # that are tried


def smallest_case(broken_rule_of: Callable[[Any], str], rule: str, case: Any, *, step: int = 1) -> tuple[str, Any]:
    """The broken rule and a case with fewer units and workers and simpler durations that still breaks one.

    Args:
      broken_rule_of: `case -> rule`, the rule that a case breaks, in a sentence; empty if it breaks none.
      rule: that the given case breaks.
      case: a named tuple `(durations float[T, W], messages float[3, W])`.
      step: the units of a round.
    """
    for smaller in _smaller_cases(case, step):
        broken_rule = broken_rule_of(smaller)
        if broken_rule:
            rule, case = broken_rule, smaller
            break
    without_messages = case._replace(messages=np.zeros_like(case.messages))
    broken_rule = broken_rule_of(without_messages) if case.messages.any() else ""
    if broken_rule:
        rule, case = broken_rule, without_messages
    for simplify in _simplifications(case):
        changed = case._replace(durations=simplify(case.durations))
        broken_rule = "" if np.array_equal(changed.durations, case.durations) else broken_rule_of(changed)
        if broken_rule:
            rule, case = broken_rule, changed
    return rule, case


def _smaller_cases(case: Any, step: int) -> Iterator[Any]:
    """Cases of the first one to three rounds, of `step` units, and the first two workers or all; the smallest first."""
    num_units, num_workers = case.durations.shape
    units = [n * step for n in (1, 2, 3) if n * step < num_units]
    for workers in sorted({min(2, num_workers), num_workers}):
        for n in [*units, *([num_units] if workers < num_workers else [])]:
            yield case._replace(durations=case.durations[:n, :workers], messages=case.messages[:, :workers])


def _simplifications(case: Any) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Functions of the durations: all ones, or one entry after the other as 1 or rounded up to a whole number."""
    yield np.ones_like
    for index in list(np.ndindex(case.durations.shape))[:MAX_ENTRIES]:
        for value in (1.0, np.ceil(case.durations[index])):

            def with_value(durations: np.ndarray, index: Any = index, value: float = value) -> np.ndarray:
                """The durations with one entry changed."""
                durations = durations.copy()
                durations[index] = value
                return durations

            yield with_value
