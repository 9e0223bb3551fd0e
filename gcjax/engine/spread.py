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
        the work; its leaves have a common leading axis, padded with -1 (integers) and 0 (floats) where it must be.
      each: `(function, shared, work) -> results`: `function(shared, entry)` for every entry along the leading axis.
      owned: `(function, shared, per_worker, work) -> (sum, per_worker)`: `function` gives a part of the sum and the new
        values for a part of the work; `per_worker` has the leading axis of the work, and stays where it is.
    """

    size: int
    total: Callable[[Callable[[Any, Any], Any], Any, Any], Any]
    each: Callable[[Callable[[Any, Any], Any], Any, Any], Any]
    owned: Callable[[Callable[[Any, Any, Any], Any], Any, Any, Any], Any]


def one_device() -> Spread:
    """Everything at once, on one device."""

    def total(function: Callable[[Any, Any], Any], shared: Any, work: Any) -> Any:
        return function(shared, work)

    def each(function: Callable[[Any, Any], Any], shared: Any, work: Any) -> Any:
        return jax.vmap(function, (None, 0))(shared, work)

    def owned(function: Callable[[Any, Any, Any], Any], shared: Any, per_worker: Any, work: Any) -> Any:
        return function(shared, per_worker, work)

    return Spread(1, total, each, owned)


def over_mesh(mesh: Mesh, axis: str) -> Spread:
    """The parts on the devices along an axis of a mesh; the results on all of them.

    `total` moves one all-reduce of the sum, `each` one all-gather of the results.
    """
    size = mesh.shape[axis]
    whole = NamedSharding(mesh, PartitionSpec())

    def pad_work(work: Any) -> Any:
        # Where work comes from is computed by every device for itself: spread out, it would need collectives.
        return jax.lax.with_sharding_constraint(pad(work, size), whole)

    def total(function: Callable[[Any, Any], Any], shared: Any, work: Any) -> Any:
        def part(shared: Any, work: Any) -> Any:
            return jax.lax.psum(function(shared, work), axis)

        return on_each_device(part, mesh, axis, num_shared=1)(shared, pad_work(work))

    def each(function: Callable[[Any, Any], Any], shared: Any, work: Any) -> Any:
        def part(shared: Any, work: Any) -> Any:
            results = jax.vmap(function, (None, 0))(shared, work)
            return jax.tree.map(lambda x: jax.lax.all_gather(x, axis, tiled=True), results)

        results = on_each_device(part, mesh, axis, num_shared=1)(shared, pad_work(work))
        return jax.tree.map(lambda x: x[: jax.tree.leaves(work)[0].shape[0]], results)

    def owned(function: Callable[[Any, Any, Any], Any], shared: Any, per_worker: Any, work: Any) -> Any:
        def part(shared: Any, per_worker: Any, work: Any) -> Any:
            total, per_worker = function(shared, per_worker, work)
            return jax.lax.psum(total, axis), per_worker

        whole, cut = PartitionSpec(), PartitionSpec(axis)
        number = jax.tree.leaves(work)[0].shape[0]
        spread = jax.shard_map(
            part, mesh=mesh, in_specs=(whole, cut, cut), out_specs=(whole, cut), axis_names={axis}, check_vma=False
        )
        total, per_worker = spread(shared, pad(per_worker, size), pad_work(work))
        return total, jax.tree.map(lambda x: x[:number], per_worker)

    return Spread(size, total, each, owned)


def on_each_device(function: Callable[..., Any], mesh: Mesh, axis: str, *, num_shared: int = 0) -> Callable[..., Any]:
    """`jax.shard_map` over one axis: the first arguments whole, the others cut along their leading axis.

    The function must make its results the same on all devices of the axis, and close over no arrays.
    """
    whole, cut = PartitionSpec(), PartitionSpec(axis)

    def call(*arguments: Any) -> Any:
        specs = tuple(whole if i < num_shared else cut for i in range(len(arguments)))
        mapped = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=whole, axis_names={axis}, check_vma=False)
        return mapped(*arguments)

    return call


def pad(work: Any, multiple: int) -> Any:
    """Idle entries at the end of the leading axis, up to a multiple: -1 for integers, 0 otherwise."""

    def leaf(x: jax.Array) -> jax.Array:
        idle = -1 if jnp.issubdtype(x.dtype, jnp.integer) else 0
        return jnp.pad(x, ((0, -x.shape[0] % multiple), *((0, 0),) * (x.ndim - 1)), constant_values=idle)

    return jax.tree.map(leaf, work)


def checked_axis(mesh: Any, axis: str) -> Mesh:
    """The mesh, with automatic sharding along its axes.

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
    return automatic(mesh)


def automatic(mesh: Mesh) -> Mesh:
    """The same devices and axes; XLA decides how to shard what is not said."""
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
