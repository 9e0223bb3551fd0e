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
from gcjax.engine.version_ring import poisoned, staleness
from gcjax.protocols.base import Adaptive, Observed, Schedule

MakeCommits = Callable[[Schedule, jax.Array, State, Info], tuple[State, Info]]
"""`(schedule, end, state, info) -> (state, info)`: makes the commits of a schedule up to `end` (not included)."""

Evaluate = Callable[[Schedule, jax.Array, Run], Run]
"""`(schedule, index, run) -> run`: writes evaluation `index` of the trajectory; none if it is negative."""


class Window(NamedTuple):
    """The window that a run is in, under its present schedule.

    Attributes:
      is_last: bool[].
      end: float[] seconds; inf for the last one, which lasts until the end of the run.
      last_commit: int32[], the commits of the run up to the end of the window.
      num_commits: int32[], those of the whole run.
    """

    is_last: jax.Array
    end: jax.Array
    last_commit: jax.Array
    num_commits: jax.Array


def advance_by_windows(
    program: Any,
    make_commits: MakeCommits,
    evaluate: Evaluate,
    run: Run,
    num_evals: jax.Array,
    source: tuple[jax.Array, Any],
) -> Run:
    """Goes on until so many evaluations have been made in all, or the run ends.

    Args:
      program: of the run.
      make_commits: see `MakeCommits`.
      evaluate: see `Evaluate`.
      run: so far.
      num_evals: int32[], the first evaluation not counted.
      source: the durations and the network.
    """
    adaptive, options = program.protocol.adaptive, program.options

    def unfinished(run: Run) -> jax.Array:
        evaluations = (run.trajectory.commit >= 0).sum(dtype=jnp.int32) - 1
        return (evaluations < num_evals) & ~_has_ended(adaptive, run)

    def piece(run: Run) -> Run:
        """Up to the next evaluation, or the end of the window."""
        active = unfinished(run)
        schedule = adaptive.schedule(*source, run.state.controls)
        window = _current_window(adaptive, schedule, run.state.window, options.num_commits)
        next_evaluation = (run.state.commit // options.eval_every + 1) * options.eval_every
        end = jnp.minimum(window.last_commit, next_evaluation)
        state, info = make_commits(schedule, end, run.state, run.info)
        alive = jnp.maximum(info.versions_alive, _versions_kept(schedule, state.commit))
        info = info._replace(
            num_commits=window.num_commits, staleness=_staleness(schedule, window.num_commits), versions_alive=alive
        )
        state = state._replace(params=poisoned(state.params, alive > options.ring_size))
        advanced = Run(_feed_back(adaptive, schedule, window, state, info), info, run.trajectory)
        index = _due_evaluation(adaptive, options.eval_every, advanced)
        return select_active(active, evaluate(schedule, index, advanced), run)

    return jax.lax.while_loop(lambda run: max_over_runs(unfinished(run).astype(jnp.int32)) > 0, piece, run)


def _current_window(adaptive: Adaptive, schedule: Schedule, index: jax.Array, max_commits: int | None) -> Window:
    """Window number `index` under a schedule, of a run of at most `max_commits` commits."""
    num_commits = jnp.isfinite(schedule.time).sum(dtype=jnp.int32)
    num_commits = jnp.minimum(num_commits, max_commits or num_commits)
    is_last = index >= adaptive.num_windows - 1
    end = jnp.where(is_last, jnp.inf, (index + 1).astype(schedule.time.dtype) * adaptive.seconds)
    last_commit = jnp.minimum((schedule.time <= end).sum(dtype=jnp.int32), num_commits)
    return Window(is_last, end, last_commit, num_commits)


def _feed_back(adaptive: Adaptive, schedule: Schedule, window: Window, state: State, info: Info) -> State:
    """The state in the next window, with new controls for the ones to come, if this one is over; else as it is."""
    over = (state.commit >= window.last_commit) & ~window.is_last
    committed = jnp.arange(schedule.time.size, dtype=jnp.int32) < state.commit
    times = jnp.where(committed, schedule.time, jnp.inf)
    chosen = adaptive.next(state.controls, Observed(state.window, window.end, times, info.loss))
    controls = jax.tree.map(lambda new, old: jnp.where(over, new, old), chosen, state.controls)
    return state._replace(controls=controls, window=state.window + over.astype(jnp.int32))


def _due_evaluation(adaptive: Adaptive, every: int, run: Run) -> jax.Array:
    """int32[]: the number of the evaluation that is due at this commit; -1 if none is, or it has been made.

    It has been made where a run ends with a window without commits.
    """
    commit = run.state.commit
    index = -(-commit // every)
    due = (commit == index * every) | _has_ended(adaptive, run)
    is_evaluated = run.trajectory.commit[index.clip(0, run.trajectory.commit.size - 1)] >= 0
    return jnp.where(due & ~is_evaluated, index, -1)


def _has_ended(adaptive: Adaptive, run: Run) -> jax.Array:
    """bool[]: whether all commits of the last window have been made."""
    return (run.state.window >= adaptive.num_windows - 1) & (run.state.commit >= run.info.num_commits)


def _staleness(schedule: Schedule, num_commits: jax.Array) -> jax.Array:
    """int32[E]: the largest staleness of each of the first `num_commits` commits; -1 for the others."""
    commits = jnp.arange(schedule.time.size, dtype=jnp.int32)
    return jnp.where(commits < num_commits, staleness(schedule), -1)


def _versions_kept(schedule: Schedule, num_commits: jax.Array) -> jax.Array:
    """int32[]: the versions that the commits so far needed; each one is kept until so many have come after it."""
    max_staleness = _staleness(schedule, num_commits).max()
    return jnp.where(max_staleness > 0, max_staleness + 1, 0)
