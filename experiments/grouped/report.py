"""The tables of the study of delays: every number of groups, the smallest that is good enough, and the claims.

Letters: S seeds.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.grouped import claims as claim
from experiments.grouped.claims import Claim
from experiments.grouped.training import Case, Outcome
from gcjax import analysis

LARGE = 300.0
"""Percent: the claim about progressive grouping is about larger delays."""


class Relative(NamedTuple):
    """An outcome against the synchronous one without delay, seed by seed.

    Attributes:
      outcome: what it was.
      relative_time: float[S], 1 is the time without delay.
      points_lost: float[S] percentage points of accuracy.
    """

    outcome: Outcome
    relative_time: np.ndarray
    points_lost: np.ndarray

    @property
    def num_groups(self) -> int:
        """The number of groups; 0 where progressive grouping chooses it."""
        return self.outcome.scheme.groups

    @property
    def is_progressive(self) -> bool:
        """Whether progressive grouping chose the number of groups."""
        return not self.num_groups

    def is_within_limits(self, factor: float, points: float) -> bool:
        """Whether the mean time and the mean loss of accuracy are within their limits."""
        return bool(self.relative_time.mean() <= factor and self.points_lost.mean() <= points)


def relative(outcomes: Sequence[Outcome]) -> list[Relative]:
    """All outcomes against the first one, which has one group and no delay; accuracy is a share."""
    reference = outcomes[0]
    return [Relative(o, o.time / reference.time, 100 * (reference.accuracy - o.accuracy)) for o in outcomes]


def claims(results: Sequence[Relative], factor: float, points: float) -> list[Claim]:
    """The claims of Basu et al. 2018, as far as these runs are about them.

    The limits: `factor` of the time over that without delay, `points` percentage points of accuracy lost. That
    progressive grouping finishes soon is claimed for one worker delayed by more than `LARGE` percent.
    """
    fixed = [r for r in results if not r.is_progressive]
    progressive = [r for r in results if r.is_progressive]
    claims = [
        _claim_of_finishing_soon(r, factor)
        for r in progressive
        if r.outcome.case.delay > LARGE and len(r.outcome.case.workers) == 1
    ]
    results_by_words = {"progressive grouping": progressive, "every number of groups": fixed}
    for words, results_of_words in results_by_words.items():
        if results_of_words:
            worst_result = max(results_of_words, key=lambda r: r.points_lost.mean())
            text = f"Accuracy lost against no delay at most {points:g} points: {words}, every delay"
            claims.append(
                claim.at_most(text, worst_result.points_lost, points, f"points ({_setting_in_words(worst_result)})")
            )
    claims.append(_claim_that_accuracy_limits_groups(fixed, points))
    for rule in dict.fromkeys(r.outcome.scheme.rule for r in fixed):
        claims += _claims_on_few_stragglers([r for r in fixed if r.outcome.scheme.rule == rule], factor, points)
    return claims


def _claim_of_finishing_soon(result: Relative, factor: float) -> Claim:
    """The claim that progressive grouping takes no more than a factor of the time without delay."""
    limit_in_words = f"within {100 * (factor - 1):.0f} % of the time without delay"
    text = f"{_delay_in_words(result.outcome.case)}: progressive grouping finishes {limit_in_words}"
    return claim.at_most(text, result.relative_time, factor, "times the time")


def _claim_that_accuracy_limits_groups(fixed: Sequence[Relative], points: float) -> Claim:
    """The claim that the permitted loss of accuracy limits the number of groups.

    It holds if the largest number of groups loses more than `points` percentage points, with some rule and delay.
    """
    most_groups = max(r.num_groups for r in fixed)
    worst_result = max((r for r in fixed if r.num_groups == most_groups), key=lambda r: r.points_lost.mean())
    worst_mean_loss = worst_result.points_lost.mean()
    return Claim(
        text=f"The permitted loss of accuracy, {points:g} points, limits the number of groups",
        ours=f"{worst_mean_loss:.2f} points with {most_groups} groups",
        spread=claim.spread(worst_result.points_lost, 2),
        holds=bool(worst_mean_loss > points),
        explanation=f"even {most_groups} groups lose no more than is permitted, {worst_mean_loss:.2f} points",
    )


def _claims_on_few_stragglers(fixed: Sequence[Relative], factor: float, points: float) -> list[Claim]:
    """The claims on several delayed workers: with as many groups as one needs, and with as many as they need.

    A number is what is needed if it is the smallest within both limits; the fastest where none is. `fixed` are the
    results of one rule with fixed numbers of groups; the limits are as of `claims`.
    """
    claims = []
    for case in dict.fromkeys(r.outcome.case for r in fixed if len(r.outcome.case.workers) > 1):
        results_of_case = [r for r in fixed if r.outcome.case == case]
        results_of_one_straggler = [
            r for r in fixed if len(r.outcome.case.workers) == 1 and r.outcome.case.delay == case.delay
        ]
        text = f"Few stragglers have little effect: {_delay_in_words(case)}, {results_of_case[0].outcome.scheme.rule}"
        num_groups_for_one = smallest_number_of_groups(results_of_one_straggler, factor, points)
        if num_groups_for_one is not None:
            result_for_one = next(r for r in results_of_case if r.num_groups == num_groups_for_one)
            text_for_one = f"{text}, {num_groups_for_one} groups, enough for one straggler"
            claims.append(_claim_within_both_limits(text_for_one, result_for_one, factor, points))
        num_groups_needed = smallest_number_of_groups(results_of_case, factor, points)
        fastest_result = min(results_of_case, key=lambda r: r.relative_time.mean())
        best_result = (
            fastest_result
            if num_groups_needed is None
            else next(r for r in results_of_case if r.num_groups == num_groups_needed)
        )
        text_for_best = f"{text}, the best number of groups, {best_result.num_groups}"
        claims.append(_claim_within_both_limits(text_for_best, best_result, factor, points))
    return claims


def _claim_within_both_limits(text: str, result: Relative, factor: float, points: float) -> Claim:
    """The claim that a result is within both limits: `factor` of the time, and `points` of accuracy lost."""
    mean_time, mean_loss = result.relative_time.mean(), result.points_lost.mean()
    ours = f"{mean_time:.2f} times the time, {claim.rounded(mean_loss)} points lost"
    spread = f"{claim.spread(result.relative_time, 2)}, {claim.spread(result.points_lost, 2)}"
    limits = f"{ours}, the limits being {factor:.2f} and {points:.2f}"
    return Claim(text=text, ours=ours, spread=spread, holds=result.is_within_limits(factor, points), explanation=limits)


def smallest_number_of_groups(results: Sequence[Relative], factor: float, points: float) -> int | None:
    """The smallest number of groups with which the means are within the limits; None if there is none."""
    numbers_within_limits = [r.num_groups for r in results if r.is_within_limits(factor, points)]
    return min(numbers_within_limits) if numbers_within_limits else None


def markdown(results: Sequence[Relative], claims: Sequence[Claim], facts: dict[str, Any]) -> str:
    """All tables as a Markdown page."""
    factor, points = limits = facts["factor"], facts["points"]
    progressive = [r for r in results if r.is_progressive]
    fixed = [r for r in results if not r.is_progressive]
    text_of_head = {
        "Claims": claim.markdown(claims),
        "The smallest number of groups that is good enough": _smallest_table(fixed, factor, points),
        "Progressive grouping": _limits_table(
            progressive, limits, ["groups chosen"], lambda r: [_range_text(r.outcome.chosen)]
        ),
        "All numbers of groups": _limits_table(
            fixed, limits, ["rule", "groups"], lambda r: [r.outcome.scheme.rule, str(r.num_groups)]
        ),
    }
    sections = [f"## {head}\n\n{text}" for head, text in text_of_head.items() if text]
    return "\n\n".join(["# Groups under delays", *sections, NOTES.format(**facts)])


def _smallest_table(fixed: Sequence[Relative], factor: float, points: float) -> str:
    """The smallest number of groups within both limits: a line a rule and delay; the spread is the range over seeds."""
    heads = ["delayed", "delay (%)", "rule", "claim", "ours", "spread over seeds", "time", "points lost"]
    limits = f"some number within {factor:g} times and {points:g} points"
    lines = []
    for rule, case in dict.fromkeys((r.outcome.scheme.rule, r.outcome.case) for r in fixed):
        results_of_case = [r for r in fixed if (r.outcome.scheme.rule, r.outcome.case) == (rule, case)]
        smallest_number = smallest_number_of_groups(results_of_case, factor, points)
        num_seeds = results_of_case[0].relative_time.size
        smallest_of_seeds = [
            smallest_number_of_groups(_results_of_seed(results_of_case, seed), factor, points)
            for seed in range(num_seeds)
        ]
        smallest_result = next((r for r in results_of_case if r.num_groups == smallest_number), None)
        mean_cells = ["-", "-"]
        if smallest_result is not None:
            mean_cells = [
                f"{smallest_result.relative_time.mean():.2f}",
                claim.rounded(smallest_result.points_lost.mean()),
            ]
        smallest_text = "none" if smallest_number is None else str(smallest_number)
        seeds_text = _numbers_of_seeds_text(smallest_of_seeds)
        lines.append([*_delay_cells(case), rule, limits, smallest_text, seeds_text, *mean_cells])
    return analysis.markdown_table(heads, lines)


def _numbers_of_seeds_text(numbers: Sequence[int | None]) -> str:
    """The range of the numbers of groups that seeds come to, and how many come to none."""
    numbers_found = sorted({number for number in numbers if number is not None})
    if not numbers_found:
        return "none"
    range_text = f"{numbers_found[0]} to {numbers_found[-1]}" if len(numbers_found) > 1 else f"{numbers_found[0]}"
    return range_text + (f" (none for {numbers.count(None)} seeds)" if None in numbers else "")


def _results_of_seed(results: Sequence[Relative], seed: int) -> list[Relative]:
    entry_of_seed = slice(seed, seed + 1)
    return [
        r._replace(relative_time=r.relative_time[entry_of_seed], points_lost=r.points_lost[entry_of_seed])
        for r in results
    ]


_LIMIT_HEADS = (
    *("claim: time", "ours: time", "time: spread over seeds"),
    *("claim: points lost", "ours: points lost", "points lost: spread over seeds", "both hold", "waiting"),
)


def _limits_table(
    results: Sequence[Relative],
    limits: tuple[float, float],
    heads: Sequence[str],
    cells: Callable[[Relative], list[str]],
) -> str:
    """What each result came to against the limits of time and points, a line each, in Markdown; "" if there is none.

    `heads` and `cells` are of what tells a result from others beside its delay.
    """
    lines = [[*_delay_cells(r.outcome.case), *cells(r), *_limit_cells(r, *limits)] for r in results]
    return analysis.markdown_table(["delayed", "delay (%)", *heads, *_LIMIT_HEADS], lines) if lines else ""


def _limit_cells(result: Relative, factor: float, points: float) -> list[str]:
    """The cells by `_LIMIT_HEADS`: limit, mean and spread of time and of points lost, both held or not, waiting."""
    time_cells = [f"≤ {factor:g}", f"{result.relative_time.mean():.3f}", claim.spread(result.relative_time, 3)]
    mean_loss = claim.rounded(result.points_lost.mean())
    loss_cells = [f"≤ {points:g}", mean_loss, claim.spread(result.points_lost, 2)]
    waiting_percent = 100 * max(0.0, result.outcome.waiting.mean())  # rounding can leave less than nothing
    holds = "yes" if result.is_within_limits(factor, points) else "no"
    return [*time_cells, *loss_cells, holds, f"{waiting_percent:.0f} %"]


def _delay_cells(case: Case) -> list[str]:
    return [case.delayed, f"{case.delay:g}"]


def _delay_in_words(case: Case) -> str:
    return f"{case.delayed} delayed by {case.delay:g} %" if case.delay else "nobody delayed"


def _setting_in_words(result: Relative) -> str:
    rule, case = result.outcome.scheme.rule, result.outcome.case
    return f"{rule}, groups: {result.num_groups or 'progressive'}, {_delay_in_words(case)}"


def _range_text(values: np.ndarray) -> str:
    low, high = values.min(), values.max()
    return str(low) if low == high else f"{low} to {high}"


NOTES = """\
- Time and accuracy are those at the moment at which {num_rounds} units of work for each of {num_workers} workers have
  been committed, whoever has done them, relative to one group without delay on the same seed. A negative loss is a
  gain.
- ± is the standard deviation over {num_seeds} seeds; a claim holds if the mean over seeds is within the limit.
- Progressive grouping pays for its trials: they are part of its time.
"""
