"""How much longer than a reference the other schemes take to the target, seed by seed: all have the same durations."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gcjax import _validate
from gcjax.analysis import table_cells
from gcjax.tables import markdown_table

CONFIDENCE = 0.95
INTERVAL_NAME = f"{100 * CONFIDENCE:g} % interval"

_NOTES = """\
- How many virtual seconds later a scheme reaches the target (the mean of the differences), and how many times as long
  it takes (the geometric mean of the ratios), over the seeds in which both have reached it, after 0 s.
  {what_is_shared} in a seed, so that what these have in common is not in the spread.
- The interval is that of the ratio, by Student's t for the mean of its logarithms: {percent:g} % of such
  intervals have it inside{exception}. Where 1 is in the interval, the two cannot be told apart.
"""
_BEST_IS_FLATTERED = """, but that the best one is chosen by the same seeds, which makes it look a little better
  than it is"""


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


class Difference(NamedTuple):
    """How much longer than the reference a scheme takes to the target.

    Attributes:
      num_pairs: the seeds that count.
      seconds_later: the mean of the differences in virtual seconds; NaN without a seed.
      ratio: the geometric mean of the ratios, and its interval; None with fewer than 2 seeds.
    """

    num_pairs: int
    seconds_later: float
    ratio: TimesAsLong | None


class PairedRow(NamedTuple):
    """The cells of one scheme, as text."""

    scheme: str
    seconds_behind: str
    times_as_long: str
    interval: str
    num_seeds: str


HEADS = PairedRow("Scheme", "Seconds later", "Times as long", INTERVAL_NAME, "Seeds")


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


def reference_first(reach_times: dict[str, np.ndarray], against: str) -> dict[str, np.ndarray]:
    """The times of all schemes, those of the scheme `against` first, the others as they were.

    Raises:
      ValueError: if there is no such scheme; it has the names of all.
    """
    _validate.choice("against", against, reach_times)
    return {against: reach_times[against], **reach_times}


def section(reach_times: dict[str, np.ndarray], *, against: str | None = None) -> str:
    """A section in Markdown with a row for each scheme but the reference; empty if there is nothing to compare.

    Args:
      reach_times: scheme -> float[S] virtual seconds to the target for each of S seeds, inf where it was not reached;
        the best scheme first.
      against: the scheme that the others are compared with; the first one if None.

    Raises:
      ValueError: if there is no scheme `against`.
    """
    table_rows = rows(reach_times, against=against)
    if not table_rows:
        return ""
    reference = against or next(iter(reach_times))
    lines = [f"## Later than {reference}, seed by seed", "", markdown_table(HEADS, table_rows), "", notes(against)]
    return "\n".join(lines)


def rows(reach_times: dict[str, np.ndarray], *, against: str | None = None) -> list[PairedRow]:
    """The cells of each scheme but the reference; arguments and errors as of `section`.

    Without `against` there are none if there is 1 seed, or the first scheme did not reach the target.
    """
    if against is not None:
        return list(_rows(reference_first(reach_times, against)))
    first_times = next(iter(reach_times.values()))
    return list(_rows(reach_times)) if first_times.size > 1 and np.isfinite(first_times).any() else []


def notes(
    against: str | None, *, what_is_shared: str = "All schemes have the same delays, parameters and batches"
) -> str:
    """What the columns mean, as a Markdown list.

    Args:
      against: the reference if it was named, None if it is the best.
      what_is_shared: why seeds are compared one by one, as the begin of a sentence.
    """
    exception = _BEST_IS_FLATTERED if against is None else ""
    return _NOTES.format(percent=100 * CONFIDENCE, exception=exception, what_is_shared=what_is_shared)


def mean_interval(values: np.ndarray) -> tuple[float, float]:
    """The interval of the mean of float[n >= 2] independent values, by Student's t."""
    from scipy.special import stdtrit  # here, since it takes long to import

    half = stdtrit(values.size - 1, (1 + CONFIDENCE) / 2) * values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean() - half), float(values.mean() + half)


def row(scheme: str, reference_times: np.ndarray, times: np.ndarray) -> PairedRow:
    """The cells of one scheme, by its times to the target and those of the reference, as of `times_as_long`."""
    difference = pair(reference_times, times)
    num_seeds = f"{difference.num_pairs} of {times.size}"
    ratio, seconds_later = difference.ratio, difference.seconds_later
    if ratio is None:
        return PairedRow(scheme, "-", "-", "-", num_seeds)
    return PairedRow(
        scheme,
        seconds_behind=f"{seconds_later:.{table_cells.decimals_of(seconds_later)}f}",
        times_as_long=f"{ratio.mean:.2f}",
        interval=f"[{ratio.low:.2f}, {ratio.high:.2f}]",
        num_seeds=num_seeds,
    )


def pair(reference_times: np.ndarray, times: np.ndarray) -> Difference:
    """How much longer one scheme takes than the reference; arguments as of `times_as_long`."""
    counts = is_comparable(reference_times, times)
    seconds_later = float((times[counts] - reference_times[counts]).mean()) if counts.any() else float("nan")
    return Difference(int(counts.sum()), seconds_later, times_as_long(reference_times, times))


def _rows(reach_times: dict[str, np.ndarray]) -> Iterator[PairedRow]:
    """A row for each scheme but the first of `reach_times` (see `section`)."""
    (_, first_times), *others = reach_times.items()
    return (row(scheme, first_times, times) for scheme, times in others)
