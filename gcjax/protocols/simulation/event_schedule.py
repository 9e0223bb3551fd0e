"""Protocols as rules of an event queue: what a message that arrives leads to, and who may go on.

Letters: T units sampled per worker, W workers, J turns of a worker, E commits, C contributions to a commit.
"""

from typing import NoReturn

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax._one_kernel import loop_in_one_kernel
from gcjax._shared_loops import max_over_runs
from gcjax.protocols.schedule import Schedule, with_weights
from gcjax.protocols.simulation.event_queue import Queue, initial_state
from gcjax.protocols.simulation.event_state import (
    ARRIVING,
    IDLE,
    RECEIVING,
    SENDING,
    State,
    packed,
    replace_where,
    with_ended_turns,
)
from gcjax.protocols.simulation.overlapping import with_units_under_way
from gcjax.protocols.simulation.rule_checks import check_rule
from gcjax.protocols.simulation.rules import Rule
from gcjax.protocols.simulation.shared_link import SharedQueue
from gcjax.protocols.simulation.turn_queue import MAX_FEW_WORKERS
from gcjax.protocols.simulation.turns import Turns, Work, turns_record
from gcjax.stragglers.absences import Absences
from gcjax.stragglers.network import Network


def event_schedule(
    rule: Rule,
    durations: jax.Array,
    network: Network,
    *,
    num_commits: int | None = None,
    num_turns: int | None = None,
    absences: Absences | None = None,
    keeps_version: bool = False,
) -> Schedule:
    """The schedule of a rule, with one contribution for each message that a commit takes.

    Args:
      rule: the protocol.
      durations: float[T, W] seconds.
      network: the time of messages.
      num_commits: E, at least the commits that there can be; T * W if None, one for each unit. Where every commit takes
        K messages, T * W // K are enough, and the schedule is that much smaller.
      num_turns: J, at least the turns that a worker can make of its units; T if None.
      absences: when workers are away; never if None.
      keeps_version: whether a worker that comes back has what it had read when its last message arrived, as it does
        where it has parameters of its own; otherwise it reads anew.

    Raises:
      ValueError: if the server stops turns, or a function of the rule returns something else than `Rule` says, or
        asks for the value of an array, as Python's `if` does; or a commit takes more messages than the rule's
        `num_contributions` allows, or more wait for one, or there are more than E commits. Under `jit` the horizon is
        NaN in the last three cases, which the check of any schedule refuses.
    """
    if rule.stop is not None:
        raise ValueError(
            "the event queue does not simulate a rule whose turns the server stops (Rule.stop). Give the protocol a "
            "schedule of rounds, for example by gcjax.protocols.simulation.rounds."
        )
    work = Work.of(durations)
    max_commits = work.num_units * work.num_workers if num_commits is None else num_commits
    check_rule(rule, work.num_workers, max_commits, durations.dtype)
    queue = (Queue if network.server is None else SharedQueue)(rule, work, network)
    if absences is not None:
        absences = absences.validated(work.num_workers, durations.dtype)
        changes, is_present = absences.changes(), absences.is_present
        queue = queue._replace(changes=changes, is_present=is_present, keeps_version=keeps_version)
        rule = rule_with_room_for_lost_turns(rule, *absences.leave.shape)
    # One commit more, to see whether there was room: `time` is [E + 1].
    turns, time, horizon = _simulated_turns(queue, num_turns or work.num_units, max_commits + 1)
    max_messages = rule.num_contributions // (2 if rule.splits_by_version else 1)
    is_lossy = jnp.isfinite(time[-1]) | (not rule.one_contribution_per_worker and _most_messages(turns) > max_messages)
    if not _validate.is_traced(is_lossy) and bool(is_lossy):
        _raise_no_room(turns, time, max_messages)
    horizon = jnp.where(is_lossy, jnp.nan, horizon)  # refused by the check of any schedule
    record = rule_record(rule, turns, work, time[:-1], horizon)
    if rule.overlaps:
        return with_units_under_way(record, work, queue.compute_begin_time)
    return record


def rule_with_room_for_lost_turns(rule: Rule, num_workers: int, num_lost: int) -> Rule:
    """The rule, with more `num_contributions`, room for those before and after each lost turn.

    Only if a worker can have several in a commit; otherwise it is as it was.

    Args:
      rule: for workers that lose no turn.
      num_workers: W.
      num_lost: the most turns that a worker loses since it leaves.
    """
    if not rule.one_contribution_per_worker or rule.num_contributions <= num_workers:
        return rule
    return rule._replace(num_contributions=rule.num_contributions + num_lost * num_workers)


def rule_record(rule: Rule, turns: Turns, work: Work, time: jax.Array, horizon: jax.Array) -> Schedule:
    """The record of turns that were taken by a rule, simulated or not.

    Args:
      rule: says what a contribution is, and what it weighs.
      turns: arrays [J, W], J turns of each worker.
      work: the seconds of the units.
      time: float[E] seconds of the commits.
      horizon: float[] seconds, when the first worker would begin a unit that there is not.
    """
    weight_is_number = not callable(rule.weight)
    record = turns_record(
        turns,
        work,
        time=time,
        horizon=horizon,
        weight=rule.weight if weight_is_number else 1.0,
        num_contributions=rule.num_contributions,
        splits_by_version=rule.splits_by_version,
        one_contribution_per_worker=rule.one_contribution_per_worker,
    )
    return record if weight_is_number else with_weights(record, rule.weight)


def _simulated_turns(queue: Queue, num_turns: int, num_commits: int) -> tuple[Turns, jax.Array, jax.Array]:
    """The turns `[J, W]`, the seconds `[E]` of the commits, and the horizon, after running the event queue to its end.

    J and E are `num_turns` and `num_commits`. Turns that are under way at the end are recorded too. The last entry of
    the queue's arrays, which means nothing, is left out.
    """

    def is_running(state: State) -> jax.Array:
        """bool[]: whether something happens still."""
        return max_over_runs(state.is_running.astype(jnp.int32)) > 0

    state = initial_state(queue, num_turns, num_commits)
    # An event of a thousand workers or more takes longer in one kernel than without.
    has_few_workers = queue.work.num_workers <= MAX_FEW_WORKERS
    loop = loop_in_one_kernel if has_few_workers else jax.lax.while_loop
    state = loop(is_running, queue.step, state)
    if queue.network.server is not None:  # when these messages would arrive is not known yet
        turns_under_way = replace_where(state.current_turns.unpacked, state.phase == SENDING, arrive=jnp.inf)
        is_receiving = (state.phase == RECEIVING) & (turns_under_way.num_begun == 0)  # for its first unit
        turns_under_way = replace_where(turns_under_way, is_receiving, num_begun=1)
        state = state._replace(current_turns=packed(turns_under_way))
    if queue.network.service is not None:  # who waits for the server arrives when that is free, at the earliest
        turns_under_way = replace_where(
            state.current_turns.unpacked, state.phase == ARRIVING, arrive=queue.phase_ends(state)
        )
        state = state._replace(current_turns=packed(turns_under_way))
    state = with_ended_turns(state, state.phase != IDLE)
    turns, time = jax.tree.map(lambda x: x[:-1], (state.ended_turns.unpacked, state.time))
    if queue.rule.pulls_before_push:  # what is read is the newest version when the exchange begins
        newest_version = jnp.searchsorted(time, turns.send_start, side="right").astype(jnp.int32)
        # At one moment there can be later commits: the turn has read no later version than its own commit replaces.
        version = jnp.where(turns.commit >= 0, jnp.minimum(newest_version, turns.commit), newest_version)
        # A turn that was cut off has read nothing, nor has one whose exchange would begin behind the horizon.
        has_read = jnp.isfinite(turns.send_start) & (turns.send_start <= state.horizon)
        turns = turns._replace(version=jnp.where(has_read, version, -1))
    return turns, time, state.horizon


def _most_messages(turns: Turns) -> jax.Array:
    """int32[]: the most messages that a commit takes; each has a position, 0, 1, ..., among those of its commit."""
    return jnp.max(jnp.where(turns.commit >= 0, turns.position, -1)) + 1


def _raise_no_room(turns: Turns, time: jax.Array, max_messages: int) -> NoReturn:
    """Raises the error of more messages for a commit, or more commits, than there is room for.

    `time float[E + 1]` are the commits, one more than there is room for.
    """
    num_messages = int(_most_messages(turns))
    if num_messages <= max_messages:
        raise ValueError(f"num_commits must be at least the commits that there are; got {time.size - 1}.")
    commit_happens = jnp.isfinite(time)[turns.commit.clip(0, time.size - 1)]  # bool[J, W], that of each message
    num_messages_of_commits = int(_most_messages(turns._replace(commit=jnp.where(commit_happens, turns.commit, -1))))
    if num_messages_of_commits <= max_messages:
        raise ValueError(
            f"no more messages must wait for a commit than num_contributions, {max_messages}; {num_messages} are in "
            "none at the end. Either `commits` of the rule never becomes true for them, or num_contributions is too "
            "small."
        )
    raise ValueError(
        f"num_contributions must be the most messages that a commit takes; got {max_messages}, and there are "
        f"{num_messages_of_commits} for one."
    )
