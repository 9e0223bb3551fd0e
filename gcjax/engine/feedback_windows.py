"""Runs of protocols that look at the loss: a schedule is made for a window, run, and the losses are fed back.

The whole schedule is made anew after every window; what a protocol chooses for later windows does not change what
happened in earlier ones, so the commits that have been made stay the same.

Letters: E commits.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax._shared_loops import max_over_runs, select_active
from gcjax.engine.base import Info, Run, State
from gcjax.engine.version_ring import nan_if
from gcjax.protocols.base import LossFeedback, Observed, Schedule
from gcjax.protocols.observed_losses import window_begin

MakeCommits = Callable[[Schedule, jax.Array, State, Info], tuple[State, Info]]
"""`(schedule, end, state, info) -> (state, info)`: makes the commits of a schedule up to `end` (not included)."""

Evaluate = Callable[[Schedule, jax.Array, Run], Run]
"""`(schedule, index, run) -> run`: writes evaluation `index` of the trajectory; none if it is negative."""


class Window(NamedTuple):
    """The window of time that a run is in, under its present schedule.

    Attributes:
      is_last: bool[].
      end: float[] seconds; inf for the last one, which lasts until the end of the run.
      commits_by_end: int32[], the commits of the run before the end of the window: one at the end is of the next one,
        as what begins at the end is.
      num_commits: int32[], those of the whole run.
    """

    is_last: jax.Array
    end: jax.Array
    commits_by_end: jax.Array
    num_commits: jax.Array


def advance_by_windows(
    program: Any,
    make_commits: MakeCommits,
    evaluate: Evaluate,
    run: Run,
    num_evals: jax.Array,
    durations_and_network: tuple[jax.Array, Any],
) -> Run:
    """The run once `num_evals` evaluations have been made in all, or once it has ended.

    At the end of each window, a stretch of virtual time, the protocol looks at the loss and chooses what it does in the
    next one; see `LossFeedback`.

    Args:
      program: of the run.
      make_commits: see `MakeCommits`.
      evaluate: see `Evaluate`.
      run: so far.
      num_evals: int32[], the first evaluation not counted.
      durations_and_network: what schedules are made from.
    """
    loss_feedback = program.protocol.loss_feedback
    advance = partial(
        _advance_to_evaluation_or_window_end, program, make_commits, evaluate, num_evals, durations_and_network
    )
    # Under vmap, as long as any of the runs is unfinished.
    return jax.lax.while_loop(
        lambda run: max_over_runs(_is_unfinished(loss_feedback, num_evals, run).astype(jnp.int32)) > 0, advance, run
    )


def _advance_to_evaluation_or_window_end(
    program: Any,
    make_commits: MakeCommits,
    evaluate: Evaluate,
    num_evals: jax.Array,
    durations_and_network: tuple[jax.Array, Any],
    run: Run,
) -> Run:
    """The run at its next evaluation or at the end of its window, whichever comes first; see `advance_by_windows`.

    `make_commits(schedule, end, state, info)` makes those before `end`; `evaluate(schedule, i, run)` writes evaluation
    i, none if -1. As it was if it has nothing left to do.
    """
    loss_feedback, options = program.protocol.loss_feedback, program.options
    is_unfinished = _is_unfinished(loss_feedback, num_evals, run)
    durations, network = durations_and_network
    # The commits made so far are the same in this schedule as in the one before.
    schedule = loss_feedback.schedule(durations, network, run.state.controls)
    window = _current_window(loss_feedback, schedule, run.state.window, options.num_commits)
    commits_by_next_eval = (run.state.commit // options.eval_every + 1) * options.eval_every
    end_commit = jnp.minimum(window.commits_by_end, commits_by_next_eval)
    state, info = make_commits(schedule, end_commit, run.state, run.info)
    needed_ring_size = jnp.maximum(info.versions_alive, _needed_ring_size(schedule, state.commit))
    info = info._replace(
        num_commits=window.num_commits,
        staleness=_max_staleness(schedule, window.num_commits),
        versions_alive=needed_ring_size,
    )
    state = state._replace(params=nan_if(needed_ring_size > options.ring_size, state.params))
    advanced_run = Run(_with_new_controls(loss_feedback, schedule, window, state, info), info, run.trajectory)
    evaluation = _evaluation_at_commit(loss_feedback, options.eval_every, advanced_run)
    return select_active(is_unfinished, evaluate(schedule, evaluation, advanced_run), run)


def _is_unfinished(loss_feedback: LossFeedback, num_evals: jax.Array, run: Run) -> jax.Array:
    """bool[]: whether evaluations are missing, of `num_evals` after the initial one, and there are commits to come."""
    initial_eval = 1
    later_evals_made = (run.trajectory.commit >= 0).sum(dtype=jnp.int32) - initial_eval
    return (later_evals_made < num_evals) & ~_has_ended(loss_feedback, run)


def _current_window(
    loss_feedback: LossFeedback, schedule: Schedule, window_number: jax.Array, max_commits: int | None
) -> Window:
    """Window `window_number` (int32[], from 0) of a run of at most `max_commits` commits, if not None."""
    num_commits = jnp.isfinite(schedule.time).sum(dtype=jnp.int32)  # time is inf for commits that never happen
    num_commits = jnp.minimum(num_commits, max_commits or num_commits)
    is_last = window_number >= loss_feedback.num_windows - 1
    end_time = jnp.where(is_last, jnp.inf, window_begin(window_number + 1, loss_feedback.seconds, schedule.time.dtype))
    commits_by_end = jnp.minimum((schedule.time < end_time).sum(dtype=jnp.int32), num_commits)
    return Window(is_last=is_last, end=end_time, commits_by_end=commits_by_end, num_commits=num_commits)


def _with_new_controls(
    loss_feedback: LossFeedback, schedule: Schedule, window: Window, state: State, info: Info
) -> State:
    """The state in the next window, with what the protocol chooses for it (its controls) from the losses so far.

    As it is if this window is the last one, or has commits that are still to be made. `info.loss` float[E] is inf for
    commits not made, and so is the time that the protocol is shown.
    """
    is_window_over = (state.commit >= window.commits_by_end) & ~window.is_last
    is_committed = jnp.arange(schedule.time.size, dtype=jnp.int32) < state.commit  # bool[E]
    time_of_made_commits = jnp.where(is_committed, schedule.time, jnp.inf)
    observed = Observed(window=state.window, end=window.end, time=time_of_made_commits, loss=info.loss)
    new_controls = loss_feedback.next(state.controls, observed)
    controls = jax.tree.map(lambda new, old: jnp.where(is_window_over, new, old), new_controls, state.controls)
    return state._replace(controls=controls, window=state.window + is_window_over.astype(jnp.int32))


def _evaluation_at_commit(loss_feedback: LossFeedback, eval_every: int, run: Run) -> jax.Array:
    """int32[]: the number of the evaluation to make at the present commit; -1 if none is, or it has been made already.

    There is one every `eval_every` commits and at the end of the run. It has been made already where the last window
    has no commits. `trajectory.commit` is -1 where an evaluation has not been made.
    """
    commit = run.state.commit
    evaluation = -(-commit // eval_every)  # rounded up, since the last evaluation may come after fewer commits
    is_at_commit = (commit == evaluation * eval_every) | _has_ended(loss_feedback, run)
    last_index = run.trajectory.commit.size - 1
    is_made = run.trajectory.commit[evaluation.clip(0, last_index)] >= 0
    no_evaluation = -1
    return jnp.where(is_at_commit & ~is_made, evaluation, no_evaluation)


def _has_ended(loss_feedback: LossFeedback, run: Run) -> jax.Array:
    """bool[]: whether all commits of the last window have been made."""
    return (run.state.window >= loss_feedback.num_windows - 1) & (run.state.commit >= run.info.num_commits)


def _max_staleness(schedule: Schedule, num_commits: jax.Array) -> jax.Array:
    """int32[E]: the largest staleness of each of the first `num_commits` commits; -1 for the others."""
    commits = jnp.arange(schedule.time.size, dtype=jnp.int32)  # [E]
    return jnp.where(commits < num_commits, schedule.staleness.max(axis=1), -1)


def _needed_ring_size(schedule: Schedule, num_commits: jax.Array) -> jax.Array:
    """int32[]: the ring size that the first `num_commits` commits needed, where version v is in slot v % size.

    A version is overwritten `size` commits later, so the size is above the largest staleness; 0 if only the latest
    version is read.
    """
    max_staleness = _max_staleness(schedule, num_commits).max()
    reads_past_versions = max_staleness > 0
    return jnp.where(reads_past_versions, max_staleness + 1, 0)
