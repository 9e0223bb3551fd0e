"""When a live round stops, from what all processes know of each other: the times of the chunks so far.

Everything here is plain arithmetic on the host, on numbers that all processes share, so all come to the same deadline.
Should they not, nothing breaks: whether a round is extended is decided by one number that they exchange.

Letters: K chunks a worker holds, W workers.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.codes.base import GradientCode
from gcjax.equality import comparable

MAX_PAST_ROUNDS = 100
"""The last rounds that deadlines are computed from, so that a long run does not get slower."""
RECENT_CHUNKS = 5
"""The chunks of a worker, its latest ones, whose median time is what its next chunk is expected to take."""

TIME_MARGIN = 0.1
"""The share of a predicted time by which it may be missed, since no prediction is exact."""

ZERO_RESIDUAL = 1e-3
"""Residuals up to this count as zero; they are computed in float32."""

Completion = Callable[[np.ndarray], float]
"""`(finish float[W, K]) -> seconds`: the earliest exact decode, inf if never; see `GradientCode.completion`."""


class DeadlineInputs(NamedTuple):
    """What a deadline is computed from.

    Attributes:
      code: the gradient code.
      completion: its completion times, compiled.
      history: float[rounds, K, W] seconds of each chunk of the rounds so far; NaN where it was not finished.
    """

    code: GradientCode
    completion: Completion
    history: np.ndarray


class DeadlineRule(NamedTuple):
    """When a live round stops.

    Attributes:
      seconds: pure function `(inputs) -> seconds` from the start of the next round to its deadline; inf for no
        deadline.
      exact: whether the round is extended until the sum of all gradients is decoded exactly.
    """

    seconds: Callable[[DeadlineInputs], float]
    exact: bool = False


class Extension(NamedTuple):
    """More time for a round in which too little was finished.

    Attributes:
      seconds: how long.
      min_chunks: the chunks that everybody with work left does, whatever it expects.
    """

    seconds: float
    min_chunks: int


@comparable
def fixed(seconds: float) -> DeadlineRule:
    """A round lasts so many seconds, or until all work is done.

    Args:
      seconds: above 0.
    """
    _validate.single_number("seconds", seconds, above=True)
    return DeadlineRule(lambda inputs: float(seconds))


@comparable
def adaptive(*, tolerance: float = 3.0, window: int = 5) -> DeadlineRule:
    """Time for all chunks of a usual worker: load times (median + tolerance times the median absolute deviation).

    Median and deviation are those of all chunks that were finished in the last rounds. The first round has no
    deadline. When most workers turn slower at once, the deadline follows within a window.

    Args:
      tolerance: the deviations that are added to the median, at least 0.
      window: rounds, at most 100.
    """
    _validate.single_number("tolerance", tolerance, finite=True)
    window = _validate.integer("window", window, minimum=1, maximum=MAX_PAST_ROUNDS)

    def seconds_until_deadline(inputs: DeadlineInputs) -> float:
        """Load K times (median + tolerance * deviation) of chunk times in the last `window` rounds; inf before any."""
        seconds_of_last_rounds = inputs.history[-window:]  # [rounds, K, W], NaN where a chunk was not finished
        chunk_seconds = seconds_of_last_rounds[np.isfinite(seconds_of_last_rounds)]
        if not chunk_seconds.size:
            return np.inf
        median = np.median(chunk_seconds)
        median_deviation = np.median(np.abs(chunk_seconds - median))
        return float(inputs.code.assignment.load * (median + tolerance * median_deviation))

    return DeadlineRule(seconds_until_deadline)


@comparable
def until_decodable() -> DeadlineRule:
    """Until the sum can be decoded exactly: at the predicted moment, then by extensions.

    The prediction is `gcjax.codes.completion_time` for the recent chunk times of each worker, and a tenth more. The
    first round has no deadline.
    """

    def seconds_until_deadline(inputs: DeadlineInputs) -> float:
        """The predicted time until the sum can be decoded, from no progress of any worker, and a tenth more."""
        num_workers = inputs.history.shape[-1]  # of [rounds, K, W]
        no_progress = np.zeros(num_workers, int)
        return (1 + TIME_MARGIN) * time_to_decode(inputs, no_progress)

    return DeadlineRule(seconds_until_deadline, exact=True)


@comparable
def whole_load() -> DeadlineRule:
    """No deadline: everybody finishes its load, all wait for the slowest."""
    return DeadlineRule(lambda inputs: np.inf)


def recent_seconds(history: np.ndarray) -> np.ndarray:
    """float[W]: what a chunk of each worker takes, the median of its latest; inf if it never finished one.

    Args:
      history: float[rounds, K, W] seconds of each chunk of the rounds so far; NaN where it was not finished.
    """
    num_workers = history.shape[-1]
    chunk_seconds = history.reshape(-1, num_workers)  # [rounds * K, W], in the order in which they are done
    recent_of_workers = [seconds[np.isfinite(seconds)][-RECENT_CHUNKS:] for seconds in chunk_seconds.T]
    return np.array([np.median(seconds) if seconds.size else np.inf for seconds in recent_of_workers])


def time_to_decode(inputs: DeadlineInputs, progress: np.ndarray) -> float:
    """Seconds from now to the earliest exact decode, at the recent speeds; inf if never.

    Args:
      inputs: the code and the chunk times so far.
      progress: int[W], the chunks of this round that each worker has finished.
    """
    chunks_up_to_kth = np.arange(1, inputs.code.assignment.load + 1)  # [K]
    chunks_to_do = chunks_up_to_kth - progress[:, None]  # [W, K], at most 0 if the k-th is finished already
    seconds_per_chunk = recent_seconds(inputs.history)[:, None]  # [W, 1]; inf for who never finished one
    with np.errstate(invalid="ignore"):  # inf * 0
        finish_time = np.where(chunks_to_do > 0, chunks_to_do * seconds_per_chunk, 0.0)  # from now on; 0 if it is done
    return inputs.completion(finish_time)


def extension(inputs: DeadlineInputs, progress: np.ndarray, *, stalled: bool) -> Extension:
    """How long a round goes on in which too little was finished.

    As long as the slowest worker with work left needs for a chunk, and everybody does one at least. If the sum is
    expected to become decodable before that, only so long, and a worker that cannot finish a chunk in that time starts
    none.

    Args:
      inputs: the code and the chunk times so far, this round's included.
      progress: int[W], the chunks of this round that each worker has finished; somebody has work left.
      stalled: whether no chunk was finished in the extension before. Then everybody does one, so that a round ends.
    """
    has_work_left = progress < inputs.code.assignment.loads  # bool[W]
    slowest_chunk_seconds = float(recent_seconds(inputs.history)[has_work_left].max())
    seconds_to_decode = (1 + TIME_MARGIN) * time_to_decode(inputs, progress)
    decodes_before_slowest = 0 < seconds_to_decode < slowest_chunk_seconds  # 0: it should have decoded by now
    if decodes_before_slowest and not stalled:
        return Extension(seconds_to_decode, min_chunks=0)
    return Extension(slowest_chunk_seconds, min_chunks=1)


def compiled_completion(code: GradientCode) -> Completion:
    """The function `(finish float[W, K]) -> seconds` of a code, compiled once."""
    compiled = jax.jit(lambda finish: code.completion(finish))
    dtype = jnp.result_type(float)  # the same for all inputs, so that nothing is compiled again
    return lambda finish: float(compiled(np.asarray(finish, dtype)))


def full_residual(code: GradientCode) -> float:
    """The residual of the decoded sum if all workers finish their whole load: 0 for an exact code."""
    return float(jax.jit(lambda progress: code.plan(progress).residual)(code.assignment.loads))
