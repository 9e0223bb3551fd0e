"""The tables of the study of delays: every number of groups, the smallest that is good enough, and the claims.

Letters: S seeds.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.grouped import claims as claim
from experiments.grouped.claims import Claim
from experiments.grouped.training import Outcome
from gcjax import analysis
from gcjax.tables import RichTable

LARGE = 300.0
"""Percent: the claim about progressive grouping is about larger delays."""


class Relative(NamedTuple):
    """An outcome against the synchronous one without delay, seed by seed.

    Attributes:
      outcome: what it was.
      time: float[S], 1 is the time without delay.
      lost: float[S] percentage points of accuracy.
    """

    outcome: Outcome
    time: np.ndarray
    lost: np.ndarray

    def good(self, factor: float, points: float) -> bool:
        """Whether the mean time and the mean loss of accuracy are within their limits."""
        return bool(self.time.mean() <= factor and self.lost.mean() <= points)


def relative(outcomes: Sequence[Outcome]) -> list[Relative]:
    """All outcomes against the first one, which has one group and no delay."""
    first = outcomes[0]
    return [Relative(o, o.time / first.time, 100 * (first.accuracy - o.accuracy)) for o in outcomes]


def claims(results: Sequence[Relative], factor: float, points: float) -> list[Claim]:
    """The claims of Basu et al. 2018, as far as these runs are about them."""
    fixed = [r for r in results if r.outcome.scheme.groups]
    progressive = [r for r in results if not r.outcome.scheme.groups]
    late = f"within {100 * (factor - 1):.0f} % of the time without delay"
    claims = [
        claim.at_most(f"{_where(r.outcome)}: progressive grouping finishes {late}", r.time, factor, "times the time")
        for r in progressive
        if r.outcome.case.delay > LARGE and len(r.outcome.case.workers) == 1
    ]
    for what, group in (("progressive grouping", progressive), ("every number of groups", fixed)):
        if group:
            worst = max(group, key=lambda r: r.lost.mean())
            text = f"Accuracy lost against no delay at most {points:g} points: {what}, every delay"
            claims.append(claim.at_most(text, worst.lost, points, f"points ({_name(worst)})"))
    claims.append(_limited(fixed, points))
    for rule in dict.fromkeys(r.outcome.scheme.rule for r in fixed):
        claims += _few_stragglers([r for r in fixed if r.outcome.scheme.rule == rule], factor, points)
    return claims


def _limited(fixed: Sequence[Relative], points: float) -> Claim:
    """The claim that the permitted loss of accuracy limits the number of groups."""
    most_groups = max(r.outcome.scheme.groups for r in fixed)
    worst = max((r for r in fixed if r.outcome.scheme.groups == most_groups), key=lambda r: r.lost.mean())
    ours = f"{worst.lost.mean():.2f} points with {most_groups} groups"
    return Claim(
        text=f"The permitted loss of accuracy, {points:g} points, limits the number of groups",
        ours=ours, spread=claim.spread(worst.lost, 2), holds=bool(worst.lost.mean() > points),
        explanation=f"even {most_groups} groups lose no more than is permitted, {worst.lost.mean():.2f} points",
    )  # fmt: skip


def _few_stragglers(fixed: Sequence[Relative], factor: float, points: float) -> list[Claim]:
    """Several delayed workers, with as many groups as one needs, and with as many as they need."""
    claims = []
    for case in dict.fromkeys(r.outcome.case for r in fixed if len(r.outcome.case.workers) > 1):
        in_case = [r for r in fixed if r.outcome.case == case]
        first = in_case[0].outcome
        alone = [r for r in fixed if len(r.outcome.case.workers) == 1 and r.outcome.case.delay == first.case.delay]
        text = f"Few stragglers have little effect: {_where(first)}, {first.scheme.rule}"
        enough = smallest(alone, factor, points)
        if enough is not None:
            same = next(r for r in in_case if r.outcome.scheme.groups == enough)
            claims.append(_both_limits(f"{text}, {enough} groups, enough for one straggler", same, factor, points))
        best = smallest(in_case, factor, points)
        chosen = min(in_case, key=lambda r: r.time.mean() if best is None else abs(r.outcome.scheme.groups - best))
        claims.append(
            _both_limits(f"{text}, the best number of groups, {chosen.outcome.scheme.groups}", chosen, factor, points)
        )
    return claims


def _both_limits(text: str, result: Relative, factor: float, points: float) -> Claim:
    ours = f"{result.time.mean():.2f} times the time, {claim.rounded(result.lost.mean(), 2)} points lost"
    spread = f"{claim.spread(result.time, 2)}, {claim.spread(result.lost, 2)}"
    limits = f"{ours}, the limits being {factor:.2f} and {points:.2f}"
    return Claim(text=text, ours=ours, spread=spread, holds=result.good(factor, points), explanation=limits)


def smallest(results: Sequence[Relative], factor: float, points: float) -> int | None:
    """The smallest number of groups with which the means are within the limits; None if there is none."""
    good = [r.outcome.scheme.groups for r in results if r.good(factor, points)]
    return min(good) if good else None


def table(claims: Sequence[Claim]) -> RichTable:
    """The claims for the terminal."""
    return analysis.rich_table("Claims, and the means over seeds", claim.HEADS, claim.lines(claims))


def markdown(results: Sequence[Relative], claims: Sequence[Claim], facts: dict[str, Any]) -> str:
    """All tables as a Markdown page."""
    factor, points = facts["factor"], facts["points"]
    sections = {
        "Claims": claim.markdown(claims),
        "The smallest number of groups that is good enough": _smallest_table(results, factor, points),
        **({"Progressive grouping": chosen} if (chosen := _progressive_table(results, factor, points)) else {}),
        "All numbers of groups": _grid(results, factor, points),
    }
    heads = ["# Groups under delays"] + [f"## {head}\n\n{text}" for head, text in sections.items()]
    return "\n\n".join([*heads, NOTES.format(**facts)])


def _smallest_table(results: Sequence[Relative], factor: float, points: float) -> str:
    """One line a rule and delay; the spread is the range over seeds."""
    heads = ["delayed", "delay (%)", "rule", "claim", "ours", "spread over seeds", "time", "points lost"]
    lines, fixed = [], [r for r in results if r.outcome.scheme.groups]
    for rule, case in dict.fromkeys((r.outcome.scheme.rule, r.outcome.case) for r in fixed):
        in_case = [r for r in fixed if (r.outcome.scheme.rule, r.outcome.case) == (rule, case)]
        best = smallest(in_case, factor, points)
        each = [smallest(_one_seed(in_case, s), factor, points) for s in range(in_case[0].time.size)]
        ranged = sorted({n for n in each if n is not None})
        spread = f"{ranged[0]} to {ranged[-1]}" if len(ranged) > 1 else f"{ranged[0]}" if ranged else "none"
        spread += f" (none for {each.count(None)} seeds)" if ranged and None in each else ""
        chosen = next((r for r in in_case if r.outcome.scheme.groups == best), None)
        shown = ["-", "-"] if chosen is None else [f"{chosen.time.mean():.2f}", claim.rounded(chosen.lost.mean(), 2)]
        limit = f"some number within {factor:g} times and {points:g} points"
        lines.append([*_case(in_case[0].outcome), rule, limit, "none" if best is None else str(best), spread, *shown])
    return analysis.markdown_table(heads, lines)


def _one_seed(results: Sequence[Relative], seed: int) -> list[Relative]:
    return [r._replace(time=r.time[seed : seed + 1], lost=r.lost[seed : seed + 1]) for r in results]


def _progressive_table(results: Sequence[Relative], factor: float, points: float) -> str:
    heads = ["delayed", "delay (%)", "groups chosen", *_LIMITED]
    progressive = [r for r in results if not r.outcome.scheme.groups]
    lines = [[*_case(r.outcome), _range(r.outcome.chosen), *_cells(r, factor, points)] for r in progressive]
    return analysis.markdown_table(heads, lines) if lines else ""


_LIMITED = (
    *("claim: time", "ours", "spread over seeds"),
    *("claim: points lost", "ours", "spread over seeds", "both hold", "waiting"),
)


def _grid(results: Sequence[Relative], factor: float, points: float) -> str:
    heads = ["delayed", "delay (%)", "rule", "groups", *_LIMITED]
    fixed = [r for r in results if r.outcome.scheme.groups]
    lines = [
        [*_case(r.outcome), r.outcome.scheme.rule, str(r.outcome.scheme.groups), *_cells(r, factor, points)]
        for r in fixed
    ]
    return analysis.markdown_table(heads, lines)


def _cells(result: Relative, factor: float, points: float) -> list[str]:
    time, lost = result.time, result.lost
    return [
        f"≤ {factor:g}", f"{time.mean():.3f}", claim.spread(time, 3),
        f"≤ {points:g}", claim.rounded(lost.mean(), 2), claim.spread(lost, 2),
        "yes" if result.good(factor, points) else "no",
        f"{100 * max(0.0, result.outcome.waiting.mean()):.0f} %",
    ]  # fmt: skip


def _case(outcome: Outcome) -> list[str]:
    return [outcome.case.delayed, f"{outcome.case.delay:g}"]


def _where(outcome: Outcome) -> str:
    return f"{outcome.case.delayed} delayed by {outcome.case.delay:g} %" if outcome.case.delay else "nobody delayed"


def _name(result: Relative) -> str:
    outcome = result.outcome
    return f"{outcome.scheme.rule}, groups: {outcome.scheme.groups or 'progressive'}, {_where(outcome)}"


def _range(values: np.ndarray) -> str:
    low, high = values.min(), values.max()
    return str(low) if low == high else f"{low} to {high}"


NOTES = """\
- Time and accuracy are those at the moment at which {num_rounds} units of work for each of {num_workers} workers have
  been committed, whoever has done them, relative to one group without delay on the same seed. A negative loss is a
  gain.
- ± is the standard deviation over {num_seeds} seeds; a claim holds if the mean over seeds is within the limit.
- Progressive grouping pays for its trials: they are part of its time.
"""
