"""Codes without partial work: what a worker has finished counts only once it has finished everything."""

import jax
import jax.numpy as jnp

from gcjax.codes.base import Coding, GradientCode, check_code, check_finish, check_progress
from gcjax.codes.stopping import last_finish
from gcjax.equality import comparable


@comparable
def whole_workers(code: GradientCode) -> GradientCode:
    """The same code, with workers that send nothing before their whole load is done.

    This is what most papers assume, and what partial work is compared with: with `partial`, an exact sum needs L
    holders of every chunk that have finished all their chunks (the original protocol of Ramamoorthy et al. 2024).

    Args:
      code: any code.
    """
    check_code(code, "whole_workers")
    loads = code.assignment.loads

    def whole_loads(progress: jax.Array) -> jax.Array:
        """int[W]: the load of workers that have finished it, 0 for all others."""
        return jnp.where(progress >= loads, progress, 0)

    def plan(progress: jax.Array) -> Coding:
        """The plan of the code, with nothing from workers that have not finished."""
        return code.plan(whole_loads(check_progress(code.assignment, progress)))

    def completion(finish: jax.Array) -> jax.Array:
        """float[] seconds: the completion of `code` if each worker finishes all its chunks when it finishes the last.

        By when it finishes each of them, `finish float[W, K]` in seconds.
        """
        finish = check_finish(code.assignment, finish)
        return code.completion(jnp.broadcast_to(last_finish(code.assignment, finish)[:, None], finish.shape))

    def sent(progress: jax.Array) -> jax.Array:
        """bool[W, M]: what the code sends, with nothing from workers that have not finished."""
        return code.sent(whole_loads(check_progress(code.assignment, progress)))

    return code._replace(plan=plan, completion=completion, sent=sent, only_whole_loads=True)
