"""Slower devices than there are, for runs on the real clock: what a unit of work takes at least."""

from collections.abc import Callable

Throttle = Callable[[int, int], float]
"""`(worker, unit) -> seconds` that a unit of work takes at least, or each chunk of a round, by the round's number."""


def no_throttle(worker: int, unit: int) -> float:
    """0 seconds: a unit takes as long as it takes."""
    del worker, unit
    return 0.0
