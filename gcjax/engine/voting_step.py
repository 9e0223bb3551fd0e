"""A training step that is right although some workers send wrong messages (Chen, Wang, Charles, Papailiopoulos 2018).

Letters: W workers, U workers of one device, K chunks a worker holds, N chunks, G groups, d parameters.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from gcjax.codes.assignments.regular import repetition
from gcjax.codes.base import GradientCode, check_progress
from gcjax.codes.majority import equal_messages, majority_votes
from gcjax.engine.coded_step import check_batch, pad_workers
from gcjax.engine.collectives import exchange_slices, gather_slices, sum_over_devices
from gcjax.engine.gradients import mean_from_sums
from gcjax.engine.layout import Layout
from gcjax.engine.losses import check_loss, loss_forms
from gcjax.engine.messages import gradient_from_blocks, worker_messages
from gcjax.engine.spread import check_auto_axes, mesh_with_axis, on_each_device, pad_leading_axis


class VotingInfo(NamedTuple):
    """What a step with votes tells a person.

    Attributes:
      decided: bool[G], the groups of which enough workers have arrived, and more than half of those sent the same. The
        others are not in the gradient, which is exact iff all are decided and right.
      outvoted: bool[W], the workers of decided groups that have sent something else than most.
    """

    decided: jax.Array
    outvoted: jax.Array


def voting_value_and_grad(
    loss: Callable[..., Any],
    code: GradientCode,
    mesh: Mesh,
    axis: str = "workers",
    *,
    attack: Callable[[jax.Array], jax.Array] | None = None,
) -> Callable[..., tuple[Any, Any, VotingInfo]]:
    """As `coded_value_and_grad`, but the server compares messages: of each group, it takes what most have sent.

    Messages count as equal if their numbers are, NaN too, as they are where the members of a group run the same program
    on devices of one kind. Every device compares its slice of all messages: it sends d numbers for each of its workers,
    and d once more.

    Args:
      loss: see `coded_value_and_grad`; without aux.
      code: whose groups hold the same chunks in the same order, as those of `gcjax.codes.majority` do.
      mesh: has the axis.
      axis: of the workers.
      attack: what wrong workers send, for simulations: `messages float[U, d] -> float[U, d]`, from what they should
        send; see `gcjax.engine.wrong_messages`.

    Returns:
      A pure function `(params, batch, progress, *args, is_wrong=None) -> (value, gradient, info)`; `is_wrong` bool[W]
      says whose messages the attack replaces. `gradient` is the mean of the N chunk gradients if `info.decided` is true
      everywhere and in each group more than half of the messages are right; `value` is the mean loss of the chunks that
      are in it.

    Raises:
      ValueError: if the code has no such groups, or the mesh no such axis; when called, if `is_wrong` comes without an
        attack, or an argument does not fit the code.
    """
    _check_groups(code)
    check_loss(loss)
    auto_mesh, load = mesh_with_axis(mesh, axis), code.assignment.load
    num_workers, num_chunks, num_devices = code.assignment.num_workers, code.assignment.num_chunks, mesh.shape[axis]
    chunk_loss_and_aux = loss_forms(loss, has_aux=False).chunk_loss_and_aux

    def on_device(
        params: Any, args: tuple[Any, ...], has_arrived: jax.Array, has_enough: jax.Array, batch: Any,
        encode: jax.Array, is_wrong: jax.Array,
    ) -> tuple[Any, Any, VotingInfo]:  # fmt: skip
        """(gradient, loss, info) on a device; `batch`, `encode`, `is_wrong` are those of its workers, [U, ...].

        `has_arrived` bool[W] says who has sent something, `has_enough` bool[G] which groups may decide. Each of the G
        groups is K = `load` workers in a row.
        """
        # One after the other: entries of a product with a batch axis are not rounded alike.
        messages, (losses, _) = worker_messages(
            lambda p, c: chunk_loss_and_aux(p, c, *args), params, batch, encode, has_aux=True, one_by_one=True
        )
        coded_sums = messages[:, 0]  # [U, d], of the only message
        if attack is not None:
            coded_sums = jnp.where(is_wrong[:, None], attack(coded_sums), coded_sums)
        # This device's slice of all messages, [W, slice], without those of workers that pad.
        slice_size = -(-coded_sums.shape[1] // num_devices)
        slices = exchange_slices(coded_sums, axis, message_dtype=None).reshape(-1, slice_size)
        slices_by_group = slices[:num_workers].reshape(-1, load, slice_size)  # [G, K, slice]: K is the size of a group
        # bool[G, K], bool[G], bool[G, K]; the winner is one of those who sent what most did.
        is_winner, decided, outvoted = majority_votes(
            _members_agree(slices_by_group, axis), has_arrived.reshape(-1, load), has_enough
        )
        slice_of_sum = jnp.where(is_winner[..., None], slices_by_group, 0).sum(axis=(0, 1))  # others may be infinite
        gradient_sum = gather_slices(slice_of_sum[None], axis, message_dtype=None)[:, : coded_sums.shape[1]]
        value = _mean_loss_of(is_winner, jax.lax.all_gather(losses, axis, tiled=True)[:num_workers])
        return gradient_from_blocks(gradient_sum / num_chunks, params), value, VotingInfo(decided, outvoted.reshape(-1))

    def step(params: Any, batch: Any, progress: jax.Array, is_wrong: jax.Array, args: tuple[Any, ...]) -> Any:
        """(value, gradient, info), as the returned function gives them; `args` go to the loss.

        A group is `load` workers in a row, with the same chunks; `decode` is [W, 1, 1], of one message and one block,
        and not all 0 in a group of which enough workers have arrived.
        """
        coding = code.plan(progress)
        has_enough = jnp.any(coding.decode.reshape(-1, load) != 0, axis=1)  # bool[G]
        batch = jax.tree.map(lambda x: pad_workers(x, num_devices), batch)
        replicated_arrays = Layout(auto_mesh).replicate((coding.encode, is_wrong))
        padded_encode, padded_is_wrong = pad_leading_axis(replicated_arrays, num_devices)
        step_on_devices = on_each_device(on_device, auto_mesh, axis, num_whole_arguments=4)
        whole_arguments = params, args, code.sent(progress)[:, 0], has_enough
        gradient, value, info = step_on_devices(*whole_arguments, batch, padded_encode, padded_is_wrong)
        return value, gradient, info

    compiled_step = jax.jit(step)

    def checked_step(params: Any, batch: Any, progress: Any, *args: Any, is_wrong: Any = None) -> Any:
        """(value, gradient, info) that `step`, compiled, gives, once the arguments have been checked."""
        check_auto_axes((params, batch), axis)
        check_batch(batch, code, auto_mesh, axis)
        wrong_senders = _checked_wrong_senders(is_wrong, num_workers, has_attack=attack is not None)
        return compiled_step(params, batch, check_progress(code.assignment, progress), wrong_senders, args)

    return checked_step


def _mean_loss_of(is_winner: jax.Array, losses: jax.Array) -> jax.Array:
    """float[]: the mean of the losses `[W, K]`, of the K chunks of each worker, over the winners `bool[G, K]`."""
    weights = is_winner.reshape(-1, 1).astype(losses.dtype)  # [W, 1]
    return mean_from_sums(jnp.where(weights > 0, losses, 0).sum(), weights.sum() * losses.shape[1])


def _members_agree(slices_by_group: jax.Array, axis: str) -> jax.Array:
    """bool[G, K, K]: which members of a group have sent the same message, by the slices `[G, K, slice]` on all devices.

    `axis`: of the mesh, over whose devices the messages are cut into slices.
    """
    first_of_pair, second_of_pair = slices_by_group[:, :, None], slices_by_group[:, None]
    num_different = (~equal_messages(first_of_pair, second_of_pair)).sum(axis=3, dtype=jnp.int32)  # [G, K, K]
    return sum_over_devices(num_different, axis) == 0


def _checked_wrong_senders(is_wrong: Any, num_workers: int, *, has_attack: bool) -> jax.Array:
    """bool[W]: whose messages the attack replaces, nobody's if None; raises `ValueError` if it is not such an array."""
    if is_wrong is None:
        return jnp.zeros(num_workers, bool)
    if not has_attack:
        raise ValueError("is_wrong needs an attack: pass attack=... to voting_value_and_grad; got none.")
    is_wrong = jnp.asarray(is_wrong)
    if is_wrong.shape != (num_workers,) or is_wrong.dtype != bool:
        raise ValueError(f"is_wrong must be bool[{num_workers}]; got {is_wrong.dtype}{list(is_wrong.shape)}.")
    return is_wrong


def _check_groups(code: GradientCode) -> None:
    """Raises `ValueError` unless each group of workers holds the same chunks, and each of them sends one message."""
    if isinstance(code, GradientCode) and code.num_blocks == code.num_messages == 1 and code.only_whole_loads:
        assignment = code.assignment
        if assignment.num_workers % assignment.load == 0:
            groups = repetition(assignment.num_workers, load=assignment.load)
            if groups == assignment:
                return
    raise ValueError(
        "voting_value_and_grad needs a code of groups that hold the same chunks, for example "
        f"gcjax.codes.majority(6, num_wrong=1, num_stragglers=0); got {code!r}."
    )
