"""What the specifications of the sequential gradient codes share: rounds that end with those late that may be late.

They are `sr_sgc` and `m_sgc` (Krishnan et al. 2023): every job can be decoded in time, whoever is late. In each round
workers answer or are late; the server ends a round when those who are late conform with the bursty model in the last
`window` rounds: at most `max_slow` workers are late in them, each within `burst` rounds in a row. How long anybody
takes, and the tolerance towards those who need not be waited for, is left open. Rounds are not counted beyond the first
few, and jobs are forgotten when they are to be decoded.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.specifications.base import Action, Role, Specification, are_equal, check_num_workers
from gcjax.specifications.events import COMMIT, MESSAGE, SEND, Event
from gcjax.wording import counted


class SequentialCode(NamedTuple):
    """What the schemes differ in.

    Attributes:
      burst: the rounds within which all late ones of a worker in a window are.
      max_slow: the most workers that are late in a window.
      delay: after so many rounds a job must be decodable.
      load: the units of a worker in a round.
      state_of_next_round: `state -> state`, at the end of a round.
      oldest_is_decodable: `state -> bool[]`, whether the job that must be decodable now is so.
      units_of_job: `(state, job) -> int[]`, the units in the commit of a job, if a round ends in this state.
      has_new_job: `state -> bool[]`, whether a job can be decoded at the end of this round that could not before.
      units_of_ended_round: the units that a job has from its own round, if this has just ended.
    """

    burst: int
    max_slow: int
    delay: int
    load: int
    state_of_next_round: Callable[[Any], Any]
    oldest_is_decodable: Callable[[Any], jax.Array]
    units_of_job: Callable[[Any, jax.Array], jax.Array]
    has_new_job: Callable[[Any], jax.Array]
    units_of_ended_round: Callable[[Any, jax.Array], jax.Array] = lambda state, job: jnp.asarray(-1)

    def end_round(self, state: Any, server: jax.Array) -> tuple[Any, jax.Array]:
        """The state after the round, and whether it may end: who is late now conforms with the bursty model.

        Nobody may be late again `burst` or more rounds after being late in the window, and at most `max_slow` different
        workers are late in it. `num_answers int[W]` is 0 for the late ones of this round; `server` is the only one.
        """
        is_late, was_late_before = state.num_answers == 0, state.was_late.any(axis=0)  # in this round, in those before
        # Rows of `was_late` are rounds, the last one first: whoever was late `burst` or more rounds ago.
        must_answer = state.was_late[self.burst - 1 :].any(axis=0)
        num_newly_late = (is_late & ~was_late_before).sum()
        conforms_with_bursts = ~(is_late & must_answer).any() & (
            num_newly_late <= self.max_slow - was_late_before.sum()
        )
        return self.state_of_next_round(state), conforms_with_bursts

    def server_rule(self, before: Any, after: Any, server: jax.Array) -> jax.Array:
        """bool[]: whether a round ends with those late that the model allows, and the next state is the program's.

        Late are, in the last window of rounds, at most `max_slow` workers, each within `burst` rounds.
        """
        late = jnp.concatenate([1 - before.num_answers[None], before.was_late])  # [window, W], the latest round first
        rounds_ago = jnp.arange(late.shape[0])[:, None]
        # [W] each; of who was never late they are the window and -1, which passes.
        last_late = jnp.min(jnp.where(late == 1, rounds_ago, late.shape[0]), axis=0)
        first_late = jnp.max(jnp.where(late == 1, rounds_ago, -1), axis=0)
        late_within_burst = (first_late - last_late < self.burst).all()
        conforms = late_within_burst & (late.any(axis=0).sum() <= self.max_slow)
        return conforms & are_equal(after, self.state_of_next_round(before))

    def step_property(self, before: Any, after: Any, component: jax.Array) -> jax.Array:
        """bool[]: whether no round ends before the job that must be decodable then is so."""
        return (after.num_rounds == before.num_rounds) | self.oldest_is_decodable(before)

    def is_first_answer(self, before: Any, after: Any, event: Event) -> jax.Array:
        """bool[]: whether the message is the worker's first answer in this round, which is number `before.num_rounds`.

        Round r has the units r * load, ..., (r + 1) * load - 1; nobody answers who was cut off in one of them.
        """
        is_first = (before.num_answers[event.worker] == 0) & (after.num_answers[event.worker] == 1)
        is_whole = event.size > event.unit % self.load
        return (event.unit // self.load == before.num_rounds) & is_first & is_whole

    def is_send_after_round(self, before: Any, after: Any, event: Event) -> jax.Array:
        """bool[]: whether the message is one of the round that begins with the step; a round takes `load` units.

        The round before has ended without a commit, so with no job that can be decoded now.
        """
        ends_now = after.num_rounds == before.num_rounds + 1
        return (event.unit // self.load == after.num_rounds) & ~(ends_now & self.has_new_job(before))

    def is_commit_of_event(self, before: Any, after: Any, event: Event) -> jax.Array:
        """bool[]: whether the round that the step ends, or that has just ended, commits the event's job.

        Job j begins in round j, so its first unit is `j * load`. As many units must have been computed for it as the
        commit has taken, `event.size`. If a round has just ended, nobody has answered in the new one yet.
        """
        ends_now = (after.num_rounds == before.num_rounds + 1) & (before.num_answers.sum() > 0)
        ended_before = (after.num_rounds == before.num_rounds) & (before.num_answers.sum() == 0)
        job = event.unit // self.load
        same_units_at_end = self.units_of_job(before, job) == event.size
        is_ended_round = ended_before & (self.units_of_ended_round(before, job) == event.size)
        return (event.unit % self.load == 0) & ((ends_now & same_units_at_end) | is_ended_round)


def sequential_specification(name: str, initial_state: Any, code: SequentialCode) -> Specification:
    """The specification of a code; `initial_state` is all zeros, and has `num_rounds` and `num_answers int[W]`.

    Other fields are taken to be 0 or 1; rounds above `delay` count as `delay`. A round ends with or without a commit:
    the same step, shown by different events.
    """
    num_workers, state_type, delay = initial_state.num_answers.size, type(initial_state), code.delay
    answer = Action("answer", _answer, MESSAGE, code.is_first_answer)
    end_without_commit = Action("end round", code.end_round, SEND, code.is_send_after_round)
    end_with_commit = Action("end round and commit", code.end_round, COMMIT, code.is_commit_of_event)
    return Specification(
        name,
        num_workers,
        initial=initial_state,
        # How many values an entry has: two, but for the rounds.
        sizes=state_type(*(np.full(np.shape(x), 2) for x in initial_state))._replace(num_rounds=delay + 1),
        worker=Role.of_workers(
            state_type,
            num_workers,
            ("num_answers",),
            (answer,),
            rule=lambda before, after, worker: (before.num_answers[worker] == 0) & (after.num_answers[worker] == 1),
        ),
        claim=f"every job can be decoded {counted(delay, 'round')} after it began",
        server=Role.of_servers(state_type, state_type._fields, (end_without_commit, end_with_commit), code.server_rule),
        num_servers=1,
        step_property=code.step_property,
        canonicalise=lambda state: state._replace(num_rounds=jnp.minimum(state.num_rounds, delay)),
        only_counts_units=True,
    )


def _answer(state: Any, worker: jax.Array) -> tuple[Any, jax.Array]:
    """The state in which the worker has answered in this round, and whether it had not."""
    return state._replace(num_answers=state.num_answers.at[worker].set(1)), state.num_answers[worker] == 0


def late_after_round(state: Any) -> jax.Array:
    """int[window - 1, W]: who was late in the last rounds, that which now ends first."""
    return with_new_first_row(state.was_late, 1 - state.num_answers)


def with_new_first_row(rows: jax.Array, row: jax.Array) -> jax.Array:
    """As many rows as before, with this one in front; the last one is dropped."""
    return jnp.concatenate([row[None].astype(rows.dtype), rows])[: rows.shape[0]]


def check_parameters(num_workers: int, burst: int, window: int, max_slow: int) -> None:
    """Raises `ValueError` for parameters that no sequential code has."""
    check_num_workers(num_workers)
    window = _validate.integer("window", window, minimum=2)
    _validate.integer("burst", burst, minimum=1, maximum=window - 1, hint="A burst is shorter than the window.")
    _validate.integer("max_slow", max_slow, maximum=num_workers, hint="No more workers can be late than there are.")
