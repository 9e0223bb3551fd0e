"""The sentence that a reader of a comparison should know first."""

import numpy as np

from gcjax.analysis import paired, summary, table_cells
from gcjax.analysis.store import Results
from gcjax.wording import text_list


def verdict(results: Results) -> str:
    """Who reached the target first and by how much, with an interval over seeds; and who never gets there."""
    target = results.facts["target"]
    target_text = f"{target['value']:g} {target['metric'].replace('_', ' ')}"
    schemes = [row.scheme for row in summary.rows(results)]  # the best first
    reach_times = {scheme: summary.reach_times(results, scheme) for scheme in schemes}
    reaching_schemes = [scheme for scheme in schemes if np.isfinite(reach_times[scheme]).any()]
    if not reaching_schemes:
        best, scheme = summary.best_value(results)
        sentence = f"No scheme reached {target_text}; the best value was {best:.4g}, by {scheme}."
        return f"{sentence} {_halt_sentence(results)}".strip()
    first_sentence = _best_scheme_sentence(reaching_schemes, reach_times, target_text)
    not_reaching_schemes = [scheme for scheme in schemes if scheme not in reaching_schemes]
    not_reached = ""
    if not_reaching_schemes:
        not_reached = f"Not reached by {text_list(not_reaching_schemes, len(not_reaching_schemes))}."
    return " ".join(filter(None, [first_sentence, not_reached, _halt_sentence(results)]))


def _best_scheme_sentence(schemes: list[str], reach_times: dict[str, np.ndarray], target_text: str) -> str:
    """The sentence on the best scheme, and on how far it is before the second best.

    `schemes` reached the target: for most seeds first, of these the fastest; `reach_times`: scheme -> float[S] seconds.
    """
    best_scheme = schemes[0]
    best_seconds_text = _seconds_text(reach_times[best_scheme])
    if len(schemes) == 1:
        return f"Only {best_scheme} reached {target_text}, after {best_seconds_text} s."
    second_best_scheme = schemes[1]
    num_seeds_of_best, num_seeds_of_second_best = (
        int(np.isfinite(reach_times[scheme]).sum()) for scheme in (best_scheme, second_best_scheme)
    )
    if num_seeds_of_best > num_seeds_of_second_best:
        return (
            f"{best_scheme} reached {target_text} most reliably, after {best_seconds_text} s; {second_best_scheme} did "
            f"for {num_seeds_of_second_best} of {reach_times[second_best_scheme].size} seeds."
        )
    return _comparison_sentence(
        best_scheme, second_best_scheme, reach_times[best_scheme], reach_times[second_best_scheme], target_text
    )


def _comparison_sentence(
    faster: str, slower: str, faster_times: np.ndarray, slower_times: np.ndarray, target_text: str
) -> str:
    """Which one is faster, and how many times, if that can be told.

    Times are float[S] seconds, of each of S seeds; a seed has the same durations under both schemes.
    """
    faster_seconds, slower_seconds = _seconds_text(faster_times), _seconds_text(slower_times)
    ratio = paired.times_as_long(faster_times, slower_times)
    reached_first_text = f"{faster} reached {target_text} first, after {faster_seconds} s"
    if ratio is None:
        is_of_no_seed = not paired.is_comparable(faster_times, slower_times).any() and faster_times.size > 1
        chance_text = "both did for no seed" if is_of_no_seed else "1 seed does not tell this from chance"
        return f"{reached_first_text}, before {slower} ({slower_seconds} s); {chance_text}."
    interval_text = (
        f"geometric mean over {ratio.num_seeds} seeds, {paired.INTERVAL_NAME} {ratio.low:.2f} to {ratio.high:.2f}"
    )
    if not ratio.is_told_apart:
        return (
            f"{faster} and {slower} cannot be told apart: {faster_seconds} s and {slower_seconds} s to {target_text} "
            f"({faster} is {ratio.mean:.2f} times as fast, {interval_text})."
        )
    if ratio.mean > 1:
        return f"{reached_first_text}, {ratio.mean:.2f} times as fast as {slower} ({interval_text})."
    return (
        f"{reached_first_text} on average, and {slower} ({slower_seconds} s) for most seeds: {faster} is "
        f"{ratio.mean:.2f} times as fast ({interval_text})."
    )


def _seconds_text(reach_times: np.ndarray) -> str:
    """Seconds until the target, float[S] of S seeds, with their spread."""
    return table_cells.time_to_target_cell(reach_times, reach_times, is_stalled=[False])


def _halt_sentence(results: Results) -> str:
    """Which schemes came to a halt for some seed; "" if none did."""
    halted_schemes = [
        scheme for scheme, scheme_facts in results.facts["schemes"].items() if any(scheme_facts["stalled"])
    ]
    return (
        f"{text_list(halted_schemes, len(halted_schemes))} came to a halt, waiting for a worker that has failed."
        if halted_schemes
        else ""
    )
