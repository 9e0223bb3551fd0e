"""The working part of a live round, as one worker sees it.

It is a generator: it yields what the worker has done and is sent what all have done. So it knows nothing of processes,
and with a clock of its own any number of workers can be simulated in one process.

Letters: W workers, K chunks a worker holds.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax.codes.base import GradientCode
from gcjax.engine.live import deadlines
from gcjax.engine.live.deadlines import DeadlineRule, Situation
from gcjax.engine.live.exchange import Shared
from gcjax.engine.live.round_records import Round
from gcjax.engine.live.work import Clock, Kept, work

Throttle = Callable[[int, int], float]
"""`(worker, round) -> seconds`: what a chunk takes at least."""

MEMORY = 100
"""The rounds that deadlines are computed from, so that a long run does not get slower."""


class Worker(NamedTuple):
    """What a worker needs in every round.

    Attributes:
      rank: its number w.
      code: the gradient code.
      gradient: `(kept, params, slot, round) -> kept`: computes the chunk in a slot.
      completion: the completion times of the code, compiled.
      rule: when a round stops.
      goal: the residual at which a round may stop.
      throttle: what a chunk takes at least.
      clock: of this worker.
    """

    rank: int
    code: GradientCode
    gradient: Callable[[Kept, Any, int, int], Kept]
    completion: deadlines.Completion
    rule: DeadlineRule
    goal: float
    throttle: Throttle
    clock: Clock


class Finished(NamedTuple):
    """What is known when the work of a round is over.

    Attributes:
      kept: this worker's gradients.
      shared: what everybody has finished.
      deadline: seconds, the first one.
      extensions: how many.
    """

    kept: Kept
    shared: Shared
    deadline: float
    extensions: int


def working(
    worker: Worker, number: int, begin: float, history: list[Round], params: Any, kept: Kept
) -> Generator[list[float], Shared, Finished]:
    """Works until the deadline, and on as long as the goal is not reached.

    Args:
      worker: who works.
      number: of the round.
      begin: when it began, on this worker's clock.
      history: the rounds so far.
      params: on this worker's device.
      kept: room for the gradients; donated.

    Yields:
      The seconds of each chunk of this round that is done; it is to be sent what all workers have yielded.

    Returns:
      What is known at the end.
    """
    code, load = worker.code, int(worker.code.assignment.loads[worker.rank])
    earlier = [happened.chunk_seconds for happened in history[-MEMORY:]]
    own = [float(s) for past in earlier[-deadlines.RECENT :] for s in past[:, worker.rank] if np.isfinite(s)]
    deadline = worker.rule.seconds(situation(worker, earlier))
    until, at_least, extensions, before = begin + deadline, 1, 0, -1
    mine: list[float] = []

    def run_chunk(slot: int) -> None:
        nonlocal kept
        kept = jax.block_until_ready(worker.gradient(kept, params, slot, number))

    while True:
        mine += work(
            run_chunk,
            range(len(mine), load),
            own + mine,
            until=until,
            at_least=at_least,
            least_seconds=worker.throttle(worker.rank, number),
            clock=worker.clock,
        )
        shared = yield mine
        if shared.residual <= worker.goal or (shared.progress == code.assignment.loads).all():
            return Finished(kept, shared, deadline, extensions)
        total = int(shared.progress.sum())
        now = situation(worker, [*earlier, shared.seconds.T])
        longer = deadlines.extension(now, shared.progress, stalled=total == before)
        until, at_least = worker.clock.now() + longer.seconds, longer.at_least
        extensions, before = extensions + 1, total


def situation(worker: Worker, chunk_seconds: list[np.ndarray]) -> Situation:
    """What deadlines are computed from, given float[K, W] for each round."""
    shape = (len(chunk_seconds), worker.code.assignment.load, worker.code.assignment.num_workers)
    return Situation(worker.code, worker.completion, np.reshape(np.asarray(chunk_seconds, np.float64), shape))
