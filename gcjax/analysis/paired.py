"""How much later than the first scheme the others reach the target, seed by seed: all have the same durations."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gcjax.analysis import table_cells
from gcjax.tables import markdown_table

CONFIDENCE = 0.95

NOTES = f"""\
- Differences of the virtual seconds to the target, over the seeds in which both schemes reached it. All schemes have
  the same delays, parameters and batches in a seed, so that what these have in common is not in the spread.
- The interval is that of the mean difference, by Student's t: {100 * CONFIDENCE:g} % of such intervals have it inside,
  but that the first scheme is chosen by the same seeds, which makes it look a little better than it is.
"""


class PairedRow(NamedTuple):
    """The cells of one scheme, as text."""

    scheme: str
    seconds_behind: str
    interval: str
    num_seeds: str


def section(reach_times: dict[str, np.ndarray]) -> str:
    """A section in Markdown with a row for each scheme but the first; empty if there is nothing to compare.

    Args:
      reach_times: scheme -> float[S] virtual seconds to the target for each of S seeds, inf where it was not reached;
        the best scheme first.
    """
    first_scheme, *other_schemes = reach_times
    if not other_schemes or len(reach_times[first_scheme]) < 2 or not np.isfinite(reach_times[first_scheme]).any():
        return ""
    heads = PairedRow("Scheme", "Seconds later", f"{100 * CONFIDENCE:g} % interval", "Seeds")
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
    from scipy import stats

    half = stats.t.ppf((1 + CONFIDENCE) / 2, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean() - half), float(values.mean() + half)


def _rows(reach_times: dict[str, np.ndarray]) -> Iterator[PairedRow]:
    """A row for each scheme but the first of `reach_times` (see `section`)."""
    (_, first_times), *others = reach_times.items()
    for scheme, times in others:
        is_reached = np.isfinite(times) & np.isfinite(first_times)
        seconds_behind = times[is_reached] - first_times[is_reached]
        num_seeds = f"{is_reached.sum()} of {is_reached.size}"
        if seconds_behind.size < 2:
            yield PairedRow(scheme, "-", "-", num_seeds)
            continue
        low, high = mean_interval(seconds_behind)
        decimals = table_cells.decimals_of(seconds_behind.mean())
        interval = f"[{low:.{decimals}f}, {high:.{decimals}f}]"
        yield PairedRow(scheme, f"{seconds_behind.mean():.{decimals}f}", interval, num_seeds)
