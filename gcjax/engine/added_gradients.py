"""Commits of local work that only adds up gradients (`LocalWork.sums_gradients`), computed without local steps.

Letters: C contributions to a commit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax._shared_loops import max_over_runs, select_active
from gcjax.engine.gradients import Contribution, Inputs, mean_from_sums
from gcjax.engine.local_state import LocalState
from gcjax.engine.local_steps import LocalProgram, LocalSteps, step_gradient, steps_of_commit
from gcjax.engine.local_work import LocalCommit, contribution_of_changes
from gcjax.engine.messages import in_dtypes_of, weighted, zero_sum
from gcjax.protocols.schedule import Commits, Schedule


def gradient_sum_commit_maker(program: LocalProgram, schedule: Schedule) -> LocalCommit:
    """The function that makes commits of sums of gradients; arguments as of `local_work.local_commit_maker`.

    Runs of a vmap share its loop over units, as long as the longest needs (`max_over_runs`); one that is done keeps its
    sums (`select_active`).
    """
    del schedule

    def make_commit(
        inputs: Inputs, commits: Commits, index: jax.Array, local_states: LocalState
    ) -> tuple[Contribution, LocalState]:
        """What commit `index` applies, the weighted sum of the gradients, and `local_states` unchanged.

        `steps` are those of its C contributions, fields [C, ...]. The sum is formed as a change, minus the gradients;
        `contribution_of_changes` turns the sign.
        """
        steps = steps_of_commit(program.local, commits, index)
        num_units = steps.num_steps.sum(dtype=jnp.int32)

        def add_unit(i: jax.Array, sums: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
            """(minus the weighted sum of the gradients, the weighted sum of the losses float[]) with the i-th unit."""
            unit = _unit_of_commit(steps, i)  # step `unit.step`, int32[], of one contribution: `unit.steps`, fields []
            weight = unit.steps.weight
            params = inputs.versions.read(unit.steps.version.clip(0))  # -1 pads: in idle runs of a vmap
            loss, gradient = step_gradient(program, inputs, unit.steps, unit.step, params)
            change_sum, loss_sum = sums
            change_sum = jax.tree.map(jnp.subtract, change_sum, weighted(gradient, weight))
            new_sums = change_sum, loss_sum + weight * loss.astype(loss_sum.dtype)
            return select_active(i < num_units, new_sums, sums)

        params = inputs.versions.params
        sums = zero_sum(params), jnp.zeros((), steps.weight.dtype)
        change_sum, loss_sum = jax.lax.fori_loop(0, max_over_runs(num_units), add_unit, sums)
        change_sum = in_dtypes_of(change_sum, params)
        return contribution_of_changes(steps, change_sum, _mean_losses(steps, loss_sum)), local_states

    return make_commit


class _UnitOfCommit(NamedTuple):
    """A unit of work in a commit.

    Attributes:
      column: int32[], that of its contribution.
      steps: those of this contribution alone, fields without the axis C.
      step: int32[], which of them it is.
    """

    column: jax.Array
    steps: LocalSteps
    step: jax.Array


def _unit_of_commit(steps: LocalSteps, i: jax.Array) -> _UnitOfCommit:
    """The i-th unit (`i` int32[]) of the C contributions to a commit, `steps` [C, ...], one column after the other."""
    num_units_before = jnp.cumsum(steps.num_steps) - steps.num_steps  # int32[C]
    # The last column whose first unit is not after i. One that pads has no units: the next one begins with the same
    # unit, or there is no unit so late.
    column = (num_units_before <= i).sum(dtype=jnp.int32) - 1
    return _UnitOfCommit(column, jax.tree.map(lambda x: x[column], steps), i - num_units_before[column])


def _mean_losses(steps: LocalSteps, loss_sum: jax.Array) -> jax.Array:
    """float[C]: the mean loss of all contributions, in place of that of each, from the weighted sum float[]."""
    return jnp.broadcast_to(mean_from_sums(loss_sum, steps.loss_weight.sum()), steps.num_steps.shape)
