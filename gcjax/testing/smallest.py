"""From durations on which a protocol breaks a rule to the smallest ones that do it, as far as a few tries tell."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

MAX_ENTRIES = 32  # that are tried


def smallest_case(
    broken_rule_of: Callable[[Any], str], rule: str, case: Any, *, round_units: int = 1
) -> tuple[str, Any]:
    """The broken rule and a case with fewer units and workers and simpler durations that still breaks it.

    That is the same rule but for numbers: a case of too few units for a protocol can break others.

    Args:
      broken_rule_of: `case -> rule`, the rule that a case breaks, in a sentence; empty if it breaks none.
      rule: that the given case breaks.
      case: a named tuple `(durations float[T, W], message_seconds float[3, W])`: latency, upload, download.
      round_units: the units of each worker in a round.
    """

    def still_breaks(other: Any) -> bool:
        """Whether another case breaks the same rule; it is then the case from now on."""
        nonlocal rule, case
        broken_rule = broken_rule_of(other)
        if not broken_rule or _without_example(broken_rule) != _without_example(rule):
            return False
        rule, case = broken_rule, other
        return True

    any(still_breaks(smaller) for smaller in _smaller_cases(case, round_units))  # the first that does
    if case.message_seconds.any():
        still_breaks(case._replace(message_seconds=np.zeros_like(case.message_seconds)))
    for simplify in _simplifications(case):
        simplified_durations = simplify(case.durations)
        if not np.array_equal(simplified_durations, case.durations):
            still_breaks(case._replace(durations=simplified_durations))
    return rule, case


def _without_example(rule: str) -> str:
    """The rule without what follows on its first semicolon, and with # for each number."""
    return re.sub(r"\d[\d.e+-]*", "#", rule.partition(";")[0])


def _smaller_cases(case: Any, round_units: int) -> Iterator[Any]:
    """Cases of the first one to three rounds, of so many units, and of two workers or all; the smallest first.

    The last of those with two workers has all units. A case has durations float[T, W], message_seconds float[3, W].
    """
    num_units, num_workers = case.durations.shape
    units_of_first_rounds = [n * round_units for n in (1, 2, 3) if n * round_units < num_units]
    for num_first_workers in sorted({min(2, num_workers), num_workers}):
        all_units_if_smaller = [num_units] if num_first_workers < num_workers else []
        for num_first_units in [*units_of_first_rounds, *all_units_if_smaller]:
            yield case._replace(
                durations=case.durations[:num_first_units, :num_first_workers],
                message_seconds=case.message_seconds[:, :num_first_workers],
            )


def _simplifications(case: Any) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Functions of the durations: all ones, or one entry after the other as 1 or rounded up to a whole number.

    Of the first `MAX_ENTRIES`; inf stays so when it is rounded.
    """
    yield np.ones_like
    for index in list(np.ndindex(case.durations.shape))[:MAX_ENTRIES]:
        for simpler_value_of in (np.ones_like, np.ceil):
            yield functools.partial(_with_entry, index=index, value_of=simpler_value_of)


def _with_entry(durations: np.ndarray, *, index: tuple[int, ...], value_of: Callable[[Any], Any]) -> np.ndarray:
    """The durations with one entry changed, to what the function makes of it."""
    durations = durations.copy()
    durations[index] = value_of(durations[index])
    return durations
