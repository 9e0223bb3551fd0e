"""M-SGC: what was missed is repeated, and the rest of a job is coded (Krishnan et al. 2023)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.equality import comparable
from gcjax.specifications.base import Numbers, Specification
from gcjax.specifications.sequential import (
    SequentialCode,
    check_parameters,
    late_after_round,
    sequential_specification,
    with_new_first_row,
)


class Multiplexed(NamedTuple):
    """The state of M-SGC, rows by the age of the job.

    Attributes:
      num_rounds: int[], the rounds that have ended.
      num_answers: int[W], of each in this round: 1 once it has answered.
      was_late: int[window - 1, W], who was late in the rounds before, the latest first.
      uncoded_parts: int[window - 1 + burst, W], the uncoded parts that each has done.
      coded_shares: int[window - 1 + burst, burst, W], who has done its share of which coded part.
    """

    num_rounds: Numbers
    num_answers: Numbers
    was_late: Numbers
    uncoded_parts: Numbers
    coded_shares: Numbers


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
    jobs_in_flight = rounds.jobs_in_flight
    code = SequentialCode(
        burst=burst,
        max_slow=max_slow,
        delay=jobs_in_flight - 1,
        load=jobs_in_flight * rounds.task_size,
        state_of_next_round=rounds.state_of_next_round,
        oldest_is_decodable=rounds.oldest_is_decodable,
        units_of_job=rounds.units_of_job,
        has_new_job=lambda state: state.num_rounds >= jobs_in_flight - 1,  # the oldest, in each round
    )
    shapes = num_workers, (window - 1, num_workers), (jobs_in_flight, num_workers), (jobs_in_flight, burst, num_workers)
    initial_state = Multiplexed(np.int32(0), *(np.zeros(shape, np.int32) for shape in shapes))
    name = f"m_sgc({num_workers} workers, burst {burst}, window {window}, {max_slow} late)"
    specification = sequential_specification(name, initial_state, code)
    # All other entries are 0 or 1; of its uncoded parts a worker does from 0 to window - 1.
    return specification._replace(sizes=specification.sizes._replace(uncoded_parts=np.full(shapes[2], window)))


class _Multiplex(NamedTuple):
    """Rounds of M-SGC. A job is worked on for `jobs_in_flight` rounds, its age is how many have ended."""

    num_workers: int
    burst: int
    window: int
    max_slow: int

    @property
    def jobs_in_flight(self) -> int:
        """The rounds in which a job is worked on, and so the jobs that are worked on in a round."""
        return self.window - 1 + self.burst

    @property
    def has_coded_parts(self) -> bool:
        """Whether a job has coded parts; not where all workers may be late."""
        return self.max_slow < self.num_workers

    @property
    def task_size(self) -> int:
        """The chunks of a task."""
        return self.max_slow + 1 if self.has_coded_parts else 1

    def parts_after_round(self, state: Multiplexed) -> tuple[jax.Array, jax.Array]:
        """`uncoded_parts int[jobs, W]` and `coded_shares int[jobs, burst, W]`, with the answers of this round.

        In one round a worker does a part of the job of each age: an uncoded one in the first window - 1 rounds, and
        then an uncoded one that it still owes, or its share of a coded part: of part p in the round of age
        window - 1 + p. Row a is the job that began a rounds ago.
        """
        age, coded_part = np.arange(self.jobs_in_flight)[:, None], np.arange(self.burst)
        num_uncoded_parts = self.window - 1
        is_uncoded = (age < num_uncoded_parts) | (state.uncoded_parts < num_uncoded_parts)
        # Jobs older than the first round do not exist.
        is_done = (age <= state.num_rounds) & (is_uncoded | self.has_coded_parts) & (state.num_answers == 1)[None]
        age_of_part, did_share = num_uncoded_parts + coded_part, is_done & ~is_uncoded
        coded_shares = state.coded_shares.at[age_of_part, coded_part].set(
            did_share[num_uncoded_parts:].astype(jnp.int32)
        )
        return state.uncoded_parts + (is_done & is_uncoded).astype(jnp.int32), coded_shares

    def state_of_next_round(self, state: Multiplexed) -> Multiplexed:
        """The state at the beginning of the next round; all jobs are one round older, a new one is row 0."""
        uncoded_parts, coded_shares = self.parts_after_round(state)
        return Multiplexed(
            num_rounds=state.num_rounds + 1,
            num_answers=jnp.zeros_like(state.num_answers),
            was_late=late_after_round(state),
            uncoded_parts=with_new_first_row(uncoded_parts, jnp.zeros_like(uncoded_parts[0])),
            coded_shares=with_new_first_row(coded_shares, jnp.zeros_like(coded_shares[0])),
        )

    def oldest_is_decodable(self, state: Multiplexed) -> jax.Array:
        """bool[]: whether the oldest job, the last row, if there is one yet, can be decoded after this round.

        For that all have done window - 1 uncoded parts, and all but `max_slow` their share of each coded part.
        """
        uncoded_parts, coded_shares = self.parts_after_round(state)
        is_decodable = (uncoded_parts[-1] >= self.window - 1).all()
        if self.has_coded_parts:
            # Shares of each coded part, over workers.
            is_decodable &= (coded_shares[-1].sum(axis=1) >= self.num_workers - self.max_slow).all()
        has_no_job_yet = state.num_rounds < self.jobs_in_flight - 1
        return has_no_job_yet | is_decodable

    def units_of_job(self, state: Multiplexed, job: jax.Array) -> jax.Array:
        """int[]: the chunks done for the oldest job, the last row, at the end of this round; negative for other jobs.

        Jobs are numbered by the rounds in which they begin; a part is `task_size` chunks.
        """
        uncoded_parts, coded_shares = self.parts_after_round(state)
        num_parts = uncoded_parts[-1].sum() + (coded_shares[-1].sum() if self.has_coded_parts else 0)
        return self.task_size * jnp.where(job == state.num_rounds - (self.jobs_in_flight - 1), num_parts, -1)
