"""Claims beside what came out: tables, and in words where a claim does not hold. Letters: S seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gcjax import analysis
from gcjax.tables import RichTable

HEADS = ("claim", "ours", "spread over seeds", "holds")


class Claim(NamedTuple):
    """A claim and what came out here.

    Attributes:
      text: the claim.
      ours: what came out, the mean over seeds.
      spread: the standard deviation over seeds, or the range.
      holds: whether it holds here.
      explanation: what to say, in a few words, where it does not.
    """

    text: str
    ours: str
    spread: str
    holds: bool
    explanation: str


def at_most(text: str, values: np.ndarray, limit: float, unit: str) -> Claim:
    """A claim that a mean over seeds is no larger than a limit, and whether it holds.

    Args:
      text: the claim, in words.
      values: float[S].
      limit: its largest value.
      unit: what is counted, for the table.
    """
    mean = float(values.mean())
    ours = f"{rounded(mean)} {unit}".strip()
    explanation = f"{ours}, the limit being {limit:.2f}"
    holds = mean <= limit
    return Claim(text=text, ours=ours, spread=spread(values, 2), holds=holds, explanation=explanation)


def rounded(value: float) -> str:
    """Two decimals, and no minus before a zero."""
    return f"{round(float(value), 2) + 0.0:.2f}"


def spread(values: np.ndarray, decimals: int) -> str:
    """The standard deviation over seeds (of the population that they are a sample of); a dash if there is only one."""
    return f"± {values.std(ddof=1):.{decimals}f}" if values.size > 1 else "-"


def lines(claims: Sequence[Claim]) -> list[list[str]]:
    """The lines of the table."""
    return [[c.text, c.ours, c.spread, "yes" if c.holds else "no"] for c in claims]


def table(claims: Sequence[Claim]) -> RichTable:
    """The table for the terminal."""
    return analysis.RichTable("Claims, and the means over seeds", HEADS, lines(claims))


def markdown(claims: Sequence[Claim]) -> str:
    """The table, and below it where a claim does not hold."""
    missed_lines = [f"- {c.text}: {c.explanation}." for c in claims if not c.holds]
    if missed_lines:
        verdict_lines = [f"{len(missed_lines)} of {len(claims)} claims do not hold in this setting:", "", *missed_lines]
    else:
        verdict_lines = ["All of these claims hold in this setting."]
    return "\n".join([analysis.markdown_table(HEADS, lines(claims)), "", *verdict_lines])
