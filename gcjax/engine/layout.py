"""Where the arrays of a run lie on a mesh.

Workers are spread over one axis. Parameters, past versions and optimizer state are the same along it, and sharded over
the other axes as `param_specs` says, so that a model larger than one device fits. Where wavefronts are spread and there
are no other axes, past versions and optimizer state are cut over that of the workers. The rest is on every device.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gcjax._keys import is_key
from gcjax.engine.spread import Spread, mesh_with_axis, one_device, over_mesh, with_auto_axes

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
        """How the work of a commit is spread: over the devices along the axis of the workers, or not at all."""
        return one_device() if self.mesh is None or self.axis is None else over_mesh(self.mesh, self.axis)

    def sliced(self) -> "Layout | None":
        """The layout where each parameter is cut over the devices of the workers, as `_over_largest_dimension` says.

        None on one device, or where parameters are sharded over another axis already: the mesh has devices along
        others, or the user gives `param_specs`.
        """
        if self.mesh is None or self.axis is None or self.param_specs is not None:
            return None
        if self.mesh.shape[self.axis] != self.mesh.size or self.mesh.size == 1:
            return None
        mesh, axis = self.mesh, self.axis
        return self._replace(
            param_specs=lambda params: jax.tree.map(lambda x: _over_largest_dimension(x.shape, mesh, [axis]), params)
        )

    def constrain_params(self, params: Any, *, num_leading_axes: int = 0) -> Any:
        """The parameters, constrained to their shardings; under `jit`.

        Every leaf has so many more axes in front than a parameter (as past versions have), which are not sharded.
        """
        if self.mesh is None:
            return params
        unsharded_axes = (None,) * num_leading_axes
        specs = self.specs(params, num_leading_axes)
        return jax.tree.map(
            lambda x, spec: _constrain(x, self.mesh, PartitionSpec(*unsharded_axes, *spec)), params, specs
        )

    def specs(self, params: Any, num_leading_axes: int = 0) -> Any:
        """A `PartitionSpec` for each parameter; given are arrays or shapes with so many more axes in front."""
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[num_leading_axes:], x.dtype), params)
        return (self.param_specs or self._default_specs)(shapes)

    def constrain_opt_state(self, optimizer: optax.GradientTransformation, opt_state: Any, params: Any) -> Any:
        """The optimizer's state, with what is like a parameter sharded like it, the rest on every device.

        What belongs to a parameter and has another shape, as the factors of Adafactor, is of the rest; where an
        optimizer is masked, there is nothing.
        """
        if self.mesh is None:
            return opt_state

        def constrain_leaf(x: Any, param: jax.Array, spec: PartitionSpec) -> Any:
            """What in the state belongs to a parameter of this spec, sharded like it if it has its shape."""
            if _is_masked(x):
                return x
            return _constrain(x, self.mesh, spec if x.shape == param.shape else PartitionSpec())

        return optax.tree_map_params(
            optimizer,
            constrain_leaf,
            opt_state,
            params,
            self.specs(params),
            transform_non_params=self.replicate,
            is_leaf=_is_masked,
        )

    def replicate(self, tree: Any) -> Any:
        """The arrays, constrained to be whole on every device of the mesh; under `jit`."""
        return tree if self.mesh is None else jax.tree.map(lambda x: _constrain(x, self.mesh, PartitionSpec()), tree)

    def cut_by_worker(self, tree: Any) -> Any:
        """The arrays, whose first axis is that of the workers, on the devices of these workers; under `jit`.

        Where their number is no multiple of the devices along the axis, the array is on every device.
        """
        if self.mesh is None:
            return tree
        num_devices = self.mesh.shape[self.axis]

        def constrain_leaf(x: jax.Array) -> jax.Array:
            """The array cut along its first axis, or whole on every device."""
            is_divisible = x.shape[0] % num_devices == 0
            spec = PartitionSpec(self.axis) if is_divisible else PartitionSpec()
            return _constrain(x, self.mesh, spec)

        return jax.tree.map(constrain_leaf, tree)

    def put_on_devices(self, tree: Any) -> Any:
        """Puts concrete arrays, which are the same in all processes, on every device of the mesh, if there is one."""
        return tree if self.mesh is None else replicate(tree, self.mesh)

    def _default_specs(self, shapes: Any) -> Any:
        """The specs of parameters of these shapes if the user gives none: over the first axis that is not the workers'.

        See `_over_largest_dimension`.
        """
        mesh = self.mesh
        assert mesh is not None  # on one device nobody asks for specs
        model_axes = [name for name in mesh.axis_names if name != self.axis and mesh.shape[name] > 1]
        return jax.tree.map(lambda x: _over_largest_dimension(x.shape, mesh, model_axes), shapes)


def layout(mesh: Mesh | MeshOptions | None) -> Layout:
    """The layout of a run from what a user gives; one device without a mesh.

    Raises:
      ValueError: if it is no mesh, or has no axis of the workers.
    """
    if mesh is None:
        return Layout()
    options = mesh if isinstance(mesh, MeshOptions) else MeshOptions(mesh)
    return Layout(mesh_with_axis(options.mesh, options.axis), options.axis, options.param_specs)


def _is_masked(value: Any) -> bool:
    """Whether a part of an optimizer's state stands for one that is not there, since `optax.masked` left it out."""
    return isinstance(value, optax.MaskedNode)


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Puts concrete arrays, which must be the same in all processes, on every device of a mesh."""
    sharding = NamedSharding(with_auto_axes(mesh), PartitionSpec())

    def put_leaf(x: Any) -> Any:
        """The array on every device of `sharding`; random keys are put there as integers and wrapped again."""
        if is_key(x):
            return jax.random.wrap_key_data(put_leaf(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        if isinstance(x, jax.Array) and x.sharding == sharding:
            return x
        host_array = np.asarray(x)
        return jax.make_array_from_callback(host_array.shape, sharding, lambda shard_index: host_array[shard_index])

    return jax.tree.map(put_leaf, tree)


def _over_largest_dimension(shape: tuple[int, ...], mesh: Mesh, axes: Sequence[str]) -> PartitionSpec:
    """How an array of this shape is sharded over the first of these axes of the mesh; not at all if there is none.

    It is cut along its largest dimension that is a multiple of the devices along that mesh axis, if there is one.
    """
    if not axes:
        return PartitionSpec()
    divisible_dimensions = [i for i, size in enumerate(shape) if size % mesh.shape[axes[0]] == 0]
    if not divisible_dimensions:
        return PartitionSpec()
    largest_dimension = max(divisible_dimensions, key=lambda i: shape[i])
    return PartitionSpec(*(axes[0] if i == largest_dimension else None for i in range(len(shape))))


def _constrain(x: jax.Array, mesh: Any, spec: PartitionSpec) -> jax.Array:
    """The array, which XLA must shard over the mesh as the spec says; under `jit`."""
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
