"""Coded rounds that use one of several codes each: the code of a round decodes it (Tandon et al. 2017)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, is_own_entry
from gcjax.specifications.decodable_rounds import Decodable
from gcjax.specifications.events import BEGIN, COMMIT, Event
from gcjax.specifications.rounds import (
    commits_pending_units,
    has_read,
    is_commit,
    read_newest,
    specification_of_rounds,
    unit_action,
    worker_rule,
)


class CodedRounds(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      read: int[W], the version that each worker has read last; -1 at first.
      pending_units: int[W], the chunks of each in this round.
      code: int[], the code of this round.
    """

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
      decodable: of each code, which progress can be decoded; if None, whatever all but so many workers have done, with
        a load of one.
    """
    check_num_workers(num_workers)
    codes = _codes_with_stragglers(num_workers, num_stragglers) if decodable is None else tuple(decodable)
    program = _Program(num_workers, codes)
    loads = ", ".join(str(code.load) for code in codes)
    specification = specification_of_rounds(
        f"adaptive_coded({num_workers} workers, loads {loads})",
        num_workers,
        max_pending_units=max(code.load for code in codes),
        has_enough_to_commit=program.is_decodable,
        further_invariant=program.is_within_load,
        claim="no commit without a set that its round's code decodes, all of it from the version that it replaces",
    )
    read = Action("read", read_newest, BEGIN, program.is_read_of_event)
    return specification._replace(
        initial=CodedRounds(**specification.initial._asdict(), code=np.int32(0)),
        sizes=CodedRounds(**specification.sizes._asdict(), code=len(codes)),
        server=Role(
            actions=tuple(program.commit_action(code) for code in range(len(codes))),
            frame=lambda server: CodedRounds(version=True, read=False, pending_units=True, code=True),
            rule=program.server_rule,
            takes_only_actions=True,
        ),
        worker=Role(
            actions=(read, unit_action(program.may_do_unit)),
            frame=program.own_entries,
            rule=worker_rule(program.may_do_unit),
        ),
    )


def _codes_with_stragglers(num_workers: int, num_stragglers: Sequence[int]) -> tuple[Decodable, ...]:
    """Of each code, with one chunk a worker: what decodes if at most `num_stragglers[code]` workers are missing."""
    numbers = [
        _validate.integer("each of num_stragglers", number, minimum=0, maximum=num_workers - 1)
        for number in num_stragglers
    ]
    if not numbers:
        raise ValueError("num_stragglers must have a number for each code; got none.")

    def all_but(number: int) -> Callable[[jax.Array], jax.Array]:
        """The function `pending_units int[W] -> bool[]`: whether all but `number` workers have done their chunk."""
        return lambda pending_units: (pending_units > 0).sum() >= num_workers - number

    return tuple(Decodable(load=1, is_decodable=all_but(number)) for number in numbers)


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

    def is_within_load(self, state: CodedRounds) -> jax.Array:
        """bool[]: whether nobody has done more chunks than the code of this round gives."""
        return (state.pending_units <= self.load(state)).all()

    def may_do_unit(self, state: CodedRounds, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker has not done all of its chunks."""
        return state.pending_units[worker] < self.load(state)

    def own_entries(self, worker: Numbers) -> CodedRounds:
        """What the worker may change."""
        is_own = is_own_entry(self.num_workers, worker)
        return CodedRounds(version=False, read=is_own, pending_units=is_own, code=False)

    def is_read_of_event(self, before: CodedRounds, after: CodedRounds, event: Event) -> jax.Array:
        """bool[]: whether the worker reads the version that the event shows, and works by the code of the round."""
        return has_read(before, after, event) & (event.column // self.num_workers == before.code)

    def commit_action(self, next_code: int) -> Action:
        """The commit after which rounds use the code number `next_code`; the schedule has W columns for each code."""

        def move(state: CodedRounds, server: jax.Array) -> tuple[CodedRounds, jax.Array]:
            """The state after the commit, and whether the units done decode by now; `server` is the only one."""
            after = state._replace(
                version=state.version + 1, pending_units=jnp.zeros_like(state.pending_units), code=next_code
            )
            return after, self.is_decodable(state)

        def matches(before: CodedRounds, after: CodedRounds, event: Event) -> jax.Array:
            """bool[]: whether the step is the commit that the event shows, with the same code in the next one."""
            has_no_next_commit = event.column < 0  # that would show the code
            return commits_pending_units(before, after, event) & (
                has_no_next_commit | (event.column // self.num_workers == next_code)
            )

        return Action(f"commit, next code {next_code}", move, COMMIT, matches)

    def server_rule(self, before: CodedRounds, after: CodedRounds, server: jax.Array) -> jax.Array:
        """bool[]: whether the server commits what the code of the round decodes, and takes one of the codes next."""
        is_code = (after.code >= 0) & (after.code < len(self.codes))
        return is_commit(before, after) & is_code & self.is_decodable(before)
