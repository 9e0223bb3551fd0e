"""Runs of protocols that look at the loss: a schedule is made for a window, run, and the losses are fed back.

The whole schedule is made anew after every window; what a protocol chooses for later windows does not change what
happened in earlier ones, so the commits that have been made stay the same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax._shared_loops import max_over_runs, select_active
from gcjax.engine.base import Info, Run, State
from gcjax.engine.version_ring import nan_if, staleness
from gcjax.protocols.base import Adaptive, Observed, Schedule

MakeCommits = Callable[[Schedule, jax.Array, State, Info], tuple[State, Info]]
"""`(schedule, end, state, info) -> (state, info)`: makes the commits of a schedule up to `end` (not included)."""

Evaluate = Callable[[Schedule, jax.Array, Run], Run]
"""`(schedule, index, run) -> run`: writes evaluation `index` of the trajectory; none if it is negative."""


class Window(NamedTuple):
    """The window of time that a run is in, under its present schedule.

    Attributes:
      is_last: bool[].
      end: float[] seconds; inf for the last one, which lasts until the end of the run.
      commits_by_end: int32[], the commits of the run up to the end of the window.
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
    source: tuple[jax.Array, Any],
) -> Run:
    """The run once `num_evals` evaluations have been made in all, or once it has ended.

    Args:
      program: of the run.
      make_commits: see `MakeCommits`.
      evaluate: see `Evaluate`.
      run: so far.
      num_evals: int32[], the first evaluation not counted.
      source: the durations and the network.
    """
    adaptive, options = program.protocol.adaptive, program.options

    def is_unfinished(run: Run) -> jax.Array:
        """bool[]: whether evaluations are missing and there are commits to come."""
        evals_made = (run.trajectory.commit >= 0).sum(dtype=jnp.int32) - 1  # without that of the initial parameters
        return (evals_made < num_evals) & ~_has_ended(adaptive, run)

    def advance_to_boundary(run: Run) -> Run:
        """The run at its next evaluation or at the end of its window, whichever comes first."""
        # `adaptive`, the part of the protocol that looks at the loss, makes schedules of `source`: durations, network.
        active = is_unfinished(run)
        schedule = adaptive.schedule(*source, run.state.controls)  # the commits made so far are the same in it
        window = _current_window(adaptive, schedule, run.state.window, options.num_commits)
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
        advanced = Run(_with_new_controls(adaptive, schedule, window, state, info), info, run.trajectory)
        index = _due_evaluation(adaptive, options.eval_every, advanced)
        return select_active(active, evaluate(schedule, index, advanced), run)

    # Under vmap the loop goes on while any run is unfinished.
    return jax.lax.while_loop(
        lambda run: max_over_runs(is_unfinished(run).astype(jnp.int32)) > 0, advance_to_boundary, run
    )


def _current_window(adaptive: Adaptive, schedule: Schedule, index: jax.Array, max_commits: int | None) -> Window:
    """Window number `index` under a schedule, of a run of at most `max_commits` commits."""
    num_commits = jnp.isfinite(schedule.time).sum(dtype=jnp.int32)  # time is inf for commits that never happen
    num_commits = jnp.minimum(num_commits, max_commits or num_commits)
    is_last = index >= adaptive.num_windows - 1
    end = jnp.where(is_last, jnp.inf, (index + 1).astype(schedule.time.dtype) * adaptive.seconds)
    commits_by_end = jnp.minimum((schedule.time <= end).sum(dtype=jnp.int32), num_commits)
    return Window(is_last=is_last, end=end, commits_by_end=commits_by_end, num_commits=num_commits)


def _with_new_controls(adaptive: Adaptive, schedule: Schedule, window: Window, state: State, info: Info) -> State:
    """The state in the next window, with the controls that the protocol chooses for it from the losses so far.

    As it is if this window is the last one, or has commits that are still to be made.
    """
    is_over = (state.commit >= window.commits_by_end) & ~window.is_last
    is_committed = jnp.arange(schedule.time.size, dtype=jnp.int32) < state.commit
    times = jnp.where(is_committed, schedule.time, jnp.inf)
    observed = Observed(window=state.window, end=window.end, time=times, loss=info.loss)
    new_controls = adaptive.next(state.controls, observed)
    controls = jax.tree.map(lambda new, old: jnp.where(is_over, new, old), new_controls, state.controls)
    return state._replace(controls=controls, window=state.window + is_over.astype(jnp.int32))


def _due_evaluation(adaptive: Adaptive, eval_every: int, run: Run) -> jax.Array:
    """int32[]: the number of the evaluation that is due at this commit; -1 if none is, or it has been made already.

    One is due every `eval_every` commits and at the end of the run. It has been made already where the last window has
    no commits.
    """
    commit = run.state.commit
    index = -(-commit // eval_every)  # rounded up, since the last evaluation may come after fewer commits
    is_due = (commit == index * eval_every) | _has_ended(adaptive, run)
    is_made = run.trajectory.commit[index.clip(0, run.trajectory.commit.size - 1)] >= 0
    return jnp.where(is_due & ~is_made, index, -1)


def _has_ended(adaptive: Adaptive, run: Run) -> jax.Array:
    """bool[]: whether all commits of the last window have been made."""
    return (run.state.window >= adaptive.num_windows - 1) & (run.state.commit >= run.info.num_commits)


def _max_staleness(schedule: Schedule, num_commits: jax.Array) -> jax.Array:
    """int32[E]: the largest staleness of each of the first `num_commits` commits; -1 for the others."""
    commits = jnp.arange(schedule.time.size, dtype=jnp.int32)
    return jnp.where(commits < num_commits, staleness(schedule), -1)


def _needed_ring_size(schedule: Schedule, num_commits: jax.Array) -> jax.Array:
    """int32[]: the ring size that the first `num_commits` commits needed, where version v is in slot v % size.

    A version is overwritten `size` commits later, so the size is above the largest staleness; 0 if only the latest
    version is read.
    """
    max_staleness = _max_staleness(schedule, num_commits).max()
    return jnp.where(max_staleness > 0, max_staleness + 1, 0)
