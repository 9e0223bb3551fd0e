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
        """As the server finds out: nobody who must be waited for is late, and not too many others."""
        late = state.answered == 0
        known = state.late.any(axis=0)
        must = state.late[self.burst - 1 :].any(axis=0)
        conforms = ~(late & must).any() & ((late & ~known).sum() <= self.max_slow - known.sum())
        return self.next_round(state), conforms

    def server_rule(self, before: Any, after: Any, server: jax.Array) -> jax.Array:
        """A round ends with those late that the model allows; the books are kept as the program does."""
        late = jnp.concatenate([1 - before.answered[None], before.late])  # [window, W], the latest round first
        age = jnp.arange(late.shape[0])[:, None]
        youngest = jnp.min(jnp.where(late == 1, age, late.shape[0]), axis=0)
        oldest = jnp.max(jnp.where(late == 1, age, -1), axis=0)
        allowed = (oldest - youngest < self.burst).all() & (late.any(axis=0).sum() <= self.max_slow)
        books = [(x == y).all() for x, y in zip(after, self.next_round(before), strict=True)]
        return allowed & jnp.stack(books).all()

    def step_property(self, before: Any, after: Any, component: jax.Array) -> jax.Array:
        """Whether no round ends before the job that must be decodable then is so."""
        return (after.index == before.index) | self.in_time(before)

    def answers(self, before: Any, after: Any, event: Event) -> jax.Array:
        """bool[]: whether the message is the worker's answer in this round, its first one."""
        is_first = (before.answered[event.worker] == 0) & (after.answered[event.worker] == 1)
        return (event.unit // self.load == before.index) & is_first

    def ended(self, before: Any, after: Any, event: Event) -> jax.Array:
        """Whoever sends the message of the next round has seen this one end."""
        return event.unit // self.load == after.index

    def committed(self, before: Any, after: Any, event: Event) -> jax.Array:
        """The round ends, or has just ended, in which the job can be decoded, with as much work as was answered."""
        ends = (after.index == before.index + 1) & (before.answered.sum() > 0)
        ended = (after.index == before.index) & (before.answered.sum() == 0)
        job = event.unit // self.load
        return (ends & (self.tasks(before, job) == event.size)) | (ended & (self.own_tasks(before, job) == event.size))


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
    needed = num_workers + (-burst * max_slow // (window - 1 + burst))

    load = num_workers - needed + 1

    rounds = _SelectiveRepeat(burst, needed, load)
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
    return _specification(
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
    specification = _specification(name, first, scheme)
    return specification._replace(sizes=specification.sizes._replace(plain=np.full(shapes[2], window)))


def _specification(name: str, first: Any, scheme: Scheme) -> Specification:
    """What both have in common, from the first state on."""
    num_workers, new, delay = first.answered.size, type(first), scheme.delay
    ends = Action("end round", scheme.end_round, SEND, scheme.ended)
    commits = Action("end round and commit", scheme.end_round, COMMIT, scheme.committed)
    return Specification(
        name,
        num_workers,
        initial=first,
        sizes=new(*(np.full(np.shape(x), 2) for x in first))._replace(index=delay + 1),
        worker=Role(
            (Action("answer", _answer, MESSAGE, scheme.answers),),
            lambda worker: new(*(False,) * len(first))._replace(answered=is_own_entry(num_workers, worker)),
            lambda before, after, worker: (before.answered[worker] == 0) & (after.answered[worker] == 1),
        ),
        claim=f"every job can be decoded {delay} round{'s' * (delay > 1)} after it began",
        server=Role((ends, commits), lambda server: new(*(True,) * len(first)), scheme.server_rule, only_actions=True),
        num_servers=1,
        step_property=scheme.step_property,
        canonicalise=lambda state: state._replace(index=jnp.minimum(state.index, delay)),
    )


class _SelectiveRepeat(NamedTuple):
    """Rounds of SR-SGC, in which so many tasks decode a job."""

    burst: int
    needed: int
    load: int

    def repeats(self, state: Repeated) -> jax.Array:
        """bool[W]: who repeats the task of the job of B rounds ago."""
        has_given = state.given[-1] == 1
        lacking = ~has_given & (state.index >= self.burst)
        return lacking & (jnp.cumsum(lacking) <= self.needed - has_given.sum())

    def own_answers(self, state: Repeated) -> jax.Array:
        """bool[W]: who has answered with the task of this round's job."""
        return (state.answered == 1) & ~self.repeats(state)

    def next_round(self, state: Repeated) -> Repeated:
        given, answered = _shifted(state.given, self.own_answers(state)), jnp.zeros_like(state.answered)
        return Repeated(index=state.index + 1, answered=answered, late=_late_after_round(state), given=given)

    def decoded(self, state: Repeated) -> jax.Array:
        """int[]: the tasks for the job of B rounds ago."""
        return ((state.given[-1] == 1) | ((state.answered == 1) & self.repeats(state))).sum()

    def tasks(self, state: Repeated, job: jax.Array) -> jax.Array:
        """int[]: those that there are for a job at the end of this round, in chunks."""
        repeated = jnp.where(job == state.index - self.burst, self.decoded(state), -1)
        return self.load * jnp.where(job == state.index, self.own_answers(state).sum(), repeated)

    def own_tasks(self, state: Repeated, job: jax.Array) -> jax.Array:
        """int[]: the tasks for the job of the round that has just ended, in chunks."""
        return jnp.where(job == state.index - 1, self.load * state.given[0].sum(), -1)

    def in_time(self, state: Repeated) -> jax.Array:
        """bool[]: whether the job of B rounds ago, if there is one, can be decoded."""
        return (state.index < self.burst) | (self.decoded(state) >= self.needed)


class _Multiplex(NamedTuple):
    """Rounds of M-SGC."""

    num_workers: int
    burst: int
    window: int
    max_slow: int

    @property
    def slots(self) -> int:
        """The jobs in flight."""
        return self.window - 1 + self.burst

    @property
    def coded(self) -> bool:
        """Whether there are coded parts."""
        return self.max_slow < self.num_workers

    @property
    def size(self) -> int:
        """The chunks of a task."""
        return self.max_slow + 1 if self.coded else 1

    def worked(self, state: Multiplexed) -> tuple[jax.Array, jax.Array]:
        """int[slots, W] and int[slots, B, W], after this round."""
        age, group = np.arange(self.slots)[:, None], np.arange(self.burst)
        owes = (age < self.window - 1) | (state.plain < self.window - 1)
        done = (age <= state.index) & (owes | self.coded) & (state.answered == 1)[None]
        shares = state.shares.at[self.window - 1 + group, group].set(
            (done & ~owes)[self.window - 1 :].astype(jnp.int32)
        )
        return state.plain + (done & owes), shares

    def next_round(self, state: Multiplexed) -> Multiplexed:
        plain, shares = self.worked(state)
        return Multiplexed(
            index=state.index + 1,
            answered=jnp.zeros_like(state.answered),
            late=_late_after_round(state),
            plain=_shifted(plain, jnp.zeros_like(plain[0])),
            shares=_shifted(shares, jnp.zeros_like(shares[0])),
        )

    def in_time(self, state: Multiplexed) -> jax.Array:
        plain, shares = self.worked(state)
        whole = (plain[-1] >= self.window - 1).all()
        if self.coded:
            whole &= (shares[-1].sum(axis=1) >= self.num_workers - self.max_slow).all()
        return (state.index < self.slots - 1) | whole

    def tasks(self, state: Multiplexed, job: jax.Array) -> jax.Array:
        """int[]: those that there are for a job at the end of this round, in chunks."""
        plain, shares = self.worked(state)
        total = plain[-1].sum() + (shares[-1].sum() if self.coded else 0)
        return self.size * jnp.where(job == state.index - (self.slots - 1), total, -1)


def _answer(state: Any, worker: jax.Array) -> tuple[Any, jax.Array]:
    return state._replace(answered=state.answered.at[worker].set(1)), state.answered[worker] == 0


def _late_after_round(state: Any) -> jax.Array:
    return _shifted(state.late, 1 - state.answered)


def _shifted(rows: jax.Array, row: jax.Array) -> jax.Array:
    """As many rows, with a new one in front."""
    return jnp.concatenate([row[None].astype(rows.dtype), rows])[: rows.shape[0]]


def _check_parameters(num_workers: int, burst: int, window: int, max_slow: int) -> None:
    check_num_workers(num_workers)
    _validate.integer("window", window, minimum=2)
    _validate.integer("burst", burst, minimum=1, maximum=window - 1, hint="A burst is shorter than the window.")
    _validate.integer("max_slow", max_slow, maximum=num_workers, hint="No more workers can be late than there are.")
