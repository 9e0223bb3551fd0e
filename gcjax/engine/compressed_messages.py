"""Commits of compressed messages: what each worker sends goes through its compression before it is added up.

The messages of a commit are computed as without compression, many at once; they are compressed one after the other in
the order of the commits, as each worker's state changes with what it sends.

Letters: W workers, L blocks, M messages a worker sends in a round.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax import memory
from gcjax.codes.alternatives import used_rows
from gcjax.codes.base import Coding, GradientCode
from gcjax.compression.base import Compression, validated
from gcjax.engine.fragments import compression_of_fragments
from gcjax.engine.gradients import (
    Contribution,
    ContributionFunction,
    Estimate,
    Inputs,
    RoundInputs,
    Units,
    chunk_loss,
    mean_from_sums,
    round_of_commit,
    unit_inputs,
)
from gcjax.engine.local_state import repeated
from gcjax.engine.messages import (
    block_shape,
    chunk_weights,
    gradient_from_blocks,
    in_dtypes_of,
    weighted,
    worker_messages,
    zero_sum,
)
from gcjax.engine.parameters import arrays_of_params
from gcjax.engine.spread import Spread
from gcjax.protocols.base import Protocol, checked_network
from gcjax.protocols.schedule import Commits
from gcjax.stragglers.network import Links, Network
from gcjax.tasks.base import Task

_KEY_OF_MESSAGES = 0x6D657373
"""Folded into the key of the batches, where no worker and no chunk has so large a number."""


class Messages(NamedTuple):
    """What workers send for a commit, before it is compressed.

    Attributes:
      values: a pytree, every leaf [messages, ...].
      sender: int32[messages], whose state a message is compressed with: the worker, or w·M + m of message m in row w
        of the code, if there is one; -1 where nothing is sent.
      unit: int32[messages], the unit or the round that the message is about.
      weight: float[messages, L], the factor of the message in each block of what the commit applies; 0 where nothing
        is sent.
    """

    values: Any
    sender: jax.Array
    unit: jax.Array
    weight: jax.Array


def num_senders(num_workers: int, code: GradientCode | None) -> int:
    """How many senders have a state of their own: one a worker, or one for each of its messages in a round.

    Where rounds use several codes, or a round has several rows of a code for a worker, as under `m_sgc`, what a worker
    keeps of a message belongs to its next one in the same row.
    """
    return num_workers if code is None else code.assignment.num_workers * code.num_messages


def message_shapes(params: Any, code: GradientCode | None) -> Any:
    """The shapes and dtypes of one message: those of the parameters, or of one of the L blocks of them."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), params)
    if code is None or code.num_blocks == 1:
        return shapes
    return block_shape(shapes, code.num_blocks)


def initial_states(compression: Compression, batch_key: jax.Array, shapes: Any, num_states: int) -> Any:
    """The states of so many senders before their first message, every leaf [num_states, ...].

    All are the same, but where workers have compressions of their own: then those of a worker's M messages are.

    Args:
      compression: of the run.
      batch_key: of the run's batches.
      shapes: of a message.
      num_states: how many; one a sender.
    """
    zero_message = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    key = jax.random.fold_in(batch_key, _KEY_OF_MESSAGES)
    if compression.num_workers is not None:
        workers = jnp.arange(compression.num_workers, dtype=jnp.int32)
        worker_states = jax.vmap(lambda worker: compression.init(key, zero_message, worker))(workers)
        # The states of a worker's M messages stand in a row, as those of sender w·M + m.
        return jax.tree.map(lambda x: jnp.repeat(x, num_states // workers.size, axis=0), worker_states)
    return repeated(compression.init(key, zero_message), num_states)


def estimate_and_new_state(
    compression: Compression, message: Any, state: Any, *, batch_key: jax.Array, sender: jax.Array, unit: jax.Array
) -> tuple[Any, Any]:
    """(estimate, state): what the server gets of one message, and the state of its sender after it.

    The estimate is a pytree like the message. The random choices are decided by the sender and the unit (or round) of
    the message, int32[] each, or by the unit alone if all workers make the same.
    """
    key = jax.random.fold_in(batch_key, _KEY_OF_MESSAGES)
    if not compression.same_key:
        key = jax.random.fold_in(key, sender)
    return compression.compress(message, state, jax.random.fold_in(key, unit))


def sum_of_estimates(
    compression: Compression, batch_key: jax.Array, messages: Messages, states: Any
) -> tuple[Any, Any]:
    """Compresses the messages of a commit, one after the other.

    Args:
      compression: of the run.
      batch_key: of the run's batches.
      messages: of the commit.
      states: of all senders, every leaf [senders, ...].

    Returns:
      The weighted sums of the estimates, every leaf [L, ...], and the states of all senders after them.
    """

    def add_message(carry: tuple[Any, Any], message: Messages) -> tuple[tuple[Any, Any], None]:
        """The sums, leaves [L, ...], with the weighted estimate of one message, and the states of all senders after it.

        Its fields lack the first axis: sender int32[], -1 where nothing is sent; weight float[L], one a block. Where
        nothing is sent the state of sender 0 is looked at, and stays as it is.
        """
        sums, states = carry
        is_sent, sender = message.sender >= 0, message.sender.clip(0)
        state = jax.tree.map(lambda x: x[sender], states)
        estimate, new_state = estimate_and_new_state(
            compression, message.values, state, batch_key=batch_key, sender=sender, unit=message.unit
        )
        states = jax.tree.map(
            lambda x, new, old: x.at[sender].set(jnp.where(is_sent, new, old)), states, new_state, state
        )
        sums = jax.tree.map(jnp.add, sums, jax.vmap(weighted, (None, 0))(estimate, message.weight))
        return (sums, states), None

    num_blocks = messages.weight.shape[1]
    block_shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((num_blocks, *x.shape[1:]), x.dtype), messages.values)
    (sums, states), _ = jax.lax.scan(add_message, (zero_sum(block_shapes), states), messages)
    return in_dtypes_of(sums, messages.values), states


def gradient_of_sums(sums: Any, params: Any, code: GradientCode | None) -> Any:
    """A pytree like the parameters from the sums of `sum_of_estimates`: from their only block, or from all blocks.

    Leaves of `sums` are [1, ...] with one block; otherwise it is float[L, width].
    """
    if code is None or code.num_blocks == 1:
        return jax.tree.map(lambda x: x[0], sums)
    return gradient_from_blocks(sums, params)


def unit_messages(task: Task, spread: Spread) -> ContributionFunction:
    """The function that gives the gradients of a commit's contributions, each by itself, as `Messages`.

    Args:
      task: what is trained.
      spread: how they are spread over devices; the results are on all of them.
    """

    def loss_and_gradient(inputs: Inputs, unit: Units) -> tuple[jax.Array, Any]:
        """Loss and gradient of one unit, at the version that it read; fields of `unit` are [], not weighted here."""
        worker, unit_number, version = unit.worker.clip(0), unit.unit.clip(0), unit.version.clip(0)  # -1 pads
        batch, key = unit_inputs(task, inputs.data, inputs.rng_key, worker, unit_number)
        return jax.value_and_grad(task.loss)(inputs.versions.read(version), batch, key)

    def contribution_with_messages(inputs: Inputs, commits: Commits, commit: jax.Array) -> Contribution:
        """What commit number `commit` applies, as messages in place of a gradient, and their mean loss."""
        units = Units.of_commit(commits, commit)
        losses, gradients = spread.map_entries(loss_and_gradient, inputs, units)  # [C], and leaves [C, ...]
        weight = jnp.where(units.worker >= 0, units.weight, 0)
        loss_weight = weight.astype(losses.dtype)
        mean_loss = mean_from_sums((losses * loss_weight).sum(), loss_weight.sum())
        no_residual = jnp.zeros((), weight.dtype)  # nothing is decoded
        # One message a contribution, of one block: weights are [C, L=1].
        messages = Messages(gradients, sender=units.worker, unit=units.unit, weight=weight[:, None])
        return Contribution(gradient=None, loss=mean_loss, residual=no_residual, messages=messages)

    return contribution_with_messages


def coded_messages(task: Task, code: GradientCode, round_units: int, spread: Spread) -> ContributionFunction:
    """The function that gives the messages of a coded round, with the weights by which they are decoded.

    Arguments are those of `unit_messages`, the code, and the units of each worker in a round.
    """
    messages_and_loss = messages_and_loss_of_round(task, code, spread)

    def contribution_with_messages(inputs: Inputs, commits: Commits, commit: jax.Array) -> Contribution:
        """What commit number `commit` applies, as messages in place of a gradient; unsent ones have the sender -1."""
        coded_round = round_of_commit(code, round_units, inputs, commits, commit)
        messages, loss = messages_and_loss(coded_round.params, coded_round.inputs, coded_round.coding)
        is_sent = code.sent(commits.work[commit].clip(0)).reshape(-1)  # [rows·M], by the chunks done, int32[rows]
        sent_messages = messages._replace(sender=jnp.where(is_sent[messages.sender], messages.sender, -1))
        return Contribution(gradient=None, loss=loss, residual=coded_round.residual, messages=sent_messages)

    return contribution_with_messages


def messages_and_loss_of_round(task: Task, code: GradientCode, spread: Spread) -> Estimate:
    """`(params, round_inputs, coding) -> (Messages, loss)`: of all W·M messages of a round, whether sent or not."""

    def messages_of_worker(
        shared: tuple[Any, RoundInputs], chunks_and_encode: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        """float[M, width] and float[K], the messages of one worker and the mean losses of its chunks."""
        params, round_inputs = shared
        chunk_of_slot, encode = chunks_and_encode  # [K], -1 pads, where coefficients are 0; and [M, K, L]
        loss = chunk_loss(task, round_inputs)
        messages, losses = worker_messages(loss, params, chunk_of_slot.clip(0)[None], encode[None])  # of one worker
        return messages[0], losses[0]

    def messages_and_loss(params: Any, round_inputs: RoundInputs, coding: Coding) -> tuple[Any, jax.Array]:
        """The messages, with the weights of the coding, and the mean loss; batches are drawn from `round_inputs`.

        There are W·M. One is a pytree like the parameters if L = 1, else a block of them, float[width]; its weight is
        its `decode`, float[L].
        """
        chunks_of_worker, coding, first_row = used_rows(code, coding)  # [W, K], -1 pads; each chunk once in a row
        chunks_and_encode = chunks_of_worker, coding.encode
        messages, losses = spread.map_entries(messages_of_worker, (params, round_inputs), chunks_and_encode)
        loss_weights = chunk_weights(coding.encode, coding.decode).astype(losses.dtype)  # [W, K]
        rows = messages.reshape(-1, messages.shape[-1])  # [W·M, width], from [W, M, width]
        values = rows.astype(block_shape(params, code.num_blocks).dtype)
        if code.num_blocks == 1:
            values = jax.vmap(lambda row: gradient_from_blocks(row[None], params))(rows)
        sender = first_row * code.num_messages + jnp.arange(rows.shape[0], dtype=jnp.int32)
        round_messages = Messages(
            values, sender=sender, unit=jnp.full_like(sender, round_inputs.round),
            weight=coding.decode.reshape(-1, code.num_blocks),
        )  # fmt: skip
        return round_messages, mean_from_sums((losses * loss_weights).sum(), loss_weights.sum())

    return messages_and_loss


def sized_network(network: Network, compression: Compression | None, params: Any, protocol: Protocol) -> Network:
    """The network in which messages towards the server have their compressed size, and fragments have theirs.

    Args:
      network: for messages that are not compressed.
      compression: of the run; None for none.
      params: arrays, or their shapes and dtypes.
      protocol: of the run.
    """
    fragments = None if protocol.local is None else protocol.local.fragments
    if fragments is not None:
        network = network._replace(fragments=jnp.asarray(fragments.shares(params)))
    if compression is None:
        return network
    return network.with_smaller_messages(compressed_size(compression, params, protocol))


def compressed_size(compression: Compression, params: Any, protocol: Protocol) -> Any:
    """The size of a compressed message as a share of a whole one, by bytes; float[W] where it differs by worker.

    Arguments are those of `sized_network`.
    """
    shapes = message_shapes(params, protocol.code)
    return compression_of_fragments(validated(compression), protocol).num_bytes(shapes) / memory.bytes_of_arrays(shapes)


def network_of_run(
    network: Network | Links | None,
    task: Task,
    params: Any,
    num_workers: int,
    compression: Compression | None,
    protocol: Protocol,
) -> Network:
    """The network for the parameters, the workers and the compressed messages of a run.

    Messages over `Links` are as large as the parameters; those that the task would make count where `params` is None.
    """
    has_fragments = protocol.local is not None and protocol.local.fragments is not None
    shapes = None
    if isinstance(network, Links) or compression is not None or has_fragments:
        init_key = jax.random.key(0)
        shapes = jax.eval_shape(lambda: arrays_of_params(task.init(init_key) if params is None else params))
    if isinstance(network, Links):
        network = network.network_for(shapes)
    return sized_network(checked_network(network, num_workers), compression, shapes, protocol)
