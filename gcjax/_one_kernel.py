"""Loops of many small steps as one kernel.

On a CPU XLA runs each operation of a program, or each few that it has fused, as a kernel of its own, which takes it
about 40 ns. A loop whose steps are of some fifty operations on a few numbers takes most of its time for that. XLA can
also compile a loop as one function. With JAX 0.12 it does so by itself; before, only with loops that touch less than a
kilobyte, or with calls that bear a mark. Calls are marked with JAX 0.10, with which this is tested.

XLA ends the process at a marked call with an argument that none of its operations uses (`All or none of the slices`).
So each is used, and comes through a barrier: otherwise XLA would put a constant in the place of an argument.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata

_NEEDS_MARKS = jax.__version_info__[:2] == (0, 10)
_MARKS = {"xla_cpu_small_call": "true", "inlineable": "false"}
"""Attributes of a call that XLA's compiler for CPUs is to compile as one function."""

_POSSIBLE = frozenset((
    "abs", "add", "and", "argmax", "argmin", "bitcast_convert_type", "broadcast_in_dim", "ceil", "clamp", "clz",
    "concatenate", "convert_element_type", "custom_vmap_call", "div", "dynamic_slice", "dynamic_update_slice", "eq",
    "expand_dims", "floor", "gather", "ge", "gt", "iota", "is_finite", "jit", "le", "lt", "max", "min", "mul", "ne",
    "neg", "not", "or", "pjit", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_sum", "rem", "reshape",
    "select_n", "shift_left", "sign", "slice", "squeeze", "stack", "stop_gradient", "sub", "transpose", "xor",
))  # fmt: skip
"""Operations that the steps of such a loop can be made of.

XLA cannot compile scatters, sorts and calls of libraries so. It ends the process at some loops inside of the loop: so
there are none, and no conditionals.
"""


def loop_in_one_kernel(has_turn: Callable[[Any], jax.Array], step: Callable[[Any], Any], state: Any) -> Any:
    """`jax.lax.while_loop(has_turn, step, state)`; on a CPU as one kernel, if the operations allow that.

    Under vmap it is compiled as always, since there are scatters in it then. A call is marked with JAX 0.10 only.

    Args:
      has_turn: `state -> bool[]`, whether there is another turn.
      step: `state -> state`, a few small operations.
      state: a pytree of arrays.
    """

    def loop(state: Any) -> Any:
        """The state after the last turn."""
        return jax.lax.while_loop(has_turn, step, state)

    if not _NEEDS_MARKS or jax.default_backend() != "cpu":
        return loop(state)
    program, result_shapes = jax.make_jaxpr(loop, return_shape=True)(state)

    def leaves_and_entries(constants: list[jax.Array], leaves: list[jax.Array]) -> list[jax.Array]:
        """The leaves after the loop, and then the first entry of each argument: XLA aborts if one is not used."""
        first_entries = [x.reshape(-1)[:1] for x in (*constants, *leaves)]
        return [*jax.core.eval_jaxpr(program.jaxpr, constants, *leaves), *first_entries]

    compiled_loop: Callable[..., list[jax.Array]] = jax.jit(leaves_and_entries)
    outer_operation, *inner_operations = _operations(program.jaxpr)  # names, also of what is done inside of the loop
    if outer_operation == "while" and _POSSIBLE.issuperset(inner_operations):
        compiled_loop = _with_mark(compiled_loop)
    leaves = jax.tree.leaves(state)
    return jax.tree.unflatten(jax.tree.structure(result_shapes), compiled_loop(program.consts, leaves)[: len(leaves)])


def _with_mark(compiled_loop: Callable[..., list[jax.Array]]) -> Callable[..., list[jax.Array]]:
    """The jitted function `(constants, leaves) -> leaves`, the call of which is marked to be compiled as one kernel."""

    @jax.custom_batching.custom_vmap
    def marked_call(constants: list[jax.Array], leaves: list[jax.Array]) -> list[jax.Array]:
        """The results, the first of which has the mark of the call."""
        first_result, *other_results = compiled_loop(*jax.lax.optimization_barrier((constants, leaves)))
        return [set_xla_metadata(first_result, **_MARKS), *other_results]

    @marked_call.def_vmap
    def unmarked_call_of_batch(
        axis_size: int, in_batched: Any, constants: Any, leaves: Any
    ) -> tuple[list[jax.Array], list[bool]]:
        """The rule for vmap: results without a mark, and True for each, as all differ between the runs of the batch.

        `in_batched` says of each constant and leaf whether it has a leading axis of `axis_size` runs.
        """
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(in_batched))
        results = jax.vmap(compiled_loop, in_axes=axes, axis_size=axis_size)(constants, leaves)
        return results, [True] * len(results)

    return marked_call


def _operations(jaxpr: Any) -> Iterator[str]:
    """The names of all operations of a program, also of those inside of its loops and calls."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from _operations(inner)
