"""A straggler model that replays measured times; see `gcjax.stragglers.trace_files` for the files.

Letters: T units of work, P workers of the trace, W workers.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.stragglers.base import StragglerModel
from gcjax.stragglers.trace_files import read_trace, trace_array

STARTS = ("random", "recorded")
WORKERS = ("recorded", "drawn")


class _State(NamedTuple):
    """The trace float[T, P], each worker's column int32[W], and the row of its next unit int32[W]."""

    seconds: jax.Array
    column: jax.Array
    unit: jax.Array


def replay(
    *, trace: str | Path | np.ndarray | jax.Array, start: str = "random", workers: str = "recorded"
) -> StragglerModel:
    """Measured times, again in their order.

    The n-th unit of a worker takes `trace[(first + n) % T, column]`: after the last row the trace begins anew. A unit
    that was not measured takes as long as the worker's last measured unit before it, or the first one if there is none
    before. Where a worker fails (inf) it does not come back, as always.

    All randomness is in the first row and in the columns, so keys give different parts of the same T rows: a spread
    over seeds says how much depends on the part, not how other measurements would have come out.

    Args:
      trace: float[T, P] seconds, NaN where not measured, inf for a failed worker; or a file for `read_trace`.
      start: the first row. "random": the key draws it, one for all workers, so that what happened at the same time
        still does; where the workers are drawn, one for each. "recorded": row 0, as it was measured. With
        `workers="recorded"` nothing is random then, and every key gives the same durations.
      workers: the columns. "recorded": worker w is column w, and W must be P. "drawn": any W; the key draws the
        columns without replacement, and once all are used begins again, so that each column is used W/P times, rounded
        up or down.

    Raises:
      ValueError: if the trace is not of this form, or a worker has no measured unit, or there is no such choice, or W
        is not P for recorded workers.
    """
    return _model_of(read_trace(trace) if isinstance(trace, (str, Path)) else trace, start, workers)


@comparable
def _model_of(seconds: np.ndarray | jax.Array, start: str, workers: str) -> StragglerModel:
    """The model, which depends on nothing but the arguments; a file may change."""
    if not _validate.is_traced(seconds):
        seconds = _without_gaps(trace_array(seconds))
    is_drawn = _validate.choice("workers", workers, WORKERS) == "drawn"
    is_random = _validate.choice("start", start, STARTS) == "random"
    num_units, width = seconds.shape

    def init(rng_key: jax.Array, num_workers: int) -> _State:
        if not is_drawn and num_workers != width:
            raise ValueError(
                f"recorded workers are as many as the trace has; it has {width}, asked for are {num_workers}. Pass "
                f'num_workers={width}, or workers="drawn", which takes any number of them.'
            )
        column_key, row_key = jax.random.split(rng_key)
        column = _columns(column_key, width, num_workers) if is_drawn else jnp.arange(num_workers, dtype=jnp.int32)
        shape = (num_workers,) if is_drawn else ()
        first = jax.random.randint(row_key, shape, 0, num_units if is_random else 1, jnp.int32)
        unit = jnp.broadcast_to(first, (num_workers,))
        return _State(jnp.asarray(seconds, jnp.result_type(float)), column, unit)

    return StragglerModel(init, _next)


def _columns(rng_key: jax.Array, width: int, num_workers: int) -> jax.Array:
    """int32[W]: columns of the trace, all of them in a random order, as often as needed."""
    keys = jax.random.split(rng_key, -(-num_workers // width))
    orders = jax.vmap(lambda key: jax.random.permutation(key, jnp.arange(width, dtype=jnp.int32)))(keys)
    return orders.reshape(-1)[:num_workers]


def _without_gaps(seconds: np.ndarray) -> np.ndarray:
    """Without NaN: the last measured unit before, or else the first."""
    measured = ~np.isnan(seconds)
    if not measured.any(axis=0).all():
        worker = np.flatnonzero(~measured.any(axis=0))[0]
        raise ValueError(
            f"to be replayed, a trace must have a measured unit of every worker; worker {worker} has none. Leave its "
            "column out, or write inf for a failed worker."
        )
    units = np.arange(len(seconds))[:, None]
    last = np.maximum.accumulate(np.where(measured, units, -1), axis=0)
    return np.take_along_axis(seconds, np.where(last < 0, measured.argmax(axis=0), last), axis=0)


def _next(state: _State, rng_key: jax.Array) -> tuple[jax.Array, _State]:
    del rng_key
    num_units = jnp.asarray(state.seconds.shape[0], jnp.int32)
    return state.seconds[state.unit, state.column], state._replace(unit=(state.unit + 1) % num_units)
