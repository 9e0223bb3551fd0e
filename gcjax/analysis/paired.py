"""How much longer than the first scheme the others take to the target, seed by seed: all have the same durations."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gcjax.analysis import table_cells
from gcjax.tables import markdown_table

_CONFIDENCE = 0.95
INTERVAL_NAME = f"{100 * _CONFIDENCE:g} % interval"

NOTES = f"""\
- Virtual seconds to the target, over the seeds in which both schemes reached it, later than at 0 s: the mean of the
  differences, and the geometric mean of the ratios. All schemes have the same delays, parameters and batches in a
  seed, so that what these have in common is not in the spread.
- The interval is that of the ratio, by Student's t for the mean of its logarithms: {100 * _CONFIDENCE:g} % of such
  intervals have it inside, but that the first scheme is chosen by the same seeds, which makes it look a little better
  than it is. Where 1 is in the interval, the two cannot be told apart.
"""


class TimesAsLong(NamedTuple):
    """How many times as long as one scheme another takes to the target: the geometric mean over seeds, its interval.

    Attributes:
      low: the lower end of the interval.
      mean: the geometric mean.
      high: the upper end of the interval.
      num_seeds: the seeds that count, at least 2.
    """

    low: float
    mean: float
    high: float
    num_seeds: int

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval says which of the two is faster."""
        return self.low > 1 or self.high < 1


class PairedRow(NamedTuple):
    """The cells of one scheme, as text."""

    scheme: str
    seconds_behind: str
    times_as_long: str
    interval: str
    num_seeds: str


def times_as_long(first_times: np.ndarray, other_times: np.ndarray) -> TimesAsLong | None:
    """How many times as long as the first scheme another takes; None with fewer than 2 seeds to tell it by.

    Times are float[S] virtual seconds to the target for each of S seeds, inf where it was not reached; `is_comparable`
    says which seeds count.
    """
    has_ratio = is_comparable(first_times, other_times)
    if has_ratio.sum() < 2:
        return None
    log_ratios = np.log(other_times[has_ratio] / first_times[has_ratio])
    low, high = np.exp(mean_interval(log_ratios))
    return TimesAsLong(low=low, mean=np.exp(log_ratios.mean()), high=high, num_seeds=log_ratios.size)


def is_comparable(first_times: np.ndarray, other_times: np.ndarray) -> np.ndarray:
    """bool[S]: in which seeds both schemes reached the target, and not at once; arguments as of `times_as_long`."""
    times = np.stack([first_times, other_times])
    return (np.isfinite(times) & (times > 0)).all(axis=0)


def section(reach_times: dict[str, np.ndarray]) -> str:
    """A section in Markdown with a row for each scheme but the first; empty if there is nothing to compare.

    Args:
      reach_times: scheme -> float[S] virtual seconds to the target for each of S seeds, inf where it was not reached;
        the best scheme first.
    """
    first_scheme, *other_schemes = reach_times
    if not other_schemes or len(reach_times[first_scheme]) < 2 or not np.isfinite(reach_times[first_scheme]).any():
        return ""
    heads = PairedRow("Scheme", "Seconds later", "Times as long", INTERVAL_NAME, "Seeds")
    lines = [
        f"## Later than {first_scheme}, seed by seed",
        "",
        markdown_table(heads, list(_rows(reach_times))),
        "",
        NOTES,
    ]
    return "\n".join(lines)


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """The interval of the mean of float[n >= 2] independent values, by Student's t."""
    from scipy.special import stdtrit  # here, since it takes long to import

    half = stdtrit(values.size - 1, (1 + _CONFIDENCE) / 2) * values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean() - half), float(values.mean() + half)


def _rows(reach_times: dict[str, np.ndarray]) -> Iterator[PairedRow]:
    """A row for each scheme but the first of `reach_times` (see `section`)."""
    (_, first_times), *others = reach_times.items()
    for scheme, times in others:
        counts = is_comparable(first_times, times)
        num_seeds = f"{counts.sum()} of {counts.size}"
        ratio = times_as_long(first_times, times)
        if ratio is None:
            yield PairedRow(scheme, "-", "-", "-", num_seeds)
            continue
        seconds_behind = (times[counts] - first_times[counts]).mean()
        yield PairedRow(
            scheme,
            seconds_behind=f"{seconds_behind:.{table_cells.decimals_of(seconds_behind)}f}",
            times_as_long=f"{ratio.mean:.2f}",
            interval=f"[{ratio.low:.2f}, {ratio.high:.2f}]",
            num_seeds=num_seeds,
        )
