"""When a run of a server ends, and what it bears with."""

import math
from typing import NamedTuple

from gcjax import _validate

NON_FINITE = ("stop", "skip", "refuse")


class Limits(NamedTuple):
    """When a run ends, and what it bears with.

    Attributes:
      num_commits: that are made at most.
      seconds: after which it ends, from the moment that all begin; before they do, from when the server was made. inf
        for never.
      lease: seconds for which a worker of which nothing is heard still takes part.
      min_workers: so many must have joined before anybody begins; all W if None.
      non_finite: what a gradient that is not finite leads to: "stop" ends the run with an error, "skip" drops it,
        "refuse" puts out the worker, which ends with the error, while the others go on.
      join_seconds: after which it ends if not enough have joined, from when the server was made; `seconds` if None.
    """

    num_commits: int
    seconds: float = math.inf
    lease: float = 5.0
    min_workers: int | None = None
    non_finite: str = "stop"
    join_seconds: float | None = None

    def validated(self, num_workers: int) -> "Limits":
        """The same limits for W = `num_workers`, with `min_workers` filled in; a `ValueError` for bad values."""
        _validate.integer("num_commits", self.num_commits, minimum=1)
        _validate.single_number("seconds", self.seconds, above=True)
        _validate.single_number("lease", self.lease, above=True, finite=True)
        if self.min_workers is not None:
            _validate.integer("min_workers", self.min_workers, minimum=1, maximum=num_workers)
        _validate.choice("non_finite", self.non_finite, NON_FINITE)
        if self.join_seconds is not None:
            _validate.single_number("join_seconds", self.join_seconds, above=True)
        return Limits(  # of plain numbers, also where they came as NumPy's
            num_commits=int(self.num_commits),
            seconds=float(self.seconds),
            lease=float(self.lease),
            min_workers=int(self.min_workers or num_workers),
            non_finite=self.non_finite,
            join_seconds=None if self.join_seconds is None else float(self.join_seconds),
        )
