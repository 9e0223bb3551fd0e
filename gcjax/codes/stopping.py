"""When a coded round stops: from the time at which every worker finishes every chunk, the end of the round."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.codes.base import Assignment, GradientCode
from gcjax.equality import comparable
from gcjax.registry import Entry


class StoppingRule(NamedTuple):
    """When a round of coded work stops.

    Attributes:
      time: pure function `(code, finish float[W, K]) -> float[]`: seconds from the start of the round at which it
        stops; inf if it never does.
      waits_for_exact_sum: whether the rule waits for an exact decode.
    """

    time: Callable[[GradientCode, jax.Array], jax.Array]
    waits_for_exact_sum: bool


@comparable
def decodable() -> StoppingRule:
    """Stop as soon as the sum of all chunk gradients can be decoded exactly."""
    return StoppingRule(lambda code, finish: code.completion(finish), waits_for_exact_sum=True)


@comparable
def deadline(seconds: float) -> StoppingRule:
    """Stop after so many seconds, or earlier if everybody has finished everything.

    Args:
      seconds: above 0, counted from the moment the round starts.
    """
    _validate.single_number("seconds", seconds, above=True)
    all_workers_rule = all_workers()

    def time(code: GradientCode, finish: jax.Array) -> jax.Array:
        """float[] seconds: the deadline, or when everybody has finished everything, by `finish float[W, K]`."""
        return jnp.minimum(jnp.asarray(seconds, finish.dtype), all_workers_rule.time(code, finish))

    return StoppingRule(time, waits_for_exact_sum=False)


@comparable
def first_of(*rules: StoppingRule) -> StoppingRule:
    """Stop as soon as one of the rules says so."""
    if not rules or not all(isinstance(rule, StoppingRule) for rule in rules):
        raise ValueError(f"first_of needs one or more stopping rules; got {rules!r}.")

    def time(code: GradientCode, finish: jax.Array) -> jax.Array:
        """float[] seconds: the earliest time of all rules, by when chunks are finished, `finish float[W, K]`."""
        return jnp.stack([rule.time(code, finish) for rule in rules]).min()

    return StoppingRule(time, waits_for_exact_sum=all(rule.waits_for_exact_sum for rule in rules))


@comparable
def erasure_head(wait_for: int) -> StoppingRule:
    """Stop when the sum can be decoded exactly or `wait_for` workers have finished, whichever comes first.

    With fractional repetition this is ErasureHead (Wang, Charles, Papailiopoulos 2019, arXiv 1901.09671): groups that
    nobody has finished are left out.

    Args:
      wait_for: k, how many workers; at least 1 and at most those that hold a chunk.
    """
    return first_of(decodable(), fastest(wait_for))


@comparable
def fastest(wait_for: int) -> StoppingRule:
    """Stop as soon as `wait_for` workers have finished their whole load.

    Args:
      wait_for: k, how many workers; at least 1 and at most those that hold a chunk.
    """
    wait_for = _validate.integer("wait_for", wait_for, minimum=1)

    def time(code: GradientCode, finish: jax.Array) -> jax.Array:
        """float[] seconds: when `wait_for` workers that hold a chunk have finished their load, by `finish [W, K]`."""
        has_chunks = code.assignment.loads > 0
        _validate.integer("wait_for of fastest", wait_for, minimum=1, maximum=int(has_chunks.sum()))
        return jnp.sort(jnp.where(has_chunks, last_finish(code.assignment, finish), jnp.inf))[wait_for - 1]

    return StoppingRule(time, waits_for_exact_sum=False)


@comparable
def all_workers() -> StoppingRule:
    """Stop when every worker has finished its whole load."""
    return StoppingRule(lambda code, finish: last_finish(code.assignment, finish).max(), waits_for_exact_sum=False)


def last_finish(assignment: Assignment, finish: jax.Array) -> jax.Array:
    """float[W]: when each worker finishes its whole load, from `finish float[W, K]`; 0 for one without chunks."""
    return jnp.max(jnp.where(assignment.chunks >= 0, finish, 0), axis=1)


TABLE: dict[str, Entry] = {
    "all_workers": Entry(all_workers, ""),
    "deadline": Entry(deadline, "Ramamoorthy et al. 2024"),
    "decodable": Entry(decodable, "Tandon et al. 2017"),
    "erasure_head": Entry(erasure_head, "Wang et al. 2019"),
    "fastest": Entry(fastest, "Chen et al. 2016"),
    "first_of": Entry(first_of, "Ramamoorthy et al. 2024"),
}

__all__ = [
    "TABLE",
    "StoppingRule",
    "all_workers",
    "deadline",
    "decodable",
    "erasure_head",
    "fastest",
    "first_of",
]
