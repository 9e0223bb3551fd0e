"""Which scheme is first under which conditions, and which others cannot be told from it."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gcjax import analysis
from gcjax.analysis import paired, table_cells
from gcjax.analysis.store import Columns
from gcjax.study import seed_values

HEADS = ("Stragglers", "Messages", "First", "Seconds", "Verdict")
MAX_NAMED = 4

NOTES = f"""\
A scheme is indistinguishable from the first one if it reached the target with every seed, and the
{paired.INTERVAL_NAME} of how many times as long it took, seed by seed (Student's t for the mean of the logarithms),
begins at 1 or below. The first one wins where there is none such. Seconds: ± is their standard deviation over seeds.
"""


class Claim(NamedTuple):
    """What is said of one condition.

    Attributes:
      regime: who is slow.
      network: what messages cost.
      first: the scheme with the least mean seconds to the target; None if none got there with every seed.
      seconds: float[S], of that scheme.
      others: name -> float[S] seconds, of the schemes that cannot be told from the first one, the fastest first.
    """

    regime: str
    network: str
    first: str | None
    seconds: np.ndarray
    others: dict[str, np.ndarray]

    @property
    def verdict(self) -> str:
        """In words, who wins, or which schemes cannot be told from the first, or that nobody reached the target."""
        if self.first is None:
            return "nobody reached the target with every seed"
        if not self.others:
            return f"{self.first} wins"
        scheme_texts = [f"{name} ({table_cells.mean_spread_cell(seconds, 1)})" for name, seconds in self.others.items()]
        named_texts, num_unnamed = scheme_texts[:MAX_NAMED], len(scheme_texts) - MAX_NAMED
        return f"indistinguishable from {', '.join(named_texts)}" + (
            f" and {num_unnamed} others" if num_unnamed > 0 else ""
        )


def claim(rows: Columns, regime: str, network: str) -> Claim:
    """Who is first under one condition.

    Args:
      rows: `scheme`, `condition` ("regime, network") and `reach` in seconds, inf if the target was not reached.
      regime: who is slow.
      network: what messages cost.
    """
    condition = f"{regime}, {network}"
    seconds_of_scheme = {
        name: seed_values(rows, name, condition, "reach") for name in dict.fromkeys(rows["scheme"].tolist())
    }
    finite_seconds = {name: seconds for name, seconds in seconds_of_scheme.items() if np.isfinite(seconds).all()}
    if not finite_seconds:
        return Claim(regime, network, first=None, seconds=np.zeros(0), others={})
    fastest_first = sorted(finite_seconds, key=lambda name: float(finite_seconds[name].mean()))
    first_scheme, *later_schemes = fastest_first
    indistinguishable_schemes = {
        name: finite_seconds[name]
        for name in later_schemes
        if indistinguishable(finite_seconds[first_scheme], finite_seconds[name])
    }
    return Claim(regime, network, first_scheme, finite_seconds[first_scheme], indistinguishable_schemes)


def indistinguishable(faster: np.ndarray, slower: np.ndarray) -> bool:
    """Whether seconds of the same seeds, float[S] each, do not say that the first scheme is faster than the other."""
    ratio = paired.times_as_long(faster, slower)
    return ratio is None or ratio.low <= 1


def cells(claims: Iterable[Claim]) -> list[tuple[str, ...]]:
    """The rows of the table, see `HEADS`."""
    return [
        (
            each.regime, each.network, each.first or "-",
            table_cells.mean_spread_cell(each.seconds, 1) if each.first else "-", each.verdict,
        )
        for each in claims
    ]  # fmt: skip


def page(claims: Iterable[Claim]) -> str:
    """The table of claims with what its words mean, in Markdown."""
    return "\n".join(["## Who wins where", "", analysis.markdown_table(HEADS, cells(claims)), "", NOTES])
