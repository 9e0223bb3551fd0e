"""What a run needs of an optimizer, said before anything is trained."""

from typing import Any

import jax
import optax

from gcjax.engine.checkpoint import leaf_types

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
    except Exception as error:
        if not isinstance(error, TypeError) or _MISSING_ARGUMENT not in str(error):
            return state  # training says it, if it comes to that
        raise ValueError(
            "an optimizer must be one that updates with the gradient, its state and the parameters, and without the "
            f"loss; the update of this one says: {error}"
        ) from error
    before, after = leaf_types(state_types), leaf_types(next_types)
    changes = [
        f"{name} from {before.get(name, 'nothing')} to {after.get(name, 'nothing')}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    ]
    if changes:
        raise ValueError(
            f"an optimizer must keep the types of its state; its update changes {', '.join(changes[:3])}. Give all "
            "parameters one type, or take another optimizer."
        )
    return state
