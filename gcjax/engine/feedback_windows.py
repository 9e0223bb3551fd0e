"""Runs of protocols that look at the loss: a schedule is made for a window, run, and the losses are fed back.

The whole schedule is made anew after every window; what a protocol chooses for later windows does not change what
happened in earlier ones, so the commits that have been made stay the same.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from gcjax._shared_loops import max_over_runs, select_active
from gcjax.engine.base import Info, Run, State
from gcjax.engine.version_ring import poisoned, staleness
from gcjax.protocols.base import Adaptive, Observed, Schedule

Executions = Callable[[Schedule], Callable[[jax.Array, State, Info], tuple[State, Info]]]


def by_windows(
    program: Any,
    commits: Executions,
    evaluated: Callable[[Schedule, jax.Array, Run], Run],
    run: Run,
    num_evals: jax.Array,
    source: tuple[jax.Array, Any],
) -> Run:
    """Goes on until so many evaluations have been made in all, or the run ends.

    Args:
      program: of the run.
      commits: makes the commits of a schedule.
      evaluated: writes an evaluation to a slot of the trajectory; to none if it is negative.
      run: so far.
      num_evals: int32[].
      source: the durations and the network.
    """
    adaptive, options = program.protocol.adaptive, program.options
    every = options.eval_every
    durations, network = source

    def going(run: Run) -> jax.Array:
        """Whether there are windows left, or commits of the last one, and evaluations to be made."""
        judged = (run.trajectory.commit >= 0).sum(dtype=jnp.int32) - 1
        return ((judged < num_evals) & ~_ended(adaptive, run)).astype(jnp.int32)

    def piece(run: Run) -> Run:
        """Up to the next evaluation, or the end of the window."""
        active = going(run) > 0
        schedule = adaptive.schedule(durations, network, run.state.controls)
        return select_active(active, _piece(schedule, run), run)

    def _piece(schedule: Schedule, run: Run) -> Run:
        state, info = run.state, run.info
        total = jnp.isfinite(schedule.time).sum(dtype=jnp.int32)
        total = jnp.minimum(total, options.num_commits or total)
        is_last = state.window >= adaptive.num_windows - 1
        boundary = jnp.where(is_last, jnp.inf, (state.window + 1).astype(schedule.time.dtype) * adaptive.seconds)
        in_window = jnp.minimum((schedule.time <= boundary).sum(dtype=jnp.int32), total)
        upcoming = (state.commit // every + 1) * every
        end = jnp.minimum(in_window, upcoming)
        state, info = commits(schedule)(end, state, info)
        over = (state.commit >= in_window) & ~is_last
        made = jnp.arange(schedule.time.size, dtype=jnp.int32) < state.commit
        seen = Observed(state.window, boundary, jnp.where(made, schedule.time, jnp.inf), info.loss)
        chosen = adaptive.next(state.controls, seen)
        controls = jax.tree.map(lambda new, old: jnp.where(over, new, old), chosen, state.controls)
        window = state.window + over.astype(jnp.int32)
        alive = jnp.maximum(info.versions_alive, _versions_kept(schedule, state.commit))
        params = poisoned(state.params, alive > options.ring_size)
        run = Run(
            state._replace(params=params, controls=controls, window=window),
            info._replace(num_commits=total, staleness=_until(schedule, total), versions_alive=alive),
            run.trajectory,
        )
        judge = (state.commit == upcoming) | _ended(adaptive, run)
        new_slot = -(-state.commit // every)
        fresh = run.trajectory.commit[new_slot.clip(0, run.trajectory.commit.size - 1)] < 0
        return evaluated(schedule, jnp.where(judge & fresh, new_slot, -1), run)

    return jax.lax.while_loop(lambda run: max_over_runs(going(run)) > 0, piece, run)


def _ended(adaptive: Adaptive, run: Run) -> jax.Array:
    return (run.state.window >= adaptive.num_windows - 1) & (run.state.commit >= run.info.num_commits)


def _until(schedule: Schedule, number: jax.Array) -> jax.Array:
    """int32[E]: the largest staleness of each of so many commits; -1 for the others."""
    commits = jnp.arange(schedule.time.size, dtype=jnp.int32)
    return jnp.where(commits < number, staleness(schedule), -1)


def _versions_kept(schedule: Schedule, made: jax.Array) -> jax.Array:
    """int32[]: the versions that the commits so far needed; each one is kept until so many have come after it."""
    stale = _until(schedule, made).max()
    return jnp.where(stale > 0, stale + 1, 0)
