"""Rounds of a gradient code (Tandon et al. 2017; Ramamoorthy, Meng, Girimaji 2024)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, specifications
from gcjax.codes.base import GradientCode, check_code
from gcjax.codes.diagnostics.rounding import max_exact_residual
from gcjax.codes.stopping import StoppingRule, decodable
from gcjax.equality import comparable
from gcjax.protocols.base import Protocol
from gcjax.protocols.local_sgd import check_units
from gcjax.protocols.schedule import Schedule, record
from gcjax.protocols.simulation.rules import Rule, View, round_begin, stopped_rule
from gcjax.protocols.simulation.stopped_rounds import read_by_unit, stopped_rounds, units_of_rounds
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
      stop: when a round stops (`gcjax.codes.stopping.decodable()`, `deadline`, `fastest`, ...); decodable by default.

    Raises:
      ValueError: if the rule waits for an exact decode that the code cannot give; if fewer than K units are sampled.
    """
    stopping_rule = decodable() if stop is None else stop
    check_code_and_rule(code, stopping_rule)

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of rounds of K = `load` units of every worker; what is known of units is [num_rounds, K, W].

        The arrays of `rounds` (see `CodedRound`) have a first axis [num_rounds]; column w of a commit is worker w.
        """
        num_workers, load = code.assignment.chunks.shape
        check_durations(durations, num_workers, load)
        units = units_of_rounds(durations, load)
        receive_seconds = network.arrivals_at_workers(jnp.zeros(num_workers, units.dtype))  # the same in each round
        rounds = jax.vmap(lambda units_of_round: coded_round(code, stopping_rule, units_of_round, receive_seconds))(
            units
        )
        timeline, round_end = stopped_rounds(*rounds, network, durations.shape[0])
        progress = rounds.is_done.sum(axis=1, dtype=jnp.int32)  # [num_rounds, W], chunks
        round_number = jnp.arange(round_end.size, dtype=jnp.int32)[:, None]
        return record(
            timeline,
            time=round_end,
            worker=jnp.broadcast_to(jnp.arange(num_workers), progress.shape),
            unit=round_number * load,
            work=progress,
            weight=1.0 / code.assignment.num_chunks,
            read=read_by_unit(round_number, load, durations.shape[0]),
        )

    def specification(num_workers: int) -> specifications.Specification:
        """The specification: no commit before the progress that has arrived can be decoded by `code`."""
        return specifications.coded(num_workers, decodable=decodable_progress(code))

    def real_clock_rule(num_workers: int) -> Rule:
        """The rule on the real clock: the server stops a round when the stopping rule holds; the code then decodes."""
        check_num_workers(num_workers, code.assignment.num_workers)
        return _stopped_round_rule(code, stopping_rule)

    return Protocol(
        schedule,
        code,
        max_staleness=lambda num_workers: 0,
        round_units=code.assignment.load,
        specification=specification if stopping_rule.waits_for_exact_sum else None,
        rule=real_clock_rule,
        waits_for_exact_sum=stopping_rule.waits_for_exact_sum,
    )


class CodedRound(NamedTuple):
    """A round of a code, all seconds from its begin; the arguments of `stopped_rounds`, for one round.

    Attributes:
      finish: float[K, W] seconds, when each chunk would be done.
      has_unit: bool[K, W], whether each worker holds so many chunks, that is has such a unit.
      is_done: bool[K, W], which are done before the stop.
      stop: float[], when the round is stopped.
      message_size: float[W], what each worker sends, in full gradients.
    """

    finish: jax.Array
    has_unit: jax.Array
    is_done: jax.Array
    stop: jax.Array
    message_size: jax.Array


def coded_round(
    code: GradientCode, stop: StoppingRule, units: jax.Array, receive_seconds: jax.Array, load: int | None = None
) -> CodedRound:
    """The round of a code that begins with these units.

    Args:
      code: of the round.
      stop: when it stops.
      units: float[K or more, W] seconds; what is beyond the code's K is not used.
      receive_seconds: float[W], when the parameters have arrived.
      load: how many rows there are to be, K if None; those behind the code's K are of chunks that there are not.
    """
    has_unit = jnp.asarray(code.assignment.chunks.T >= 0)  # a worker can hold fewer than K chunks
    finish = receive_seconds[None] + jnp.cumsum(jnp.where(has_unit, units[: code.assignment.load], 0), axis=0)
    stop_time = stop.time(code, finish.T)
    is_done = has_unit & (finish <= stop_time) & jnp.isfinite(finish)
    rows_behind = (0, (load or code.assignment.load) - code.assignment.load), (0, 0)
    return CodedRound(
        finish=jnp.pad(finish, rows_behind, mode="edge"),  # where no chunk is: as the last
        has_unit=jnp.pad(has_unit, rows_behind),
        is_done=jnp.pad(is_done, rows_behind),
        stop=stop_time,
        message_size=message_size(code, is_done.sum(axis=0, dtype=jnp.int32), units.dtype),
    )


def message_size(code: GradientCode, progress: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """float[W]: what each worker sends at this progress int32[W], in full gradients; a message is 1/L of one."""
    return code.sent(progress).sum(axis=1).astype(dtype) / code.num_blocks


def _stopped_round_rule(code: GradientCode, stopping_rule: StoppingRule) -> Rule:
    """The rule by which a server stops the rounds of a code; its memory, float[W, K], is when each chunk was done."""
    loads = jnp.asarray(code.assignment.loads)  # int32[W]

    def remember_unit(view: View, worker: jax.Array) -> jax.Array:
        """float[W, K] seconds, when each chunk was done: now, the last that the worker has done, counted already."""
        return view.memory.at[worker, view.progress[worker] - 1].set(view.now)

    return stopped_rule(
        lambda view: stop_time(code, stopping_rule, view, view.memory),
        code.assignment.num_workers,
        num_units=lambda view: loads,
    )._replace(
        memory=lambda num_workers, dtype: jnp.zeros(code.assignment.chunks.shape, dtype),
        remember_unit=remember_unit,
        weight=1.0 / code.assignment.num_chunks,
        skips_undone_units=True,
    )


def stop_time(code: GradientCode, stopping_rule: StoppingRule, view: View, unit_end: jax.Array) -> jax.Array:
    """float[] seconds, when a server stops the round of a code: now, or later if nothing more is done; inf if unknown.

    A rule that does not wait for an exact decode also stops the round when all who take part have done everything.

    Args:
      code: of the round.
      stopping_rule: when it stops.
      view: what the server knows.
      unit_end: float[W, K or more] seconds, when each chunk that is done was done, on the clock of `view.now`.
    """
    begin_time = round_begin(view)
    seconds_to_stop = stopping_rule.time(code, done_seconds(code, view, unit_end, begin_time))
    rule_holds = seconds_to_stop <= view.now - begin_time
    if stopping_rule.waits_for_exact_sum:
        return jnp.where(rule_holds & decodable_progress(code).is_decodable(view.progress), view.now, jnp.inf)
    all_done = ((view.progress == jnp.asarray(code.assignment.loads)) | ~view.alive).all()
    rule_holds |= all_done
    return jnp.where(rule_holds, view.now, begin_time + seconds_to_stop)


def done_seconds(code: GradientCode, view: View, unit_end: jax.Array, begin_time: jax.Array) -> jax.Array:
    """float[W, K] seconds from `begin_time`, when each chunk of the code was done; inf for one that is not yet.

    Done are the first `view.progress int32[W]` chunks of each worker, at `unit_end float[W, K or more]`. Where a worker
    holds fewer chunks, the entries behind them are the time of its last one, or 0 if it holds none.
    """
    has_unit = jnp.asarray(code.assignment.chunks >= 0)
    is_done = jnp.arange(code.assignment.load, dtype=jnp.int32)[None] < view.progress[:, None]
    seconds = jnp.where(is_done, unit_end[:, : code.assignment.load] - begin_time, jnp.inf)
    return jax.lax.cummax(jnp.where(has_unit, seconds, 0), axis=1)


@comparable
def decodable_progress(code: GradientCode) -> specifications.Decodable:
    """The progress int32[W] from which the code decodes: with a residual that is 0 up to rounding."""
    tolerance = max_exact_residual(code.assignment.num_chunks, code.num_blocks)
    loads = code.assignment.loads
    return specifications.Decodable(
        code.assignment.load,
        lambda progress: code.plan(jnp.minimum(progress, loads)).residual < tolerance,  # more is none of its states
    )


def check_num_workers(num_workers: int, workers_of_code: int) -> None:
    """Raises a `ValueError` unless a code is served to its own workers."""
    if num_workers != workers_of_code:
        raise ValueError(f"the workers must be those of the code, {workers_of_code}; got {num_workers}.")


def check_durations(durations: jax.Array, num_workers: int, load: int) -> None:
    """Raises a `ValueError` unless durations `[T, W]` are of the code's workers, and T is at least a round, `load`."""
    num_columns = durations.shape[1]
    if num_columns != num_workers:
        raise ValueError(
            f"durations must have one column a worker of the code; got {num_columns} columns for {num_workers} workers."
            + _validate.hint_if_transposed(durations.shape, num_workers)
        )
    check_units(durations, load)


def check_code_and_rule(code: GradientCode, stopping_rule: StoppingRule) -> None:
    """Raises a `ValueError` unless the types are right, and the full work of all decodes if the rule waits for that."""
    check_code(code, "coded")
    if not isinstance(stopping_rule, StoppingRule):
        raise ValueError(
            f"stop must be a stopping rule, for example gcjax.codes.stopping.decodable(); got {stopping_rule!r}."
        )
    if not stopping_rule.waits_for_exact_sum:
        return
    full_work_at_once = np.zeros(code.assignment.chunks.shape, np.float32)  # the seconds at which chunks are finished
    completion = jax.jit(code.completion).lower(full_work_at_once).compile()  # also while something else is traced
    is_never_decodable = bool(np.isinf(completion(full_work_at_once)))
    if is_never_decodable:
        chunks = np.asarray(code.assignment.chunks)
        smallest_replication = np.bincount(chunks[chunks >= 0], minlength=code.assignment.num_chunks).min()
        why, remedy = "the weights of this one do not give the exact sum", "Use other weights"
        if smallest_replication < code.num_blocks:
            why = f"this one has L={code.num_blocks} blocks, and some chunk has fewer holders"
            remedy = "Use at most as many blocks as the smallest replication"
        raise ValueError(
            f"stopping when decodable needs a code that everybody's full work decodes; {why}. {remedy}, or "
            "gcjax.codes.stopping.deadline(seconds)."
        )
