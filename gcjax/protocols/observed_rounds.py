"""What a protocol has seen of its last rounds, and how long others of its codes would have taken in them.

A round is seen as far as it went: a worker that was cut off, or that had done its load, would have done its next chunk
at some time after that, and nobody knows when. These times are censored, and are filled in by a rule of our own, since
no paper that we know of chooses among codes while it runs: with the pace of a worker in a round,

    pace = (its seconds at work in the round + its mean seconds a chunk) / (its chunks in the round + 1),

its next chunk ends one pace after the last moment at which it was seen, the one after that two, and so on. The mean
is over the window: all seconds at work over all chunks finished, which is the likeliest mean of exponential times that
are censored in this way; for who has finished nothing, as if there were one; for who has not worked, that of the
others. That a chunk has lasted long already does not make it end sooner, and a worker that is slow now counts as slow
in this round.

Letters: P codes, W workers, K chunks a worker holds at most, L blocks.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.codes.base import GradientCode
from gcjax.codes.stopping import StoppingRule
from gcjax.protocols.coded import message_size
from gcjax.protocols.simulation.stopped_rounds import message_seconds
from gcjax.stragglers.network import Network


class Candidate(NamedTuple):
    """A code, and when its rounds stop."""

    code: GradientCode
    stop: StoppingRule


class ObservedRound(NamedTuple):
    """What was seen of one round, all seconds from its begin.

    Attributes:
      finish: float[W, K], when each worker finished each of its chunks; inf for what it did not finish.
      work_begin: float[W], when each worker began.
      work_end: float[W], until when each was at work: its last finish if it has done its load, otherwise the stop.
      is_present: bool[W], who has taken part; the others would not have finished anything. All if None.
    """

    finish: jax.Array
    work_begin: jax.Array
    work_end: jax.Array
    is_present: jax.Array | None = None


class Estimates(NamedTuple):
    """What a choice is made from: the rounds of the window, in no order.

    Attributes:
      seconds: float[window, P], how long each of the rounds would have taken with each code, its messages included.
      decoded_share: float[window, P], the share of the sum that would have been decoded: 1 for an exact decode,
        otherwise 1 - residual^2 / (N L), at least 0.
      is_observed: bool[window], which rounds there have been; the others are 0.
      last_candidate: int32[], the code of the last round.
    """

    seconds: jax.Array
    decoded_share: jax.Array
    is_observed: jax.Array
    last_candidate: jax.Array


class Window(NamedTuple):
    """What is kept of the last rounds.

    Attributes:
      estimates: of these rounds; row r % window is that of round r.
      busy_seconds: float[window, W] seconds at work.
      num_done: int32[window, W], the chunks that were finished.
      num_rounds: int32[], the rounds so far.
    """

    estimates: Estimates
    busy_seconds: jax.Array
    num_done: jax.Array
    num_rounds: jax.Array


def empty_window(window_length: int, num_candidates: int, num_workers: int, dtype: jnp.dtype) -> Window:
    """The window before the first round: a ring of `window_length` rows, one a round, all of them empty."""
    estimates = Estimates(
        seconds=jnp.zeros((window_length, num_candidates), dtype),
        decoded_share=jnp.zeros((window_length, num_candidates), dtype),
        is_observed=jnp.zeros(window_length, bool),
        last_candidate=jnp.zeros((), jnp.int32),
    )
    no_chunks = jnp.zeros((window_length, num_workers), jnp.int32)
    return Window(
        estimates,
        busy_seconds=no_chunks.astype(dtype),
        num_done=no_chunks,
        num_rounds=jnp.zeros((), jnp.int32),
    )


def with_round(
    window: Window,
    observed: ObservedRound,
    candidate_index: jax.Array,
    candidates: Sequence[Candidate],
    network: Network,
) -> Window:
    """The window with one round more, in place of the oldest one.

    Args:
      window: of the rounds before.
      observed: what was seen of the round.
      candidate_index: int32[], the code that it had.
      candidates: all codes.
      network: the time of messages, which is known.
    """
    row = window.num_rounds % window.busy_seconds.shape[0]  # that of the oldest round, or an empty one
    busy_seconds = window.busy_seconds.at[row].set((observed.work_end - observed.work_begin).clip(0))
    num_done_now = jnp.isfinite(observed.finish).sum(axis=1, dtype=jnp.int32)
    num_done = window.num_done.at[row].set(num_done_now)
    # float[W] seconds a chunk: of a worker's chunks of this round, and one more at its mean seconds in the window.
    pace = (busy_seconds[row] + mean_seconds(busy_seconds, num_done)) / (num_done_now + 1).astype(busy_seconds.dtype)
    finish = likely_finish(observed, pace)
    seconds, decoded_share = zip(
        *(_estimated_round(candidate, finish, network) for candidate in candidates), strict=True
    )
    estimates = Estimates(
        seconds=window.estimates.seconds.at[row].set(jnp.stack(seconds)),
        decoded_share=window.estimates.decoded_share.at[row].set(jnp.stack(decoded_share)),
        is_observed=window.estimates.is_observed.at[row].set(True),
        last_candidate=candidate_index,
    )
    return Window(estimates, busy_seconds, num_done, window.num_rounds + 1)


def mean_seconds(busy_seconds: jax.Array, num_done: jax.Array) -> jax.Array:
    """float[W]: mean seconds a chunk, from seconds at work and chunks done, [window, W] both.

    For who has worked and done none, as if it were one; for who has not worked, the mean of the others', 0 if all have
    not.
    """
    has_worked = busy_seconds.sum(axis=0) > 0
    mean = busy_seconds.sum(axis=0) / num_done.sum(axis=0).clip(1).astype(busy_seconds.dtype)
    num_worked = has_worked.sum().clip(1).astype(busy_seconds.dtype)
    mean_of_others = jnp.where(has_worked, mean, 0).sum() / num_worked
    return jnp.where(has_worked, mean, mean_of_others)


def likely_finish(observed: ObservedRound, pace: jax.Array) -> jax.Array:
    """float[W, K] seconds: when each chunk was finished, or (it is inf) would have been, `pace float[W]` apart.

    The next one would have been one pace after the worker was last seen at work. It stays inf for who has not taken
    part.
    """
    num_done = jnp.isfinite(observed.finish).sum(axis=1, keepdims=True)
    num_chunks_after_last_done = jnp.arange(1, observed.finish.shape[1] + 1)[None] - num_done  # [W, K], 1 for the next
    expected_finish = observed.work_end[:, None] + num_chunks_after_last_done.astype(pace.dtype) * pace[:, None]
    if observed.is_present is not None:
        expected_finish = jnp.where(observed.is_present[:, None], expected_finish, jnp.inf)
    return jnp.where(jnp.isfinite(observed.finish), observed.finish, expected_finish)


def _estimated_round(candidate: Candidate, finish: jax.Array, network: Network) -> tuple[jax.Array, jax.Array]:
    """(seconds, decoded_share), float[] each, of a round of the candidate with chunks done at `finish float[W, K]`.

    `decoded_share` is 1 less the squared distance (`residual`) from the exact sum over N L, a sum's squared norm.
    """
    code, stop = candidate
    finish = finish[:, : code.assignment.load]
    stop_time = stop.time(code, finish)
    is_done = jnp.asarray(code.assignment.chunks >= 0) & (finish <= stop_time)
    progress = is_done.sum(axis=1, dtype=jnp.int32)
    seconds = stop_time + message_seconds(message_size(code, progress, finish.dtype), network).max()
    if stop.waits_for_exact_sum:
        return seconds, jnp.ones_like(seconds)
    squared_norm_of_sum = code.assignment.num_chunks * code.num_blocks
    decoded_share = (1 - code.plan(progress).residual ** 2 / squared_norm_of_sum).clip(0)
    return seconds, decoded_share.astype(seconds.dtype)


def chosen_candidate(choose: Callable[[Estimates], jax.Array], estimates: Estimates) -> jax.Array:
    """int32[]: the candidate that `choose(estimates)` names; the nearest one if there is none and it is traced.

    Raises:
      ValueError: if it names none, as far as that can be seen while it is traced.
    """
    choice, num_candidates = choose(estimates), estimates.seconds.shape[1]
    is_index = jnp.issubdtype(jnp.result_type(choice), jnp.integer) and jnp.shape(choice) == ()
    if not is_index or not (_validate.is_traced(choice) or 0 <= choice < num_candidates):
        raise ValueError(
            f"choose must return the number of a candidate, int32[] from 0 to {num_candidates - 1}; got {choice!r}."
        )
    return jnp.asarray(choice, jnp.int32).clip(0, num_candidates - 1)


def least_mean_seconds(estimates: Estimates) -> jax.Array:
    """int32[]: the code with the least mean seconds for a whole gradient; the first of several.

    That are the mean seconds of a round over the mean share of the sum that it decodes: a rule that stops before an
    exact decode must be faster by as much as it leaves out.
    """
    is_observed = estimates.is_observed[:, None]  # of the rounds of the window; the sums are of each code, [P]
    seconds = jnp.where(is_observed, estimates.seconds, 0).sum(axis=0)
    decoded_share = jnp.where(is_observed, estimates.decoded_share, 0).sum(axis=0)
    return jnp.argmin(jnp.where(decoded_share > 0, seconds / decoded_share, jnp.inf)).astype(jnp.int32)
