"""Commits of local work: workers take optimizer steps of their own, and push what these have changed.

Letters: W workers, O owners of local parameters (workers, or groups of them), C contributions to a commit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax._shared_loops import max_over_runs, select_active
from gcjax.engine.gradients import Contribution, Inputs, mean, unit_inputs, weighted_loss
from gcjax.engine.spread import Spread
from gcjax.protocols.base import LocalWork, Protocol
from gcjax.protocols.schedule import Commits
from gcjax.tasks.base import Task


class Local(NamedTuple):
    """The parameters that a worker (or a group) works on; every leaf [O, ...] for all of them.

    Attributes:
      params: the parameters.
      opt_state: of the optimizer of the local steps.
      version: int32[], the version that was read last; -1 before the first.
    """

    params: Any
    opt_state: Any
    version: jax.Array


class Piece(NamedTuple):
    """One contribution; `worker` and `unit` have one entry for each worker that takes the steps."""

    worker: jax.Array
    unit: jax.Array
    share: jax.Array
    version: jax.Array
    work: jax.Array
    weight: jax.Array


LocalCommit = Callable[[Inputs, Commits, jax.Array, Local], tuple[Contribution, Local]]
"""`(inputs, schedule, commit, local) -> (contribution, local)`."""


def beginning(protocol: Protocol, optimizer: optax.GradientTransformation, params: Any, num_workers: int) -> Local:
    """The local parameters before the first commit: everybody has the initial ones."""
    local = protocol.local or LocalWork()
    number = int(owners(local, num_workers).max()) + 1

    def everybody(x: jax.Array) -> jax.Array:
        return jnp.broadcast_to(jnp.asarray(x), (number, *jnp.shape(x)))

    opt_state = (local.optimizer or optimizer).init(params)
    params, opt_state = jax.tree.map(everybody, (params, opt_state))
    return Local(params, opt_state, jnp.full(number, -1, jnp.int32))


def owners(local: LocalWork, num_workers: int) -> np.ndarray:
    """int32[W]: on whose parameters each worker works."""
    return np.arange(num_workers, dtype=np.int32) if local.owner is None else local.owner(num_workers)


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
    one = _contribution(task, local, local.optimizer or optimizer)

    def in_turn(inputs: Inputs, pieces: Piece, everybody: Local) -> tuple[Any, Local, jax.Array]:
        """One contribution after the other."""
        used = pieces.work > 0
        count = used.sum(dtype=jnp.int32)
        order = jnp.argsort(~used, stable=True) if used.size > 1 else jnp.arange(used.size)

        def add(i: jax.Array, carry: tuple[Any, Local, jax.Array]) -> tuple[Any, Local, jax.Array]:
            total, everybody, losses = carry
            piece = jax.tree.map(lambda x: x[order[i]], pieces)
            me = owner[piece.worker.max().clip(0)]  # padding may stand before the others
            mine = jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, me, keepdims=False), everybody)
            change, new, loss = one(inputs, mine, piece)
            new = select_active(i < count, new, mine)
            everybody = jax.tree.map(
                lambda x, value: jax.lax.dynamic_update_index_in_dim(x, value, me, axis=0), everybody, new
            )
            return jax.tree.map(jnp.add, total, change), everybody, losses.at[order[i]].set(loss)

        zero = jax.tree.map(jnp.zeros_like, inputs.versions.params)
        start = zero, everybody, jnp.zeros(used.size, pieces.weight.dtype)
        return jax.lax.fori_loop(0, max_over_runs(count), add, start)

    def side_by_side(inputs: Inputs, pieces: Piece, everybody: Local) -> tuple[Any, Local, jax.Array]:
        """All workers at once, pass by pass."""
        assert at_once is not None

        def some(inputs: Inputs, mine: Local, pieces: Piece) -> tuple[tuple[Any, jax.Array], Local]:
            change, new, loss = jax.vmap(one, (None, 0, 0))(inputs, mine, pieces)
            works = pieces.work > 0
            mine = jax.tree.map(lambda a, b: jnp.where(works.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, mine)
            total = jax.tree.map(lambda x: jnp.sum(x, axis=0), change)
            return (total, jnp.sum(_share(pieces) * loss)), mine

        total, loss = None, jnp.zeros((), pieces.weight.dtype)
        for i in range(local.passes):
            part = jax.tree.map(lambda x, i=i: x[i * num_workers : (i + 1) * num_workers], pieces)
            (change, value), everybody = at_once.owned(some, inputs, everybody, part)
            total = change if total is None else jax.tree.map(jnp.add, total, change)
            loss += value
        return total, everybody, jnp.broadcast_to(mean(loss, _share(pieces).sum()), pieces.work.shape)

    def commit(inputs: Inputs, commits: Commits, index: jax.Array, everybody: Local) -> tuple[Contribution, Local]:
        pieces = _pieces(local, commits, index)
        dense = pieces.work.shape[0] == local.passes * num_workers and at_once is not None
        total, everybody, losses = (side_by_side if dense else in_turn)(inputs, pieces, everybody)
        share = _share(pieces).astype(losses.dtype)
        loss = mean(jnp.sum(losses * share), share.sum())
        gradient = jax.tree.map(jnp.negative, total)
        return Contribution(gradient, loss, jnp.zeros((), commits.weight.dtype)), everybody

    return commit


def _share(pieces: Piece) -> jax.Array:
    """float[C]: what the mean loss of each contribution counts for; all its steps have its weight."""
    return pieces.weight * pieces.work.astype(pieces.weight.dtype)


def _pieces(local: LocalWork, commits: Commits, index: jax.Array) -> Piece:
    """The contributions to a commit; those of workers who take their steps together are one."""
    rows = {name: getattr(commits, name)[index] for name in ("worker", "unit", "version", "work", "weight")}
    used = rows["worker"] >= 0
    work, weight = jnp.where(used, rows["work"], 0), jnp.where(used, rows["weight"], 0)
    worker, unit, version = rows["worker"], rows["unit"], rows["version"]
    if not local.together:
        return Piece(worker[:, None], unit[:, None], jnp.ones_like(weight)[:, None], version, work, weight)
    whole = weight.sum(keepdims=True)
    share = weight / jnp.where(whole > 0, whole, 1)
    one = jnp.argmax(used, keepdims=True)
    return Piece(worker[None], unit[None], share[None], version[one], work[one], whole)


def _contribution(
    task: Task, local: LocalWork, optimizer: optax.GradientTransformation
) -> Callable[[Inputs, Local, Piece], tuple[Any, Local, jax.Array]]:
    """`(inputs, mine, piece) -> (weighted change, mine, mean loss)`."""
    steps = _steps(task, local, optimizer)

    def one(inputs: Inputs, mine: Local, piece: Piece) -> tuple[Any, Local, jax.Array]:
        read = inputs.versions.read(piece.version.clip(0))
        fresh = piece.version != mine.version
        start = jax.lax.cond(fresh, local.pulled, lambda mine, read: mine, mine.params, read)
        before = mine.params if local.in_flight else start
        params, opt_state, loss = steps(inputs, piece, start, before, read, mine.opt_state, fresh)
        change, params = local.pushed(params, start, read, piece.weight)
        change = jax.tree.map(lambda x: piece.weight.astype(x.dtype) * x, change)
        return change, Local(params, opt_state, piece.version), loss

    return one


def _steps(task: Task, local: LocalWork, optimizer: optax.GradientTransformation) -> Callable[..., Any]:
    """`(inputs, piece, start, before, read, opt_state, fresh) -> (params, opt_state, mean loss)`."""

    def gradient(inputs: Inputs, piece: Piece, i: jax.Array, params: Any) -> tuple[jax.Array, Any]:
        worker, unit, given = piece.worker.clip(0), piece.unit.clip(0) + i, (task, inputs.data, inputs.rng_key)
        if not local.together:
            return jax.value_and_grad(task.loss)(params, *unit_inputs(*given, worker[0], unit[0]))
        batches, keys = jax.vmap(lambda w, n: unit_inputs(*given, w, n))(worker, unit)
        return jax.value_and_grad(lambda p: weighted_loss(task, p, piece.share, batches, keys))(params)

    def steps(
        inputs: Inputs, piece: Piece, start: Any, before: Any, read: Any, opt_state: Any, fresh: jax.Array
    ) -> tuple[Any, Any, jax.Array]:
        def step(i: jax.Array, carry: tuple[Any, Any, jax.Array]) -> tuple[Any, Any, jax.Array]:
            params, opt_state, total = carry
            at = params
            if local.frozen:
                at = read
            elif local.in_flight:
                at = _where(fresh & (i == 0), before, params)
            loss, change = gradient(inputs, piece, i, at)
            updates, new_state = optimizer.update(change, opt_state, params)
            new = optax.apply_updates(params, updates), new_state, total + loss.astype(total.dtype)
            return select_active(i < piece.work, new, carry)

        zero = jnp.zeros((), piece.weight.dtype)
        params, opt_state, total = jax.lax.fori_loop(0, max_over_runs(piece.work), step, (start, opt_state, zero))
        return params, opt_state, total / jnp.maximum(piece.work, 1).astype(total.dtype)

    return steps


def _where(condition: jax.Array, one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), one, other)
