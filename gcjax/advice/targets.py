"""How long the schemes that were trained take to the target: over seeds, and how much later than the first.

Letters: S seeds.
"""

from typing import Any, NamedTuple

import numpy as np

from gcjax.advice.base import Advice, SchemeAdvice
from gcjax.analysis import paired, table_cells
from gcjax.analysis.summary import rank
from gcjax.wording import counted

LEARNING_RATE_SENTENCE = (
    "Trained schemes have the learning rate of the study, except those that study.optimizers names, and one rate for "
    "all favours some: a push weighs 1/W under ASP and SSP, and 1 under Ringmaster. With rates of their own they may "
    "come in another order."
)


class TrainedScheme(NamedTuple):
    """A scheme that was trained, beside the one that reached the target first.

    Attributes:
      row: what is said of it.
      seconds: float[S] to the target, inf for a seed that did not reach it.
      seconds_later: than the first, the mean over seeds that both reached it in, after 0 s; NaN if there is none, 0 for
        the first.
      times_as_long: as the first, over the same seeds; None with fewer than 2, or for the first.
    """

    row: SchemeAdvice
    seconds: np.ndarray
    seconds_later: float
    times_as_long: paired.TimesAsLong | None

    @property
    def num_reached(self) -> int:
        """The seeds that reached the target."""
        return int(np.isfinite(self.seconds).sum())

    @property
    def is_later(self) -> bool:
        """Whether it is later than the first; by the interval of the ratio, where there is one."""
        return self.seconds_later > 0 if self.times_as_long is None else self.times_as_long.low > 1


def trained_schemes(advice: Advice) -> list[TrainedScheme]:
    """The schemes that were trained: those that reach the target for most seeds, and soonest, first."""
    rows_and_seconds = [(row, np.array(row.seconds_to_target)) for row in advice.schemes if row.seconds_to_target]
    rows_and_seconds.sort(key=lambda row_and_seconds: rank(row_and_seconds[1]))
    if not rows_and_seconds:
        return []
    (first_row, first_seconds), *others = rows_and_seconds
    trained = [TrainedScheme(first_row, first_seconds, 0.0, None)]
    for row, seconds in others:
        difference = paired.pair(first_seconds, seconds)
        trained.append(TrainedScheme(row, seconds, difference.seconds_later, difference.ratio))
    return trained


def time_cell(row: SchemeAdvice) -> str:
    """The seconds to the target, mean ± standard deviation over the seeds that reached it, or why there are none."""
    if row.seconds_to_target is None:
        return "not trained"
    seconds = np.array(row.seconds_to_target)
    if not np.isfinite(seconds).any():
        return f"not reached (0 of {counted(seconds.size, 'seed')})"
    return table_cells.reached_cell(seconds)


def seconds_text(seconds: np.ndarray) -> str:
    """The mean ± standard deviation of float[S] seconds that are finite, as in a sentence."""
    finite = seconds[np.isfinite(seconds)]
    return f"{table_cells.mean_spread_cell(finite, decimals=table_cells.decimals_of(finite.mean()))} s"


def later_text(scheme: TrainedScheme) -> str:
    """How much later than the first a scheme is, as in a sentence."""
    text = f"{scheme.row.scheme.label} by {scheme.seconds_later:.{table_cells.decimals_of(scheme.seconds_later)}f} s"
    ratio = scheme.times_as_long
    return text if ratio is None else f"{text} ({ratio.mean:.2f} times as long [{ratio.low:.2f}, {ratio.high:.2f}])"


def notes(advice: Advice) -> list[str]:
    """What the times to the target are, and what must be known to compare them; empty where nothing was trained."""
    trained = trained_schemes(advice)
    if not trained:
        return []
    num_seeds = trained[0].seconds.size
    spread_sentence = (
        "Target after: mean ± standard deviation over the seeds that reached it. These have parameters and batches of "
        "their own, and all the times of the trace: ± says nothing of other stretches. Times as long as the first: "
        f"paired by seeds, with {paired.INTERVAL_NAME}s; the first is chosen by the same seeds, so it looks a little "
        "better than it is."
        if num_seeds > 1
        else "Target after: of one seed, which says nothing of the spread. Set study.num_seeds."
    )
    return [spread_sentence, LEARNING_RATE_SENTENCE]


def json_of_schemes(advice: Advice) -> dict[str, dict[str, Any]]:
    """Label of each scheme that was trained -> its seconds to the target, and how much later than the first it is.

    `std` and `times_as_long` are None with fewer than 2 seeds; so are, for the first, the differences from itself.
    """
    return {
        scheme.row.scheme.label: _json(scheme, is_first=index == 0)
        for index, scheme in enumerate(trained_schemes(advice))
    }


def _json(scheme: TrainedScheme, *, is_first: bool) -> dict[str, Any]:
    """What `--json` has of a trained scheme."""
    finite = table_cells.finite(scheme.seconds)
    ratio = scheme.times_as_long
    return {
        "mean": table_cells.mean_of_finite(finite),
        "std": float(np.std(finite, ddof=1)) if len(finite) > 1 else None,
        "reached": len(finite),
        "seconds_later": None if is_first else scheme.seconds_later,
        "times_as_long": None if ratio is None else {name: float(value) for name, value in ratio._asdict().items()},
    }
