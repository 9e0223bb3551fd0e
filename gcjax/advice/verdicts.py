"""What an advice says in a few sentences."""

from collections.abc import Sequence

from gcjax.advice import targets
from gcjax.advice.base import APPROXIMATE, CODED, EXACT, LOCAL, STALE, Advice, Estimate, SchemeAdvice
from gcjax.analysis import paired
from gcjax.protocols import bsp
from gcjax.wording import text_list

LEAST_COST = 0.02
"""If stragglers cost less than this share of BSP's time, there is nothing to win back."""

_MAX_TIED = 4  # that are named


def verdict(advice: Advice) -> str:
    """What stragglers cost, what wins most of it back without touching the gradient, and what does otherwise.

    If schemes were trained, which of these reached the target first.
    """
    whole = "BSP's time of computing" if advice.has_communication else "BSP's time"
    cost = f"cost {share_text(advice.cost)} of {whole}"
    if advice.cost.high < LEAST_COST:
        sentences = [f"Nothing to win back: stragglers {cost}, less than {LEAST_COST:.0%}."]
    elif advice.cost.low < LEAST_COST:
        sentences = [f"Cannot tell whether there is anything to win back: stragglers {cost}."]
    else:
        sentences = [f"Stragglers {cost}.", _same_gradient_sentence(advice), _other_gradients_sentence(advice)]
    return "\n".join(filter(None, [*sentences, _trained_sentence(advice)]))


def _same_gradient_sentence(advice: Advice) -> str:
    """The best scheme whose steps are those of BSP; `advice.schemes` has the fastest first, BSP among them.

    What it wins back is a share of what stragglers cost BSP; up to 1e-6 is rounding.
    """
    rows = [row for row in advice.schemes if row.exactness in (EXACT, CODED)]
    best_row, bsp_row = rows[0], next(row for row in rows if row.scheme.protocol == bsp())
    if rows == [bsp_row]:
        return "With the same gradient only BSP was tried."
    if best_row is bsp_row or best_row.won_back.value <= 1e-6:
        return "With the same gradient no scheme that was tried wins anything back."
    sentence = f"{best_row.scheme.label} wins back {share_text(best_row.won_back)}"
    if bsp_row.is_tied_in_class:
        return f"With the same gradient: cannot tell whether any scheme is faster than BSP; {sentence}."
    return f"With the same gradient: {sentence}{_indistinguishable_text(rows)}."


def _other_gradients_sentence(advice: Advice) -> str:
    """The best scheme of each other class that wins more back than BSP, and what is not known about it.

    It wins back a share of what stragglers cost BSP; the low end of the interval of this share must be above 0.
    """
    best_of_class_texts = []
    for name in (APPROXIMATE, STALE, LOCAL):
        rows = [row for row in advice.schemes if row.exactness == name]
        if rows and rows[0].won_back.low > 0:
            best_row_text = f"{rows[0].scheme.label} {share_text(rows[0].won_back)}"
            best_of_class_texts.append(f"{best_row_text} ({name}{_indistinguishable_text(rows)})")
    if not best_of_class_texts:
        return ""
    sentence = f"With other gradients: {', '.join(best_of_class_texts)}."
    if advice.target:
        return sentence
    return (
        f"{sentence} Whether these steps are worth as much needs your task with a target: give them (study=, or "
        "--config of a study with study.target)."
    )


_TRAINED = "Of BSP and the fastest scheme of each kind of gradient, trained on your task"


def _trained_sentence(advice: Advice) -> str:
    """Which trained scheme reached the target first, and how much later the others did; empty if none was trained."""
    trained = targets.trained_schemes(advice)
    if not trained:
        return ""
    first, *others = trained
    if not first.num_reached:
        return f"{_TRAINED}, none reached {advice.target}."
    num_seeds = first.seconds.size
    how_many = "" if first.num_reached == num_seeds else f" in {first.num_reached} of {num_seeds} seeds"
    late, fewer = (
        [scheme for scheme in others if (scheme.num_reached < first.num_reached) == is_in_fewer]
        for is_in_fewer in (False, True)
    )
    interval_text = f", with {paired.INTERVAL_NAME}s" if num_seeds > 1 else ""
    texts_of_part = {
        f"later{interval_text}": [targets.later_text(scheme) for scheme in late if scheme.is_later],
        "not told apart from it": [scheme.row.scheme.label for scheme in late if not scheme.is_later],
        "in fewer seeds": [f"{scheme.row.scheme.label} ({scheme.num_reached} of {num_seeds})" for scheme in fewer],
    }
    parts = [f"{part}: {', '.join(texts)}" for part, texts in texts_of_part.items() if texts]
    reached = f"{first.row.scheme.label} reached {advice.target} first{how_many}"
    return "; ".join([f"{_TRAINED}, {reached}, after {targets.seconds_text(first.seconds)}", *parts]) + "."


def _indistinguishable_text(rows: Sequence[SchemeAdvice]) -> str:
    """Which others cannot be told from the first, the fastest, as the end of a sentence; empty if there are none."""
    tied_labels = [row.scheme.label for row in rows[1:] if row.is_tied_in_class]
    return f"; indistinguishable from it: {text_list(tied_labels[:_MAX_TIED], len(tied_labels))}" if tied_labels else ""


def share_text(estimate: Estimate) -> str:
    """A share in percent with its interval."""
    return f"{percent_text(estimate.value)} % [{percent_text(estimate.low)}, {percent_text(estimate.high)}]"


def percent_text(value: float) -> str:
    """A share in percent, with one digit behind the point below 10 %; "-" for NaN, and 0 without a minus sign."""
    if value != value:
        return "-"
    digits = 1 if abs(value) < 0.0995 else 0
    return f"{100 * value + 0.0:.{digits}f}".replace("-0.0", "0.0")
