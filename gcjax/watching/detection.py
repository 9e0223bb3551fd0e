"""Who is slow, by the last `WINDOW` steps.

A process is late in a step by what it computes longer than the median process (of an even number the faster of the two
in the middle); it is slow there if that is over `WARNING` of the iteration and over `LEAST_SECONDS`. What it costs is
the sum of its lateness in slow steps over the sum of the iterations. It is named when that is `WARNING` or more, as
critical from `CRITICAL` on: as persistent if it was slow in more than half of the steps, or has been named for
`LONG_STEPS` without a break, else as passing.

Letters: T steps of the window, W workers.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

WINDOW = 20
"""The steps that are looked at together."""
LEAST_STEPS = 10
"""Nobody is named before so many steps."""
LONG_STEPS = 60
"""Who is named for so many steps without a break is no passing matter, also if only some steps are slow."""
WARNING = 0.1
"""The share of the iteration from which on a process is named."""
CRITICAL = 0.2
"""The share of the iteration from which on that is critical."""
LEAST_SECONDS = 0.001
"""Nobody is slow who is late by less; clocks and threads are not more exact."""


class Verdict(NamedTuple):
    """A process that is slow.

    Attributes:
      worker: its number.
      since: the first step in which it was slow.
      is_persistent: whether it was slow in more than half of the last steps, or has been named for `LONG_STEPS`.
      seconds: by which it is late in a slow step; the median.
      cost: the share of the iterations, in 0 to 1.
      is_critical: whether that is `CRITICAL` or more.
    """

    worker: int
    since: int
    is_persistent: bool
    seconds: float
    cost: float
    is_critical: bool


class Detector:
    """Takes the steps in their order, and knows who is slow now."""

    def __init__(self) -> None:
        """Starts without steps."""
        self._steps: deque[int] = deque(maxlen=WINDOW)
        self._late: deque[np.ndarray] = deque(maxlen=WINDOW)
        self._iterations: deque[float] = deque(maxlen=WINDOW)
        self.verdicts: dict[int, Verdict] = {}

    @property
    def iteration(self) -> float:
        """The median of the iterations in the window, in seconds; NaN before the first."""
        return float(np.median(self._iterations)) if self._iterations else float("nan")

    def add(self, step: int, compute: np.ndarray, iteration: float) -> None:
        """Takes one step.

        Args:
          step: its number.
          compute: float64[W] seconds; NaN for who was not there.
          iteration: seconds.
        """
        self._steps.append(step)
        self._iterations.append(iteration)
        known = np.sort(compute[~np.isnan(compute)])
        median = known[(len(known) - 1) // 2] if len(known) else np.nan
        self._late.append(np.nan_to_num(compute - median).clip(0.0))
        self.verdicts = self._judge() if len(self._steps) >= LEAST_STEPS else {}

    def _judge(self) -> dict[int, Verdict]:
        """Who is slow, by number."""
        late, iterations = np.stack(self._late), np.asarray(self._iterations)  # [T, W], [T]
        is_slow = (late > WARNING * iterations[:, None]) & (late > LEAST_SECONDS)
        costs = np.where(is_slow, late, 0.0).sum(axis=0) / iterations.sum()
        verdicts = {}
        for worker in np.flatnonzero(costs >= WARNING).tolist():
            slow = is_slow[:, worker]
            old = self.verdicts.get(worker)
            since = old.since if old else self._steps[int(slow.argmax())]
            verdicts[worker] = Verdict(
                worker=worker,
                since=since,
                is_persistent=bool(slow.mean() > 0.5) or self._steps[-1] - since >= LONG_STEPS,
                seconds=float(np.median(late[slow, worker])),
                cost=float(costs[worker]),
                is_critical=bool(costs[worker] >= CRITICAL),
            )
        return verdicts
