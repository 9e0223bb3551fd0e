"""Sequential gradient codes: every job can be decoded in time, whoever is late (Krishnan et al. 2023).

In each round workers answer or are late; the server ends a round when those who are late conform with the (B, W,
λ)-bursty model in the last W rounds: at most λ workers are late in them, each within B rounds in a row. How long
anybody takes, and the patience with those who need not be waited for, is left open. Rounds are not counted beyond the
first few, and jobs are forgotten when they are to be decoded.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, is_own_entry
from gcjax.specifications.events import COMMIT, MESSAGE, SEND, Event


class Repeated(NamedTuple):
    """The state of SR-SGC, rows by age, the latest first.

    Attributes:
      index: int[], the rounds that have ended.
      answered: int[W], who has answered in this round.
      late: int[window - 1, W], who was late in the rounds before.
      given: int[B, W], who has given the task of a job in its own round.
    """

    index: Numbers
    answered: Numbers
    late: Numbers
    given: Numbers


class Multiplexed(NamedTuple):
    """The state of M-SGC, rows by the age of the job.

    Attributes:
      index: int[], the rounds that have ended.
      answered: int[W], who has answered in this round.
      late: int[window - 1, W], who was late in the rounds before, the latest first.
      plain: int[window - 1 + B, W], the uncoded parts that each has done.
      shares: int[window - 1 + B, B, W], who has done its share of which coded part.
    """

    index: Numbers
    answered: Numbers
    late: Numbers
    plain: Numbers
    shares: Numbers


class Scheme(NamedTuple):
    """What the schemes differ in.

    Attributes:
      burst: B.
      max_slow: λ.
      delay: after so many rounds a job must be decodable.
      load: the units of a worker in a round.
      next_round: `state -> state`, at the end of a round.
      in_time: `state -> bool[]`, whether the job that must be decodable now is so.
      tasks: `(state, job) -> int[]`, the work for a job, if a round ends in this state.
      own_tasks: the work for a job in its own round, if this has just ended.
    """

    burst: int
    max_slow: int
    delay: int
    load: int
    next_round: Callable[[Any], Any]
    in_time: Callable[[Any], jax.Array]
    tasks: Callable[[Any, jax.Array], jax.Array]
    own_tasks: Callable[[Any, jax.Array], jax.Array] = lambda state, job: jnp.asarray(-1)

    def end_round(self, state: Any, server: jax.Array) -> tuple[Any, jax.Array]:
        """The state after the round, and whether it may end: who is late now conforms with the bursty model.

        Nobody may be late again B or more rounds after being late in the window, and at most λ different workers in it.
        """
        is_late, was_late = state.answered == 0, state.late.any(axis=0)  # in this round, in one of those before
        # Rows of `late` are rounds, the last one first: whoever was late B or more rounds ago.
        must_answer = state.late[self.burst - 1 :].any(axis=0)
        num_newly_late = (is_late & ~was_late).sum()
        conforms = ~(is_late & must_answer).any() & (num_newly_late <= self.max_slow - was_late.sum())
        return self.next_round(state), conforms

    def server_rule(self, before: Any, after: Any, server: jax.Array) -> jax.Array:
        """bool[]: whether a round ends with those late that the model allows, and the next state is the program's."""
        late = jnp.concatenate([1 - before.answered[None], before.late])  # [window, W], the latest round first
        age = jnp.arange(late.shape[0])[:, None]  # rounds since each of them
        min_age = jnp.min(jnp.where(late == 1, age, late.shape[0]), axis=0)
        max_age = jnp.max(jnp.where(late == 1, age, -1), axis=0)
        conforms = (max_age - min_age < self.burst).all() & (late.any(axis=0).sum() <= self.max_slow)
        is_expected = [(x == y).all() for x, y in zip(after, self.next_round(before), strict=True)]
        return conforms & jnp.stack(is_expected).all()

    def step_property(self, before: Any, after: Any, component: jax.Array) -> jax.Array:
        """bool[]: whether no round ends before the job that must be decodable then is so."""
        return (after.index == before.index) | self.in_time(before)

    def answers(self, before: Any, after: Any, event: Event) -> jax.Array:
        """bool[]: whether the message is the worker's first answer in this round, which is number `before.index`.

        Round r has the units r * load, ..., (r + 1) * load - 1.
        """
        is_first = (before.answered[event.worker] == 0) & (after.answered[event.worker] == 1)
        return (event.unit // self.load == before.index) & is_first

    def is_send_after_round(self, before: Any, after: Any, event: Event) -> jax.Array:
        """bool[]: whether the message is one of the round that begins with the step; a round takes `load` units."""
        return event.unit // self.load == after.index

    def is_commit_of_event(self, before: Any, after: Any, event: Event) -> jax.Array:
        """bool[]: whether the round that the step ends, or that has just ended, commits the event's job.

        Job j begins in round j, so its first unit is `j * load`; the work done for it must be that of the event.
        """
        ends_now = (after.index == before.index + 1) & (before.answered.sum() > 0)
        ended_before = (after.index == before.index) & (before.answered.sum() == 0)
        job = event.unit // self.load
        is_of_tasks = self.tasks(before, job) == event.size
        return (ends_now & is_of_tasks) | (ended_before & (self.own_tasks(before, job) == event.size))


@comparable
def sr_sgc(num_workers: int = 3, *, burst: int = 1, window: int = 2, max_slow: int = 1) -> Specification:
    """SR-SGC: every job can be decoded B rounds after it began.

    A job can be decoded if all but s = ceil(B λ / (W - 1 + B)) workers have given their task, in its own round or B
    rounds later.

    Args:
      num_workers: n.
      burst: B, a divisor of W - 1.
      window: W, above B.
      max_slow: λ, at most n.
    """
    _check_parameters(num_workers, burst, window, max_slow)
    if (window - 1) % burst:
        raise ValueError(f"sr_sgc needs a burst that divides window - 1; got burst={burst}, window={window}.")
    num_needed = num_workers + (-burst * max_slow // (window - 1 + burst))  # n - s

    load = num_workers - num_needed + 1

    rounds = _SelectiveRepeat(burst, num_needed, load)
    scheme = Scheme(
        burst=burst,
        max_slow=max_slow,
        delay=burst,
        load=load,
        next_round=rounds.next_round,
        in_time=rounds.in_time,
        tasks=rounds.tasks,
        own_tasks=rounds.own_tasks,
    )
    shapes = num_workers, (window - 1, num_workers), (burst, num_workers)
    first = Repeated(np.int32(0), *(np.zeros(shape, np.int32) for shape in shapes))
    return _rounds_specification(
        f"sr_sgc({num_workers} workers, burst {burst}, window {window}, {max_slow} late)", first, scheme
    )


@comparable
def m_sgc(num_workers: int = 3, *, burst: int = 1, window: int = 2, max_slow: int = 1) -> Specification:
    """M-SGC: every job can be decoded W - 2 + B rounds after it began.

    A job can be decoded if all have done their W - 1 uncoded parts, and all but λ their share of each coded part.

    Args:
      num_workers: n.
      burst: B, below W.
      window: W.
      max_slow: λ, at most n.
    """
    _check_parameters(num_workers, burst, window, max_slow)
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
    specification = _rounds_specification(name, first, scheme)
    return specification._replace(sizes=specification.sizes._replace(plain=np.full(shapes[2], window)))


def _rounds_specification(name: str, first: Any, scheme: Scheme) -> Specification:
    """The specification of a scheme; `first` is its first state, in which each array but `index` is of zeros."""
    num_workers, state_type, delay = first.answered.size, type(first), scheme.delay
    ends = Action("end round", scheme.end_round, SEND, scheme.is_send_after_round)
    commits = Action("end round and commit", scheme.end_round, COMMIT, scheme.is_commit_of_event)
    return Specification(
        name,
        num_workers,
        initial=first,
        sizes=state_type(*(np.full(np.shape(x), 2) for x in first))._replace(index=delay + 1),
        worker=Role(
            (Action("answer", _answer, MESSAGE, scheme.answers),),
            lambda worker: state_type(*(False,) * len(first))._replace(answered=is_own_entry(num_workers, worker)),
            lambda before, after, worker: (before.answered[worker] == 0) & (after.answered[worker] == 1),
        ),
        claim=f"every job can be decoded {delay} round{'s' * (delay > 1)} after it began",
        server=Role(
            (ends, commits), lambda server: state_type(*(True,) * len(first)), scheme.server_rule, only_actions=True
        ),
        num_servers=1,
        step_property=scheme.step_property,
        canonicalise=lambda state: state._replace(index=jnp.minimum(state.index, delay)),
    )


class _SelectiveRepeat(NamedTuple):
    """Rounds of SR-SGC, in which `num_needed` tasks, of `load` chunks each, decode a job; `burst` is B."""

    burst: int
    num_needed: int
    load: int

    def repeats(self, state: Repeated) -> jax.Array:
        """bool[W]: who repeats, in this round, the task of the job of B rounds ago, that is of row -1 of `given`."""
        has_given = state.given[-1] == 1
        has_not_given = ~has_given & (state.index >= self.burst)  # there is no such job in the first B rounds
        # Only the first so many as are needed.
        return has_not_given & (jnp.cumsum(has_not_given) <= self.num_needed - has_given.sum())

    def own_answers(self, state: Repeated) -> jax.Array:
        """bool[W]: who has answered with the task of this round's job."""
        return (state.answered == 1) & ~self.repeats(state)

    def next_round(self, state: Repeated) -> Repeated:
        """The state at the beginning of the next round."""
        given, answered = _with_new_first_row(state.given, self.own_answers(state)), jnp.zeros_like(state.answered)
        return Repeated(index=state.index + 1, answered=answered, late=_late_after_round(state), given=given)

    def num_tasks(self, state: Repeated) -> jax.Array:
        """int[]: how many tasks there are for the job of B rounds ago, at the end of this round."""
        return ((state.given[-1] == 1) | ((state.answered == 1) & self.repeats(state))).sum()

    def tasks(self, state: Repeated, job: jax.Array) -> jax.Array:
        """int[]: the chunks done for this round's job, or that of B rounds ago, at its end; negative for other jobs."""
        num_old_job_tasks = jnp.where(job == state.index - self.burst, self.num_tasks(state), -1)
        return self.load * jnp.where(job == state.index, self.own_answers(state).sum(), num_old_job_tasks)

    def own_tasks(self, state: Repeated, job: jax.Array) -> jax.Array:
        """int[]: the chunks done for the job of the round that has just ended; -1 for other jobs."""
        return jnp.where(job == state.index - 1, self.load * state.given[0].sum(), -1)

    def in_time(self, state: Repeated) -> jax.Array:
        """bool[]: whether the job of B rounds ago, if there is one, can be decoded."""
        return (state.index < self.burst) | (self.num_tasks(state) >= self.num_needed)


class _Multiplex(NamedTuple):
    """Rounds of M-SGC: n workers, B, W and λ. A job is worked on for `slots` rounds, its age is how many have ended."""

    num_workers: int
    burst: int
    window: int
    max_slow: int

    @property
    def slots(self) -> int:
        """int: the rounds that a job is worked on, which is also the number of jobs that are worked on in a round."""
        return self.window - 1 + self.burst

    @property
    def has_coded_parts(self) -> bool:
        """Whether there are coded parts."""
        return self.max_slow < self.num_workers

    @property
    def size(self) -> int:
        """int: the chunks of a task, which is one worker's part of one job in one round."""
        return self.max_slow + 1 if self.has_coded_parts else 1

    def parts_after_round(self, state: Multiplexed) -> tuple[jax.Array, jax.Array]:
        """`plain` int[slots, W] and `shares` int[slots, B, W], with what has been answered in this round.

        In one round a worker does a part of the job of each age: an uncoded one in the first W - 1 rounds, and then an
        uncoded one that it still owes, or its share of a coded part.
        """
        age, coded_part = np.arange(self.slots)[:, None], np.arange(self.burst)
        is_plain = (age < self.window - 1) | (state.plain < self.window - 1)
        # Jobs older than the first round do not exist.
        is_done = (age <= state.index) & (is_plain | self.has_coded_parts) & (state.answered == 1)[None]
        # The job of age window - 1 + b is at its coded part b.
        done_shares = (is_done & ~is_plain)[self.window - 1 :].astype(jnp.int32)
        shares = state.shares.at[self.window - 1 + coded_part, coded_part].set(done_shares)
        return state.plain + (is_done & is_plain), shares

    def next_round(self, state: Multiplexed) -> Multiplexed:
        """The state at the beginning of the next round; all jobs are one round older, and a new one begins."""
        plain, shares = self.parts_after_round(state)
        return Multiplexed(
            index=state.index + 1,
            answered=jnp.zeros_like(state.answered),
            late=_late_after_round(state),
            plain=_with_new_first_row(plain, jnp.zeros_like(plain[0])),
            shares=_with_new_first_row(shares, jnp.zeros_like(shares[0])),
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


def _answer(state: Any, worker: jax.Array) -> tuple[Any, jax.Array]:
    """The state in which the worker has answered in this round, and whether it had not."""
    return state._replace(answered=state.answered.at[worker].set(1)), state.answered[worker] == 0


def _late_after_round(state: Any) -> jax.Array:
    """int[window - 1, W]: who was late in the last rounds, that which now ends first."""
    return _with_new_first_row(state.late, 1 - state.answered)


def _with_new_first_row(rows: jax.Array, row: jax.Array) -> jax.Array:
    """The rows [n, ...] with `row` in front of them, without the last one: as many as before."""
    return jnp.concatenate([row[None].astype(rows.dtype), rows])[: rows.shape[0]]


def _check_parameters(num_workers: int, burst: int, window: int, max_slow: int) -> None:
    """Raises `ValueError` for parameters that no sequential code has."""
    check_num_workers(num_workers)
    _validate.integer("window", window, minimum=2)
    _validate.integer("burst", burst, minimum=1, maximum=window - 1, hint="A burst is shorter than the window.")
    _validate.integer("max_slow", max_slow, maximum=num_workers, hint="No more workers can be late than there are.")
