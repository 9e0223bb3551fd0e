"""A straggler model that replays measured times; see `gcjax.stragglers.traces.files` for the files.

Letters: T units of work, W workers. The columns of a trace are the workers measured.
"""

import contextlib
import math
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.stragglers.base import StragglerModel, per_worker
from gcjax.stragglers.iid import Parameter
from gcjax.stragglers.traces.base import Trace, check_single_precision, trace_array
from gcjax.stragglers.traces.departures import departures, sentence_on
from gcjax.stragglers.traces.files import errors_name_file, read_trace

STARTS = ("random", "recorded")
WORKERS = ("recorded", "drawn")
ORDERS = ("recorded", "blocks", "permuted")


class _State(NamedTuple):
    """What a replay remembers.

    Attributes:
      seconds: float[T, columns], the trace.
      row_order: int32[T], the rows in the order in which they are replayed.
      worker_column: int32[W], of each worker.
      position_in_order: int32[], where in `row_order` the next unit of all workers is; int32[W] if each is somewhere
        else.
      num_left_of_block: int32[], units that are left of the current block.
      block_size: int32[], units.
      intercept: float[W] seconds.
      slope: float[W].
    """

    seconds: jax.Array
    row_order: jax.Array
    worker_column: jax.Array
    position_in_order: jax.Array
    num_left_of_block: jax.Array
    block_size: jax.Array
    intercept: jax.Array
    slope: jax.Array


def replay(
    *,
    trace: str | Path | Trace | np.ndarray | jax.Array,
    start: str = "random",
    workers: str = "recorded",
    order: str = "recorded",
    block_size: int | None = None,
    intercept: Parameter = 0.0,
    slope: Parameter = 1.0,
) -> StragglerModel:
    """Measured times, again: in their order, or resampled.

    In the recorded order the n-th unit of a worker takes `trace[(first + n) % T, column]`: after the last row the trace
    begins anew. A unit that was not measured takes as long as the worker's last measured unit before it, or the first
    one if there is none before. A unit that never ends (inf) is the last one of its worker, unless the protocol cuts it
    off: then the next row follows, at the end of the trace the first one, in which the worker may be there again.

    All randomness is in the rows and the columns, so keys give different parts of the same T rows: a spread over seeds
    says how much depends on the part, not how other measurements would have come out.

    The trace is held once, whatever the number of keys and workers: 4 bytes a cell, or 8 in 64-bit types, so 400 MB for
    10^4 workers and 10^4 steps. While the model is made it takes three times the size of the array that is given.

    Args:
      trace: a `Trace`, of which the seconds of computing count; or float[T, columns] seconds, NaN where not measured,
        inf for a failed worker; or a file for `read_trace`.
      start: the first row. "random": the key draws it, one for all workers, so that what happened at the same time
        still does; where the workers are drawn, one for each. "recorded": row 0, as it was measured. With recorded
        workers in the recorded order nothing is random then, and every key gives the same durations.
      workers: the columns. "recorded": worker w is column w, and W must be their number. "drawn": any W; the key draws
        the columns without replacement, and once all are used begins again, so that each is used W / columns times,
        rounded up or down.
      order: the rows. "recorded": as they were measured. "blocks": after every `block_size` units the key draws a new
        row to go on from (the circular block bootstrap, Politis and Romano 1992): one for all recorded workers, so that
        what happened at the same time still does; where the workers are drawn, one for each if `start` is "random",
        one for all if it is "recorded". It keeps slow spells that are shorter than a block. "permuted": all rows in a
        random order, the same for all workers, so that nothing is left of spells; after T units this order begins anew.
      block_size: units of a block, for `order="blocks"`; the square root of T, rounded up, if None. Several times the
        length of a slow spell is better, if T is much larger still.
      intercept: seconds of a unit whatever its size, a number or one a worker.
      slope: a unit takes `intercept + slope * measured` seconds; a number or one a worker. For a trace of steps that
        were m chunks each, and units of n chunks, it is n / m: 1 / m where a unit is one chunk.

    Raises:
      ValueError: if the trace is not of this form, or a worker has no measured unit, or there is no such choice, or W
        is not their number for recorded workers, or a number is out of its range, or a block size is given without
        blocks.

    Warns:
      UserWarning: if a worker has no times from some step on to the end, since its last one counts from there on.

    Example:
      >>> model = gcjax.stragglers.replay(trace=np.array([[1.0, 2.0], [1.5, np.nan], [1.0, 3.0]]), start="recorded")
      >>> gcjax.stragglers.sample_durations(model, jax.random.key(0), num_units=3, num_workers=2).tolist()
      [[1.0, 2.0], [1.5, 2.0], [1.0, 3.0]]
    """
    where = "a trace that is replayed"
    naming_file: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if isinstance(trace, (str, Path)):
        where, naming_file, trace = str(trace), errors_name_file(trace), read_trace(trace)
    seconds = trace.compute if isinstance(trace, Trace) else trace
    if _validate.is_traced(seconds):
        return _replay_model(seconds, start, workers, order, block_size, intercept, slope)
    seconds = trace_array(seconds)
    with naming_file:
        seconds_without_gaps = with_gaps_filled(seconds)
        if jnp.result_type(float) == jnp.float32:
            check_single_precision(seconds_without_gaps)
    model = _replay_model(seconds_without_gaps, start, workers, order, block_size, intercept, slope)
    names = (trace.steps, trace.workers) if isinstance(trace, Trace) else map(range, seconds.shape)
    if gone := departures(seconds, *names):
        warnings.warn(f"In {where} {sentence_on(gone)}", stacklevel=2)
    return model


@comparable
def _replay_model(
    seconds: np.ndarray | jax.Array, start: str, workers: str, order: str, block_size: int | None,
    intercept: Parameter, slope: Parameter,
) -> StragglerModel:  # fmt: skip
    """`replay` of an array [T, columns] without gaps, so that models compare by what a file held when it was read.

    A unit takes `intercept + slope * seconds` of a row, and the next one that of the next row in the `order`.
    """
    has_drawn_workers = _validate.choice("workers", workers, WORKERS) == "drawn"
    has_random_start = _validate.choice("start", start, STARTS) == "random"
    num_units, num_columns = seconds.shape
    block_size = _block_size(block_size, _validate.choice("order", order, ORDERS), num_units)
    _validate.number("intercept", intercept, finite=True)
    _validate.number("slope", slope, above=True, finite=True)
    if not any(map(_validate.is_traced, (seconds, intercept, slope))) and jnp.result_type(float) == jnp.float32:
        measured_seconds = seconds[np.isfinite(seconds)]
        shortest_unit = np.min(intercept) + np.min(slope) * measured_seconds.min(initial=np.inf)
        longest_unit = np.max(intercept) + np.max(slope) * measured_seconds.max(initial=0.0)
        check_single_precision(np.array([shortest_unit, longest_unit]))

    def init(rng_key: jax.Array, num_workers: int) -> _State:
        """The state before the first unit: the trace, the order of its rows, each worker's column and first row.

        A unit takes `intercept + slope * measured` seconds. A block is `block_size` units with successive rows, all T
        of them if `order` is not "blocks".
        """
        if not has_drawn_workers and num_workers != num_columns:
            raise ValueError(
                f"recorded workers are as many as the trace has; it has {num_columns}, asked for are {num_workers}. "
                f"Give num_workers the value {num_columns}, or `workers` of replay the value 'drawn', which takes any "
                "number of them."
            )
        columns_key, position_key = jax.random.split(rng_key)
        columns = jnp.arange(num_workers, dtype=jnp.int32)
        if has_drawn_workers:
            columns = _random_columns(columns_key, num_columns, num_workers)
        # For the orders "recorded" and "blocks", whose later blocks begin at random ones of these rows.
        row_order = jnp.arange(num_units, dtype=jnp.int32)
        if order == "permuted":
            # A third key, so that the other two, and what they draw, are the same in any order.
            row_order_key = jax.random.fold_in(rng_key, 2)
            row_order = jax.random.permutation(row_order_key, row_order)
        # One first row for all recorded workers, so that what happened at the same time still does.
        position_shape = (num_workers,) if has_drawn_workers and has_random_start else ()
        num_start_positions = num_units if has_random_start else 1
        return _State(
            seconds=jnp.asarray(seconds, jnp.result_type(float)),
            row_order=row_order,
            worker_column=columns,
            position_in_order=jax.random.randint(position_key, position_shape, 0, num_start_positions, jnp.int32),
            num_left_of_block=jnp.asarray(block_size, jnp.int32),  # the first block is whole
            block_size=jnp.asarray(block_size, jnp.int32),
            intercept=per_worker("intercept", intercept, num_workers),
            slope=per_worker("slope", slope, num_workers),
        )

    return StragglerModel(init, _next_unit_of_block if order == "blocks" else _next_unit)


def _block_size(block_size: int | None, order: str, num_units: int) -> int:
    """The units of a block, or of the trace where there are no blocks; a `ValueError` for a size that is none.

    None is the default: the square root of T, rounded up.
    """
    if order != "blocks":
        if block_size is not None:
            raise ValueError(f'block_size is for order="blocks"; got block_size={block_size!r} and order={order!r}.')
        return num_units
    if block_size is None:
        return math.isqrt(num_units - 1) + 1  # the square root, rounded up
    return _validate.integer("block_size", block_size, minimum=1, maximum=num_units)


def _random_columns(rng_key: jax.Array, num_columns: int, num_workers: int) -> jax.Array:
    """int32[W]: columns of the trace, all of them in a random order, as often as needed."""
    keys = jax.random.split(rng_key, -(-num_workers // num_columns))  # one each time that all are used
    orders = jax.vmap(lambda key: jax.random.permutation(key, jnp.arange(num_columns, dtype=jnp.int32)))(keys)
    return orders.reshape(-1)[:num_workers]


def with_gaps_filled(seconds: np.ndarray) -> np.ndarray:
    """float[T, columns]: every NaN is replaced by the worker's last measured unit before it, or by its first one.

    Raises `ValueError` if a worker (a column) has no measured unit.
    """
    is_measured = ~np.isnan(seconds)
    is_never_measured = ~is_measured.any(axis=0)
    if is_never_measured.any():
        raise ValueError(
            "to be replayed, a trace must have a measured unit of every worker; worker "
            f"{is_never_measured.argmax()} has none. Leave its column out, or write inf for a failed worker."
        )
    columns_with_gaps = np.flatnonzero(~is_measured.all(axis=0))  # all others stay as they are
    is_measured, units = is_measured[:, columns_with_gaps], np.arange(len(seconds))[:, None]
    first_measured = is_measured.argmax(axis=0)  # [columns with gaps]
    last_measured_or_none = np.maximum.accumulate(np.where(is_measured, units, -1), axis=0)  # -1: none so far
    source_units = np.where(last_measured_or_none < 0, first_measured, last_measured_or_none)
    seconds_without_gaps = seconds.copy()
    seconds_without_gaps[:, columns_with_gaps] = np.take_along_axis(seconds[:, columns_with_gaps], source_units, axis=0)
    return seconds_without_gaps


def _next_unit(state: _State, rng_key: jax.Array) -> tuple[jax.Array, _State]:
    """Seconds float[W] of each worker's next row in the order of the rows, which begins anew at its end; the state.

    `position_in_order` is int32[], where all workers are at the same row, or int32[W].
    """
    del rng_key
    row = state.row_order[state.position_in_order]
    is_shared = state.position_in_order.ndim == 0  # then a whole row is copied first, which is faster
    recorded_seconds = state.seconds[row][state.worker_column] if is_shared else state.seconds[row, state.worker_column]
    num_units = jnp.asarray(state.row_order.size, jnp.int32)
    return state.intercept + state.slope * recorded_seconds, state._replace(
        position_in_order=(state.position_in_order + 1) % num_units
    )


def _next_unit_of_block(state: _State, rng_key: jax.Array) -> tuple[jax.Array, _State]:
    """As `_next_unit`, where a new block begins at a random row if no row is left of the block before.

    The first block begins at the first row, which `start` says.
    """
    is_block_over = state.num_left_of_block == 0
    random_position = jax.random.randint(rng_key, state.position_in_order.shape, 0, state.row_order.size, jnp.int32)
    position_in_order = jnp.where(is_block_over, random_position, state.position_in_order)
    num_left_of_block = jnp.where(is_block_over, state.block_size, state.num_left_of_block) - 1
    return _next_unit(state._replace(position_in_order=position_in_order, num_left_of_block=num_left_of_block), rng_key)
