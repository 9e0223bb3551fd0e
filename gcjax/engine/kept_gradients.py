"""Commits whose messages are made of gradients that workers keep (`LocalWork.message_code`).

Letters: W workers, K chunks a worker holds, C contributions to a commit.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from gcjax._products import tensordot
from gcjax._shared_loops import max_over_runs, select_active
from gcjax.codes.base import Coding, GradientCode, residual
from gcjax.engine.gradients import Contribution, Inputs, RoundInputs, chunk_batch, mean_from_sums
from gcjax.engine.local_state import LocalState
from gcjax.engine.local_steps import LocalProgram
from gcjax.engine.local_work import LocalCommit
from gcjax.engine.messages import accumulation_dtype, chunk_weights
from gcjax.protocols.schedule import Commits, Schedule


def kept_gradient_commit_maker(program: LocalProgram, schedule: Schedule) -> LocalCommit:
    """The function that makes commits of messages of gradients that workers keep; arguments as of `local_commit_maker`.

    A worker keeps the last gradient on each of its K chunks, in place of parameters: leaves of `local_states.params`
    are [W, K, ...]. The gradients of a commit are computed one after the other: each is on a version of its own.
    """
    del schedule
    code = program.local.message_code
    assert code is not None  # this is called where there is one

    def make_commit(
        inputs: Inputs, commits: Commits, index: jax.Array, local_states: LocalState
    ) -> tuple[Contribution, LocalState]:
        """What commit `index` applies, and the local states with the gradients that all workers keep after it.

        `commits.work[index]`, int32[C], counts the new gradients, one a unit, in each contribution; -1 pads.
        """
        kept_gradients, loss_sum = _with_new_gradients(program, code, inputs, commits, index, local_states.params)
        coding = coding_of_commit(code, commits, index)
        weights = chunk_weights(coding.encode, coding.decode)  # [W, K], of each kept gradient
        gradient = jax.tree.map(partial(_weighted_sum, weights), kept_gradients)
        num_new = commits.work[index].clip(0).sum()
        mean_loss = mean_from_sums(loss_sum, num_new.astype(loss_sum.dtype))
        num_chunks = code.assignment.num_chunks  # N: `decode` is that of the mean, a residual is of the sum
        true_residual = residual(code.assignment, coding.encode, coding.decode * num_chunks)
        return Contribution(gradient, mean_loss, true_residual), local_states._replace(params=kept_gradients)

    return make_commit


def _weighted_sum(weights: jax.Array, gradients: jax.Array) -> jax.Array:
    """A leaf of the sum of gradients [W, K, ...] with `weights float[W, K]`, over W and K, in float32 or wider."""
    dtype = accumulation_dtype(gradients.dtype)
    gradient_sum = tensordot(weights.astype(dtype), gradients.astype(dtype), axes=2)
    return gradient_sum.astype(gradients.dtype)


def coding_of_commit(code: GradientCode, commits: Commits, index: jax.Array) -> Coding:
    """The coding of the messages of those with a contribution to commit `index`, `decode` times its weight.

    The weight is 1/N for the mean of the N chunk gradients, the same in all contributions of a worker.
    """
    worker, weight = commits.worker[index], commits.weight[index]  # [C]; -1 pads, with weight 0
    is_contribution, num_workers = worker >= 0, code.assignment.num_workers
    has_sent = jnp.zeros(num_workers, bool).at[worker.clip(0)].max(is_contribution)
    weight_of_worker = jnp.zeros(num_workers, weight.dtype).at[worker.clip(0)].max(weight)
    coding = code.plan(has_sent)
    return coding._replace(decode=coding.decode * weight_of_worker[:, None, None].astype(coding.decode.dtype))


def _with_new_gradients(
    program: LocalProgram, code: GradientCode, inputs: Inputs, commits: Commits, index: jax.Array, kept_gradients: Any
) -> tuple[Any, jax.Array]:
    """The gradients that workers keep, every leaf [W, K, ...], with those of commit `index`; and the sum of the losses.

    Unit n of a worker is on its chunk number n % K. The batch of a chunk is that of the round whose number is the
    version. Worker, first unit, version and work (how many units) are int32[C], a column for each contribution.
    """
    worker, unit, version, work = (x[index] for x in (commits.worker, commits.unit, commits.version, commits.work))
    chunks, load = jnp.asarray(code.assignment.chunks), code.assignment.load  # [W, K], and K
    num_units_before = jnp.cumsum(work.clip(0)) - work.clip(0)  # -1 pads
    num_units = work.clip(0).sum(dtype=jnp.int32)

    def add_gradient(i: jax.Array, carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
        """The gradients and the sum with the i-th unit of the commit, its contributions (columns) one after the other.

        As before in a run of a vmap that has fewer.
        """
        kept_gradients, loss_sum = carry
        column = jnp.searchsorted(num_units_before, i, side="right") - 1  # the last one that begins by unit i
        owner, version_read = worker[column].clip(0), version[column].clip(0)
        slot = (unit[column].clip(0) + i - num_units_before[column]) % load
        round_inputs = RoundInputs(inputs.data, inputs.rng_key, version_read)
        batch, key = chunk_batch(program.task, round_inputs, chunks[owner, slot])
        loss, gradient = jax.value_and_grad(program.task.loss)(inputs.versions.read(version_read), batch, key)
        new_kept_gradients = jax.tree.map(lambda x, value: x.at[owner, slot].set(value), kept_gradients, gradient)
        return select_active(i < num_units, (new_kept_gradients, loss_sum + loss.astype(loss_sum.dtype)), carry)

    no_losses = jnp.zeros((), commits.weight.dtype)
    return jax.lax.fori_loop(0, max_over_runs(num_units), add_gradient, (kept_gradients, no_losses))
