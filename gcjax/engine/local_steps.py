"""The local steps that the contributions to a commit are made of.

Letters: C contributions to a commit. Members are workers who take steps together.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from gcjax.compression.base import Compression
from gcjax.engine.gradients import Inputs, unit_inputs, weighted_loss
from gcjax.engine.spread import Spread
from gcjax.protocols.base import LocalWork
from gcjax.protocols.schedule import Commits
from gcjax.tasks.base import Task


class LocalProgram(NamedTuple):
    """How a commit of local work is made: what does not change from commit to commit.

    Attributes:
      task: what is trained.
      local: the protocol's; it says where gradients are taken, and what happens on a pull and on a push.
      optimizer: of the local steps.
      owner_of_worker: int32[W], see `gcjax.engine.local_state.owner_of_workers`.
      worker_spread: how the workers of a commit work at the same time; None if one after the other.
      compression: of what is pushed; None for none.
    """

    task: Task
    local: LocalWork
    optimizer: optax.GradientTransformation
    owner_of_worker: jax.Array
    worker_spread: Spread | None
    compression: Compression | None


class LocalSteps(NamedTuple):
    """The steps of one contribution, which its members take together; every field [C, ...] for all of a commit.

    Attributes:
      worker: int32[members], who takes them; -1 pads. There is one unless the workers have common parameters.
      unit: int32[members], the unit of the first step.
      share: float[members], the share of each worker in the gradient of a step; they add up to 1.
      version: int32[], the version that is read before the first step, if it is not the one that was read last.
      num_steps: int32[], how many steps; 0 pads.
      weight: float[], the factor of their change in the commit.
    """

    worker: jax.Array
    unit: jax.Array
    share: jax.Array
    version: jax.Array
    num_steps: jax.Array
    weight: jax.Array

    @property
    def loss_weight(self) -> jax.Array:
        """float[], the weight of the mean loss of the steps: each step has the contribution's weight."""
        return self.weight * self.num_steps.astype(self.weight.dtype)


def steps_of_commit(local: LocalWork, commits: Commits, index: jax.Array) -> LocalSteps:
    """The steps of the C contributions to commit `index`: of one member each, every field [C, ...].

    Workers with common parameters (`local.parameter_owners`) take their steps as one contribution: fields are then
    [1, ...], and there are as many members as C was.
    """
    worker, unit, version = commits.worker[index], commits.unit[index], commits.version[index]
    is_contribution = worker >= 0  # -1 pads
    num_steps = jnp.where(is_contribution, commits.work[index], 0)
    weight = jnp.where(is_contribution, commits.weight[index], 0)
    if local.parameter_owners is None:
        whole_share = jnp.ones_like(weight)
        return LocalSteps(
            worker=worker[:, None], unit=unit[:, None], share=whole_share[:, None],  # [C, members=1]
            version=version, num_steps=num_steps, weight=weight,
        )  # fmt: skip
    total_weight = weight.sum(keepdims=True)  # [1]
    share = weight / jnp.where(total_weight > 0, total_weight, 1)
    any_member = jnp.argmax(is_contribution, keepdims=True)  # [1]; all read one version and take as many steps
    return LocalSteps(
        worker=worker[None], unit=unit[None], share=share[None],  # [1, members]
        version=version[any_member], num_steps=num_steps[any_member], weight=total_weight,
    )  # fmt: skip


def step_gradient(
    program: LocalProgram, inputs: Inputs, steps: LocalSteps, step: jax.Array, params: Any
) -> tuple[jax.Array, Any]:
    """Loss and gradient of a step, on unit `steps.unit + step` of its worker, at these parameters.

    If workers (int32[members]) take it together, the means over them, weighted by `steps.share`; 0 for -1, which pads.
    """
    task, workers, units = program.task, steps.worker.clip(0), steps.unit.clip(0) + step
    if program.local.parameter_owners is None:
        only_member = 0
        batch, key = unit_inputs(task, inputs.data, inputs.rng_key, workers[only_member], units[only_member])
        return jax.value_and_grad(task.loss)(params, batch, key)
    batches, keys = jax.vmap(lambda worker, unit: unit_inputs(task, inputs.data, inputs.rng_key, worker, unit))(
        workers, units
    )
    return jax.value_and_grad(lambda p: weighted_loss(task, p, steps.share, batches, keys))(params)
