"""Rounds of a gradient code (Tandon et al. 2017; Ramamoorthy, Meng, Girimaji 2024)."""

import math

import jax
import jax.numpy as jnp

from gcjax import _checks
from gcjax.algebra import specifications
from gcjax.codes.base import GradientCode
from gcjax.codes.conditioning import MOSTLY_EXACT
from gcjax.codes.stopping import StoppingRule, decodable
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol, Schedule
from gcjax.protocols.timing import Timeline, used_commits
from gcjax.stragglers.network import Network


@comparable
def coded(code: GradientCode, *, stop: StoppingRule | None = None) -> Protocol:
    """Rounds of a gradient code: all work on their chunks in order until the stopping rule holds, then all decode.

    Round r: everybody receives the parameters and works through its chunks; progress reports cost nothing; when the
    rule holds, what is unfinished is cut off, and those with something to contribute send their M messages of d/L
    numbers; when the last has arrived, the estimate is applied, divided by the N chunks. Round r of worker w takes
    the units r·K, ..., r·K + K-1: units that a round did not get to are skipped, not saved for the next one, so that
    the slow spells of all workers stay aligned with the rounds. E = T // K, C = W, and `work` is the progress.

    Args:
      code: the gradient code; one unit of work is one chunk.
      stop: when a round stops (`gcjax.codes.decodable()`, `deadline`, `fastest`, ...); decodable by default.

    Raises:
      ValueError: if the rule waits for an exact decode that the code cannot give; if fewer than K units are sampled.
    """
    if not isinstance(code, GradientCode):
        raise ValueError(f"coded needs a GradientCode, for example gcjax.codes.partial(...); got {code!r}.")
    rule = decodable() if stop is None else stop
    if not isinstance(rule, StoppingRule):
        raise ValueError(f"stop must be a stopping rule, for example gcjax.codes.decodable(); got {rule!r}.")
    _check_exact(code, rule)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        num_workers, load = code.assignment.chunks.shape
        num_rounds = _num_rounds(code, durations)
        units = durations[: num_rounds * load].reshape(num_rounds, load, num_workers)
        held = jnp.asarray(code.assignment.chunks.T >= 0)
        receive = network.received(jnp.zeros(num_workers, units.dtype))
        finish = receive[None, None] + jnp.cumsum(jnp.where(held[None], units, 0), axis=1)
        seconds = jax.vmap(lambda f: rule.time(code, f.T))(finish)
        done = held[None] & (finish <= seconds[:, None, None]) & jnp.isfinite(finish)
        progress = done.sum(axis=1, dtype=jnp.int32)
        count = jax.vmap(code.sent)(progress).sum(axis=2)
        sends, size = count > 0, count.astype(units.dtype) / code.num_blocks
        begun = jnp.where(sends, 0, jnp.inf).astype(units.dtype)
        send = jnp.where(sends, jax.vmap(network.sent)(begun, size), 0)
        end = jnp.cumsum(seconds + send.max(axis=1))
        begin = jnp.concatenate([jnp.zeros_like(end[:1]), end[:-1]])
        timeline = round_timeline(begin, receive, finish, seconds, done, sends, send, held[None], end[-1])
        shape = (num_rounds, num_workers)
        rounds = jnp.broadcast_to(jnp.arange(num_rounds)[:, None], shape)
        return used_commits(
            pad_units(timeline, durations.shape[0]),
            time=end,
            worker=jnp.broadcast_to(jnp.arange(num_workers)[None], shape),
            unit=rounds * load,
            version=rounds,
            work=progress,
            weight=jnp.full(shape, 1.0 / code.assignment.num_chunks),
        )

    def promise(num_workers: int) -> specifications.Specification:
        return specifications.coded(workers=num_workers, decodable=_decodable(code))

    return Protocol(
        schedule,
        code,
        max_staleness=lambda num_workers: 0,
        round_units=code.assignment.load,
        specification=promise if rule.exact else None,
    )


@comparable
def _decodable(code: GradientCode) -> specifications.Decodable:
    """From which progress the code decodes."""
    tolerance = MOSTLY_EXACT * math.sqrt(code.assignment.num_chunks * code.num_blocks)
    return specifications.Decodable(code.assignment.load, lambda done: code.plan(done).residual < tolerance)


def round_timeline(
    begin: jax.Array,
    receive: jax.Array,
    finish: jax.Array,
    seconds: jax.Array,
    done: jax.Array,
    sends: jax.Array,
    send: jax.Array,
    held: jax.Array,
    end: jax.Array,
) -> Timeline:
    """The times `[rounds, K, W]` of every unit, from those relative to the begin of its round.

    Args:
      begin: float[rounds], when each round begins.
      receive: float[W], what receiving the parameters takes.
      finish: float[rounds, K, W], when each unit would end.
      seconds: float[rounds], when the round is stopped.
      done: bool[rounds, K, W], which units end before that.
      sends: bool[rounds, W], who sends.
      send: float[rounds, W], what sending takes.
      held: bool[1 or rounds, K, W], which units there are.
      end: float[], when the last round ends.
    """
    before = jnp.concatenate([jnp.broadcast_to(receive[None, None], finish[:, :1].shape), finish[:, :-1]], axis=1)
    stop = seconds[:, None, None]
    begun = (held & (before < stop)) | done  # a unit of no length may begin and end at the stop
    begin = begin[:, None, None]
    first = (jnp.arange(finish.shape[1]) == 0)[None, :, None]
    # The round's message goes out with the last finished unit, once the round has stopped.
    last = done & (jnp.cumsum(done, axis=1) == done.sum(axis=1, keepdims=True))
    sending = last & sends[:, None, :]
    compute_start = jnp.where(begun, begin + before, jnp.inf)
    compute_end = jnp.where(begun, begin + jnp.minimum(finish, stop), jnp.inf)
    send_start = jnp.where(sending, begin + stop, jnp.inf)
    return Timeline(
        start=jnp.where(begun & first, jnp.broadcast_to(begin, begun.shape), compute_start),
        compute_start=compute_start,
        compute_end=compute_end,
        send_start=send_start,
        finish=jnp.where(sending, send_start + send[:, None, :], jnp.where(done, compute_end, jnp.inf)),
        horizon=end,
    )


def pad_units(timeline: Timeline, num_units: int) -> Timeline:
    """From `[rounds, K, W]` to `[T, W]`, with inf for the units after the last whole round."""

    def flatten(times: jax.Array) -> jax.Array:
        rounds, load, workers = times.shape
        return jnp.pad(
            times.reshape(rounds * load, workers),
            ((0, num_units - rounds * load), (0, 0)),
            constant_values=jnp.inf,
        )

    times = {name: flatten(value) for name, value in timeline._asdict().items() if name != "horizon"}
    return Timeline(**times, horizon=timeline.horizon)


def _num_rounds(code: GradientCode, durations: jax.Array) -> int:
    num_units, num_workers = durations.shape
    if num_workers != code.assignment.num_workers:
        raise ValueError(
            f"durations must have one column a worker of the code; got {num_workers} columns "
            f"for {code.assignment.num_workers} workers."
            + _checks.transposed(durations.shape, code.assignment.num_workers)
        )
    if num_units < code.assignment.load:
        raise ValueError(
            f"a round of this code takes {code.assignment.load} units of each worker; got durations of {num_units} "
            f"units. Sample at least {code.assignment.load}."
        )
    return num_units // code.assignment.load


def _check_exact(code: GradientCode, rule: StoppingRule) -> None:
    with jax.ensure_compile_time_eval():
        never = bool(jnp.isinf(code.completion(jnp.zeros(code.assignment.chunks.shape))))
    if rule.exact and never:
        raise ValueError(
            "stopping when decodable needs a code that everybody's full work decodes; this one has "
            f"L={code.num_blocks} blocks, and some chunk has fewer holders. Use at most as many blocks as the "
            "smallest replication, or gcjax.codes.deadline(seconds)."
        )
