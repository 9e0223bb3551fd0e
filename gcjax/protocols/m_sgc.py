"""M-SGC: most of a job is repeated only where it was missed, and the rest is coded.

Krishnan, Ebrahimi, Khisti, ICLR 2023, arXiv 2211.13802; what it shares with `sr_sgc` is in
`gcjax.protocols.sequential`. Letters: W workers, K units of a worker in a round, C workers of the code.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax import specifications
from gcjax.codes.multi_message import clustered
from gcjax.codes.side_by_side import side_by_side
from gcjax.codes.uncoded import uncoded
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol
from gcjax.protocols.sequential import (
    Bursts,
    Rounds,
    burst_model,
    protocol_of_rounds,
    repetition_code,
    stop_and_late,
)
from gcjax.specifications.sequential import with_new_first_row


@comparable
def m_sgc(
    num_workers: int,
    *,
    burst: int,
    window: int,
    max_slow: int,
    tolerance: float = 1.0,
    rng_key: jax.Array | None = None,
) -> Protocol:
    """Multiplexed sequential gradient coding: most of a job is only repeated when it was missed, and little is coded.

    A job's data fall into window - 1 uncoded parts for each worker, and `burst` parts, each covered by a gradient code
    that tolerates max_slow stragglers. In every round a worker does one task for each of the window - 1 + burst jobs
    in flight: for the window - 1 youngest an uncoded part; for the older ones an uncoded part that it still owes, or
    else its share of the coded part of that age. A job ends window - 2 + burst rounds after it began. With λ = max_slow
    and v = window - 1 a worker holds the share `(λ+1)(v + burst) / (W (burst + v(λ+1)))` of the data (Krishnan et al.
    2023).

    All chunks are of one size here: an uncoded part is max_slow + 1 chunks, as is the share of a coded part, so that
    all tasks take as long; K = (window - 1 + burst)(max_slow + 1) units a round, those of jobs that do not exist
    skipped. In the code each worker counts burst + 1 times: once for its uncoded parts, and once for each coded part.

    If all workers may be late, max_slow = W, nothing is coded: a worker holds 1/W of the data, an uncoded part is one
    chunk, so that K = window - 1 + burst, and in the code each worker counts once.

    Args:
      num_workers: W; in the paper n.
      burst: the rounds within which all late ones of a worker are, below `window`; in the paper B.
      window: so many rounds; in the paper W.
      max_slow: the most late workers in a window, at most W; in the paper λ.
      tolerance: μ, 0 or more: how much longer than the fastest worker others may take before they count as late.
      rng_key: draws the coefficients where the coded parts need cyclic repetition.

    Raises:
      ValueError: if a parameter is out of its range, or a key is needed.
    """
    bursts = burst_model(num_workers, burst, window, max_slow, tolerance)
    scheme = _Multiplex(bursts, num_workers)
    codes = [uncoded(num_workers, load=scheme.num_uncoded * scheme.task_size)]
    if scheme.has_coded_parts:
        codes.append(clustered(repetition_code(num_workers, max_slow, rng_key), num_clusters=burst))
    protocol = protocol_of_rounds(
        side_by_side(*codes),
        num_workers,
        num_units=scheme.jobs_in_flight * scheme.task_size,
        num_messages=burst + 1 if scheme.has_coded_parts else 1,
        max_staleness=scheme.jobs_in_flight - 1,
        rounds=scheme.rounds,
    )
    return protocol.replace(specification=partial(specifications.m_sgc, burst=burst, window=window, max_slow=max_slow))


class _Multiplex(NamedTuple):
    """The rounds of M-SGC.

    Attributes:
      bursts: the straggler model.
      num_workers: W.
    """

    bursts: Bursts
    num_workers: int

    @property
    def num_uncoded(self) -> int:
        """The uncoded parts of a job that each worker has: window - 1."""
        return self.bursts.window - 1

    @property
    def has_coded_parts(self) -> bool:
        """Whether a job has coded parts; not where all workers may be stragglers."""
        return self.bursts.max_slow < self.num_workers

    @property
    def jobs_in_flight(self) -> int:
        """The rounds in which there is a task for a job, window - 1 + burst; a job of age a began a rounds before."""
        return self.num_uncoded + self.bursts.burst

    @property
    def task_size(self) -> int:
        """The chunks of a task, so that an uncoded part is as long as a share of a coded one."""
        return self.bursts.max_slow + 1 if self.has_coded_parts else 1

    def step(self, state: tuple[jax.Array, ...], numbered_round: tuple[jax.Array, ...]) -> tuple[Any, Any]:
        """One round, in which a worker does one task for each job in flight.

        Args:
          state: bool[window - 1, W], who was late in the rounds before, the latest first; and of the job of each age
            int32[jobs_in_flight, W], how many uncoded parts each worker has done, and
            bool[jobs_in_flight, burst, W], who has done its share of each coded part.
          numbered_round: the number of the round, float[K, W] the seconds of the units, and float[W] of receiving.

        Returns:
          The state after it; and when the round stops, float[]; who is late then, bool[W]; when the units end, and
          which there are, [K, W]; and what is done of the oldest job, which ends in this round: the uncoded parts of
          each worker, int32[W], and its shares of the coded parts, bool[burst, W].
        """
        late_before, uncoded_done, shares_done = state
        round_number, units, receive_seconds = numbered_round
        age, coded_part = jnp.arange(self.jobs_in_flight, dtype=jnp.int32), jnp.arange(self.bursts.burst)
        # bool[jobs_in_flight, W]: whose task for the job of each age is an uncoded part, and whether there is a task.
        owes_uncoded = (age < self.num_uncoded)[:, None] | (uncoded_done < self.num_uncoded)
        is_due = (age <= round_number)[:, None] & (owes_uncoded | self.has_coded_parts)  # no job began before round 0
        is_due_unit = jnp.repeat(is_due, self.task_size, axis=0)  # [K, W], the tasks one after the other by age
        finish = receive_seconds[None] + jnp.cumsum(jnp.where(is_due_unit, units, 0), axis=0)
        stop, late = stop_and_late(self.bursts, late_before, finish[-1])
        is_done = is_due & ~late[None]
        uncoded_done = uncoded_done + (is_done & owes_uncoded).astype(jnp.int32)
        # Coded part b is the task of the job of age window - 1 + b, for those who owe no uncoded part.
        age_of_part = self.num_uncoded + coded_part
        shares_done = shares_done.at[age_of_part, coded_part].set((is_done & ~owes_uncoded)[self.num_uncoded :])
        oldest_job = uncoded_done[-1], shares_done[-1]
        state = (  # in the next round every job is a round older, and a new one begins
            with_new_first_row(late_before, late),
            with_new_first_row(uncoded_done, jnp.zeros_like(late)),
            with_new_first_row(shares_done, jnp.zeros_like(shares_done[0])),
        )
        return state, (stop, late, finish, is_due_unit, *oldest_job)

    def rounds(self, units: jax.Array, receive_of_worker: jax.Array) -> Rounds:
        """All rounds, of units that take `units float[num_rounds, K, W]` seconds, behind `receive_of_worker float[W]`.

        A job ends window - 2 + burst rounds after it began, when all workers have done their uncoded parts, and all but
        max_slow their share of each coded part. So results are first by the round that a job ends in, then by job.
        Column w of `num_done` is worker w's uncoded parts, column (1 + b) W + w its share of coded part b.
        """
        num_rounds = units.shape[0]
        nobody_late = jnp.zeros((self.bursts.window - 1, self.num_workers), bool)
        no_uncoded_done = jnp.zeros((self.jobs_in_flight, self.num_workers), jnp.int32)
        no_shares_done = jnp.zeros((self.jobs_in_flight, self.bursts.burst, self.num_workers), bool)
        initial_state = nobody_late, no_uncoded_done, no_shares_done
        receive_seconds = jnp.broadcast_to(receive_of_worker[None], (num_rounds, self.num_workers))
        numbered_rounds = jnp.arange(num_rounds, dtype=jnp.int32), units, receive_seconds
        _, collected = jax.lax.scan(self.step, initial_state, numbered_rounds)
        stop, late, finish, is_due_unit, uncoded_done, shares_done = collected  # shares: [num_rounds, burst, W]
        is_decodable = (uncoded_done == self.num_uncoded).all(axis=1)  # of the job that ends in each round
        tasks_done = uncoded_done  # int32[num_rounds, C]: first the uncoded parts of the workers, then their shares
        if self.has_coded_parts:
            is_decodable &= (shares_done.sum(axis=2) >= self.num_workers - self.bursts.max_slow).all(axis=1)
            tasks_done = jnp.concatenate([tasks_done, shares_done.reshape(num_rounds, -1).astype(jnp.int32)], axis=1)
        decoding_delay = self.jobs_in_flight - 1  # what ended in round r began in round r - delay: from here on by job
        # The jobs of the last rounds end in none that was sampled: nothing of them counts.
        is_decodable_by_job = jnp.pad(is_decodable, (0, decoding_delay))[decoding_delay:]
        tasks_done_by_job = jnp.pad(tasks_done, ((0, decoding_delay), (0, 0)))[decoding_delay:]
        return Rounds(
            decoding_delay=jnp.where(is_decodable_by_job, decoding_delay, -1).astype(jnp.int32),
            num_done=self.task_size * tasks_done_by_job,
            stop=stop,
            finish=finish,
            has_unit=is_due_unit,
            has_answered=~late,
        )
