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
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, own
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


Move = Callable[[Any, jax.Array], tuple[Any, jax.Array]]


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

    def again(state: Repeated) -> jax.Array:
        """bool[W]: who repeats the task of the job of B rounds ago."""
        old = state.given[-1] == 1
        lacking = ~old & (state.index >= burst)
        return lacking & (jnp.cumsum(lacking) <= needed - old.sum())

    load = num_workers - needed + 1

    def move(state: Repeated, server: jax.Array) -> tuple[Repeated, jax.Array]:
        own_task = (state.answered == 1) & ~again(state)
        after = Repeated(
            state.index + 1, jnp.zeros_like(state.answered), _after_round(state), _shifted(state.given, own_task)
        )
        return after, _conforms(state, burst, max_slow)

    def decoded(state: Repeated) -> jax.Array:
        """int[]: the tasks for the job of B rounds ago."""
        return ((state.given[-1] == 1) | ((state.answered == 1) & again(state))).sum()

    def in_time(state: Repeated) -> jax.Array:
        return (state.index < burst) | (decoded(state) >= needed)

    def tasks(state: Repeated, job: jax.Array) -> jax.Array:
        """int[]: those that there are for a job at the end of this round, in chunks."""
        at_once = ((state.answered == 1) & ~again(state)).sum()
        return load * jnp.where(job == state.index, at_once, jnp.where(job == state.index - burst, decoded(state), -1))

    zero = np.int32(0)
    first = Repeated(
        zero, *(np.zeros(shape, np.int32) for shape in (num_workers, (window - 1, num_workers), (burst, num_workers)))
    )
    name = f"sr_sgc({num_workers} workers, burst {burst}, window {window}, {max_slow} late)"

    def own_tasks(state: Repeated, job: jax.Array) -> jax.Array:
        return jnp.where(job == state.index - 1, load * state.given[0].sum(), -1)

    return _specification(name, first, burst, burst, max_slow, move, in_time, load, tasks, own_tasks)


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
    slots, coded = window - 1 + burst, max_slow < num_workers
    age, group = np.arange(slots)[:, None], np.arange(burst)

    def worked(state: Multiplexed) -> tuple[jax.Array, jax.Array]:
        """int[slots, W] and int[slots, B, W], after this round."""
        owes = (age < window - 1) | (state.plain < window - 1)
        done = (age <= state.index) & (owes | coded) & (state.answered == 1)[None]
        shares = state.shares.at[window - 1 + group, group].set((done & ~owes)[window - 1 :].astype(jnp.int32))
        return state.plain + (done & owes), shares

    def move(state: Multiplexed, server: jax.Array) -> tuple[Multiplexed, jax.Array]:
        plain, shares = worked(state)
        fresh = jnp.zeros_like(state.answered), jnp.zeros_like(shares[0])
        after = Multiplexed(
            state.index + 1, fresh[0], _after_round(state), _shifted(plain, fresh[0]), _shifted(shares, fresh[1])
        )
        return after, _conforms(state, burst, max_slow)

    def in_time(state: Multiplexed) -> jax.Array:
        plain, shares = worked(state)
        whole = (plain[-1] >= window - 1).all()
        if coded:
            whole &= (shares[-1].sum(axis=1) >= num_workers - max_slow).all()
        return (state.index < slots - 1) | whole

    size = max_slow + 1 if coded else 1

    def tasks(state: Multiplexed, job: jax.Array) -> jax.Array:
        """int[]: those that there are for a job at the end of this round, in chunks."""
        plain, shares = worked(state)
        total = plain[-1].sum() + (shares[-1].sum() if coded else 0)
        return size * jnp.where(job == state.index - (slots - 1), total, -1)

    shapes = num_workers, (window - 1, num_workers), (slots, num_workers), (slots, burst, num_workers)
    first = Multiplexed(np.int32(0), *(np.zeros(shape, np.int32) for shape in shapes))
    name = f"m_sgc({num_workers} workers, burst {burst}, window {window}, {max_slow} late)"
    specification = _specification(name, first, slots - 1, burst, max_slow, move, in_time, slots * size, tasks)
    return specification._replace(sizes=specification.sizes._replace(plain=np.full(shapes[2], window)))


def _specification(
    name: str,
    first: Any,
    delay: int,
    burst: int,
    max_slow: int,
    move: Move,
    in_time: Callable[[Any], jax.Array],
    load: int,
    tasks: Callable[[Any, jax.Array], jax.Array],
    own_tasks: Callable[[Any, jax.Array], jax.Array] = lambda state, job: jnp.asarray(-1),
) -> Specification:
    """What both have in common.

    Args:
      name: of the protocol.
      first: the first state.
      delay: after so many rounds a job must be decodable.
      burst: B.
      max_slow: λ.
      move: the end of a round.
      in_time: whether the job that must be decodable now is so.
      load: the units of a worker in a round.
      tasks: `(state, job) -> int[]`, the work for a job, if a round ends in this state.
      own_tasks: the work for a job in its own round, if this has just ended.
    """
    num_workers, new = first.answered.size, type(first)

    def answer(state: Any, worker: jax.Array) -> tuple[Any, jax.Array]:
        return state._replace(answered=state.answered.at[worker].set(1)), state.answered[worker] == 0

    def frame(worker: jax.Array) -> Any:
        return new(*(False,) * len(first))._replace(answered=own(num_workers, worker))

    def worker_rule(before: Any, after: Any, worker: jax.Array) -> jax.Array:
        return (before.answered[worker] == 0) & (after.answered[worker] == 1)

    def server_rule(before: Any, after: Any, server: jax.Array) -> jax.Array:
        """A round ends with those late that the model allows; the books are kept as the program does."""
        rounds = jnp.concatenate([1 - before.answered[None], before.late])
        place = jnp.arange(rounds.shape[0])[:, None]
        youngest = jnp.min(jnp.where(rounds == 1, place, rounds.shape[0]), axis=0)
        oldest = jnp.max(jnp.where(rounds == 1, place, -1), axis=0)
        model = (oldest - youngest < burst).all() & (rounds.any(axis=0).sum() <= max_slow)
        books = [(x == y).all() for x, y in zip(after, move(before, server)[0], strict=True)]
        return model & jnp.stack(books).all()

    def step_property(before: Any, after: Any, component: jax.Array) -> jax.Array:
        return (after.index == before.index) | in_time(before)

    def answers(before: Any, after: Any, event: Event) -> jax.Array:
        first = (before.answered[event.worker] == 0) & (after.answered[event.worker] == 1)
        return (event.unit // load == before.index) & first

    def ended(before: Any, after: Any, event: Event) -> jax.Array:
        """Whoever sends the message of the next round has seen this one end."""
        return event.unit // load == after.index

    def committed(before: Any, after: Any, event: Event) -> jax.Array:
        """The round ends, or has just ended, in which the job can be decoded, with as much work as was answered."""
        ends = (after.index == before.index + 1) & (before.answered.sum() > 0)
        ended = (after.index == before.index) & (before.answered.sum() == 0)
        job = event.unit // load
        return (ends & (tasks(before, job) == event.size)) | (ended & (own_tasks(before, job) == event.size))

    return Specification(
        name,
        num_workers,
        initial=first,
        sizes=new(*(np.full(np.shape(x), 2) for x in first))._replace(index=delay + 1),
        worker=Role((Action("answer", answer, MESSAGE, answers),), frame, worker_rule),
        claim=f"every job can be decoded {delay} round{'s' * (delay > 1)} after it began",
        server=Role(
            (Action("end round", move, SEND, ended), Action("end round and commit", move, COMMIT, committed)),
            lambda server: new(*(True,) * len(first)),
            server_rule,
            only_actions=True,
        ),
        num_servers=1,
        step_property=step_property,
        canonicalise=lambda state: state._replace(index=jnp.minimum(state.index, delay)),
    )


def _conforms(state: Any, burst: int, max_slow: int) -> jax.Array:
    """As the server finds out: nobody who must be waited for is late, and not too many others."""
    late = state.answered == 0
    known = state.late.any(axis=0)
    must = state.late[burst - 1 :].any(axis=0)
    return ~(late & must).any() & ((late & ~known).sum() <= max_slow - known.sum())


def _after_round(state: Any) -> jax.Array:
    return _shifted(state.late, 1 - state.answered)


def _shifted(rows: jax.Array, row: jax.Array) -> jax.Array:
    """As many rows, with a new one in front."""
    return jnp.concatenate([row[None].astype(rows.dtype), rows])[: rows.shape[0]]


def _check_parameters(num_workers: int, burst: int, window: int, max_slow: int) -> None:
    check_num_workers(num_workers)
    _validate.integer("window", window, minimum=2)
    _validate.integer("burst", burst, minimum=1, maximum=window - 1, hint="A burst is shorter than the window.")
    _validate.integer("max_slow", max_slow, maximum=num_workers, hint="No more workers can be late than there are.")
