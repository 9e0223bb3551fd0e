"""The mark of the part of a step that waits for no other process."""

import functools
from collections.abc import Callable
from typing import Any

from gcjax.watching import under_way
from gcjax.watching.outputs import Outputs


def local(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks the part of a watched step that comes before its collective, and waits for no other process.

        gradient = gcjax.watching.local(jax.jit(gradient_of_own_examples))
        step = gcjax.watch(step)  # calls gradient, and then a compiled function that reduces and applies

    Of several calls in a step the end of the last one counts: they follow each other, as when gradients are
    accumulated. Outside of a watched step it is the function as it is.

    Args:
      function: any callable, compiled or not; the step that calls it must not be compiled itself.
    """
    outputs = Outputs(function)

    @functools.wraps(function)
    def function_with_noted_end(*args: Any, **kwargs: Any) -> Any:
        """The result of the function; when it is there is noted."""
        result = function(*args, **kwargs)
        watch = under_way.of_this_thread.watch
        if watch is not None:
            watch.note_end_of_local_work(outputs, result)
        return result

    return function_with_noted_end
