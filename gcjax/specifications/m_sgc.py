"""M-SGC: what was missed is repeated, and the rest of a job is coded (Krishnan et al. 2023)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.equality import comparable
from gcjax.specifications.base import Numbers, Specification
from gcjax.specifications.sequential import (
    Scheme,
    check_parameters,
    late_after_round,
    rounds_specification,
    with_new_first_row,
)


class Multiplexed(NamedTuple):
    """The state of M-SGC, rows by the age of the job.

    Attributes:
      index: int[], the rounds that have ended.
      answered: int[W], who has answered in this round.
      late: int[window - 1, W], who was late in the rounds before, the latest first.
      plain: int[window - 1 + burst, W], the uncoded parts that each has done.
      shares: int[window - 1 + burst, burst, W], who has done its share of which coded part.
    """

    index: Numbers
    answered: Numbers
    late: Numbers
    plain: Numbers
    shares: Numbers


@comparable
def m_sgc(num_workers: int = 3, *, burst: int = 1, window: int = 2, max_slow: int = 1) -> Specification:
    """M-SGC: every job can be decoded window - 2 + burst rounds after it began.

    A job can be decoded if all have done their window - 1 uncoded parts, and all but max_slow their share of each
    coded part.

    Args:
      num_workers: W.
      burst: the rounds within which all late ones of a worker in a window are, below `window`.
      window: so many rounds.
      max_slow: the most workers that are late in a window, at most W.
    """
    check_parameters(num_workers, burst, window, max_slow)
    rounds = _Multiplex(num_workers, burst, window, max_slow)
    slots = rounds.slots
    scheme = Scheme(
        burst=burst,
        max_slow=max_slow,
        delay=slots - 1,
        load=slots * rounds.size,
        next_round=rounds.next_round,
        in_time=rounds.in_time,
        tasks=rounds.tasks,
    )
    shapes = num_workers, (window - 1, num_workers), (slots, num_workers), (slots, burst, num_workers)
    first = Multiplexed(np.int32(0), *(np.zeros(shape, np.int32) for shape in shapes))
    name = f"m_sgc({num_workers} workers, burst {burst}, window {window}, {max_slow} late)"
    specification = rounds_specification(name, first, scheme)
    return specification._replace(sizes=specification.sizes._replace(plain=np.full(shapes[2], window)))


class _Multiplex(NamedTuple):
    """Rounds of M-SGC. A job is worked on for `slots` rounds, its age is how many have ended."""

    num_workers: int
    burst: int
    window: int
    max_slow: int

    @property
    def slots(self) -> int:
        """The jobs in flight."""
        return self.window - 1 + self.burst

    @property
    def has_coded_parts(self) -> bool:
        """Whether there are coded parts."""
        return self.max_slow < self.num_workers

    @property
    def size(self) -> int:
        """The chunks of a task."""
        return self.max_slow + 1 if self.has_coded_parts else 1

    def parts_after_round(self, state: Multiplexed) -> tuple[jax.Array, jax.Array]:
        """`plain` int[slots, W] and `shares` int[slots, burst, W], with what has been answered in this round.

        In one round a worker does a part of the job of each age: an uncoded one in the first window - 1 rounds, and
        then an uncoded one that it still owes, or its share of a coded part.
        """
        age, coded_part = np.arange(self.slots)[:, None], np.arange(self.burst)
        is_plain = (age < self.window - 1) | (state.plain < self.window - 1)
        # Jobs older than the first round do not exist.
        is_done = (age <= state.index) & (is_plain | self.has_coded_parts) & (state.answered == 1)[None]
        shares = state.shares.at[self.window - 1 + coded_part, coded_part].set(
            (is_done & ~is_plain)[self.window - 1 :].astype(jnp.int32)
        )
        return state.plain + (is_done & is_plain).astype(jnp.int32), shares

    def next_round(self, state: Multiplexed) -> Multiplexed:
        """The state at the beginning of the next round; all jobs are one round older, and a new one begins."""
        plain, shares = self.parts_after_round(state)
        return Multiplexed(
            index=state.index + 1,
            answered=jnp.zeros_like(state.answered),
            late=late_after_round(state),
            plain=with_new_first_row(plain, jnp.zeros_like(plain[0])),
            shares=with_new_first_row(shares, jnp.zeros_like(shares[0])),
        )

    def in_time(self, state: Multiplexed) -> jax.Array:
        """bool[]: whether the oldest job, if there is one yet, can be decoded after this round."""
        plain, shares = self.parts_after_round(state)
        is_decodable = (plain[-1] >= self.window - 1).all()
        if self.has_coded_parts:
            is_decodable &= (shares[-1].sum(axis=1) >= self.num_workers - self.max_slow).all()
        return (state.index < self.slots - 1) | is_decodable

    def tasks(self, state: Multiplexed, job: jax.Array) -> jax.Array:
        """int[]: the chunks done for the oldest job at the end of this round; negative for other jobs."""
        plain, shares = self.parts_after_round(state)
        num_parts = plain[-1].sum() + (shares[-1].sum() if self.has_coded_parts else 0)
        return self.size * jnp.where(job == state.index - (self.slots - 1), num_parts, -1)
