"""Where the arrays of a run lie on a mesh.

Workers are spread over one axis. Parameters, past versions and optimizer state are the same along it, and sharded over
the other axes as `param_specs` says, so that a model larger than one device fits. Everything else is on every device.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gcjax.engine.spread import Spread, automatic, checked_axis, one_device, over_mesh

ParamSpecs = Callable[[Any], Any]
"""`params -> specs`: the same pytree with a `jax.sharding.PartitionSpec` for each array."""


class MeshOptions(NamedTuple):
    """The devices of a run; the argument `mesh` of `gcjax.engine.run`.

    Attributes:
      mesh: the devices. Its axis types do not matter; XLA decides what is not said.
      axis: the axis of the mesh along which the workers lie; several share a device where there are more of them.
      param_specs: pure function `params -> jax.sharding.PartitionSpec` of each array, over the other axes of the mesh.
        By default each array is sharded over the first of them, along the largest dimension that it divides.
    """

    mesh: Mesh
    axis: str = "workers"
    param_specs: ParamSpecs | None = None


class Layout(NamedTuple):
    """A mesh, the axis of the workers, and how parameters are sharded over the other axes; all None on one device."""

    mesh: Mesh | None = None
    axis: str | None = None
    param_specs: ParamSpecs | None = None

    def spread(self) -> Spread:
        """How the work of a commit is spread."""
        return one_device() if self.mesh is None or self.axis is None else over_mesh(self.mesh, self.axis)

    def params(self, params: Any, *, leading: int = 0) -> Any:
        """Parameters, or anything of their shape with so many leading axes, where they belong; under `jit`."""
        if self.mesh is None:
            return params
        specs = self.specs(params, leading)
        return jax.tree.map(
            lambda x, spec: _constrain(x, self.mesh, PartitionSpec(*(None,) * leading, *spec)), params, specs
        )

    def specs(self, params: Any, leading: int = 0) -> Any:
        """The specs of parameters, given as arrays or shapes with so many leading axes."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[leading:], x.dtype), params)
        return (self.param_specs or self._default_specs)(shapes)

    def opt_state(self, optimizer: optax.GradientTransformation, opt_state: Any, params: Any) -> Any:
        """The optimizer's state: what belongs to a parameter lies where the parameter lies."""
        if self.mesh is None:
            return opt_state
        specs = self.specs(params)
        return optax.tree_map_params(
            optimizer,
            lambda x, spec: _constrain(x, self.mesh, spec),
            opt_state,
            specs,
            transform_non_params=self.everywhere,
        )

    def everywhere(self, tree: Any) -> Any:
        """Arrays that every device has; under `jit`."""
        return tree if self.mesh is None else jax.tree.map(lambda x: _constrain(x, self.mesh, PartitionSpec()), tree)

    def workers(self, tree: Any) -> Any:
        """Arrays with an axis of workers in front, on the devices of these workers; under `jit`."""
        if self.mesh is None:
            return tree
        size = self.mesh.shape[self.axis]

        def leaf(x: jax.Array) -> jax.Array:
            spec = PartitionSpec(self.axis) if x.shape[0] % size == 0 else PartitionSpec()
            return _constrain(x, self.mesh, spec)

        return jax.tree.map(leaf, tree)

    def put(self, tree: Any) -> Any:
        """Concrete arrays, the same in all processes, on every device of the mesh."""
        return tree if self.mesh is None else replicate(tree, self.mesh)

    def _default_specs(self, shapes: Any) -> Any:
        return jax.tree.map(lambda x: _over_largest_dimension(x.shape, self.mesh, self.axis), shapes)


def layout(mesh: Mesh | MeshOptions | None) -> Layout:
    """Where a run lies; on one device without a mesh.

    Raises:
      ValueError: if it is no mesh, or has no axis of the workers.
    """
    if mesh is None:
        return Layout()
    options = mesh if isinstance(mesh, MeshOptions) else MeshOptions(mesh)
    return Layout(checked_axis(options.mesh, options.axis), options.axis, options.param_specs)


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Puts concrete arrays, which must be the same in all processes, on every device of a mesh."""
    sharding = NamedSharding(automatic(mesh), PartitionSpec())

    def leaf(x: Any) -> Any:
        if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(leaf(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        if isinstance(x, jax.Array) and x.sharding == sharding:
            return x
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(leaf, tree)


def _over_largest_dimension(shape: tuple[int, ...], mesh: Any, axis: str | None) -> PartitionSpec:
    others = [name for name in mesh.axis_names if name != axis and mesh.shape[name] > 1]
    if not others:
        return PartitionSpec()
    dimensions = [i for i, size in enumerate(shape) if size % mesh.shape[others[0]] == 0]
    if not dimensions:
        return PartitionSpec()
    largest = max(dimensions, key=lambda i: shape[i])
    return PartitionSpec(*(others[0] if i == largest else None for i in range(len(shape))))


def _constrain(x: jax.Array, mesh: Any, spec: PartitionSpec) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
