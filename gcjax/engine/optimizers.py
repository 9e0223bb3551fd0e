"""What a run needs of an optimizer, said before anything is trained."""

from typing import Any

import jax
import optax


def initial_opt_state(optimizer: optax.GradientTransformation, params: Any) -> Any:
    """The optimizer's state before its first update, of a pytree of parameters.

    Raises:
      ValueError: if an update needs more than the gradient, the state and the parameters, such as the loss, or makes
        a state of other types, which no loop could carry on.
    """
    state = optimizer.init(params)
    gradient = params
    try:
        _, next_state = jax.eval_shape(optimizer.update, gradient, state, params)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "an optimizer must be one that updates with the gradient, its state and the parameters, and without the "
            f"loss; the update of this one says: {error}"
        ) from error
    if _types(state) != _types(next_state):
        changes = [
            f"{jax.tree_util.keystr(path)} from {before.dtype}{list(before.shape)} to {after.dtype}{list(after.shape)}"
            for (path, before), after in zip(
                jax.tree.leaves_with_path(state), jax.tree.leaves(next_state), strict=False
            )
            if _types(before) != _types(after)
        ]
        raise ValueError(
            "an optimizer must keep the types of its state; the update of this one changes "
            f"{', '.join(changes[:3]) or 'its structure'}. Give all parameters one type, or take another optimizer."
        )
    return state


def _types(tree: Any) -> tuple[Any, list[tuple[Any, tuple[int, ...]]]]:
    """The structure of a pytree, and dtype and shape of its leaves."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(x.dtype, x.shape) for x in leaves]
