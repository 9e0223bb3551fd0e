"""The sentence that a reader of a comparison should know first."""

import numpy as np
from scipy import stats

from gcjax.analysis import summary, table_cells
from gcjax.analysis.store import Results

_CONFIDENCE = 0.9


def verdict(results: Results) -> str:
    """Who reached the target first and by how much, with an interval over seeds; and who never gets there."""
    goal = results.facts["target"]
    what = f"{goal['value']:g} {goal['metric'].replace('_', ' ')}"
    order = [row.scheme for row in summary.rows(results)]
    times = {scheme: summary.reach_times(results, scheme) for scheme in order}
    reaching = [scheme for scheme in order if np.isfinite(times[scheme]).any()]
    if not reaching:
        best, scheme = summary.best_value(results)
        return f"No scheme reached {what}; the best value was {best:.4g}, by {scheme}. {_halted(results)}".strip()
    return " ".join(filter(None, [_first(reaching, times, what), _others(order, reaching), _halted(results)]))


def _first(reaching: list[str], times: dict[str, np.ndarray], what: str) -> str:
    """The sentence on the first scheme, and on how far it is before the second."""
    first = reaching[0]
    seconds = table_cells.time_to_target(times[first], times[first], [False])
    if len(reaching) == 1:
        return f"Only {first} reached {what}, after {seconds} s."
    second = reaching[1]
    num_first, num_second = (int(np.isfinite(times[scheme]).sum()) for scheme in (first, second))
    if num_first > num_second:
        return (
            f"{first} reached {what} most reliably, after {seconds} s; {second} did for {num_second} of "
            f"{times[second].size} seeds."
        )
    return _compared(first, second, times[first], times[second], what)


def _compared(first: str, second: str, times: np.ndarray, second_times: np.ndarray, what: str) -> str:
    """Which one is faster, and how many times, if that can be told.

    Args:
      first: a scheme.
      second: another one, whose mean time is longer.
      times: float[S] seconds, of each of S seeds; a seed has the same durations under both schemes.
      second_times: float[S] seconds, likewise.
      what: is reached.
    """
    seconds, second_seconds = (table_cells.time_to_target(x, x, [False]) for x in (times, second_times))
    is_reached = np.isfinite(times) & np.isfinite(second_times) & (times > 0) & (second_times > 0)
    ratios = np.log(second_times[is_reached] / times[is_reached])
    if ratios.size < 2:
        chance = f"{max(ratios.size, 1)} seed does not tell this from chance"
        return f"{first} reached {what} first, after {seconds} s, before {second} ({second_seconds} s); {chance}."
    half = stats.t.ppf(0.5 + _CONFIDENCE / 2, ratios.size - 1) * float(ratios.std(ddof=1)) / np.sqrt(ratios.size)
    low, mean, high = np.exp([ratios.mean() - half, ratios.mean(), ratios.mean() + half])
    interval = f"90 % interval {low:.2f} to {high:.2f} over {ratios.size} seeds"
    if low > 1:
        return f"{first} reached {what} first, after {seconds} s, {mean:.2f} times as fast as {second} ({interval})."
    return (
        f"{first} and {second} cannot be told apart: {seconds} s and {second_seconds} s to {what} ({first} is "
        f"{mean:.2f} times as fast, {interval})."
    )


def _others(order: list[str], reaching: list[str]) -> str:
    """Who did not reach the target."""
    others = [scheme for scheme in order if scheme not in reaching]
    return f"Not reached by {_listed(others)}." if others else ""


def _halted(results: Results) -> str:
    """Who came to a halt for some seed."""
    halted = [scheme for scheme, facts in results.facts["schemes"].items() if any(facts["stalled"])]
    return f"{_listed(halted)} came to a halt, waiting for a worker that has failed." if halted else ""


def _listed(names: list[str]) -> str:
    """Names as a list in words."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
