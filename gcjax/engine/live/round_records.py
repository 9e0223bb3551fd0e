"""What is recorded of live rounds.

Letters: E rounds, K chunks a worker holds, W workers.
"""

from typing import Any, NamedTuple

import numpy as np


class Round(NamedTuple):
    """One round, or E of them stacked along a leading axis.

    Attributes:
      seconds: float[], how long it took on this process, from the parameters of the round before to the new ones.
      deadline: float[], the seconds after which it was to stop; inf for none.
      extensions: int[], how often it went on because too little was finished.
      progress: int[W], the chunks that each worker finished.
      residual: float[], the distance of the decoded coefficients from the exact sum.
      loss: float[], the mean training loss of the decoded chunks.
      chunk_seconds: float32[K, W], by each worker's own clock; NaN where a chunk was not finished.
    """

    seconds: Any
    deadline: Any
    extensions: Any
    progress: Any
    residual: Any
    loss: Any
    chunk_seconds: Any

    @property
    def trace(self) -> np.ndarray:
        """float32[E·K, W]: the chunk times of all rounds, as `gcjax.stragglers.replay` and `write_trace` take them.

        `replay(trace=..., start="recorded")` gives these very rounds: as in `gcjax.protocols.coded`, round e is the
        units e·K, ..., e·K + K-1. A chunk that was not reached has no time (NaN), which is not the same as having
        failed (inf).
        """
        num_workers = self.chunk_seconds.shape[-1]
        return self.chunk_seconds.reshape(-1, num_workers)


class CodedRun(NamedTuple):
    """The result of `gcjax.engine.live.train`; the same in all processes, but for `rounds.seconds`.

    Attributes:
      params: at the end; this process's copy.
      opt_state: of the optimizer at the end; this process's copy.
      rounds: what was recorded, every field with a leading axis E.
    """

    params: Any
    opt_state: Any
    rounds: Round


def stack_rounds(rounds: list[Round]) -> Round:
    """E rounds as one, every field with a leading axis E."""
    return Round(*(np.stack([np.asarray(x) for x in values]) for values in zip(*rounds, strict=True)))
