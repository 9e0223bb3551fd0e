"""Numbers as the text of table cells, and what these are of."""

import numpy as np


def mean_spread_cell(values: list[float] | np.ndarray, decimals: int) -> str:
    """The mean ± the standard deviation (of what the values are a sample of); for one value without it."""
    array = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf, of runs that diverge
        spread = f" ± {array.std(ddof=1):.{decimals}f}" if array.size > 1 else ""
        return f"{array.mean():.{decimals}f}{spread}"


def time_to_target_cell(
    times: np.ndarray, end_times: np.ndarray, is_stalled: list[bool], *, has_commits: bool = True
) -> str:
    """The text of virtual seconds to the target, mean and spread over seeds that reached it, or why there are none.

    Args:
      times: float[S] seconds, one for each of S seeds; inf where the target was not reached.
      end_times: float[S] seconds, when each run ended.
      is_stalled: for each seed, whether the run came to a halt.
      has_commits: whether there was a commit for any seed.
    """
    if np.isfinite(times).any():
        return reached_cell(times)
    if not has_commits:
        return "never (no commit)"
    if all(is_stalled):
        return f"never (stopped at t={range_text(end_times)})"
    return f"not reached by t={range_text(end_times)}"


def reached_cell(times: np.ndarray) -> str:
    """The mean and spread of those of float[S] seconds that are finite, one at least, and how many if not all are."""
    is_reached = np.isfinite(times)
    how_many = "" if is_reached.all() else f" ({is_reached.sum()} of {is_reached.size} seeds)"
    return mean_spread_cell(times[is_reached], decimals=decimals_of(times[is_reached].mean())) + how_many


def decimals_of(value: float) -> int:
    """Behind the point, so that a number has three digits; none if it has more before the point."""
    num_digits_before_point = int(np.floor(np.log10(abs(value)))) + 1 if value else 1
    return max(0, 3 - num_digits_before_point)


def percent_cell(shares: list[float] | np.ndarray) -> str:
    """The mean of shares in percent; those of runs that did not begin (NaN) are left out."""
    finite = np.asarray(shares)[np.isfinite(shares)]
    return f"{round(100 * finite.mean()):d} %" if finite.size else "-"


def staleness_cell(mean: list[float] | np.ndarray, largest: list[float] | np.ndarray) -> str:
    """The mean over seeds of the mean staleness, and the largest of all in brackets.

    Args:
      mean: float[S], of each of S seeds; NaN for one without a commit.
      largest: float[S], likewise.
    """
    has_commits = np.isfinite(mean)
    if not has_commits.any():
        return "-"
    return f"{np.asarray(mean)[has_commits].mean():.3g} ({np.asarray(largest)[has_commits].max():.0f})"


def three_digits_cell(value: float) -> str:
    """A number with three digits and a suffix for thousands, millions, billions (G) or trillions."""
    for suffix in ("", " k", " M", " G"):
        rounds_to_three_digits = value < 999.5
        if rounds_to_three_digits:
            return f"{value:.3g}{suffix}"
        value /= 1000
    return f"{value:.3g} T"


def mean_of_finite(values: list[float] | np.ndarray) -> float:
    """The mean of those values that are finite, in double precision; NaN if none is."""
    numbers = finite(values)
    return float(np.mean(numbers)) if numbers else float("nan")


def finite(values: list[float] | np.ndarray) -> list[float]:
    """Those of the values that are finite."""
    return [float(value) for value in values if np.isfinite(value)]


def range_text(values: np.ndarray, text_format: str = ".3g") -> str:
    """The smallest and the largest value, or the one if they look the same."""
    low, high = f"{values.min():{text_format}}", f"{values.max():{text_format}}"
    return low if low == high else f"{low} to {high}"
