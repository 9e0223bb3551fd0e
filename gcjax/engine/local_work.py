"""Commits of local work: workers take optimizer steps of their own, and push what these have changed.

Letters: W workers, O owners of local parameters (workers, or groups of them), C contributions to a commit, G workers
who take steps together.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax._shared_loops import max_over_runs, select_active
from gcjax.engine.gradients import Contribution, Inputs, mean, unit_inputs, weighted_loss
from gcjax.engine.spread import Spread
from gcjax.protocols.base import LocalWork
from gcjax.protocols.schedule import Commits
from gcjax.tasks.base import Task


class Local(NamedTuple):
    """The parameters that an owner (a worker or a group) works on; every leaf [O, ...] for all of them.

    Attributes:
      params: the parameters.
      opt_state: of the optimizer of the local steps.
      version: int32[], the version that was read last; -1 before the first.
    """

    params: Any
    opt_state: Any
    version: jax.Array


class LocalSteps(NamedTuple):
    """The steps of one contribution, which its G workers take together; every field [C, ...] for all of a commit.

    Attributes:
      worker: int32[G], who takes them; -1 pads. G is 1 unless the workers have common parameters.
      unit: int32[G], the unit of the first step.
      share: float[G], the share of each worker in the gradient of a step; they add up to 1.
      version: int32[], the version that is read before the first step, if it is not the one that was read last.
      number: int32[], how many steps; 0 pads.
      weight: float[], the factor of their change in the commit.
    """

    worker: jax.Array
    unit: jax.Array
    share: jax.Array
    version: jax.Array
    number: jax.Array
    weight: jax.Array

    @property
    def loss_weight(self) -> jax.Array:
        """float[], what the mean loss of the steps counts for: all of them have the contribution's weight."""
        return self.weight * self.number.astype(self.weight.dtype)


class LocalRule(NamedTuple):
    """How a commit of local work is made: what does not change from commit to commit.

    Attributes:
      task: what is trained.
      local: the protocol's; it says where gradients are taken, and what happens on a pull and on a push.
      optimizer: of the local steps.
      owner: int32[W], see `owners`.
      at_once: how the workers of a commit work at the same time; None if one after the other.
    """

    task: Task
    local: LocalWork
    optimizer: optax.GradientTransformation
    owner: jax.Array
    at_once: Spread | None


LocalCommit = Callable[[Inputs, Commits, jax.Array, Local], tuple[Contribution, Local]]
"""`(inputs, schedule, commit, local) -> (contribution, local)`."""


def initial_local(local: LocalWork, optimizer: optax.GradientTransformation, params: Any, num_workers: int) -> Local:
    """The local parameters before the first commit: everybody has the initial ones."""
    num_owners = int(owners(local, num_workers).max()) + 1

    def repeated(x: jax.Array) -> jax.Array:
        return jnp.broadcast_to(jnp.asarray(x), (num_owners, *jnp.shape(x)))

    opt_state = (local.optimizer or optimizer).init(params)
    params, opt_state = jax.tree.map(repeated, (params, opt_state))
    return Local(params, opt_state, jnp.full(num_owners, -1, jnp.int32))


def owners(local: LocalWork, num_workers: int) -> np.ndarray:
    """int32[W]: on whose parameters each worker works."""
    if local.parameter_owners is None:
        return np.arange(num_workers, dtype=np.int32)
    return local.parameter_owners(num_workers)


def local_commits(
    task: Task, local: LocalWork, optimizer: optax.GradientTransformation, num_workers: int, at_once: Spread | None
) -> LocalCommit:
    """How a commit of local work is made.

    Args:
      task: what is trained.
      local: the protocol's.
      optimizer: of the run.
      num_workers: W.
      at_once: how the workers of a commit work at the same time; one after the other if None, as it must be where a
        commit has fewer contributions than workers.
    """
    owner = jnp.asarray(owners(local, num_workers))
    rule = LocalRule(task=task, local=local, optimizer=local.optimizer or optimizer, owner=owner, at_once=at_once)

    def commit(inputs: Inputs, commits: Commits, index: jax.Array, everybody: Local) -> tuple[Contribution, Local]:
        steps = _steps_of_commit(local, commits, index)
        has_all_workers = steps.number.shape[0] == local.passes * num_workers
        contribute = _side_by_side if has_all_workers and at_once is not None else _one_by_one
        total, everybody, losses = contribute(rule, inputs, steps, everybody)
        weights = steps.loss_weight.astype(losses.dtype)
        loss = mean(jnp.sum(losses * weights), weights.sum())
        gradient = jax.tree.map(jnp.negative, total)
        return Contribution(gradient, loss, jnp.zeros((), commits.weight.dtype)), everybody

    return commit


def _steps_of_commit(local: LocalWork, commits: Commits, index: jax.Array) -> LocalSteps:
    """The contributions to a commit, [C, ...]; those of workers who take their steps together are one, C = 1."""
    worker, unit, version = commits.worker[index], commits.unit[index], commits.version[index]
    used = worker >= 0
    number, weight = jnp.where(used, commits.work[index], 0), jnp.where(used, commits.weight[index], 0)
    if not local.joint_steps:
        share = jnp.ones_like(weight)
        return LocalSteps(
            worker=worker[:, None], unit=unit[:, None], share=share[:, None], version=version, number=number,
            weight=weight,
        )  # fmt: skip
    total = weight.sum(keepdims=True)
    share = weight / jnp.where(total > 0, total, 1)
    first = jnp.argmax(used, keepdims=True)
    return LocalSteps(
        worker=worker[None], unit=unit[None], share=share[None], version=version[first], number=number[first],
        weight=total,
    )  # fmt: skip


def _one_by_one(rule: LocalRule, inputs: Inputs, steps: LocalSteps, everybody: Local) -> tuple[Any, Local, jax.Array]:
    """The sum of the weighted changes, the local parameters, and float[C] losses: one contribution after the other."""
    used = steps.number > 0
    num_used = used.sum(dtype=jnp.int32)
    order = jnp.argsort(~used, stable=True) if used.size > 1 else jnp.arange(used.size)

    def add(i: jax.Array, carry: tuple[Any, Local, jax.Array]) -> tuple[Any, Local, jax.Array]:
        total, everybody, losses = carry
        steps_of_worker = jax.tree.map(lambda x: x[order[i]], steps)
        owner = rule.owner[steps_of_worker.worker.max().clip(0)]  # padding may stand before the others
        local = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, owner, keepdims=False), everybody)
        change, new, loss = _contribution(rule, inputs, local, steps_of_worker)
        new = select_active(i < num_used, new, local)
        everybody = jax.tree.map(
            lambda x, value: jax.lax.dynamic_update_index_in_dim(x, value, owner, axis=0), everybody, new
        )
        return jax.tree.map(jnp.add, total, change), everybody, losses.at[order[i]].set(loss)

    zero = jax.tree.map(jnp.zeros_like, inputs.versions.params)
    carry = zero, everybody, jnp.zeros(used.size, steps.weight.dtype)
    return jax.lax.fori_loop(0, max_over_runs(num_used), add, carry)


def _side_by_side(rule: LocalRule, inputs: Inputs, steps: LocalSteps, everybody: Local) -> tuple[Any, Local, jax.Array]:
    """The same, all workers at once, pass by pass; every loss is the mean of all."""
    assert rule.at_once is not None

    def add_up(inputs: Inputs, local: Local, steps: LocalSteps) -> tuple[tuple[Any, jax.Array], Local]:
        change, new, loss = jax.vmap(partial(_contribution, rule), (None, 0, 0))(inputs, local, steps)
        used = steps.number > 0
        local = jax.tree.map(lambda a, b: jnp.where(used.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, local)
        total = jax.tree.map(lambda x: jnp.sum(x, axis=0), change)
        return (total, jnp.sum(steps.loss_weight * loss)), local

    num_workers, total, loss = rule.owner.size, None, jnp.zeros((), steps.weight.dtype)
    for i in range(rule.local.passes):
        steps_of_pass = jax.tree.map(lambda x, i=i: x[i * num_workers : (i + 1) * num_workers], steps)
        (change, value), everybody = rule.at_once.owned(add_up, inputs, everybody, steps_of_pass)
        total = change if total is None else jax.tree.map(jnp.add, total, change)
        loss += value
    return total, everybody, jnp.broadcast_to(mean(loss, steps.loss_weight.sum()), steps.number.shape)


def _contribution(rule: LocalRule, inputs: Inputs, local: Local, steps: LocalSteps) -> tuple[Any, Local, jax.Array]:
    """The weighted change that is pushed, the owner's parameters afterwards, and the mean loss of the steps.

    A pull, if another version is to be read than last time; the steps; then the push.
    """
    version = inputs.versions.read(steps.version.clip(0))
    pulls = steps.version != local.version
    base = jax.lax.cond(pulls, rule.local.pull, lambda params, version: params, local.params, version)
    points = _GradientPoints(version, local.params if rule.local.overlaps_pull else base, pulls)
    params, opt_state, loss = _take_steps(rule, inputs, steps, points, base, local.opt_state)
    change, params = rule.local.push(params, base, version, steps.weight)
    change = jax.tree.map(lambda x: steps.weight.astype(x.dtype) * x, change)
    return change, Local(params, opt_state, steps.version), loss


class _GradientPoints(NamedTuple):
    """Where else than at the local parameters a gradient can be taken.

    Attributes:
      version: the parameters that were read.
      before_pull: the local parameters before they were.
      pulls: bool[], whether the steps begin with a pull.
    """

    version: Any
    before_pull: Any
    pulls: jax.Array

    def of_step(self, local: LocalWork, i: jax.Array, params: Any) -> Any:
        """The point of step i: the version that was read, the local parameters (`params`), or those before a pull."""
        if local.gradients_at_version:
            return self.version
        if local.overlaps_pull:  # the first gradient after a pull was begun before it
            is_late = self.pulls & (i == 0)
            return jax.tree.map(lambda a, b: jnp.where(is_late, a, b), self.before_pull, params)
        return params


def _take_steps(
    rule: LocalRule, inputs: Inputs, steps: LocalSteps, points: _GradientPoints, params: Any, opt_state: Any
) -> tuple[Any, Any, jax.Array]:
    """The parameters and the optimizer's state after the steps, and their mean loss."""

    def step(i: jax.Array, carry: tuple[Any, Any, jax.Array]) -> tuple[Any, Any, jax.Array]:
        params, opt_state, total = carry
        loss, gradient = _step_gradient(rule, inputs, steps, i, points.of_step(rule.local, i, params))
        updates, new_state = rule.optimizer.update(gradient, opt_state, params)
        new = optax.apply_updates(params, updates), new_state, total + loss.astype(total.dtype)
        return select_active(i < steps.number, new, carry)

    carry = params, opt_state, jnp.zeros((), steps.weight.dtype)
    params, opt_state, total = jax.lax.fori_loop(0, max_over_runs(steps.number), step, carry)
    return params, opt_state, total / jnp.maximum(steps.number, 1).astype(total.dtype)


def _step_gradient(
    rule: LocalRule, inputs: Inputs, steps: LocalSteps, i: jax.Array, params: Any
) -> tuple[jax.Array, Any]:
    """Loss and gradient of step i at these parameters, the mean of those of the workers who take it together."""
    task, worker, unit = rule.task, steps.worker.clip(0), steps.unit.clip(0) + i
    if not rule.local.joint_steps:
        return jax.value_and_grad(task.loss)(
            params, *unit_inputs(task, inputs.data, inputs.rng_key, worker[0], unit[0])
        )
    batches, keys = jax.vmap(lambda w, n: unit_inputs(task, inputs.data, inputs.rng_key, w, n))(worker, unit)
    return jax.value_and_grad(lambda p: weighted_loss(task, p, steps.share, batches, keys))(params)
