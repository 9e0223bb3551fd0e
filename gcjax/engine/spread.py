"""How the work of a commit is spread over devices: not at all, or over one axis of a mesh.

The rest of the engine is written once: it says what is done for a part of the work, and what is added up. What is
shared (parameters, past versions, data) is there on every device of the axis; what of it is sharded over other axes of
the mesh stays so.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec


class Spread(NamedTuple):
    """How work is spread.

    Attributes:
      size: the devices that share the work.
      total: `(function, shared, work) -> sum`: adds up what `function(shared, part)` gives, a pytree, over the parts of
        the work; the leaves of `work` have a common leading axis, padded with -1 (integers) and 0 (floats) if need be.
      map_entries: `(function, shared, work) -> results`: `function(shared, entry)` for every entry of that axis.
      total_and_own: `(function, shared, own, work) -> (sum, new own)`: as `total`, for a function
        `(shared, own, part) -> (part of the sum, new own)`, where `own` is a pytree with the leading axis of the work
        whose parts stay on their devices.
    """

    size: int
    total: Callable[[Callable[[Any, Any], Any], Any, Any], Any]
    map_entries: Callable[[Callable[[Any, Any], Any], Any, Any], Any]
    total_and_own: Callable[[Callable[[Any, Any, Any], Any], Any, Any, Any], Any]


def one_device() -> Spread:
    """Everything at once, on one device."""

    def total(function: Callable[[Any, Any], Any], shared: Any, work: Any) -> Any:
        """The whole sum, as the work is in one part."""
        return function(shared, work)

    def map_entries(function: Callable[[Any, Any], Any], shared: Any, work: Any) -> Any:
        """`function` for all entries of the work at once."""
        return jax.vmap(function, (None, 0))(shared, work)

    def total_and_own(function: Callable[[Any, Any, Any], Any], shared: Any, own: Any, work: Any) -> Any:
        """The whole sum and the new `own`, as the work is in one part."""
        return function(shared, own, work)

    return Spread(size=1, total=total, map_entries=map_entries, total_and_own=total_and_own)


def over_mesh(mesh: Mesh, axis: str) -> Spread:
    """The parts on the devices along an axis of a mesh; the results on all of them.

    `total` moves one all-reduce of the sum, `map_entries` one all-gather of the results.
    """
    size = mesh.shape[axis]
    on_all_devices = NamedSharding(mesh, PartitionSpec())

    def padded_work(work: Any) -> Any:
        """The work with its leading axis padded to a multiple of the devices; the whole of it on every device.

        So every device computes the entries for itself: if each computed only its own, they would need collectives.
        """
        return jax.lax.with_sharding_constraint(pad_leading_axis(work, size), on_all_devices)

    def total(function: Callable[[Any, Any], Any], shared: Any, work: Any) -> Any:
        """The sum, on every device, of what the function gives for each device's part of the work."""

        def sum_over_devices(shared: Any, part: Any) -> Any:
            """The sum of what the function gives on each device for its part."""
            return jax.lax.psum(function(shared, part), axis)

        return on_each_device(sum_over_devices, mesh, axis, num_shared=1)(shared, padded_work(work))

    def map_entries(function: Callable[[Any, Any], Any], shared: Any, work: Any) -> Any:
        """The results of all entries, on every device; each device computes those of its part."""

        def gather_results(shared: Any, part: Any) -> Any:
            """The results of all devices' entries, after this one has computed its own."""
            results = jax.vmap(function, (None, 0))(shared, part)
            return jax.tree.map(lambda x: jax.lax.all_gather(x, axis, tiled=True), results)

        results = on_each_device(gather_results, mesh, axis, num_shared=1)(shared, padded_work(work))
        num_entries = jax.tree.leaves(work)[0].shape[0]
        return jax.tree.map(lambda x: x[:num_entries], results)

    def total_and_own(function: Callable[[Any, Any, Any], Any], shared: Any, own: Any, work: Any) -> Any:
        """The sum, on every device, and the new `own`, of which each device has its part."""

        def sum_and_own(shared: Any, own: Any, part: Any) -> Any:
            """The sum over all devices, and the new `own` of this device."""
            total, own = function(shared, own, part)
            return jax.lax.psum(total, axis), own

        whole, cut = PartitionSpec(), PartitionSpec(axis)
        num_entries = jax.tree.leaves(work)[0].shape[0]
        on_devices = jax.shard_map(
            sum_and_own, mesh=mesh, in_specs=(whole, cut, cut), out_specs=(whole, cut), axis_names={axis},
            check_vma=False,
        )  # fmt: skip
        total, own = on_devices(shared, pad_leading_axis(own, size), padded_work(work))
        return total, jax.tree.map(lambda x: x[:num_entries], own)

    return Spread(size=size, total=total, map_entries=map_entries, total_and_own=total_and_own)


def on_each_device(function: Callable[..., Any], mesh: Mesh, axis: str, *, num_shared: int = 0) -> Callable[..., Any]:
    """The function under `jax.shard_map` over one axis of the mesh.

    The first `num_shared` arguments are whole on each device, the others cut along their leading axis. The function
    must make its results the same on all devices of the axis, and close over no arrays.
    """
    whole, cut = PartitionSpec(), PartitionSpec(axis)

    def call(*arguments: Any) -> Any:
        """The function's result, for arguments cut and shared as `on_each_device` says."""
        specs = tuple(whole if i < num_shared else cut for i in range(len(arguments)))
        mapped = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=whole, axis_names={axis}, check_vma=False)
        return mapped(*arguments)

    return call


def pad_leading_axis(work: Any, multiple: int) -> Any:
    """The pytree with every leading axis padded to a multiple: with -1 (no worker) for integers, with 0 otherwise."""

    def pad_leaf(x: jax.Array) -> jax.Array:
        """The array padded at the end of its leading axis."""
        padding = -1 if jnp.issubdtype(x.dtype, jnp.integer) else 0
        return jnp.pad(x, ((0, -x.shape[0] % multiple), *((0, 0),) * (x.ndim - 1)), constant_values=padding)

    return jax.tree.map(pad_leaf, work)


def mesh_with_axis(mesh: Any, axis: str) -> Mesh:
    """The mesh, which must have this axis, with automatic sharding along all its axes.

    Raises:
      ValueError: if it is not a mesh, or has no such axis.
    """
    if not isinstance(mesh, Mesh):
        raise ValueError(
            f"mesh must be a jax.sharding.Mesh, for example jax.make_mesh((8,), ('workers',)); got {mesh!r}."
        )
    if axis not in mesh.axis_names:
        raise ValueError(
            f"the workers need an axis of the mesh; it has no axis '{axis}', only "
            f"{', '.join(map(repr, mesh.axis_names))}. Pass axis=..., or make the mesh with such an axis."
        )
    return with_auto_axes(mesh)


def with_auto_axes(mesh: Mesh) -> Mesh:
    """A mesh of the same devices and axes, along which XLA decides how to shard what is not annotated."""
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
