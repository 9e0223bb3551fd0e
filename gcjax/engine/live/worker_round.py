"""One worker's part of a live round: it works until the deadline, and on as long as too little has been finished.

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
from gcjax.engine.live.chunk_work import ChunkGradients, Clock, work_until
from gcjax.engine.live.deadlines import DeadlineInputs, DeadlineRule
from gcjax.engine.live.exchange import SharedProgress
from gcjax.engine.live.round_records import Round
from gcjax.throttle import Throttle


class Worker(NamedTuple):
    """What a worker needs in every round.

    Attributes:
      rank: its number w.
      code: the gradient code.
      with_chunk_gradient: `(chunk_gradients, params, slot, round) -> chunk_gradients`, that of a slot computed anew.
      completion: the completion times of the code, compiled.
      rule: when a round stops.
      residual_bound: the residual up to which a round may stop.
      throttle: what a chunk takes at least.
      clock: of this worker.
    """

    rank: int
    code: GradientCode
    with_chunk_gradient: Callable[[ChunkGradients, Any, int, int], ChunkGradients]
    completion: deadlines.Completion
    rule: DeadlineRule
    residual_bound: float
    throttle: Throttle
    clock: Clock


class RoundEnd(NamedTuple):
    """What is known when the work of a round is over.

    Attributes:
      gradients: the chunk gradients of this worker.
      shared: what everybody has finished.
      deadline: seconds from the start of the round to its first deadline.
      extensions: how often it was extended.
    """

    gradients: ChunkGradients
    shared: SharedProgress
    deadline: float
    extensions: int


def worker_round(
    worker: Worker, round_number: int, start_time: float, history: list[Round], params: Any, gradients: ChunkGradients
) -> Generator[list[float], SharedProgress, RoundEnd]:
    """Works until the deadline, and on until the residual is at most `worker.residual_bound` or all work is done.

    Args:
      worker: who works.
      round_number: which round.
      start_time: when it began, on this worker's clock.
      history: the rounds so far.
      params: on this worker's device.
      gradients: this worker's chunk gradients, one a slot, of which this round overwrites what it computes; donated.

    Yields:
      The seconds of each chunk of this round that is done. The generator is to be sent what all workers have finished.

    Returns:
      What is known at the end.
    """
    code, load = worker.code, int(worker.code.assignment.loads[worker.rank])
    past_rounds = [record.chunk_seconds for record in history[-deadlines.MAX_PAST_ROUNDS :]]  # [K, W] of each round
    # Every round has a chunk of each worker, so so many rounds have the RECENT_CHUNKS of it that predictions use.
    recent_rounds = past_rounds[-deadlines.RECENT_CHUNKS :]
    past_seconds = [float(s) for times in recent_rounds for s in times[:, worker.rank] if np.isfinite(s)]
    seconds_to_deadline = worker.rule.seconds(deadline_inputs(worker, past_rounds))
    deadline, min_chunks, extensions = start_time + seconds_to_deadline, 1, 0
    previous_num_chunks = -1  # finished by all workers at the deadline before; none has been yet
    own_seconds: list[float] = []

    def run_chunk(slot: int) -> None:
        """Computes the chunk in a slot of this worker, and returns when its gradient is there."""
        nonlocal gradients
        gradients = jax.block_until_ready(worker.with_chunk_gradient(gradients, params, slot, round_number))

    while True:
        own_seconds += work_until(
            run_chunk,
            range(len(own_seconds), load),
            past_seconds + own_seconds,
            deadline=deadline,
            min_chunks=min_chunks,
            min_seconds=worker.throttle(worker.rank, round_number),
            clock=worker.clock,
        )
        shared = yield own_seconds
        if shared.residual <= worker.residual_bound or (shared.progress == code.assignment.loads).all():
            return RoundEnd(gradients, shared, seconds_to_deadline, extensions)
        num_chunks = int(shared.progress.sum())
        inputs = deadline_inputs(worker, [*past_rounds, shared.seconds.T])  # with this round so far; seconds: [W, K]
        extension = deadlines.extension(inputs, shared.progress, stalled=num_chunks == previous_num_chunks)
        deadline, min_chunks = worker.clock.now() + extension.seconds, extension.min_chunks
        extensions, previous_num_chunks = extensions + 1, num_chunks


def deadline_inputs(worker: Worker, chunk_seconds: list[np.ndarray]) -> DeadlineInputs:
    """What deadlines are computed from, given the chunk times of the rounds so far, float[K, W] of each.

    They are seconds, NaN where a chunk was not finished.
    """
    shape = (len(chunk_seconds), worker.code.assignment.load, worker.code.assignment.num_workers)
    history = np.reshape(np.asarray(chunk_seconds, np.float64), shape)  # also of no rounds: [0, K, W]
    return DeadlineInputs(worker.code, worker.completion, history)
