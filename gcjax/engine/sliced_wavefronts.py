"""The gradients of a wavefront on a mesh on which each device keeps a slice of the parameters, and commits it.

A device computes the gradients of its part of the B commits of a wavefront. It is sent the versions that these read,
slice by slice, and gets its own slice of all B gradients: with n devices and d parameters it receives 2 B d / n
numbers, where B d are those of all gradients whole. The server's step is then made on slices. XLA inserts what an
optimizer needs of other slices, as for a norm of all of them, so it may be any.

Letters: B commits of a wavefront, n devices, d parameters.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, PartitionSpec

from gcjax.engine.gradients import Contribution, ContributionFunction, Inputs
from gcjax.engine.spread import pad_leading_axis
from gcjax.engine.version_ring import Versions
from gcjax.protocols.schedule import Commits


def sliced_contributions(
    contribution_of_commit: ContributionFunction,
    inputs: Inputs,
    commits: Commits,
    commit_indices: jax.Array,
    *,
    mesh: Mesh,
    axis: str,
    specs: Any,
) -> Contribution:
    """What the commits of a wavefront apply; leaves [B, ...], of each gradient every device has its slice.

    Args:
      contribution_of_commit: of plain gradients, one contribution a commit.
      inputs: with the versions in slices.
      commits: of the schedule.
      commit_indices: int32[B].
      mesh: the devices.
      axis: of the mesh, along which the slices lie.
      specs: a `PartitionSpec` for each parameter, with this axis or none.
    """
    num_devices, num_commits = mesh.shape[axis], commit_indices.size
    whole_spec: Any = PartitionSpec()
    versions = inputs.versions
    specs_of_many = jax.tree.map(lambda spec: PartitionSpec(None, *spec), specs)  # with one axis in front

    def of_own_commits(
        versions: Versions, commits: Commits, data: Any, rng_key: jax.Array, all_commits: jax.Array
    ) -> Contribution:
        """This device's slice of what all B commits apply, each computed where it belongs.

        `all_commits` is int32[B], padded to a multiple of the n devices; a device computes B / n of them.
        """
        own_commits = _own_part(all_commits, axis)
        slices = jax.vmap(versions.read)(commits.version[all_commits, 0])  # [B, ...]; one contribution a commit
        own_params = jax.tree.map(_on_specs(_whole_of_own, axis), slices, specs)  # [B / n, ...], whole

        def contribution_of(params: Any, commit: jax.Array) -> Contribution:
            """What a commit applies, at the parameters that it reads."""
            version_read = Versions(params, ring=None, slots=None)
            return contribution_of_commit(Inputs(version_read, data, rng_key), commits, commit)

        own_contributions = jax.vmap(contribution_of)(own_params, own_commits)
        gradient = jax.tree.map(_on_specs(_slice_of_all, axis), own_contributions.gradient, specs)
        loss, residual = (
            jax.lax.all_gather(x, axis, tiled=True) for x in (own_contributions.loss, own_contributions.residual)
        )
        return Contribution(gradient, loss, residual)

    ring_specs = None if versions.ring is None else specs_of_many
    contributions_on_devices = jax.shard_map(
        of_own_commits, mesh=mesh,
        in_specs=(Versions(specs, ring_specs, slots=whole_spec), whole_spec, whole_spec, whole_spec, whole_spec),
        out_specs=Contribution(specs_of_many, whole_spec, whole_spec), axis_names={axis}, check_vma=False,
    )  # fmt: skip
    padded_indices = pad_leading_axis(commit_indices, num_devices).clip(0)  # -1 pads: commit 0, which is cut off below
    padded_contributions = contributions_on_devices(versions, commits, inputs.data, inputs.rng_key, padded_indices)
    return jax.tree.map(lambda x: x[:num_commits], padded_contributions)


def _own_part(entries: jax.Array, axis: str) -> jax.Array:
    """Of entries [B, ...], the same on all n devices, this device's part [B / n, ...]."""
    num_own = entries.shape[0] // jax.lax.axis_size(axis)
    return jax.lax.dynamic_slice_in_dim(entries, jax.lax.axis_index(axis) * num_own, num_own)


def _on_specs(move: Callable[[jax.Array, str, int | None], jax.Array], axis: str) -> Callable[..., jax.Array]:
    """The function `(array [B, ...], spec) -> array` that moves it along the dimension that the spec slices, if any."""

    def move_leaf(x: jax.Array, spec: PartitionSpec) -> jax.Array:
        """The array, moved; behind its leading axis come those of the spec."""
        sliced_dimension = 1 + list(spec).index(axis) if axis in spec else None
        return move(x, axis, sliced_dimension)

    return move_leaf


def _whole_of_own(slices: jax.Array, axis: str, dimension: int | None) -> jax.Array:
    """The own entries [B / n, ...] whole, from this device's slices [B, ...], cut along `dimension`, of all."""
    if dimension is None:
        return _own_part(slices, axis)
    return jax.lax.all_to_all(slices, axis, split_axis=0, concat_axis=dimension, tiled=True)


def _slice_of_all(own_entries: jax.Array, axis: str, dimension: int | None) -> jax.Array:
    """This device's slices [B, ...] of all entries, from its own [B / n, ...] whole; whole if there is no dimension."""
    if dimension is None:
        return jax.lax.all_gather(own_entries, axis, tiled=True)
    return jax.lax.all_to_all(own_entries, axis, split_axis=dimension, concat_axis=0, tiled=True)
