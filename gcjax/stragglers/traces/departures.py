"""Workers that have no times any more from some step on to the end of a trace.

Letters: T steps, W workers.
"""

from collections.abc import Sequence

import numpy as np

from gcjax.wording import text_list

_MAX_NAMED = 4  # workers, in a sentence


def departures(
    compute: np.ndarray, steps: Sequence[int] | np.ndarray, workers: Sequence[str]
) -> tuple[tuple[str, int], ...]:
    """(name of the worker, number of the first step without a time) for each that has none from there on to the end.

    Those that leave first come first. A worker that failed (inf) has not left, and one without any time was not there.
    Steps at the end in which nobody has a time do not count.

    Args:
      compute: float[T, W] seconds, NaN where not measured, inf for a failed worker.
      steps: int[T], their numbers.
      workers: the W names.
    """
    is_measured = ~np.isnan(compute)
    num_missing_of_all = int(is_measured.any(axis=1)[::-1].argmax())  # rows at the end
    num_steps = len(compute) - num_missing_of_all
    is_measured = is_measured[:num_steps]
    num_missing_at_end = np.where(is_measured.any(axis=0), is_measured[::-1].argmax(axis=0), 0)  # int64[W]
    first_missing_row = num_steps - num_missing_at_end
    leaves = [
        worker
        for worker in np.argsort(first_missing_row, kind="stable")
        if num_missing_at_end[worker] and not np.isinf(compute[first_missing_row[worker] - 1, worker])
    ]
    return tuple((workers[worker], int(steps[first_missing_row[worker]])) for worker in leaves)


def sentence_on(departures: Sequence[tuple[str, int]]) -> str:
    """Who has no times any more since when, and what that counts as, as the end of a sentence; at most four names."""
    counts_as = "it counts as at its last one" if len(departures) == 1 else "they count as at their last ones"
    return f"{who_has_left(departures)}: {counts_as}."


def who_has_left(departures: Sequence[tuple[str, int]]) -> str:
    """Who has no times any more since when, as a clause; at most four names."""
    name, step = departures[0]
    if len(departures) == 1:
        return f"worker {name} has no times from step {step} on"
    texts = [f"{name} (from step {step} on)" for name, step in departures[:_MAX_NAMED]]
    return f"workers {text_list(texts, len(departures))} have no times up to the end"
