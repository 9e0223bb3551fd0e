"""What the sequential gradient codes share: who may be late when a round stops, and from rounds to a schedule.

They are `sr_sgc` and `m_sgc` (Krishnan, Ebrahimi, Khisti, ICLR 2023, arXiv 2211.13802). Job t begins in round t. What
stragglers missed in it is done again in later rounds, so a job may end some rounds after it began, and a code needs far
less redundancy than if every round had to stand for itself. Rounds follow each other without waiting for the jobs: job
t is computed on the parameters that are there when its round begins, so its commit is stale by the jobs that have ended
since. (Where a job ends up to D rounds later, the paper trains D + 1 models one after the other, so that none is stale;
the times are the same.)

The waiting rule of both schemes: a round stops at `1 + tolerance` times the time of the fastest worker. If the workers
that are late then would break the bursty model in the window up to this round, the server waits on, until those that
are still late conform. So every job ends in time, whatever the durations. A worker that must be waited for and has
failed (inf) stops the run; one whose failure conforms does not.

Letters: W workers, K units of a worker in a round, C workers of the code, T units sampled per worker. The paper's W is
`window`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _validate
from gcjax.codes.base import GradientCode
from gcjax.codes.replication import cyclic_repetition, fractional_repetition
from gcjax.protocols.base import Protocol
from gcjax.protocols.coded import check_durations
from gcjax.protocols.not_served import not_served
from gcjax.protocols.schedule import Schedule, record
from gcjax.protocols.simulation.stopped_rounds import read_by_unit, stopped_rounds, units_of_rounds
from gcjax.stragglers.network import Network

_not_served = not_served(
    "sr_sgc and m_sgc cannot be served: their jobs last for several rounds, of which workers do tasks of several "
    "versions in turn, and a worker of the server has one version at a time. Use coded(...), whose rounds are one "
    "job each."
)


class Bursts(NamedTuple):
    """The bursty model of stragglers that a scheme is made for, and the tolerance of its server.

    Attributes:
      burst: B, the rounds within which all late ones of a worker in a window are.
      window: so many rounds.
      max_slow: λ, the most workers that are late in a window.
      tolerance: μ, how much longer than the fastest worker others may take before they count as late.
    """

    burst: int
    window: int
    max_slow: int
    tolerance: float


class Rounds(NamedTuple):
    """What happens in the rounds, and when the jobs 0, 1, ..., which begin in them, can be decoded.

    Attributes:
      decoding_delay: int32[num_rounds], how many rounds after its own a job can be decoded; -1 if in none that was
        sampled.
      num_done: int32[num_rounds, C], the chunks of each job that are done, for each worker of the code.
      stop: float[num_rounds] seconds, when each round was stopped, from its beginning.
      finish: float[num_rounds, K, W] seconds, when units end, from the beginning of the round.
      has_unit: bool[num_rounds, K, W], whether each worker has this unit in the round.
      has_answered: bool[num_rounds, W], who is not a straggler.
    """

    decoding_delay: jax.Array
    num_done: jax.Array
    stop: jax.Array
    finish: jax.Array
    has_unit: jax.Array
    has_answered: jax.Array


def protocol_of_rounds(
    code: GradientCode, num_workers: int, num_units: int, num_messages: int, max_staleness: int,
    rounds: Callable[[jax.Array, jax.Array], Rounds],
) -> Protocol:  # fmt: skip
    """The protocol of rounds of `num_units` units, in each of which a worker sends `num_messages` full gradients.

    `rounds` is the function `(units float[num_rounds, K, W], receive float[W]) -> Rounds`, all seconds. A job is one
    full gradient, which begins in the round with its number, and is decoded, for a commit, in it or some rounds later.
    """

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of durations `[T, W]`: a commit for each job, in the order of their ends.

        A job begins in each round of K = `num_units` units of every worker; one that cannot be decoded comes last, at
        inf. A commit has a column for each of the C workers of `code`, which are W or a multiple of them: code worker
        i is a part of the work of worker i % W.
        """
        check_durations(durations, num_workers, num_units)
        units = units_of_rounds(durations, num_units)  # float[num_rounds, K, W] seconds
        num_rounds = units.shape[0]
        job = jnp.arange(num_rounds, dtype=jnp.int32)  # each begins in the round with its number
        # decoding_delay int32[num_rounds], -1 for never; num_done int32[num_rounds, C]; the rest as in the next lines.
        all_rounds = rounds(units, network.arrivals_at_workers(jnp.zeros(num_workers, units.dtype)))
        finish, stop = all_rounds.finish, all_rounds.stop  # seconds in the round: [num_rounds, K, W], [num_rounds]
        # [num_rounds, K, W], which units have ended by the stop.
        is_done = all_rounds.has_unit & (finish <= stop[:, None, None]) & jnp.isfinite(finish)
        # float[num_rounds, W], in full gradients, of which who has answered sends `num_messages`.
        message_size = num_messages * (all_rounds.has_answered & jnp.isfinite(stop)[:, None]).astype(units.dtype)
        timeline, round_end = stopped_rounds(
            finish, all_rounds.has_unit, is_done, stop, message_size, network, durations.shape[0]
        )
        # The round in which each job ends, `num_rounds` if in none; by its number, since rounds can end at one time.
        last_round_of_job = jnp.where(all_rounds.decoding_delay >= 0, job + all_rounds.decoding_delay, num_rounds)
        commit_order = jnp.argsort(last_round_of_job, stable=True)
        last_round_of_commit = last_round_of_job[commit_order]
        # int32[num_rounds]: the commits of the rounds before each round, which is the version that it reads.
        num_commits_before = jnp.searchsorted(last_round_of_commit, job, side="left").astype(jnp.int32)
        return record(
            timeline,
            time=jnp.append(round_end, jnp.inf)[last_round_of_commit],
            worker=jnp.broadcast_to(jnp.arange(code.assignment.num_workers) % num_workers, all_rounds.num_done.shape),
            unit=(job * num_units)[commit_order][:, None],  # the first one of the job's round, of every worker
            work=all_rounds.num_done[commit_order],
            weight=1.0 / code.assignment.num_chunks,
            read=read_by_unit(num_commits_before[:, None], num_units, durations.shape[0]),
        )

    return Protocol(
        schedule,
        code,
        max_staleness=lambda _: max_staleness,
        round_units=num_units,
        num_workers=num_workers,
        rule=_not_served,
        waits_for_exact_sum=True,
    )


def stop_and_late(bursts: Bursts, late_before: jax.Array, done_seconds: jax.Array) -> tuple[jax.Array, jax.Array]:
    """When a round stops, float[] seconds, and who is late then, bool[W].

    The server waits `1 + μ` times as long as for the fastest worker, and longer if those who are late then would break
    the bursty model: in a window at most `max_slow` workers are late, and the first and the last late round of each are
    less than `burst` rounds apart.

    Args:
      bursts: the model, and the tolerance.
      late_before: bool[window - 1, W], who was late in the rounds before, the latest first.
      done_seconds: float[W] seconds, from the begin of the round, when each worker would be done.
    """
    was_late = late_before.any(axis=0)  # [W], in the window
    must_answer = late_before[bursts.burst - 1 :].any(axis=0)  # was late `burst` or more rounds before
    num_new_allowed = bursts.max_slow - was_late.sum(dtype=jnp.int32)  # of those who were not late, these may be now
    # The slowest first; those who were late already come last, at -inf.
    sorted_new_seconds = jnp.sort(jnp.where(was_late, -jnp.inf, done_seconds))[::-1]
    can_be_too_many = num_new_allowed < done_seconds.size
    last_waited_for = num_new_allowed.clip(0, done_seconds.size - 1)
    # When all but so many have answered; nobody is waited for if all may be late.
    stop_for_new = jnp.where(can_be_too_many, sorted_new_seconds[last_waited_for], -jnp.inf)
    stop_for_bursts = jnp.max(jnp.where(must_answer, done_seconds, -jnp.inf))
    stop = jnp.maximum((1 + bursts.tolerance) * done_seconds.min(), stop_for_bursts)
    stop = jnp.minimum(jnp.maximum(stop, stop_for_new), done_seconds.max())  # nobody is left after the slowest
    return stop, done_seconds > stop


def repetition_code(num_workers: int, tolerated: int, rng_key: jax.Array | None) -> GradientCode:
    """The code of W workers that tolerates s = `tolerated` stragglers, with s + 1 chunks a worker.

    It is fractional repetition if s + 1 divides W, otherwise cyclic, with coefficients drawn by `rng_key`; a
    `ValueError` if there is none then.
    """
    if num_workers % (tolerated + 1) == 0:
        return fractional_repetition(num_workers, num_stragglers=tolerated)
    if rng_key is None:
        raise ValueError(
            f"a sequential code for {num_workers} workers and {tolerated} stragglers a round needs rng_key, since "
            f"{tolerated + 1} does not divide {num_workers}. Pass rng_key=jax.random.key(0)."
        )
    return cyclic_repetition(num_workers, num_stragglers=tolerated, rng_key=rng_key)


def burst_model(num_workers: int, burst: int, window: int, max_slow: int, tolerance: float) -> Bursts:
    """The bursty model of these parameters.

    Raises:
      ValueError: if one is out of its range.
    """
    num_workers = _validate.integer("num_workers", num_workers, minimum=1)
    window = _validate.integer("window", window, minimum=2)
    burst = _validate.integer("burst", burst, minimum=1, maximum=window - 1, hint="A burst is shorter than the window.")
    max_slow = _validate.integer(
        "max_slow", max_slow, minimum=0, maximum=num_workers, hint="No more workers can be late than there are."
    )
    _validate.single_number("tolerance", tolerance, finite=True)
    return Bursts(burst, window, max_slow, float(tolerance))
