"""The states that a worker can be in, and when each unit is in which: of all figures and timelines."""

import numpy as np

STATE_COLOURS = {
    "computing": "#4477AA",
    "cut off": "#EE6677",
    "receiving": "#CCBB44",
    "sending": "#228833",
    "failed": "#333333",
    "waiting": "#E6E6E6",
}
"""State -> colour; readers who are colour-blind can tell these apart."""


def state_intervals(units: dict[str, np.ndarray], timeline_seconds: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """State -> (begin, end), float[units] seconds each: the interval in which each unit is in that state.

    A begin that is not finite, or an end not after the begin, means that the unit is not in the state.

    Args:
      units: a row for each unit, with the columns of `gcjax.analysis.Results.timeline`.
      timeline_seconds: how far the timeline goes.
    """
    compute_begin, compute_end = units["compute_start"], np.minimum(units["compute_end"], timeline_seconds)
    receive_end = np.minimum(compute_begin, units["compute_end"])  # the latter if it was cut off before computing
    receive_end = np.where(np.isfinite(receive_end), receive_end, units["start"])
    send_end = np.where(np.isfinite(units["send_start"]), units["finish"], np.nan)
    is_failed = units["failed"]
    is_cut_off = ~is_failed & ~np.isfinite(units["finish"])
    is_completed = ~is_failed & ~is_cut_off
    return {
        "computing": (np.where(is_completed, compute_begin, np.nan), compute_end),
        "cut off": (np.where(is_cut_off, compute_begin, np.nan), compute_end),
        "failed": (np.where(is_failed, compute_begin, np.nan), compute_end),
        "receiving": (units["start"], receive_end),
        "sending": (units["send_start"], send_end),
    }
