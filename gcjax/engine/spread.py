"""How the entries of a commit (its units or workers) are spread over devices: not at all, or over an axis of a mesh.

The rest of the engine is written once: it says what is done for a part of the entries, and what is added up. What is
shared (parameters, past versions, data) is there on every device of the axis; what of it is sharded over other axes of
the mesh stays so.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from gcjax._keys import is_key
from gcjax.engine.collectives import sum_over_devices


class Spread(NamedTuple):
    """How entries are spread: whatever stands along the leading axis of a pytree of arrays.

    Attributes:
      size: the devices that share the entries.
      sum_parts: `(function, shared, entries) -> sum`: adds up the pytrees `function(shared, part)` over the parts of
        the entries, one a device; the leaves of `entries` have a common leading axis, padded with -1 (integers) and 0
        (floats) if need be. `shared` is the same for all parts.
      map_entries: `(function, shared, entries) -> results`: `function(shared, entry)` for every entry of that axis.
      sum_parts_with_states: `(function, shared, states, entries) -> (sum, new states)`: as `sum_parts`, where each
        entry has a state that stays on its device, and `function(shared, states, part)` gives (summand, new states).
        The leaves of `states` have the leading axis of the entries.
    """

    size: int
    sum_parts: Callable[[Callable[[Any, Any], Any], Any, Any], Any]
    map_entries: Callable[[Callable[[Any, Any], Any], Any, Any], Any]
    sum_parts_with_states: Callable[[Callable[[Any, Any, Any], Any], Any, Any, Any], Any]


def one_device() -> Spread:
    """How entries are spread over one device: not at all, as all of them are one part."""

    def sum_parts(function: Callable[[Any, Any], Any], shared: Any, entries: Any) -> Any:
        """What `function` gives for all entries, which are one part on one device."""
        return function(shared, entries)

    def map_entries(function: Callable[[Any, Any], Any], shared: Any, entries: Any) -> Any:
        """`function(shared, entry)` for all entries at once."""
        return jax.vmap(function, (None, 0))(shared, entries)

    def sum_parts_with_states(function: Callable[[Any, Any, Any], Any], shared: Any, states: Any, entries: Any) -> Any:
        """(sum, new states of the entries) that `function` gives for all entries, which are one part on one device."""
        return function(shared, states, entries)

    return Spread(size=1, sum_parts=sum_parts, map_entries=map_entries, sum_parts_with_states=sum_parts_with_states)


def over_mesh(mesh: Mesh, axis: str) -> Spread:
    """How entries are spread over the devices along an axis of a mesh: one part each; results are on all of them.

    `sum_parts` moves one all-reduce of the sum, `map_entries` one all-gather of the results.
    """
    num_devices = mesh.shape[axis]
    on_all_devices = NamedSharding(mesh, PartitionSpec())

    def padded_entries(entries: Any) -> Any:
        """The entries, padded to a multiple of the devices; all of them on every device.

        So every device computes the entries for itself: if each computed only its own, they would need collectives.
        """
        return jax.lax.with_sharding_constraint(pad_leading_axis(entries, num_devices), on_all_devices)

    def sum_parts(function: Callable[[Any, Any], Any], shared: Any, entries: Any) -> Any:
        """The sum, on every device, of what `function(shared, part)` gives for each device's part of the entries."""

        def sum_of_parts(shared: Any, part: Any) -> Any:
            """The sum over the devices of what `function` gives for the part of each."""
            return sum_over_devices(function(shared, part), axis)

        return on_each_device(sum_of_parts, mesh, axis, num_whole_arguments=1)(shared, padded_entries(entries))

    def map_entries(function: Callable[[Any, Any], Any], shared: Any, entries: Any) -> Any:
        """`function(shared, entry)` for all entries, on every device; each computes those of its part."""

        def gather_results(shared: Any, part: Any) -> Any:
            """The results of all devices, after this one has applied `function` to the entries of its part."""
            results = jax.vmap(function, (None, 0))(shared, part)
            return jax.tree.map(lambda x: jax.lax.all_gather(x, axis, tiled=True), results)

        padded_results = on_each_device(gather_results, mesh, axis, num_whole_arguments=1)(
            shared, padded_entries(entries)
        )
        num_entries = jax.tree.leaves(entries)[0].shape[0]
        return jax.tree.map(lambda x: x[:num_entries], padded_results)

    def sum_parts_with_states(function: Callable[[Any, Any, Any], Any], shared: Any, states: Any, entries: Any) -> Any:
        """The sum, on every device, and the new states of the entries, of which each device has those of its part.

        `function(shared, states, part)` gives (summand, new states).
        """

        def sum_and_states(shared: Any, states: Any, part: Any) -> Any:
            """The sum over the devices, and the new states of the entries of this device's part."""
            part_sum, new_states = function(shared, states, part)
            return sum_over_devices(part_sum, axis), new_states

        whole_spec, cut_spec = PartitionSpec(), PartitionSpec(axis)
        num_entries = jax.tree.leaves(entries)[0].shape[0]
        sum_on_devices = jax.shard_map(
            sum_and_states, mesh=mesh, in_specs=(whole_spec, cut_spec, cut_spec), out_specs=(whole_spec, cut_spec),
            axis_names={axis}, check_vma=False,
        )  # fmt: skip
        sum_of_parts, padded_states = sum_on_devices(
            shared, pad_leading_axis(states, num_devices), padded_entries(entries)
        )
        return sum_of_parts, jax.tree.map(lambda x: x[:num_entries], padded_states)

    return Spread(
        size=num_devices, sum_parts=sum_parts, map_entries=map_entries, sum_parts_with_states=sum_parts_with_states
    )


def on_each_device(
    function: Callable[..., Any], mesh: Mesh, axis: str, *, num_whole_arguments: int
) -> Callable[..., Any]:
    """The function under `jax.shard_map` over one axis of the mesh.

    The first `num_whole_arguments` are whole on each device, the others cut along their leading axis. The function must
    make its results the same on all devices of the axis, and close over no arrays.
    """
    whole_spec, cut_spec = PartitionSpec(), PartitionSpec(axis)

    def call(*arguments: Any) -> Any:
        """The result of `function`; the first `num_whole_arguments` are whole on each device, the others cut."""
        num_cut = len(arguments) - num_whole_arguments
        specs = (whole_spec,) * num_whole_arguments + (cut_spec,) * num_cut
        mapped = jax.shard_map(
            function, mesh=mesh, in_specs=specs, out_specs=whole_spec, axis_names={axis}, check_vma=False
        )
        return mapped(*arguments)

    return call


def pad_leading_axis(arrays: Any, multiple: int) -> Any:
    """The pytree with every leading axis padded to a multiple: with -1 (no worker) for integers, with 0 otherwise.

    Random keys are padded with the last of them.
    """

    def pad_leaf(x: jax.Array) -> jax.Array:
        """The array padded at the end of its leading axis, to a length that `multiple` divides."""
        num_padding = -x.shape[0] % multiple
        if is_key(x):
            return jnp.concatenate([x, jnp.broadcast_to(x[-1:], (num_padding, *x.shape[1:]))])
        no_worker, no_weight = -1, 0
        padding_value = no_worker if jnp.issubdtype(x.dtype, jnp.integer) else no_weight
        padding_of_axes = ((0, num_padding), *((0, 0),) * (x.ndim - 1))
        return jnp.pad(x, padding_of_axes, constant_values=padding_value)

    return jax.tree.map(pad_leaf, arrays)


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


def check_auto_axes(arrays: Any, axis: str) -> None:
    """Raises a `ValueError` if an array or the mesh of `jax.set_mesh` has axes of explicit sharding.

    So it does inside of a `jax.shard_map` over `axis`, that of the workers.
    """
    mesh_around = jax.sharding.get_abstract_mesh()
    if dict(zip(mesh_around.axis_names, mesh_around.axis_types or (), strict=False)).get(axis) == AxisType.Manual:
        raise ValueError(
            f"the function spreads the workers over the axis {axis!r} itself, so it must be called outside of a "
            "jax.shard_map over that axis. Inside, encode and decode with the factors of code.plan(progress)."
        )
    shardings = [getattr(jax.typeof(x), "sharding", None) for x in jax.tree.leaves(arrays) if isinstance(x, jax.Array)]
    meshes = [sharding.mesh for sharding in shardings if isinstance(sharding, NamedSharding)]
    for mesh in (*meshes, mesh_around):
        if AxisType.Explicit in (mesh.axis_types or ()):
            raise ValueError(
                "parameters, the batch, and the mesh of jax.set_mesh must leave to XLA how to shard what is not "
                "annotated, as the gradient does; got axes of explicit sharding: "
                f"{', '.join(map(repr, mesh.axis_names))}. Make the mesh with "
                f"axis_types=(jax.sharding.AxisType.Auto,) * {len(mesh.axis_names)}."
            )


def with_auto_axes(mesh: Mesh) -> Mesh:
    """A mesh of the same devices and axes, along which XLA decides how to shard what is not annotated."""
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
