import numpy as np


def is_bursty(slow: np.ndarray, *, burst: int, window: int, max_slow: int) -> bool:
    """Whether a pattern is (B, W, λ)-bursty: in any window at most λ workers are slow, each within a span of B rounds.

    Args:
      slow: bool[rounds, workers].
      burst: B, rounds.
      window: rounds, W in the paper.
      max_slow: λ, workers.
    """
    slow = np.asarray(slow, bool)
    for begin in range(max(len(slow) - window, 0) + 1):  # a pattern that is shorter is one window
        window_slow = slow[begin : begin + window]
        slow_rounds = [np.flatnonzero(column) for column in window_slow.T if column.any()]  # of each slow worker
        if len(slow_rounds) > max_slow or any(rounds[-1] - rounds[0] >= burst for rounds in slow_rounds):
            return False
    return True
