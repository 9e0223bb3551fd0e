"""A straggler model that replays measured times; see `gcjax.stragglers.traces.files` for the files.

Letters: T units of work, W workers. The columns of a trace are the workers measured.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.stragglers.base import StragglerModel
from gcjax.stragglers.traces.base import Trace, trace_array
from gcjax.stragglers.traces.files import read_trace

STARTS = ("random", "recorded")
WORKERS = ("recorded", "drawn")


class _State(NamedTuple):
    """The trace float[T, columns], each worker's column int32[W], and the row of its next unit int32[W]."""

    seconds: jax.Array
    column: jax.Array
    unit: jax.Array


def replay(
    *, trace: str | Path | Trace | np.ndarray | jax.Array, start: str = "random", workers: str = "recorded"
) -> StragglerModel:
    """Measured times, again in their order.

    The n-th unit of a worker takes `trace[(first + n) % T, column]`: after the last row the trace begins anew. A unit
    that was not measured takes as long as the worker's last measured unit before it, or the first one if there is none
    before. Where a worker fails (inf) it does not come back, as always.

    All randomness is in the first row and in the columns, so keys give different parts of the same T rows: a spread
    over seeds says how much depends on the part, not how other measurements would have come out.

    Args:
      trace: a `Trace`, of which the seconds of computing count; or float[T, columns] seconds, NaN where not measured,
        inf for a failed worker; or a file for `read_trace`.
      start: the first row. "random": the key draws it, one for all workers, so that what happened at the same time
        still does; where the workers are drawn, one for each. "recorded": row 0, as it was measured. With
        `workers="recorded"` nothing is random then, and every key gives the same durations.
      workers: the columns. "recorded": worker w is column w, and W must be their number. "drawn": any W; the key draws
        the columns without replacement, and once all are used begins again, so that each is used W / columns times,
        rounded up or down.

    Raises:
      ValueError: if the trace is not of this form, or a worker has no measured unit, or there is no such choice, or W
        is not their number for recorded workers.

    Example:
      >>> model = gcjax.stragglers.replay(trace=np.array([[1.0, 2.0], [1.5, np.nan]]), start="recorded")
      >>> gcjax.stragglers.sample_durations(model, jax.random.key(0), num_units=3, num_workers=2).tolist()
      [[1.0, 2.0], [1.5, 2.0], [1.0, 2.0]]
    """
    if isinstance(trace, (str, Path)):
        trace = read_trace(trace)
    return _replay_model(trace.compute if isinstance(trace, Trace) else trace, start, workers)


@comparable
def _replay_model(seconds: np.ndarray | jax.Array, start: str, workers: str) -> StragglerModel:
    """`replay` of an array, so that models compare by what a file held when it was read."""
    if not _validate.is_traced(seconds):
        seconds = _with_gaps_filled(trace_array(seconds))
    is_drawn = _validate.choice("workers", workers, WORKERS) == "drawn"
    is_random = _validate.choice("start", start, STARTS) == "random"
    num_units, num_columns = seconds.shape

    def init(rng_key: jax.Array, num_workers: int) -> _State:
        """The trace, each worker's column (random if `is_drawn`) and the row of its first unit (if `is_random`)."""
        if not is_drawn and num_workers != num_columns:
            raise ValueError(
                f"recorded workers are as many as the trace has; it has {num_columns}, asked for are {num_workers}. "
                f'Pass num_workers={num_columns}, or workers="drawn", which takes any number of them.'
            )
        columns_key, row_key = jax.random.split(rng_key)
        columns = jnp.arange(num_workers, dtype=jnp.int32)
        if is_drawn:
            columns = _random_columns(columns_key, num_columns, num_workers)
        draw_shape = (num_workers,) if is_drawn else ()
        # One first row for all recorded workers, so that what happened at the same time still does.
        first_row = jax.random.randint(row_key, draw_shape, 0, num_units if is_random else 1, jnp.int32)
        first_units = jnp.broadcast_to(first_row, (num_workers,))
        return _State(jnp.asarray(seconds, jnp.result_type(float)), columns, first_units)

    return StragglerModel(init, _next_unit)


def _random_columns(rng_key: jax.Array, num_columns: int, num_workers: int) -> jax.Array:
    """int32[W]: columns of the trace, all of them in a random order, as often as needed."""
    keys = jax.random.split(rng_key, -(-num_workers // num_columns))
    orders = jax.vmap(lambda key: jax.random.permutation(key, jnp.arange(num_columns, dtype=jnp.int32)))(keys)
    return orders.reshape(-1)[:num_workers]


def _with_gaps_filled(seconds: np.ndarray) -> np.ndarray:
    """float[T, columns]: every NaN is replaced by the worker's last measured unit before it, or by its first one."""
    is_measured = ~np.isnan(seconds)
    if not is_measured.any(axis=0).all():
        worker = np.flatnonzero(~is_measured.any(axis=0))[0]
        raise ValueError(
            f"to be replayed, a trace must have a measured unit of every worker; worker {worker} has none. Leave its "
            "column out, or write inf for a failed worker."
        )
    units = np.arange(len(seconds))[:, None]
    last_measured = np.maximum.accumulate(np.where(is_measured, units, -1), axis=0)
    return np.take_along_axis(seconds, np.where(last_measured < 0, is_measured.argmax(axis=0), last_measured), axis=0)


def _next_unit(state: _State, rng_key: jax.Array) -> tuple[jax.Array, _State]:
    """Seconds float[W] of each worker's next row of the trace, which begins anew at its end; the next state."""
    del rng_key
    num_units = jnp.asarray(state.seconds.shape[0], jnp.int32)
    return state.seconds[state.unit, state.column], state._replace(unit=(state.unit + 1) % num_units)
