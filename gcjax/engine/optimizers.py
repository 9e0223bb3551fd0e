"""What a run needs of an optimizer, said before anything is trained."""

from typing import Any

import jax
import optax

_MISSING_ARGUMENT = "required keyword-only argument"  # as Python says it


def initial_opt_state(optimizer: optax.GradientTransformation, params: Any) -> Any:
    """The optimizer's state before its first update, of a pytree of parameters.

    Raises:
      ValueError: if an update needs more than the gradient, the state and the parameters, such as the loss, or makes
        a state of other types, which no loop could carry on.
    """
    state = optimizer.init(params)
    gradient = params
    try:
        state_types, next_types = jax.eval_shape(lambda s: (s, optimizer.update(gradient, s, params)[1]), state)
    except TypeError as error:
        if _MISSING_ARGUMENT not in str(error):
            return state
        raise ValueError(
            "an optimizer must be one that updates with the gradient, its state and the parameters, and without the "
            f"loss; the update of this one says: {error}"
        ) from error
    except Exception:  # of another kind; training says so, if it comes to that
        return state
    if _types(state_types) != _types(next_types):
        changes = [
            f"{jax.tree_util.keystr(path)} from {before.dtype}{list(before.shape)} to {after.dtype}{list(after.shape)}"
            for (path, before), after in zip(
                jax.tree.leaves_with_path(state_types), jax.tree.leaves(next_types), strict=False
            )
            if _types(before) != _types(after)
        ]
        raise ValueError(
            "an optimizer must keep the types of its state; its update changes "
            f"{', '.join(changes[:3]) or 'its structure'}. Give all parameters one type, or take another optimizer."
        )
    return state


def _types(tree: Any) -> tuple[Any, list[tuple[Any, tuple[int, ...]]]]:
    """The structure of a pytree, and dtype and shape of its leaves."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(x.dtype, x.shape) for x in leaves]
