"""The gradient that a commit applies, whoever contributed to it.

Letters: W workers, N chunks, K chunks a worker holds, L blocks, M messages, C contributions to a commit, d parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax._products import tensordot
from gcjax._shared_loops import max_over_runs
from gcjax.codes.alternatives import used_rows
from gcjax.codes.base import Coding, GradientCode, chunk_coefficients, residual
from gcjax.engine.messages import (
    accumulation_dtype,
    chunk_weights,
    decoded_blocks,
    gradient_from_blocks,
    in_dtypes_of,
    weighted,
    worker_messages,
)
from gcjax.engine.spread import Spread
from gcjax.engine.version_ring import Versions
from gcjax.protocols.base import Protocol
from gcjax.protocols.schedule import Commits
from gcjax.tasks.base import Task, merge


class Contribution(NamedTuple):
    """What a commit applies.

    Attributes:
      gradient: the weighted sum of the gradients, a pytree like the parameters; None where no server applies anything,
        or the sum is still to be made of messages.
      loss: float[], the mean training loss of the batches behind it.
      residual: float[], the distance of the decoded coefficients from the exact sum; 0 without a code.
      messages: the `gcjax.engine.compressed_messages.Messages` that the sum is to be made of; None where it is there.
    """

    gradient: Any
    loss: jax.Array
    residual: jax.Array
    messages: Any = None


class Inputs(NamedTuple):
    """What the gradients of commits are computed from.

    Attributes:
      versions: the parameters, of the latest commit and of those still to be read.
      data: of the task.
      rng_key: of the batches.
    """

    versions: Versions
    data: Any
    rng_key: jax.Array


class RoundInputs(NamedTuple):
    """What the batches of a round are drawn from: the data, the key of all batches, and the number of the round."""

    data: Any
    rng_key: jax.Array
    round: jax.Array


ContributionFunction = Callable[[Inputs, Commits, jax.Array], Contribution]
"""`(inputs, commits, commit number int32[]) -> Contribution`."""

Sums = tuple[Any, jax.Array, jax.Array]
"""Over contributions, by their weights: the gradients, the losses float[], the weights float[]."""

Estimate = Callable[[Any, RoundInputs, Coding], tuple[Any, jax.Array]]
"""`(params, round_inputs, coding) -> (gradient, loss)`: what the coding decodes."""


class Units(NamedTuple):
    """The contributions to a commit, as a schedule has them; all [C]."""

    worker: jax.Array
    unit: jax.Array
    version: jax.Array
    weight: jax.Array

    @classmethod
    def of_commit(cls, commits: Commits, commit: jax.Array) -> "Units":
        """Those of commit number `commit`, int32[]."""
        return cls(*(getattr(commits, name)[commit] for name in cls._fields))


def weighted_loss(task: Task, params: Any, weights: jax.Array, batches: Any, keys: jax.Array) -> jax.Array:
    """`sum_c weights[c] loss(params, batch[c], key[c])`, in one pass.

    Every array has an axis of C batches in front: contributions, or chunks. For L = M = 1, one block and one message,
    this is all of gradient coding: encoding and decoding are the weights.
    """
    if task.mergeable:  # a loss of one merged batch is the weighted sum of the batches' losses; it uses no key
        merged_batch, unused_key = merge(batches, weights), keys[0]
        return task.loss(params, merged_batch, unused_key)
    losses = jax.vmap(task.loss, (None, 0, 0))(params, batches, keys)
    return jnp.sum(weights.astype(losses.dtype) * losses)


def unit_inputs(task: Task, data: Any, rng_key: jax.Array, worker: jax.Array, unit: jax.Array) -> tuple[Any, jax.Array]:
    """The batch of a unit and the key of its loss, the same under every protocol."""
    key = jax.random.fold_in(jax.random.fold_in(rng_key, worker), unit)
    return task.unit_batch(data, rng_key, worker, unit), key


def unit_gradients(task: Task, one_version: bool, spread: Spread, *, skip_padding: bool) -> ContributionFunction:
    """The function that gives what a commit of plain gradients applies: the weighted sum over its contributions.

    Each contribution is the gradient on its unit's batch, at the version it read.

    Args:
      task: what is trained.
      one_version: whether all contributions to a commit read the same version.
      spread: how they are spread over devices.
      skip_padding: whether they are computed one after the other on one device, so that padding costs nothing.
    """

    def weights_batches_and_keys(data: Any, rng_key: jax.Array, units: Units) -> tuple[jax.Array, Any, jax.Array]:
        """For each of the C units its weight (0 where -1 pads), its batch, and the key of its loss; all [C, ...]."""
        weight = jnp.where(units.worker >= 0, units.weight, 0)
        worker, unit = units.worker.clip(0), units.unit.clip(0)
        return weight, *jax.vmap(lambda w, n: unit_inputs(task, data, rng_key, w, n))(worker, unit)

    def sums_at_one_version(shared: tuple[Any, Any, jax.Array], units: Units) -> Sums:
        """The weighted sums (gradient, loss, weight) at the same parameters; `shared` is (params, data, rng_key)."""
        params, data, rng_key = shared
        weight, batch, keys = weights_batches_and_keys(data, rng_key, units)
        loss_sum, gradient_sum = jax.value_and_grad(lambda p: weighted_loss(task, p, weight, batch, keys))(params)
        return gradient_sum, loss_sum, weight.astype(loss_sum.dtype).sum()

    def sums_at_own_versions(inputs: Inputs, units: Units) -> Sums:
        """The weighted sums (gradient, loss, weight), each unit at the parameters of the version that it read."""
        weight, batch, keys = weights_batches_and_keys(inputs.data, inputs.rng_key, units)
        params = jax.vmap(inputs.versions.read)(units.version.clip(0))  # leaves [C, ...]; -1 pads, with weight 0
        losses, gradients = jax.vmap(jax.value_and_grad(task.loss))(params, batch, keys)
        gradient_sum = jax.tree.map(lambda g: _tensordot_in_dtype_of_sums(weight, g), gradients)
        weight = weight.astype(losses.dtype)
        return gradient_sum, (losses * weight).sum(), weight.sum()

    def contribution(inputs: Inputs, commits: Commits, commit: jax.Array) -> Contribution:
        """What commit number `commit` applies: the weighted sum of its units' gradients, and their mean loss."""
        units = Units.of_commit(commits, commit)
        if skip_padding and spread.size == 1:  # on one device
            gradient_sum, loss_sum, weight_sum = _sums_one_by_one(task, inputs, units)
        elif one_version:  # all contributions read the same
            shared = inputs.versions.read(_common_entry(units.version)), inputs.data, inputs.rng_key
            gradient_sum, loss_sum, weight_sum = spread.sum_parts(sums_at_one_version, shared, units)
        else:
            gradient_sum, loss_sum, weight_sum = spread.sum_parts(sums_at_own_versions, inputs, units)
        gradient_sum = in_dtypes_of(gradient_sum, inputs.versions.params)
        no_residual = jnp.zeros((), commits.weight.dtype)  # nothing is decoded
        return Contribution(gradient_sum, mean_from_sums(loss_sum, weight_sum), no_residual)

    return contribution


def _tensordot_in_dtype_of_sums(weight: jax.Array, gradients: jax.Array) -> jax.Array:
    """The weighted sum of `gradients [C, ...]`, in the dtype in which they are added up."""
    dtype = accumulation_dtype(gradients.dtype)
    return tensordot(weight.astype(dtype), gradients.astype(dtype), axes=1)


def _sums_one_by_one(task: Task, inputs: Inputs, units: Units) -> Sums:
    """The weighted sums (gradient, loss, weight), each unit at the parameters of the version that it read.

    Computed unit by unit, without the padding, which is behind the C units.
    """

    def sums_of_unit(i: jax.Array) -> Sums:
        """Those of unit i alone: with an axis of one unit XLA's products of small matrices take longer."""
        worker, unit, version, weight = (jax.lax.dynamic_index_in_dim(x, i, keepdims=False) for x in units)
        weight = jnp.where(worker >= 0, weight, 0)  # -1 pads, where another run of a vmap has more units
        batch, key = unit_inputs(task, inputs.data, inputs.rng_key, worker.clip(0), unit.clip(0))
        loss, gradient = jax.value_and_grad(task.loss)(inputs.versions.read(version.clip(0)), batch, key)
        loss_weight = weight.astype(loss.dtype)
        return weighted(gradient, weight), loss * loss_weight, loss_weight

    sums_shapes = jax.eval_shape(sums_of_unit, jnp.zeros((), jnp.int32))
    zero_sums = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), sums_shapes)
    num_before_padding = (units.worker >= 0).sum(dtype=jnp.int32)  # -1 pads
    return jax.lax.fori_loop(
        0,
        max_over_runs(num_before_padding),
        lambda i, sums: jax.tree.map(jnp.add, sums, sums_of_unit(i)),
        zero_sums,
    )


def coded_gradients(code: GradientCode, round_units: int, estimate: Estimate) -> ContributionFunction:
    """The function that gives what a commit of a coded round applies: what the plan decodes from the progress.

    `round_units`: the units of each worker in a round, by which rounds are numbered.
    """

    def contribution(inputs: Inputs, commits: Commits, commit: jax.Array) -> Contribution:
        """What commit number `commit` applies: the estimate `(gradient sum, mean loss)` of its round."""
        coded_round = round_of_commit(code, round_units, inputs, commits, commit)
        estimated_sum, loss = estimate(coded_round.params, coded_round.inputs, coded_round.coding)
        return Contribution(estimated_sum, loss, coded_round.residual)

    return contribution


class RoundOfCommit(NamedTuple):
    """A round of a code.

    Attributes:
      params: that it reads, a pytree.
      inputs: what its batches are drawn from.
      coding: the code's plan, its decode weighted as the protocol says.
      residual: float[], the distance of the decoded coefficients from the exact sum.
    """

    params: Any
    inputs: RoundInputs
    coding: Coding
    residual: jax.Array


def units_of_round(protocol: Protocol) -> int:
    """The units of each worker in a round of the protocol's code; where it does not say more, one for each chunk."""
    assert protocol.code is not None
    return max(protocol.round_units, protocol.code.assignment.load)


def round_of_commit(
    code: GradientCode, round_units: int, inputs: Inputs, commits: Commits, commit: jax.Array
) -> RoundOfCommit:
    """The round that commit number `commit` decodes; it has one contribution of each row of the code.

    `round_units`: the units of each worker in a round.
    """
    progress = commits.work[commit].clip(0)  # the chunks that each worker has finished; -1 pads
    coding = code.plan(progress)
    # [W, 1, 1]; decode is [W, M, L], and decodes the sum: with weights of 1/N the mean of the N chunks.
    worker_weights = commits.weight[commit][:, None, None].astype(coding.decode.dtype)
    # All workers read one version, and begin with the same unit.
    first_unit, version = _common_entry(commits.unit[commit]), _common_entry(commits.version[commit])
    return RoundOfCommit(
        params=inputs.versions.read(version),
        inputs=RoundInputs(inputs.data, inputs.rng_key, first_unit // round_units),
        coding=coding._replace(decode=coding.decode * worker_weights),
        # Computed from the coefficients, whatever the code says of itself.
        residual=residual(code.assignment, coding.encode, coding.decode),
    )


def chunk_batch(task: Task, round_inputs: RoundInputs, chunk: jax.Array) -> tuple[Any, jax.Array]:
    """The batch of a chunk and the key of its loss, the same for all its holders."""
    key = jax.random.fold_in(jax.random.fold_in(round_inputs.rng_key, chunk), round_inputs.round)
    return task.chunk_batch(round_inputs.data, round_inputs.rng_key, chunk, round_inputs.round), key


def chunk_loss(task: Task, round_inputs: RoundInputs) -> Callable[[Any, jax.Array], jax.Array]:
    """`(params, chunk) -> float[]`: the task's loss on the batch of a chunk in a round."""
    return lambda params, chunk: task.loss(params, *chunk_batch(task, round_inputs, chunk))


def estimate_on_one_device(task: Task, code: GradientCode) -> Estimate:
    """The estimate of a code's rounds, by the weighted loss or by streamed messages."""
    return (weighted_estimate if code.num_blocks == code.num_messages == 1 else streamed_estimate)(task, code)


def weighted_estimate(task: Task, code: GradientCode) -> Estimate:
    """The estimate for L = M = 1 (blocks, messages): the gradient of the loss with each chunk's decoded coefficient.

    All holders of a chunk compute the same gradient, so on one device it is computed once.
    """

    def estimate(params: Any, round_inputs: RoundInputs, coding: Coding) -> tuple[Any, jax.Array]:
        """(gradient sum, mean loss) that the coding decodes; batches are drawn from `round_inputs`."""
        coefficients = chunk_coefficients(code.assignment, coding.encode, coding.decode)  # [N, L=1, L=1]
        only_block = 0
        weights = coefficients[:, only_block, only_block]
        all_chunks = jnp.arange(code.assignment.num_chunks)
        batches, keys = jax.vmap(lambda chunk: chunk_batch(task, round_inputs, chunk))(all_chunks)
        loss_sum, gradient_sum = jax.value_and_grad(lambda p: weighted_loss(task, p, weights, batches, keys))(params)
        return gradient_sum, mean_from_sums(loss_sum, weights.astype(loss_sum.dtype).sum())

    return estimate


def streamed_estimate(task: Task, code: GradientCode) -> Estimate:
    """The estimate for any L and M: every worker adds its chunks, one after the other, to its messages."""

    def estimate(params: Any, round_inputs: RoundInputs, coding: Coding) -> tuple[Any, jax.Array]:
        """(gradient sum, mean loss) that the coding decodes; batches are drawn from `round_inputs`."""
        chunks_of_worker, coding, _ = used_rows(code, coding)  # rows of the code that this round uses
        chunk_of_slot = chunks_of_worker.clip(0)  # [W, K]; -1 pads, where coefficients are 0
        # [W, M, width], and [W, K]
        messages, losses = worker_messages(chunk_loss(task, round_inputs), params, chunk_of_slot, coding.encode)
        weights = chunk_weights(coding.encode, coding.decode).astype(losses.dtype)  # [W, K]
        gradient_sum = gradient_from_blocks(decoded_blocks(coding.decode, messages), params)
        return gradient_sum, mean_from_sums((losses * weights).sum(), weights.sum())

    return estimate


def _common_entry(entries: jax.Array) -> jax.Array:
    """int32[], the entry that all of int32[C] have in common but those that pad, with -1; 0 if all of them do."""
    return entries.max().clip(0)


def mean_from_sums(weighted_sum: jax.Array, weight_sum: jax.Array) -> jax.Array:
    """The weighted mean, from the weighted sum and the sum of the weights; 0 if the latter is 0."""
    return jnp.where(weight_sum == 0, 0, weighted_sum / jnp.where(weight_sum == 0, 1, weight_sum))
