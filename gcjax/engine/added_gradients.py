"""Commits of local work that only adds up gradients (`LocalWork.sums_gradients`), computed without local steps.

Letters: C contributions to a commit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax._shared_loops import max_over_runs, select_active
from gcjax.engine.gradients import Contribution, Inputs, mean_from_sums
from gcjax.engine.local_state import LocalState
from gcjax.engine.local_steps import LocalSteps, steps_of_commit
from gcjax.engine.local_work import LocalCommit, LocalProgram, contribution_of_changes, step_gradient
from gcjax.protocols.schedule import Commits, Schedule


def gradient_sum_commit_maker(program: LocalProgram, schedule: Schedule) -> LocalCommit:
    """The function that makes commits of sums of gradients; arguments as of `local_work.local_commit_maker`."""
    del schedule

    def make_commit(
        inputs: Inputs, commits: Commits, index: jax.Array, local_states: LocalState
    ) -> tuple[Contribution, LocalState]:
        """What commit `index` applies, the weighted sum of the gradients; workers keep nothing."""
        steps = steps_of_commit(program.local, commits, index)
        num_units = steps.num_steps.sum(dtype=jnp.int32)

        def add_unit(i: jax.Array, sums: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            """Minus the weighted sum of the gradients, and that of the losses, with the i-th unit."""
            unit = _unit_of_commit(steps, i)
            weight = unit.steps.weight
            params = inputs.versions.read(unit.steps.version.clip(0))
            loss, gradient = step_gradient(program, inputs, unit.steps, unit.step, params)
            change_sum, loss_sum = sums
            change_sum = jax.tree.map(lambda total, g: total - weight.astype(g.dtype) * g, change_sum, gradient)
            new_sums = change_sum, loss_sum + weight * loss.astype(loss_sum.dtype)
            return select_active(i < num_units, new_sums, sums)

        no_change = jax.tree.map(jnp.zeros_like, inputs.versions.params)
        sums = no_change, jnp.zeros((), steps.weight.dtype)
        change_sum, loss_sum = jax.lax.fori_loop(0, max_over_runs(num_units), add_unit, sums)
        return contribution_of_changes(steps, change_sum, _mean_losses(steps, loss_sum)), local_states

    return make_commit


class _UnitOfCommit(NamedTuple):
    """Attributes: column: int32[], of its contribution; steps: of this alone; step: int32[], which of them it is."""

    column: jax.Array
    steps: LocalSteps
    step: jax.Array


def _unit_of_commit(steps: LocalSteps, i: jax.Array) -> _UnitOfCommit:
    """The i-th unit, int32[], of the contributions to a commit, `steps` [C, ...], column by column."""
    num_units_before = jnp.cumsum(steps.num_steps) - steps.num_steps  # int32[C]
    # The last of those that have begun: one that pads, without units, comes before the next one or is not reached.
    column = (num_units_before <= i).sum(dtype=jnp.int32) - 1
    return _UnitOfCommit(column, jax.tree.map(lambda x: x[column], steps), i - num_units_before[column])


def _mean_losses(steps: LocalSteps, loss_sum: jax.Array) -> jax.Array:
    """float[C]: the mean loss of all contributions, in place of that of each, from the weighted sum float[]."""
    return jnp.broadcast_to(mean_from_sums(loss_sum, steps.loss_weight.sum()), steps.num_steps.shape)
