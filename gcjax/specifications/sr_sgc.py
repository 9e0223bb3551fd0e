"""SR-SGC: what too few workers returned is repeated some rounds later (Krishnan et al. 2023)."""

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


class Repeated(NamedTuple):
    """The state of SR-SGC, rows by age, the latest first.

    Attributes:
      num_rounds: int[], the rounds that have ended.
      num_answers: int[W], of each in this round: 1 once it has answered.
      was_late: int[window - 1, W], who was late in the rounds before.
      has_done_task: int[burst, W], 1 for who has given the task of a job in its own round.
    """

    num_rounds: Numbers
    num_answers: Numbers
    was_late: Numbers
    has_done_task: Numbers


@comparable
def sr_sgc(num_workers: int = 3, *, burst: int = 1, window: int = 2, max_slow: int = 1) -> Specification:
    """SR-SGC: every job can be decoded `burst` rounds after it began.

    A job can be decoded if all but s = ceil(burst max_slow / (window - 1 + burst)) workers have given their task, in
    its own round or `burst` rounds later.

    Args:
      num_workers: W.
      burst: the rounds within which all late ones of a worker in a window are, a divisor of window - 1.
      window: so many rounds, above `burst`.
      max_slow: the most workers that are late in a window, at most W.
    """
    check_parameters(num_workers, burst, window, max_slow)
    if (window - 1) % burst:
        raise ValueError(f"sr_sgc needs a burst that divides window - 1; got burst={burst}, window={window}.")
    num_needed = num_workers + (-burst * max_slow // (window - 1 + burst))  # all but s, which is rounded up
    load = num_workers - num_needed + 1  # s + 1
    rounds = _SelectiveRepeat(burst, num_needed, load)
    code = SequentialCode(
        burst=burst,
        max_slow=max_slow,
        delay=burst,
        load=load,
        state_of_next_round=rounds.state_of_next_round,
        oldest_is_decodable=rounds.oldest_is_decodable,
        units_of_job=rounds.units_of_job,
        has_new_job=rounds.has_new_job,
        units_of_ended_round=rounds.units_of_ended_round,
    )
    shapes = num_workers, (window - 1, num_workers), (burst, num_workers)
    initial_state = Repeated(np.int32(0), *(np.zeros(shape, np.int32) for shape in shapes))
    return sequential_specification(
        f"sr_sgc({num_workers} workers, burst {burst}, window {window}, {max_slow} late)", initial_state, code
    )


class _SelectiveRepeat(NamedTuple):
    """Rounds of SR-SGC, in which `num_needed` tasks, of `load` chunks each, decode a job."""

    burst: int
    num_needed: int
    load: int

    def repeats_old_task(self, state: Repeated) -> jax.Array:
        """bool[W]: who repeats the task of the job of `burst` rounds ago, the last row of `has_done_task` (0 or 1).

        They are the first workers that owe it, as many as are missing from the `num_needed` tasks that decode a job.
        """
        did_old_task = state.has_done_task[-1] == 1
        owes_task = ~did_old_task & (state.num_rounds >= self.burst)  # there is none in the first rounds
        num_owing_so_far = jnp.cumsum(owes_task)
        num_missing = self.num_needed - did_old_task.sum()
        return owes_task & (num_owing_so_far <= num_missing)

    def has_answered_own_task(self, state: Repeated) -> jax.Array:
        """bool[W]: who has answered with the task of this round's job."""
        return (state.num_answers == 1) & ~self.repeats_old_task(state)

    def state_of_next_round(self, state: Repeated) -> Repeated:
        """The state at the beginning of the next round; rows 0 of `was_late` and `has_done_task` are of this one."""
        return Repeated(
            num_rounds=state.num_rounds + 1,
            num_answers=jnp.zeros_like(state.num_answers),
            was_late=late_after_round(state),
            has_done_task=with_new_first_row(state.has_done_task, self.has_answered_own_task(state)),
        )

    def num_tasks(self, state: Repeated) -> jax.Array:
        """int[]: how many tasks there are for the job of `burst` rounds ago, at the end of this round.

        Of each worker one: given in the job's own round, or by its answer in this one, if that repeats the task.
        """
        return ((state.has_done_task[-1] == 1) | ((state.num_answers == 1) & self.repeats_old_task(state))).sum()

    def units_of_job(self, state: Repeated, job: jax.Array) -> jax.Array:
        """int[]: the chunks done for this round's job or that of `burst` rounds ago, at its end; others negative."""
        repeated = jnp.where(job == state.num_rounds - self.burst, self.num_tasks(state), -1)
        return self.load * jnp.where(job == state.num_rounds, self.has_answered_own_task(state).sum(), repeated)

    def units_of_ended_round(self, state: Repeated, job: jax.Array) -> jax.Array:
        """int[]: the chunks done for the job of the round that has just ended; -1 for other jobs."""
        return jnp.where(job == state.num_rounds - 1, self.load * state.has_done_task[0].sum(), -1)

    def has_new_job(self, state: Repeated) -> jax.Array:
        """bool[]: whether this round's job can be decoded at its end, or that of `burst` rounds ago only now.

        The latter is decodable at the end of this round, as promised, if it was not in its own.
        """
        has_own_job = self.has_answered_own_task(state).sum() >= self.num_needed
        was_undecodable = state.has_done_task[-1].sum() < self.num_needed
        return has_own_job | ((state.num_rounds >= self.burst) & was_undecodable)

    def oldest_is_decodable(self, state: Repeated) -> jax.Array:
        """bool[]: whether the job of `burst` rounds ago, if there is one, can be decoded."""
        return (state.num_rounds < self.burst) | (self.num_tasks(state) >= self.num_needed)
