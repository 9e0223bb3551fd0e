"""The sentence that a reader of a comparison should know first."""

from typing import Any

import numpy as np
from scipy import stats

from gcjax.analysis import summary, table_cells
from gcjax.analysis.store import Results

_CONFIDENCE = 0.9


def verdict(results: Results) -> str:
    """Who reached the target first and by how much, with an interval over seeds; and who never gets there."""
    target = results.facts["target"]
    target_text = f"{target['value']:g} {target['metric'].replace('_', ' ')}"
    schemes = [row.scheme for row in summary.rows(results)]  # the fastest first
    reach_times = {scheme: summary.reach_times(results, scheme) for scheme in schemes}
    reaching_schemes = [scheme for scheme in schemes if np.isfinite(reach_times[scheme]).any()]
    if not reaching_schemes:
        best, scheme = summary.best_value(results)
        sentence = f"No scheme reached {target_text}; the best value was {best:.4g}, by {scheme}."
        return f"{sentence} {_halt_sentence(results)}".strip()
    first_sentence = _first_scheme_sentence(reaching_schemes, reach_times, target_text)
    not_reaching_schemes = [scheme for scheme in schemes if scheme not in reaching_schemes]
    sentences = [first_sentence, _not_reached_sentence(not_reaching_schemes), _halt_sentence(results)]
    return " ".join(filter(None, sentences))


def _first_scheme_sentence(schemes: list[str], reach_times: dict[str, np.ndarray], target_text: str) -> str:
    """The sentence on the first scheme, and on how far it is before the second.

    Args:
      schemes: those that reached the target, the fastest first.
      reach_times: scheme -> float[S] seconds until the target, for each seed.
      target_text: what is reached.
    """
    first = schemes[0]
    seconds = _seconds_text(reach_times[first])
    if len(schemes) == 1:
        return f"Only {first} reached {target_text}, after {seconds} s."
    second = schemes[1]
    num_seeds_of_first, num_seeds_of_second = (int(np.isfinite(reach_times[x]).sum()) for x in (first, second))
    if num_seeds_of_first > num_seeds_of_second:
        return (
            f"{first} reached {target_text} most reliably, after {seconds} s; {second} did for {num_seeds_of_second} "
            f"of {reach_times[second].size} seeds."
        )
    return _comparison_sentence(first, second, reach_times[first], reach_times[second], target_text)


def _comparison_sentence(
    first: str, second: str, first_times: np.ndarray, second_times: np.ndarray, target_text: str
) -> str:
    """Which one is faster, and how many times, if that can be told.

    Args:
      first: a scheme.
      second: another one, whose mean time is longer.
      first_times: float[S] seconds, of each of S seeds; a seed has the same durations under both schemes.
      second_times: float[S] seconds, likewise.
      target_text: what is reached.
    """
    first_seconds, second_seconds = _seconds_text(first_times), _seconds_text(second_times)
    has_ratio = np.isfinite(first_times) & np.isfinite(second_times) & (first_times > 0) & (second_times > 0)
    log_ratios = np.log(second_times[has_ratio] / first_times[has_ratio])
    reached_first = f"{first} reached {target_text} first, after {first_seconds} s"
    if log_ratios.size < 2:
        chance = f"{max(log_ratios.size, 1)} seed does not tell this from chance"
        return f"{reached_first}, before {second} ({second_seconds} s); {chance}."
    lowest_ratio, mean_ratio, highest_ratio = np.exp(_confidence_interval(log_ratios))
    interval = f"90 % interval {lowest_ratio:.2f} to {highest_ratio:.2f} over {log_ratios.size} seeds"
    if lowest_ratio > 1:
        return f"{reached_first}, {mean_ratio:.2f} times as fast as {second} ({interval})."
    return (
        f"{first} and {second} cannot be told apart: {first_seconds} s and {second_seconds} s to {target_text} "
        f"({first} is {mean_ratio:.2f} times as fast, {interval})."
    )


def _confidence_interval(samples: np.ndarray) -> list[Any]:
    """Lower end, mean and upper end of Student's interval for the mean of float[S] samples, S >= 2."""
    quantile = stats.t.ppf(0.5 + _CONFIDENCE / 2, samples.size - 1)
    half_width = quantile * float(samples.std(ddof=1)) / np.sqrt(samples.size)
    return [samples.mean() - half_width, samples.mean(), samples.mean() + half_width]


def _seconds_text(reach_times: np.ndarray) -> str:
    """Seconds until the target, float[S] of S seeds, with their spread."""
    return table_cells.time_to_target(reach_times, reach_times, stalled=[False])


def _not_reached_sentence(schemes: list[str]) -> str:
    """Who did not reach the target."""
    return f"Not reached by {_enumeration(schemes)}." if schemes else ""


def _halt_sentence(results: Results) -> str:
    """Who came to a halt for some seed."""
    halted_schemes = [scheme for scheme, facts in results.facts["schemes"].items() if any(facts["stalled"])]
    return (
        f"{_enumeration(halted_schemes)} came to a halt, waiting for a worker that has failed."
        if halted_schemes
        else ""
    )


def _enumeration(names: list[str]) -> str:
    """Names as a list in words."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
