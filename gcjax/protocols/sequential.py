"""Sequential gradient coding (Krishnan, Ebrahimi, Khisti, ICLR 2023, arXiv 2211.13802): rounds that make up for others.

Job t begins in round t. What stragglers missed in it is done again in later rounds, so a job may end up to T rounds
after it began, and a code needs far less redundancy than if every round had to stand for itself. Rounds follow each
other without waiting for the jobs: job t is computed on the parameters that are there when its round begins, so its
commit is stale by the jobs that have ended since. (The paper trains T + 1 models one after the other, so that none is
stale; the times are the same.)

The waiting rule of both schemes: a round stops at `(1 + μ)` times the time of the fastest worker. If the workers
that are late then would break the (B, W, λ)-bursty model in the window up to this round, the server waits on, until
those that are still late conform. So every job ends in time, whatever the durations. A worker that must be waited for
and has failed (inf) stops the run; one whose failure conforms does not.

Letters: n workers, B the burst, W the window, λ the most stragglers in a window, K units of a worker in a round.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate, specifications
from gcjax.codes.base import GradientCode
from gcjax.codes.multi_message import clustered
from gcjax.codes.replication import cyclic_repetition, fractional_repetition
from gcjax.codes.side_by_side import side_by_side
from gcjax.codes.uncoded import uncoded
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol
from gcjax.protocols.schedule import Schedule, record
from gcjax.protocols.simulation.stopped_rounds import by_unit, stopped_rounds, units_of_rounds
from gcjax.stragglers.network import Network


class Bursts(NamedTuple):
    """The straggler model that a scheme is made for: (B, W, λ), and the patience μ of its server."""

    burst: int
    window: int
    max_slow: int
    patience: float


class Rounds(NamedTuple):
    """What the rounds gave, for jobs 0, 1, ...

    Attributes:
      after: int32[R], how many rounds after its own a job can be decoded; -1 if in none that was sampled.
      work: int32[R, C], the progress toward each job.
      seconds: float[R], when each round was stopped.
      finish: float[R, K, n], when units end, from the beginning of the round.
      held: bool[R, K, n], which units there are.
      answered: bool[R, n], who is not a straggler.
    """

    after: jax.Array
    work: jax.Array
    seconds: jax.Array
    finish: jax.Array
    held: jax.Array
    answered: jax.Array


@comparable
def sr_sgc(
    num_workers: int,
    *,
    burst: int,
    window: int,
    max_slow: int,
    patience: float = 1.0,
    rng_key: jax.Array | None = None,
) -> Protocol:
    """Selective-repeat sequential gradient coding: tasks that too few returned are repeated B rounds later.

    An (n, s) gradient code with s = ceil(B λ / (W - 1 + B)): fractional repetition if s + 1 divides n, otherwise cyclic
    repetition. If more than s workers did not return their task of job t - B in round t - B, as many of them as are
    missing for n - s repeat it in round t, instead of working on job t. Delay T = B, load (s + 1) / n (Krishnan et al.
    2023, section 3.2). K = s + 1 units a round.

    Args:
      num_workers: n.
      burst: B, a divisor of W - 1.
      window: W, above B.
      max_slow: λ, at most n.
      patience: μ, 0 or more: how much longer than the fastest worker others may take before they count as late.
      rng_key: draws the coefficients of cyclic repetition.

    Raises:
      ValueError: if B does not divide W - 1, or a parameter is out of its range, or a key is needed.
    """
    bursts = _check_parameters(num_workers, burst, window, max_slow, patience)
    if (window - 1) % burst:
        near = (window - 1) // burst * burst + 1
        raise ValueError(
            f"sr_sgc needs a burst that divides window - 1; got burst={burst}, window={window}. "
            f"Use window={near if near > burst else near + burst} or {near + burst}."
        )
    tolerated = -(-burst * max_slow // (window - 1 + burst))
    code = _repetition(num_workers, tolerated, rng_key)
    scheme = _SelectiveRepeat(bursts, num_workers, min_answers=num_workers - tolerated, load=code.assignment.load)
    protocol = _protocol(code, num_workers, code.assignment.load, 1, 2 * burst, scheme.rounds)
    return protocol._replace(specification=_promise(specifications.sr_sgc, bursts))


@comparable
def m_sgc(
    num_workers: int,
    *,
    burst: int,
    window: int,
    max_slow: int,
    patience: float = 1.0,
    rng_key: jax.Array | None = None,
) -> Protocol:
    """Multiplexed sequential gradient coding: most of a job is only repeated when it was missed, and little is coded.

    A job's data fall into n (W - 1) uncoded parts, W - 1 for each worker, and B parts that an (n, λ) gradient code
    covers each. In every round a worker does one task for each of the W - 1 + B jobs in flight: for the W - 1 youngest
    an uncoded part; for the older ones an uncoded part that it still owes, or else its share of the coded part of that
    age. With λ = n nothing is coded. Delay T = W - 2 + B, load `(λ+1)(W-1+B) / (n (B + (W-1)(λ+1)))` (Krishnan et al.
    2023, section 3.3).

    All chunks are of one size here: an uncoded part is λ + 1 chunks, as is the share of a coded part, so that all tasks
    take as long; K = (W - 1 + B)(λ + 1) units a round, those of jobs that do not exist skipped. In the code each worker
    counts B + 1 times: once for its uncoded parts, and once for each coded part.

    Args:
      num_workers: n.
      burst: B, below W.
      window: W.
      max_slow: λ, at most n.
      patience: μ, 0 or more: how much longer than the fastest worker others may take before they count as late.
      rng_key: draws the coefficients where the coded parts need cyclic repetition.

    Raises:
      ValueError: if a parameter is out of its range, or a key is needed.
    """
    bursts = _check_parameters(num_workers, burst, window, max_slow, patience)
    coded, size, slots = max_slow < num_workers, max_slow + 1 if max_slow < num_workers else 1, window - 1 + burst
    parts = [uncoded(num_workers, load=(window - 1) * size)]
    if coded:
        parts.append(clustered(_repetition(num_workers, max_slow, rng_key), num_clusters=burst))
    code = side_by_side(*parts)
    scheme = _Multiplex(bursts, num_workers, slots, size)
    protocol = _protocol(code, num_workers, slots * size, burst + 1 if coded else 1, slots - 1, scheme.rounds)
    return protocol._replace(specification=_promise(specifications.m_sgc, bursts))


class _SelectiveRepeat(NamedTuple):
    """Rounds of SR-SGC; a job can be decoded from the tasks of so many workers, of so many units each."""

    bursts: Bursts
    num_workers: int
    min_answers: int
    load: int

    def step(self, state: tuple[jax.Array, jax.Array], given_round: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
        """One round of a scan: the state after it, and what it gave."""
        history, given = state  # bool[W - 1, n], who was late; bool[B, n], who gave their own task; the latest first
        index, delay = given_round
        missing = self.min_answers - given[-1].sum(dtype=jnp.int32)
        lacking = ~given[-1] & (index >= self.bursts.burst)
        repeats = lacking & (jnp.cumsum(lacking, dtype=jnp.int32) <= missing)
        stop, late = _wait(self.bursts, history, delay)
        own, again = ~late & ~repeats, ~late & repeats
        return (_shifted(history, late), _shifted(given, own)), (stop, late, own, again)

    def rounds(self, units: jax.Array, receive: jax.Array) -> Rounds:
        """What all rounds give, from the seconds of their units [R, K, n] and of receiving [n]."""
        finish = receive[None, None] + jnp.cumsum(units, axis=1)
        number = finish.shape[0]
        initial = (
            jnp.zeros((self.bursts.window - 1, self.num_workers), bool),
            jnp.zeros((self.bursts.burst, self.num_workers), bool),
        )
        seconds, late, own, again = jax.lax.scan(self.step, initial, (jnp.arange(number), finish[:, -1]))[1]
        later = jnp.pad(again, ((0, self.bursts.burst), (0, 0)))[self.bursts.burst :]
        at_once = own.sum(axis=1) >= self.min_answers
        enough = ((own | later).sum(axis=1) >= self.min_answers) & (jnp.arange(number) + self.bursts.burst < number)
        done = own | (later & ~at_once[:, None])
        after = jnp.where(at_once, 0, jnp.where(enough, self.bursts.burst, -1)).astype(jnp.int32)
        work = self.load * done.astype(jnp.int32)
        return Rounds(
            after=after, work=work, seconds=seconds, finish=finish, held=jnp.ones(finish.shape, bool), answered=~late
        )


class _Multiplex(NamedTuple):
    """Rounds of M-SGC: so many jobs in flight, whose tasks are so many chunks each."""

    bursts: Bursts
    num_workers: int
    slots: int
    size: int

    @property
    def coded(self) -> bool:
        """Whether there are coded parts."""
        return self.bursts.max_slow < self.num_workers

    def step(self, state: tuple[jax.Array, ...], given_round: tuple[jax.Array, ...]) -> tuple[Any, Any]:
        """One round of a scan: the state after it, and what it gave."""
        history, plain, shares = state  # plain int32[slots, n], shares bool[slots, B, n], of the job of each age
        index, units, receive = given_round
        age, group = jnp.arange(self.slots, dtype=jnp.int32), jnp.arange(self.bursts.burst)
        owes = (age < self.bursts.window - 1)[:, None] | (plain < self.bursts.window - 1)
        is_due = (age <= index)[:, None] & (owes | self.coded)
        held = jnp.repeat(is_due, self.size, axis=0)
        finish = receive[None] + jnp.cumsum(jnp.where(held, units, 0), axis=0)
        stop, late = _wait(self.bursts, history, finish[-1])
        done = is_due & ~late[None]
        plain = plain + (done & owes).astype(jnp.int32)
        shares = shares.at[self.bursts.window - 1 + group, group].set((done & ~owes)[self.bursts.window - 1 :])
        old = plain[-1], shares[-1]
        state = (
            _shifted(history, late),
            _shifted(plain, jnp.zeros_like(late)),
            _shifted(shares, jnp.zeros_like(shares[0])),
        )
        return state, (stop, late, finish, held, *old)

    def rounds(self, units: jax.Array, receive: jax.Array) -> Rounds:
        """What all rounds give, from the seconds of their units [R, K, n] and of receiving [n]."""
        number = units.shape[0]
        initial = (
            jnp.zeros((self.bursts.window - 1, self.num_workers), bool),
            jnp.zeros((self.slots, self.num_workers), jnp.int32),
            jnp.zeros((self.slots, self.bursts.burst, self.num_workers), bool),
        )
        receives = jnp.broadcast_to(receive[None], (number, self.num_workers))
        inputs = jnp.arange(number, dtype=jnp.int32), units, receives
        seconds, late, finish, held, plain, shares = jax.lax.scan(self.step, initial, inputs)[1]
        delay = self.slots - 1
        whole = (plain == self.bursts.window - 1).all(axis=1)
        if self.coded:
            whole &= (shares.sum(axis=2) >= self.num_workers - self.bursts.max_slow).all(axis=1)
        work = jnp.concatenate([plain, shares.reshape(number, -1).astype(jnp.int32)], axis=1) if self.coded else plain
        after = jnp.where(jnp.pad(whole, (0, delay))[delay:], delay, -1).astype(jnp.int32)
        work = self.size * jnp.pad(work, ((0, delay), (0, 0)))[delay:]
        return Rounds(after=after, work=work, seconds=seconds, finish=finish, held=held, answered=~late)


def _promise(
    promised: Callable[..., specifications.Specification], bursts: Bursts
) -> Callable[[int], specifications.Specification]:
    given = {"burst": bursts.burst, "window": bursts.window, "max_slow": bursts.max_slow}
    return lambda num_workers: promised(num_workers, **given)


def _protocol(
    code: GradientCode, num_workers: int, num_units: int, num_messages: int, max_staleness: int,
    rounds: Callable[[jax.Array, jax.Array], Rounds],
) -> Protocol:  # fmt: skip
    """The protocol of rounds of so many units, in each of which a worker sends so many messages of d numbers."""

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        _check_durations(durations, num_workers, num_units)
        units = units_of_rounds(durations, num_units)
        number = units.shape[0]
        job = jnp.arange(number, dtype=jnp.int32)
        given = rounds(units, network.received(jnp.zeros(num_workers, units.dtype)))
        done = given.held & (given.finish <= given.seconds[:, None, None]) & jnp.isfinite(given.finish)
        size = num_messages * (given.answered & jnp.isfinite(given.seconds)[:, None]).astype(units.dtype)
        timeline, end = stopped_rounds(given.finish, given.held, done, given.seconds, size, network, durations.shape[0])
        ends_in = jnp.where(given.after >= 0, job + given.after, number)  # the round; times of several can be the same
        order = jnp.argsort(ends_in, stable=True)
        ends_in = ends_in[order]
        version = jnp.searchsorted(ends_in, job, side="left").astype(jnp.int32)  # the commits of earlier rounds
        return record(
            timeline,
            time=jnp.append(end, jnp.inf)[ends_in],
            worker=jnp.broadcast_to(jnp.arange(code.assignment.num_workers) % num_workers, given.work.shape),
            unit=(job * num_units)[order][:, None],
            work=given.work[order],
            weight=1.0 / code.assignment.num_chunks,
            read=by_unit(jnp.broadcast_to(version[:, None, None], units.shape), durations.shape[0], -1),
        )

    return Protocol(schedule, code, max_staleness=lambda _: max_staleness, round_units=num_units)


def _wait(bursts: Bursts, history: jax.Array, delay: jax.Array) -> tuple[jax.Array, jax.Array]:
    """When a round stops, and who is late then, so that the pattern up to this round conforms.

    Args:
      bursts: the model.
      history: bool[W - 1, n], who was late in the rounds before, the latest first.
      delay: float[n] seconds, when each worker would be done.
    """
    known = history.any(axis=0)
    must = history[bursts.burst - 1 :].any(axis=0)  # late again would make its burst too long
    room = bursts.max_slow - known.sum(dtype=jnp.int32)  # so many others may be late
    others = jnp.sort(jnp.where(known, -jnp.inf, delay))[::-1]
    needed = jnp.where(room < delay.size, others[room.clip(0, delay.size - 1)], -jnp.inf)
    stop = jnp.maximum((1 + bursts.patience) * delay.min(), jnp.max(jnp.where(must, delay, -jnp.inf)))
    stop = jnp.minimum(jnp.maximum(stop, needed), delay.max())
    return stop, delay > stop


def _shifted(rows: jax.Array, row: jax.Array) -> jax.Array:
    """As many rows, with a new one in front."""
    return jnp.concatenate([row[None].astype(rows.dtype), rows])[: rows.shape[0]]


def _repetition(num_workers: int, tolerated: int, rng_key: jax.Array | None) -> GradientCode:
    if num_workers % (tolerated + 1) == 0:
        return fractional_repetition(num_workers, num_stragglers=tolerated)
    if rng_key is None:
        raise ValueError(
            f"a sequential code for {num_workers} workers and {tolerated} stragglers a round needs rng_key, since "
            f"{tolerated + 1} does not divide {num_workers}. Pass rng_key=jax.random.key(0)."
        )
    return cyclic_repetition(num_workers, num_stragglers=tolerated, rng_key=rng_key)


def _check_parameters(num_workers: int, burst: int, window: int, max_slow: int, patience: float) -> Bursts:
    _validate.integer("num_workers", num_workers, minimum=1)
    _validate.integer("window", window, minimum=2)
    _validate.integer("burst", burst, minimum=1, maximum=window - 1, hint="A burst is shorter than the window.")
    _validate.integer(
        "max_slow", max_slow, minimum=0, maximum=num_workers, hint="No more workers can be late than there are."
    )
    _validate.number("patience", patience, finite=True)
    return Bursts(burst, window, max_slow, float(patience))


def _check_durations(durations: jax.Array, num_workers: int, num_units: int) -> None:
    if durations.shape[1] != num_workers or durations.shape[0] < num_units:
        raise ValueError(
            f"durations must have {num_workers} columns, one a worker, and at least {num_units} units, those of a "
            f"round; got shape {durations.shape}." + _validate.transposed(durations.shape, num_workers)
        )
