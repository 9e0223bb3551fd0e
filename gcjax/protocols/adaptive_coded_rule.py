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


class MessageSums(NamedTuple):
    """What rounds have shown of messages: sums over rounds, of sizes in full gradients and of seconds; float[] each."""

    num_rounds: jax.Array
    size: jax.Array
    seconds: jax.Array
    squared_size: jax.Array
    size_times_seconds: jax.Array


class Memory(NamedTuple):
    """What the rule keeps in mind.

    Attributes:
      unit_end: float[W, K] seconds, when each worker did each of its chunks, as far as it has in this round.
      candidate: int32[], the code of this round.
      num_commits: int32[], the commits before the last chunk that was done.
      window: of the last rounds.
      messages: of all rounds.
    """

    unit_end: jax.Array
    candidate: jax.Array
    num_commits: jax.Array
    window: Window
    messages: MessageSums


def adaptive_coded_rule(
    candidates: Sequence[Candidate], window_length: int, choose: Callable[[Estimates], jax.Array]
) -> Rule:
    """The rule of `gcjax.protocols.adaptive_coded`, of which the arguments are.

    A round is stopped as one of `coded` with its code. As its commit is made, the code of the next one is chosen. A
    commit that somebody's leaving brings is not observed, and the code stays.
    """
    loads = jnp.asarray([candidate.code.assignment.loads for candidate in candidates], jnp.int32)  # [P, W]
    num_workers, load = loads.shape[1], max(candidate.code.assignment.load for candidate in candidates)

    def memory(num_workers: int, dtype: Any) -> Memory:
        """Before the first round, which has candidate 0."""
        zero, no_commit = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
        return Memory(
            unit_end=jnp.zeros((num_workers, load), dtype),
            candidate=no_commit,
            num_commits=no_commit,
            window=empty_window(window_length, len(candidates), num_workers, dtype),
            messages=MessageSums(zero, zero, zero, zero, zero),
        )

    def remember_unit(view: View, worker: jax.Array) -> Memory:
        """The memory with the chunk that the worker has just done, counted already."""
        position = view.progress[worker] - 1
        unit_end = view.memory.unit_end.at[worker, position].set(view.now)
        return view.memory._replace(unit_end=unit_end, num_commits=view.num_commits)

    def remember(view: View, worker: jax.Array) -> Memory:
        """The memory with the round that is over, and the code of the next one, if the message has brought a commit."""
        del worker
        is_over = view.num_commits > view.memory.num_commits
        return jax.lax.cond(is_over, partial(_after_round, candidates, choose), lambda view: view.memory, view)

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
    """The memory after the round that has just been committed; all seconds of the round are from its begin."""
    memory, begin_time = view.memory, round_begin(view)
    branches = [partial(_observed_round, candidate) for candidate in candidates]
    observed, stop, size = jax.lax.switch(memory.candidate, branches, view)
    messages = with_messages(memory.messages, size, view.now - begin_time - stop)
    window = with_round(memory.window, observed, memory.candidate, candidates, measured_network(messages))
    return memory._replace(
        candidate=chosen_candidate(choose, window.estimates),
        num_commits=view.num_commits,
        window=window,
        messages=messages,
    )


def _observed_round(candidate: Candidate, view: View) -> tuple[ObservedRound, jax.Array, jax.Array]:
    """What was seen until its stop of the round that is over, and that had the code of this candidate.

    Also float[], the stop, and float[], the largest message in full gradients. All seconds are from the round's begin.
    """
    code, stopping_rule = candidate
    round_begin_time = round_begin(view)
    finish = done_seconds(code, view, view.memory.unit_end, round_begin_time)
    stop = jnp.minimum(stopping_rule.time(code, finish), view.now - round_begin_time)
    has_unit = jnp.asarray(code.assignment.chunks >= 0)
    is_done = has_unit & (finish <= stop)
    progress = is_done.sum(axis=1, dtype=jnp.int32)
    padding = (0, 0), (0, view.memory.unit_end.shape[1] - code.assignment.load)
    last_finish = jnp.max(jnp.where(is_done, finish, 0), axis=1)
    work_begin = (view.begin_time - round_begin_time).clip(0)
    has_done_load = progress == jnp.asarray(code.assignment.loads)
    work_end = jnp.maximum(jnp.where(has_done_load, last_finish, stop), work_begin)
    observed = ObservedRound(
        finish=jnp.pad(jnp.where(is_done, finish, jnp.inf), padding, constant_values=jnp.inf),
        work_begin=work_begin,
        work_end=jnp.where(view.alive, work_end, work_begin),
        is_present=view.alive,
    )
    return observed, stop, message_size(code, progress, finish.dtype).max()


def with_messages(sums: MessageSums, size: jax.Array, seconds: jax.Array) -> MessageSums:
    """The sums with a round more, whose messages took `seconds`, the largest of `size` full gradients; float[] each."""
    return MessageSums(
        sums.num_rounds + 1,
        sums.size + size,
        sums.seconds + seconds,
        sums.squared_size + size**2,
        sums.size_times_seconds + size * seconds,
    )


def measured_network(sums: MessageSums) -> Network:
    """The latency and the time of a full gradient that fit best, neither below 0; see the top of this file."""
    spread = sums.num_rounds * sums.squared_size - sums.size**2
    is_proportional = spread <= 1e-6 * sums.squared_size * sums.num_rounds  # one size so far, up to rounding
    slope = (sums.num_rounds * sums.size_times_seconds - sums.size * sums.seconds) / jnp.where(
        is_proportional, 1, spread
    )
    slope = slope.clip(0)
    latency = (sums.seconds - slope * sums.size) / sums.num_rounds.clip(1)
    is_proportional |= latency < 0
    through_zero = sums.size_times_seconds / jnp.where(sums.squared_size > 0, sums.squared_size, 1)
    return Network(
        latency=jnp.where(is_proportional, 0, latency), upload=jnp.where(is_proportional, through_zero, slope)
    )
