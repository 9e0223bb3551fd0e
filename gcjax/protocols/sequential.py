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
    """What happens in the R rounds, and when the jobs 0, 1, ..., which begin in them, can be decoded.

    Attributes:
      decoding_delay: int32[R], how many rounds after its own a job can be decoded; -1 if in none that was sampled.
      work: int32[R, C], the chunks of each job that are done, for each worker of the code.
      seconds: float[R], when each round was stopped, from its beginning.
      finish: float[R, K, n] seconds, when units end, from the beginning of the round.
      held: bool[R, K, n], which units there are.
      answered: bool[R, n], who is not a straggler.
    """

    decoding_delay: jax.Array
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
    load = code.assignment.load
    scheme = _SelectiveRepeat(bursts, num_workers, min_answers=num_workers - tolerated, load=load)
    # max_staleness: while job t is open, in rounds t to t + B at most, only the jobs t - B to t + B can end.
    protocol = _protocol(
        code, num_workers, num_units=load, num_messages=1, max_staleness=2 * burst, rounds=scheme.rounds
    )
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
    has_coded_parts = max_slow < num_workers
    task_size = max_slow + 1 if has_coded_parts else 1  # chunks, so that an uncoded part is as long as a coded share
    jobs_in_flight = window - 1 + burst
    codes = [uncoded(num_workers, load=(window - 1) * task_size)]
    if has_coded_parts:
        codes.append(clustered(_repetition(num_workers, max_slow, rng_key), num_clusters=burst))
    scheme = _Multiplex(bursts, num_workers, jobs_in_flight, task_size)
    protocol = _protocol(
        side_by_side(*codes),
        num_workers,
        num_units=jobs_in_flight * task_size,
        num_messages=burst + 1 if has_coded_parts else 1,
        max_staleness=jobs_in_flight - 1,
        rounds=scheme.rounds,
    )
    return protocol._replace(specification=_promise(specifications.m_sgc, bursts))


class _SelectiveRepeat(NamedTuple):
    """The rounds of SR-SGC.

    Attributes:
      bursts: the straggler model.
      num_workers: n.
      min_answers: of how many workers the tasks decode a job.
      load: the units of a task.
    """

    bursts: Bursts
    num_workers: int
    min_answers: int
    load: int

    def step(self, state: tuple[jax.Array, jax.Array], given_round: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
        """One round: those who are due repeat a task of the job that began B rounds before; the others do the new job.

        Args:
          state: the rounds before, the latest first: bool[W - 1, n], who was late, and bool[B, n], who did the task of
            the job that began in the round.
          given_round: the number of the round, and float[n] seconds, when each worker would be done.

        Returns:
          The state after it; and when the round stops, who is late then, who did the new task, who repeated one.
        """
        late_before, did_own_task = state
        index, delay = given_round
        num_missing = self.min_answers - did_own_task[-1].sum(dtype=jnp.int32)  # of the job that began B rounds before
        can_repeat = ~did_own_task[-1] & (index >= self.bursts.burst)
        repeats = can_repeat & (jnp.cumsum(can_repeat, dtype=jnp.int32) <= num_missing)  # as many as are missing
        stop, late = _stop_and_late(self.bursts, late_before, delay)
        did_own, did_repeat = ~late & ~repeats, ~late & repeats
        return (_with_row_in_front(late_before, late), _with_row_in_front(did_own_task, did_own)), (
            stop,
            late,
            did_own,
            did_repeat,
        )

    def rounds(self, units: jax.Array, receive: jax.Array) -> Rounds:
        """All rounds, of units that take `units float[R, K, n]` seconds, behind `receive float[n]` seconds.

        A job can be decoded in its own round if enough workers did its task then, otherwise B rounds later, if with
        those who repeated it then there are enough. What was repeated counts in this second case only.
        """
        finish = receive[None, None] + jnp.cumsum(units, axis=1)
        num_rounds, burst = finish.shape[0], self.bursts.burst
        initial = (
            jnp.zeros((self.bursts.window - 1, self.num_workers), bool),
            jnp.zeros((burst, self.num_workers), bool),
        )
        inputs = jnp.arange(num_rounds), finish[:, -1]
        seconds, late, did_own, did_repeat = jax.lax.scan(self.step, initial, inputs)[1]
        repeated = jnp.pad(did_repeat, ((0, burst), (0, 0)))[burst:]  # [job, n]: B rounds after the job began
        decodable_at_once = did_own.sum(axis=1) >= self.min_answers
        decodable_with_repeats = (did_own | repeated).sum(axis=1) >= self.min_answers
        decodable_with_repeats &= jnp.arange(num_rounds) + burst < num_rounds  # that round was sampled
        did_task = did_own | (repeated & ~decodable_at_once[:, None])
        delay = jnp.where(decodable_at_once, 0, jnp.where(decodable_with_repeats, burst, -1)).astype(jnp.int32)
        return Rounds(
            decoding_delay=delay,
            work=self.load * did_task.astype(jnp.int32),
            seconds=seconds,
            finish=finish,
            held=jnp.ones(finish.shape, bool),
            answered=~late,
        )


class _Multiplex(NamedTuple):
    """The rounds of M-SGC.

    Attributes:
      bursts: the straggler model.
      num_workers: n.
      jobs_in_flight: W - 1 + B, the rounds in which there is a task for a job; age a: it began a rounds before.
      task_size: the chunks of a task.
    """

    bursts: Bursts
    num_workers: int
    jobs_in_flight: int
    task_size: int

    @property
    def num_uncoded(self) -> int:
        """W - 1, the uncoded parts of a job that each worker has."""
        return self.bursts.window - 1

    @property
    def has_coded_parts(self) -> bool:
        """Whether a job has coded parts; not where all workers may be stragglers."""
        return self.bursts.max_slow < self.num_workers

    def step(self, state: tuple[jax.Array, ...], given_round: tuple[jax.Array, ...]) -> tuple[Any, Any]:
        """One round, in which a worker does one task for each job in flight.

        Args:
          state: bool[W - 1, n], who was late in the rounds before, the latest first; and of the job of each age
            int32[jobs_in_flight, n], how many uncoded parts each worker has done, and
            bool[jobs_in_flight, B, n], who has done its share of each coded part.
          given_round: the number of the round, float[K, n] the seconds of the units, and float[n] of receiving.

        Returns:
          The state after it; and when the round stops, who is late then, when the units end, which units there are,
          and what is done of the oldest job, which ends in this round: uncoded parts, and shares of coded parts.
        """
        late_before, uncoded_done, shares_done = state
        index, units, receive = given_round
        age, coded_part = jnp.arange(self.jobs_in_flight, dtype=jnp.int32), jnp.arange(self.bursts.burst)
        owes_uncoded = (age < self.num_uncoded)[:, None] | (uncoded_done < self.num_uncoded)
        is_due = (age <= index)[:, None] & (owes_uncoded | self.has_coded_parts)  # no job began before round 0
        held = jnp.repeat(is_due, self.task_size, axis=0)
        finish = receive[None] + jnp.cumsum(jnp.where(held, units, 0), axis=0)
        stop, late = _stop_and_late(self.bursts, late_before, finish[-1])
        done = is_due & ~late[None]
        uncoded_done = uncoded_done + (done & owes_uncoded).astype(jnp.int32)
        # Coded part b is the task of the job of age W - 1 + b, for those who owe no uncoded part.
        shares_done = shares_done.at[self.num_uncoded + coded_part, coded_part].set(
            (done & ~owes_uncoded)[self.num_uncoded :]
        )
        oldest_job = uncoded_done[-1], shares_done[-1]
        state = (  # in the next round every job is a round older, and a new one begins
            _with_row_in_front(late_before, late),
            _with_row_in_front(uncoded_done, jnp.zeros_like(late)),
            _with_row_in_front(shares_done, jnp.zeros_like(shares_done[0])),
        )
        return state, (stop, late, finish, held, *oldest_job)

    def rounds(self, units: jax.Array, receive: jax.Array) -> Rounds:
        """All rounds, of units that take `units float[R, K, n]` seconds, behind `receive float[n]` seconds.

        A job ends W - 2 + B rounds after it began, when all workers have done their uncoded parts, and n - λ their
        share of each coded part.
        """
        num_rounds = units.shape[0]
        initial = (
            jnp.zeros((self.bursts.window - 1, self.num_workers), bool),
            jnp.zeros((self.jobs_in_flight, self.num_workers), jnp.int32),
            jnp.zeros((self.jobs_in_flight, self.bursts.burst, self.num_workers), bool),
        )
        receive_seconds = jnp.broadcast_to(receive[None], (num_rounds, self.num_workers))
        inputs = jnp.arange(num_rounds, dtype=jnp.int32), units, receive_seconds
        seconds, late, finish, held, uncoded_done, shares_done = jax.lax.scan(self.step, initial, inputs)[1]
        is_decodable = (uncoded_done == self.num_uncoded).all(axis=1)  # of the job that ends in each round
        tasks = uncoded_done  # int32[R, C]: first the uncoded parts of the workers, then their shares
        if self.has_coded_parts:
            is_decodable &= (shares_done.sum(axis=2) >= self.num_workers - self.bursts.max_slow).all(axis=1)
            tasks = jnp.concatenate([tasks, shares_done.reshape(num_rounds, -1).astype(jnp.int32)], axis=1)
        delay = self.jobs_in_flight - 1  # from here on by the job: what ended in round r began in round r - delay
        is_decodable = jnp.pad(is_decodable, (0, delay))[delay:]
        tasks = jnp.pad(tasks, ((0, delay), (0, 0)))[delay:]
        return Rounds(
            decoding_delay=jnp.where(is_decodable, delay, -1).astype(jnp.int32),
            work=self.task_size * tasks,
            seconds=seconds,
            finish=finish,
            held=held,
            answered=~late,
        )


def _promise(
    promised: Callable[..., specifications.Specification], bursts: Bursts
) -> Callable[[int], specifications.Specification]:
    """The specification of the protocol as a function of the number of workers, with the bursts' numbers filled in."""
    numbers = {"burst": bursts.burst, "window": bursts.window, "max_slow": bursts.max_slow}
    return lambda num_workers: promised(num_workers, **numbers)


def _protocol(
    code: GradientCode, num_workers: int, num_units: int, num_messages: int, max_staleness: int,
    rounds: Callable[[jax.Array, jax.Array], Rounds],
) -> Protocol:  # fmt: skip
    """The protocol of rounds of `num_units` units, in each of which a worker sends `num_messages` full gradients.

    `rounds` is the function `(units float[R, K, n], receive float[n]) -> Rounds`, all seconds.
    """

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of durations `[T, n]`: a commit for each job that can be decoded, in the order of their ends."""
        _check_durations(durations, num_workers, num_units)
        units = units_of_rounds(durations, num_units)
        num_rounds = units.shape[0]
        job = jnp.arange(num_rounds, dtype=jnp.int32)  # each begins in the round with its number
        happened = rounds(units, network.received(jnp.zeros(num_workers, units.dtype)))
        finish, stop = happened.finish, happened.seconds
        done = happened.held & (finish <= stop[:, None, None]) & jnp.isfinite(finish)
        message_size = num_messages * (happened.answered & jnp.isfinite(stop)[:, None]).astype(units.dtype)
        timeline, end = stopped_rounds(finish, happened.held, done, stop, message_size, network, durations.shape[0])
        # The round in which each job ends; by its number, since the ends of several rounds can be at one time.
        last_round = jnp.where(happened.decoding_delay >= 0, job + happened.decoding_delay, num_rounds)
        order = jnp.argsort(last_round, stable=True)
        last_round = last_round[order]
        version = jnp.searchsorted(last_round, job, side="left").astype(jnp.int32)  # the commits of earlier rounds
        return record(
            timeline,
            time=jnp.append(end, jnp.inf)[last_round],
            worker=jnp.broadcast_to(jnp.arange(code.assignment.num_workers) % num_workers, happened.work.shape),
            unit=(job * num_units)[order][:, None],
            work=happened.work[order],
            weight=1.0 / code.assignment.num_chunks,
            read=by_unit(jnp.broadcast_to(version[:, None, None], units.shape), durations.shape[0], -1),
        )

    return Protocol(schedule, code, max_staleness=lambda _: max_staleness, round_units=num_units)


def _stop_and_late(bursts: Bursts, late_before: jax.Array, delay: jax.Array) -> tuple[jax.Array, jax.Array]:
    """When a round stops, float[] seconds, and who is late then, bool[n].

    The server waits `1 + μ` times as long as for the fastest worker, and longer if those who are late then would break
    the (B, W, λ)-bursty model: in W rounds at most λ workers are late, and the first and the last late round of each
    are less than B rounds apart.

    Args:
      bursts: the model, and μ.
      late_before: bool[W - 1, n], who was late in the W - 1 rounds before, the latest first.
      delay: float[n] seconds, from the begin of the round, when each worker would be done.
    """
    was_late = late_before.any(axis=0)
    must_answer = late_before[bursts.burst - 1 :].any(axis=0)  # was late B or more rounds before
    num_new_allowed = bursts.max_slow - was_late.sum(dtype=jnp.int32)  # of those who were not late, these may be now
    new_delays = jnp.sort(jnp.where(was_late, -jnp.inf, delay))[::-1]  # the slowest first
    stop_for_new = jnp.where(  # when all but so many have answered; nobody is waited for if all may be late
        num_new_allowed < delay.size, new_delays[num_new_allowed.clip(0, delay.size - 1)], -jnp.inf
    )
    stop_for_bursts = jnp.max(jnp.where(must_answer, delay, -jnp.inf))
    stop = jnp.maximum((1 + bursts.patience) * delay.min(), stop_for_bursts)
    stop = jnp.minimum(jnp.maximum(stop, stop_for_new), delay.max())  # nobody is left after the slowest
    return stop, delay > stop


def _with_row_in_front(rows: jax.Array, row: jax.Array) -> jax.Array:
    """The array with a new first row, and without its last one, so that it has as many."""
    return jnp.concatenate([row[None].astype(rows.dtype), rows])[: rows.shape[0]]


def _repetition(num_workers: int, tolerated: int, rng_key: jax.Array | None) -> GradientCode:
    """The code that tolerates so many stragglers: fractional repetition where the numbers divide, otherwise cyclic."""
    if num_workers % (tolerated + 1) == 0:
        return fractional_repetition(num_workers, num_stragglers=tolerated)
    if rng_key is None:
        raise ValueError(
            f"a sequential code for {num_workers} workers and {tolerated} stragglers a round needs rng_key, since "
            f"{tolerated + 1} does not divide {num_workers}. Pass rng_key=jax.random.key(0)."
        )
    return cyclic_repetition(num_workers, num_stragglers=tolerated, rng_key=rng_key)


def _check_parameters(num_workers: int, burst: int, window: int, max_slow: int, patience: float) -> Bursts:
    """The straggler model of these parameters, checked; n, B, W, λ and μ."""
    _validate.integer("num_workers", num_workers, minimum=1)
    _validate.integer("window", window, minimum=2)
    _validate.integer("burst", burst, minimum=1, maximum=window - 1, hint="A burst is shorter than the window.")
    _validate.integer(
        "max_slow", max_slow, minimum=0, maximum=num_workers, hint="No more workers can be late than there are."
    )
    _validate.number("patience", patience, finite=True)
    return Bursts(burst, window, max_slow, float(patience))


def _check_durations(durations: jax.Array, num_workers: int, num_units: int) -> None:
    """Checks that durations `[T, W]` are of so many workers, and of one round of so many units at least."""
    if durations.shape[1] != num_workers or durations.shape[0] < num_units:
        raise ValueError(
            f"durations must have {num_workers} columns, one a worker, and at least {num_units} units, those of a "
            f"round; got shape {durations.shape}." + _validate.transposed(durations.shape, num_workers)
        )
