"""SR-SGC: what too few workers returned in a round is repeated some rounds later.

Krishnan, Ebrahimi, Khisti, ICLR 2023, arXiv 2211.13802; what it shares with `m_sgc` is in
`gcjax.protocols.sequential`. Letters: W workers, K units of a worker in a round.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax import specifications
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
def sr_sgc(
    num_workers: int,
    *,
    burst: int,
    window: int,
    max_slow: int,
    tolerance: float = 1.0,
    rng_key: jax.Array | None = None,
) -> Protocol:
    """Selective-repeat sequential gradient coding: tasks that too few returned are repeated `burst` rounds later.

    A gradient code that tolerates s = ceil(burst max_slow / (window - 1 + burst)) stragglers: fractional repetition if
    s + 1 divides W, otherwise cyclic repetition. If more than s workers did not return their task of job t - burst in
    round t - burst, as many of them as are missing for W - s repeat it in round t, instead of working on job t. A job
    ends `burst` rounds late at most, and a worker holds the share (s + 1) / W of the data (Krishnan et al.
    2023), K = s + 1 units a round.

    Args:
      num_workers: W; in the paper n.
      burst: the rounds within which all late ones of a worker are, a divisor of window - 1; in the paper B.
      window: so many rounds, above `burst`; in the paper W.
      max_slow: the most late workers in a window, at most W; in the paper λ.
      tolerance: μ, 0 or more: how much longer than the fastest worker others may take before they count as late.
      rng_key: draws the coefficients of cyclic repetition.

    Raises:
      ValueError: if burst does not divide window - 1, or a parameter is out of its range, or a key is needed.
    """
    bursts = burst_model(num_workers, burst, window, max_slow, tolerance)
    if (window - 1) % burst:
        smaller_window = (window - 1) // burst * burst + 1
        larger_window = smaller_window + burst
        raise ValueError(
            f"sr_sgc needs a burst that divides window - 1; got burst={burst}, window={window}. "
            f"Use window={smaller_window if smaller_window > burst else larger_window} or {larger_window}."
        )
    num_tolerated = -(-burst * max_slow // (window - 1 + burst))  # rounded up
    code = repetition_code(num_workers, num_tolerated, rng_key)
    load = code.assignment.load
    scheme = _SelectiveRepeat(bursts, num_workers, min_answers=num_workers - num_tolerated, load=load)
    # While job t is open, in rounds t to t + burst, only the jobs t - burst to t + burst can end.
    max_jobs_ended_meanwhile = 2 * burst
    protocol = protocol_of_rounds(
        code, num_workers, num_units=load, num_messages=1, max_staleness=max_jobs_ended_meanwhile, rounds=scheme.rounds
    )
    return protocol.replace(specification=partial(specifications.sr_sgc, burst=burst, window=window, max_slow=max_slow))


class _SelectiveRepeat(NamedTuple):
    """The rounds of SR-SGC.

    Attributes:
      bursts: the straggler model.
      num_workers: W.
      min_answers: of how many workers the tasks decode a job.
      load: the units of a task.
    """

    bursts: Bursts
    num_workers: int
    min_answers: int
    load: int

    def step(self, state: tuple[jax.Array, jax.Array], numbered_round: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
        """One round: those who are due repeat a task of the job of `burst` rounds before; the others do the new job.

        Due are the first workers that have not done that task, as many as are missing from `min_answers`.

        Args:
          state: the rounds before, the latest first: bool[window - 1, W], who was late, and bool[burst, W], who did
            the task of the job that began in the round.
          numbered_round: the number of the round, and float[W] seconds, when each worker would be done.

        Returns:
          The state after it; and when the round stops, float[] seconds; and bool[W] each, who is late then, who did
          the new task, who repeated one.
        """
        late_before, did_own_task = state
        round_number, done_seconds = numbered_round
        # Of the job of `burst` rounds before; 0 or less if there are enough.
        num_missing = self.min_answers - did_own_task[-1].sum(dtype=jnp.int32)
        can_repeat = ~did_own_task[-1] & (round_number >= self.bursts.burst)
        repeats = can_repeat & (jnp.cumsum(can_repeat, dtype=jnp.int32) <= num_missing)  # as many as are missing
        stop, late = stop_and_late(self.bursts, late_before, done_seconds)
        did_own, did_repeat = ~late & ~repeats, ~late & repeats
        next_state = with_new_first_row(late_before, late), with_new_first_row(did_own_task, did_own)
        return next_state, (stop, late, did_own, did_repeat)

    def rounds(self, units: jax.Array, receive_seconds: jax.Array) -> Rounds:
        """All rounds, of units that take `units float[num_rounds, K, W]` seconds, behind `receive_seconds float[W]`.

        A job can be decoded in its own round if enough workers did its task then, otherwise `burst` rounds later, if
        with those who repeated it then there are enough. What was repeated counts in this second case only. Each worker
        has one task for a job, of K = `load` chunks: `num_done` is [num_rounds, W].
        """
        finish = receive_seconds[None, None] + jnp.cumsum(units, axis=1)  # [num_rounds, K, W], from the round's begin
        num_rounds, burst = finish.shape[0], self.bursts.burst
        nobody_late = jnp.zeros((self.bursts.window - 1, self.num_workers), bool)
        no_task_done = jnp.zeros((burst, self.num_workers), bool)
        initial_state = nobody_late, no_task_done
        numbered_rounds = jnp.arange(num_rounds), finish[:, -1]
        # stop: [num_rounds]; the others: [num_rounds, W]
        stop, late, did_own, did_repeat = jax.lax.scan(self.step, initial_state, numbered_rounds)[1]
        repeated = jnp.pad(did_repeat, ((0, burst), (0, 0)))[burst:]  # [job, W]: `burst` rounds after the job began
        decodable_at_once = did_own.sum(axis=1) >= self.min_answers
        decodable_with_repeats = (did_own | repeated).sum(axis=1) >= self.min_answers
        is_repeated_in_sampled_round = jnp.arange(num_rounds) + burst < num_rounds
        decodable_with_repeats &= is_repeated_in_sampled_round
        did_task = did_own | (repeated & ~decodable_at_once[:, None])
        decoding_delay = jnp.where(decodable_at_once, 0, jnp.where(decodable_with_repeats, burst, -1)).astype(jnp.int32)
        return Rounds(
            decoding_delay=decoding_delay,
            num_done=self.load * did_task.astype(jnp.int32),
            stop=stop,
            finish=finish,
            has_unit=jnp.ones(finish.shape, bool),
            has_answered=~late,
        )
