"""What an advice says in a few sentences."""

from collections.abc import Sequence

from gcjax.advice.base import APPROXIMATE, CODED, EXACT, LOCAL, STALE, Advice, Estimate, SchemeAdvice
from gcjax.advice.labels import label
from gcjax.protocols import bsp

LEAST_COST = 0.02
"""If stragglers cost less than this share of BSP's time, there is nothing to win back."""


def verdict(advice: Advice) -> str:
    """What stragglers cost, what wins most of it back without touching the gradient, and what does otherwise."""
    cost = f"Stragglers cost {share(advice.cost)} of BSP's time"
    if advice.cost.high < LEAST_COST:
        return f"Nothing to win back: {cost[0].lower()}{cost[1:]}, less than {LEAST_COST:.0%}."
    if advice.cost.low < LEAST_COST:
        return f"Cannot tell whether there is anything to win back: {cost[0].lower()}{cost[1:]}."
    return "\n".join([f"{cost}.", _of_same_gradient(advice), _of_other_gradients(advice)]).strip()


def _of_same_gradient(advice: Advice) -> str:
    """The best scheme whose steps are those of BSP."""
    rows = [row for row in advice.schemes if row.exactness in (EXACT, CODED)]
    best, baseline = rows[0], next(row for row in rows if row.scheme.protocol == bsp())
    if best is baseline or best.won_back.value <= 1e-6:
        return "With the same gradient no scheme that was tried wins anything back."
    said = f"{label(best.scheme)} wins back {share(best.won_back)}"
    if baseline.is_tied_in_class:
        return f"With the same gradient: cannot tell whether any scheme is faster than BSP; {said}."
    return f"With the same gradient: {said}{_and_indistinguishable(rows)}."


def _of_other_gradients(advice: Advice) -> str:
    """The best scheme of each other class that wins more back than BSP, and what is not known about it."""
    parts = []
    for name in (APPROXIMATE, STALE, LOCAL):
        rows = [row for row in advice.schemes if row.exactness == name]
        if rows and rows[0].won_back.low > 0:
            parts.append(f"{label(rows[0].scheme)} {share(rows[0].won_back)} ({name})")
    if not parts:
        return ""
    said = f"With other gradients: {', '.join(parts)}."
    if advice.target:
        return f"{said}\n{_trained(advice)}"
    return (
        f"{said} Whether these steps are worth as much needs your task with a target: give them (study=, or --config "
        "of a study with study.target)."
    )


def _trained(advice: Advice) -> str:
    """Who reached the target first."""
    trained = [(sum(row.reach) / len(row.reach), row) for row in advice.schemes if row.reach]
    reached = sorted(((seconds, row) for seconds, row in trained if seconds < float("inf")), key=lambda pair: pair[0])
    if not reached:
        return f"Trained on your task, no scheme reached {advice.target}."
    seconds, row = reached[0]
    return f"Trained on your task, {label(row.scheme)} reached {advice.target} first, after {seconds:.4g} s."


def _and_indistinguishable(rows: Sequence[SchemeAdvice]) -> str:
    """Which others cannot be told from the first one."""
    tied = [label(row.scheme) for row in rows[1:] if row.is_tied_in_class]
    return f"; indistinguishable from it: {', '.join(tied)}" if tied else ""


def share(estimate: Estimate) -> str:
    """A share in percent with its interval."""
    return f"{percent(estimate.value)} % [{percent(estimate.low)}, {percent(estimate.high)}]"


def percent(value: float) -> str:
    """A share in percent, with one digit behind the point below 10 %."""
    if value != value:
        return "-"
    digits = 1 if abs(value) < 0.0995 else 0
    return f"{100 * value + 0.0:.{digits}f}".replace("-0.0", "0.0")
