"""Coded rounds that use one of several codes each: the code of a round decodes it (Tandon et al. 2017)."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Numbers, Specification, check_num_workers
from gcjax.specifications.decodable_rounds import Decodable, all_but
from gcjax.specifications.events import Event
from gcjax.specifications.rounds import has_read, rounds_with_choice


class CodedRounds(NamedTuple):
    """As `gcjax.specifications.rounds.Rounds`, a unit being a chunk; `code`: int[], the code of this round."""

    version: Numbers
    read: Numbers
    pending_units: Numbers
    code: Numbers


@comparable
def adaptive_coded(
    num_workers: int = 3, *, num_stragglers: Sequence[int] = (0, 1), decodable: Sequence[Decodable] | None = None
) -> Specification:
    """Rounds of one of several codes: no commit without a set that the code of its round decodes, all of one version.

    The server chooses the code of the next round as it commits, that of the first round is the first code; nobody does
    more chunks than this code gives. Which code the times make it choose is left open.

    Args:
      num_workers: W.
      num_stragglers: of each code, how many workers may be missing, if nothing else is said.
      decodable: of each code, the load and which progress int[W], the chunks done, can be decoded; if None, whatever
        all but so many workers have done, with a load of one.
    """
    check_num_workers(num_workers)
    codes = _codes_with_stragglers(num_workers, num_stragglers) if decodable is None else tuple(decodable)
    program = _Program(num_workers, codes)
    loads = ", ".join(str(code.load) for code in codes)
    return rounds_with_choice(
        f"adaptive_coded({num_workers} workers, loads {loads})",
        num_workers,
        CodedRounds,
        choices=range(len(codes)),
        first_choice=0,
        max_units_of_round=program.load,
        has_enough_to_commit=program.is_decodable,
        claim="no commit without a set that its round's code decodes, all of it from the version that it replaces",
        action="commit, next code",
        # A last commit shows no code; a schedule has W columns for each.
        shows=lambda event, code: (event.column < 0) | (event.column // num_workers == code),
        max_pending_units=max(code.load for code in codes),
        matches_read=program.is_read_of_event,
    )


def _codes_with_stragglers(num_workers: int, num_stragglers: Sequence[int]) -> tuple[Decodable, ...]:
    """Of each code, with one chunk a worker: what decodes if at most `num_stragglers[code]` workers are missing."""
    numbers = [
        _validate.integer("each of num_stragglers", number, minimum=0, maximum=num_workers - 1)
        for number in num_stragglers
    ]
    if not numbers:
        raise ValueError("num_stragglers must have a number for each code; got none.")
    return tuple(all_but(number, num_workers) for number in numbers)


class _Program(NamedTuple):
    """What the workers and the server do with these codes."""

    num_workers: int
    codes: tuple[Decodable, ...]

    def load(self, state: CodedRounds) -> jax.Array:
        """int[]: the chunks of a worker by the code of this round."""
        return jnp.asarray([code.load for code in self.codes], jnp.int32)[state.code]

    def is_decodable(self, state: CodedRounds) -> jax.Array:
        """bool[]: whether the code of this round decodes what has been done."""
        return jnp.stack([code.is_decodable(state.pending_units) for code in self.codes])[state.code]

    def is_read_of_event(self, before: CodedRounds, after: CodedRounds, event: Event) -> jax.Array:
        """bool[]: whether the worker reads the version that the event shows, and works by the code of the round.

        The column of its contribution says which code that is: a schedule has W columns for each.
        """
        return has_read(before, after, event) & (event.column // self.num_workers == before.code)
