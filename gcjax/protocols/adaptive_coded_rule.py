"""The rule by which a server runs rounds that switch among codes.

Who simulates such rounds knows the network; a server learns it. What the messages of a round took, from its stop to its
commit, it writes down with the size of the largest one, and the line of least squares through all rounds says what
messages of another size would take. A latency cannot be told from a bandwidth while all messages have had one size:
their time is then taken to be in proportion to it, so that smaller messages are tried where they may help.

Letters: P candidates, W workers, K chunks a worker holds at most.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.coded import done_seconds, message_size, stop_time
from gcjax.protocols.observed_rounds import (
    Candidate,
    Estimates,
    ObservedRound,
    Window,
    chosen_candidate,
    empty_window,
    with_round,
)
from gcjax.protocols.simulation.rules import Rule, View, round_begin, stopped_rule
from gcjax.stragglers.network import Network


class MessageMoments(NamedTuple):
    """What rounds have shown of messages, float[] each: means, and sums of products of what differs from these.

    So they are exact while all messages have one size (Welford 1962).

    Attributes:
      num_rounds: that were seen.
      size: mean, in full gradients.
      seconds: mean.
      size_spread: the sum of the squares of (size - mean size).
      common_spread: the sum of (size - mean size) (seconds - mean seconds).
    """

    num_rounds: jax.Array
    size: jax.Array
    seconds: jax.Array
    size_spread: jax.Array
    common_spread: jax.Array


class Memory(NamedTuple):
    """What the rule keeps in mind.

    Attributes:
      unit_end: float[W, K] seconds, when each worker did each of its chunks, as far as it has in this round.
      candidate: int32[], the code of this round.
      window: of the last rounds.
      messages: of all rounds.
    """

    unit_end: jax.Array
    candidate: jax.Array
    window: Window
    messages: MessageMoments


def adaptive_coded_rule(
    candidates: Sequence[Candidate], window_length: int, choose: Callable[[Estimates], jax.Array]
) -> Rule:
    """The rule of `gcjax.protocols.adaptive_coded`, of which the arguments are.

    A round is stopped as one of `coded` with its code. As its commit is made, the code of the next one is chosen. Of a
    round in which somebody has pushed and left, nobody knows any more what was done when: it is not observed, and the
    next one has the same code.
    """
    loads = jnp.asarray([candidate.code.assignment.loads for candidate in candidates], jnp.int32)  # [candidates, W]
    num_workers, load = loads.shape[1], max(candidate.code.assignment.load for candidate in candidates)

    def memory(_: int, dtype: Any) -> Memory:
        """The memory before the first round, which has candidate 0; W is that of the candidates, K their largest."""
        return Memory(
            unit_end=jnp.zeros((num_workers, load), dtype),
            candidate=jnp.zeros((), jnp.int32),
            window=empty_window(window_length, len(candidates), num_workers, dtype),
            messages=no_messages(dtype),
        )

    def remember_unit(view: View, worker: jax.Array) -> Memory:
        """The memory with the chunk that the worker has just done, counted already."""
        position = view.progress[worker] - 1
        return view.memory._replace(unit_end=view.memory.unit_end.at[worker, position].set(view.now))

    def remember(view: View, worker: jax.Array) -> Memory:
        """The memory with the round that is over, and the code of the next one, if the message has brought a commit."""
        del worker
        is_over = ~view.stopped.any()  # nobody owes a push any more
        all_are_there = (view.alive | (view.num_uncommitted == 0)).all()  # all who have pushed
        return jax.lax.cond(
            is_over & all_are_there, partial(_after_round, candidates, choose), lambda view: view.memory, view
        )

    def stop(view: View) -> jax.Array:
        """float[] seconds, when the round stops by its code."""
        branches = [partial(stop_time, code, stopping_rule) for code, stopping_rule in candidates]
        return jax.lax.switch(view.memory.candidate, branches, view, view.memory.unit_end)

    return stopped_rule(stop, num_workers, num_units=lambda view: loads[view.memory.candidate])._replace(
        memory=memory,
        remember_unit=remember_unit,
        remember=remember,
        weight=1.0 / candidates[0].code.assignment.num_chunks,
        code_row=lambda view: view.memory.candidate * num_workers + jnp.arange(num_workers, dtype=jnp.int32),
        skips_undone_units=True,
    )


def _after_round(candidates: Sequence[Candidate], choose: Callable[[Estimates], jax.Array], view: View) -> Memory:
    """The memory after the round that has just been committed; all seconds of the round are from its begin.

    From its stop until now (`view.now`), when it is committed, its messages were under way.
    """
    memory, begin_time = view.memory, round_begin(view)
    branches = [partial(_observed_round, candidate) for candidate in candidates]
    observed_round, stop_seconds, message_size = jax.lax.switch(memory.candidate, branches, view)
    messages = with_messages(memory.messages, message_size, view.now - begin_time - stop_seconds)
    window = with_round(memory.window, observed_round, memory.candidate, candidates, measured_network(messages))
    return memory._replace(
        candidate=chosen_candidate(choose, window.estimates),
        window=window,
        messages=messages,
    )


def _observed_round(candidate: Candidate, view: View) -> tuple[ObservedRound, jax.Array, jax.Array]:
    """What was seen until its stop of the round that is over, and that had the code of this candidate.

    Also float[], the stop, and float[], the largest message in full gradients. All seconds are from the round's begin.
    """
    code, stopping_rule = candidate
    round_begin_time = round_begin(view)
    finish = done_seconds(code, view, view.memory.unit_end, round_begin_time)  # [W, K of this code]
    stop = jnp.minimum(stopping_rule.time(code, finish), view.now - round_begin_time)
    has_unit = jnp.asarray(code.assignment.chunks >= 0)
    is_done = has_unit & (finish <= stop)
    progress = is_done.sum(axis=1, dtype=jnp.int32)
    padding = (0, 0), (0, view.memory.unit_end.shape[1] - code.assignment.load)  # up to the largest K of all codes
    last_finish = jnp.max(jnp.where(is_done, finish, 0), axis=1)  # [W], as what follows
    work_begin = (view.begin_time - round_begin_time).clip(0)  # 0 for who has begun no turn in this round
    has_done_load = progress == jnp.asarray(code.assignment.loads)
    work_end = jnp.maximum(jnp.where(has_done_load, last_finish, stop), work_begin)
    observed = ObservedRound(
        finish=jnp.pad(jnp.where(is_done, finish, jnp.inf), padding, constant_values=jnp.inf),
        work_begin=work_begin,
        work_end=jnp.where(view.alive, work_end, work_begin),
        is_present=view.alive,
    )
    return observed, stop, message_size(code, progress, finish.dtype).max()


def no_messages(dtype: Any) -> MessageMoments:
    """Before the first round."""
    return MessageMoments(*jnp.zeros(len(MessageMoments._fields), dtype))


def with_messages(moments: MessageMoments, size: jax.Array, seconds: jax.Array) -> MessageMoments:
    """The moments with a round more, whose messages took `seconds`, the largest of `size` full gradients; float[]."""
    num_rounds = moments.num_rounds + 1
    size_difference = size - moments.size
    mean_size = moments.size + size_difference / num_rounds
    mean_seconds = moments.seconds + (seconds - moments.seconds) / num_rounds
    return MessageMoments(
        num_rounds,
        mean_size,
        mean_seconds,
        moments.size_spread + size_difference * (size - mean_size),
        moments.common_spread + size_difference * (seconds - mean_seconds),
    )


def measured_network(moments: MessageMoments) -> Network:
    """The network whose latency and `upload`, the seconds of a full gradient, fit best: latency + upload * size.

    Neither is below 0. The latency is 0, and the line goes through 0, where it would be negative, or where all sizes
    were the same (`spread` 0).
    """
    spread, mean_size, mean_seconds = moments.size_spread, moments.size, moments.seconds
    slope = (moments.common_spread / jnp.where(spread > 0, spread, 1)).clip(0)
    latency = mean_seconds - slope * mean_size
    is_proportional = (spread <= 0) | (latency < 0)
    sum_of_squares = mean_size**2 * moments.num_rounds + spread
    sum_of_products = mean_size * mean_seconds * moments.num_rounds + moments.common_spread
    through_zero = sum_of_products / jnp.where(sum_of_squares > 0, sum_of_squares, 1)
    return Network(
        latency=jnp.where(is_proportional, 0, latency), upload=jnp.where(is_proportional, through_zero, slope)
    )
