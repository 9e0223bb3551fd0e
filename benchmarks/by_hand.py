"""Runs of a protocol against a loop in JAX for this protocol alone: what it costs that one engine runs them all.

Part of `benchmarks`; `python -m benchmarks by_hand` runs it. Letters: W workers, E commits.
"""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.engine import run_params
from benchmarks.timing import KEY, Row, alternate, ratio
from gcjax import protocols, stragglers, tasks
from gcjax._shared_loops import read_first
from gcjax.stragglers import Network

_NUM_WORKERS, _NUM_UNITS, _BATCH_SIZE = 16, 160, 32
_LEARNING_RATE = 0.1
_MOST = 1.15
"""Times as long as its loop that a run may take, whose time has two evaluations and all checks in it."""

Loop = Callable[[tasks.Task, jax.Array], Callable[[], Any]]
"""`(task, durations [T, W]) -> (() -> params)`: trains as the protocol does, with SGD and batches by `KEY`."""


def by_hand() -> list[Row]:
    """Runs of ASP, AD-PSGD and Ringleader over their loops: MLP 64-128-10, 16 workers, batches of 32."""
    task = tasks.digits(_NUM_WORKERS, batch_size=_BATCH_SIZE)
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, _NUM_UNITS, _NUM_WORKERS)
    rows = []
    for name, (protocol, loop) in loops().items():
        run = partial(run_params, task, protocol, OPTIMIZER, durations)
        run_seconds, loop_seconds = alternate(run, loop(task, durations))
        cost = 1 / ratio(run_seconds, loop_seconds)
        run_milliseconds, loop_milliseconds = (1e3 * statistics.median(s) for s in (run_seconds, loop_seconds))
        rows.append(
            Row(
                what=f"{name}: run over a loop written for it alone",
                value=f"{cost:.2f}",
                target=f"<= {_MOST:g}",
                met=cost <= _MOST,
                note=f"{run_milliseconds:.0f} ms with two evaluations; {loop_milliseconds:.0f} ms, without",
                peer="a loop in JAX",
            )
        )
    return rows


def loops() -> dict[str, tuple[protocols.Protocol, Loop]]:
    """The protocols, each with its loop, by name."""
    return {
        "ASP": (protocols.asp(), _asp_loop),
        "AD-PSGD": (protocols.ad_psgd(rng_key=KEY), _ad_psgd_loop),
        "Ringleader": (protocols.ringleader(), _ringleader_loop),
    }


OPTIMIZER = optax.sgd(_LEARNING_RATE)  # one object: another one would be compiled for again


def _gradient(task: tasks.Task, data: Any, params: Any, worker: jax.Array, unit: jax.Array) -> Any:
    """The gradient on a unit, of the batch that a run with `KEY` takes for it."""
    _, batch_key = jax.random.split(KEY)
    return jax.grad(task.loss)(params, task.unit_batch(data, batch_key, worker, unit), KEY)


def _initial_params(task: tasks.Task) -> Any:
    """Those of a run with `KEY`."""
    init_key, _ = jax.random.split(KEY)
    return task.init(init_key)


def _rows(table: Any, *indices: jax.Array) -> list[Any]:
    """The rows with these indices, each a pytree, of leaves [rows, ...]; read before any is written."""

    def read(table: Any) -> list[Any]:
        """The rows, outside of what is computed with them."""
        return [jax.tree.map(lambda x, i=i: jax.lax.dynamic_index_in_dim(x, i, keepdims=False), table) for i in indices]

    return list(read_first(indices[0], read, table))


def _with_row(table: Any, index: jax.Array, row: Any) -> Any:
    """The leaves [rows, ...] with another row."""
    return jax.tree.map(lambda x, new: jax.lax.dynamic_update_index_in_dim(x, new, index, axis=0), table, row)


def _repeated(params: Any, count: int) -> Any:
    """The parameters so many times, every leaf [count, ...]."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), params)


def _asp_loop(task: tasks.Task, durations: jax.Array) -> Callable[[], Any]:
    """ASP: the server steps with each gradient, of the parameters that its worker has kept since its last commit."""
    num_workers, schedule_of = durations.shape[1], jax.jit(protocols.asp().schedule)
    task_without_data = task._replace(data=None)

    @jax.jit
    def train(data: Any, params: Any, worker: jax.Array, unit: jax.Array, num_commits: jax.Array) -> Any:
        def commit(e: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            """The server's parameters and those of all workers [W, ...] after commit e."""
            params, params_of_workers = carry
            (params_read,) = _rows(params_of_workers, worker[e])
            gradient = _gradient(task_without_data, data, params_read, worker[e], unit[e])
            params = jax.tree.map(lambda p, g: p - _LEARNING_RATE / num_workers * g, params, gradient)
            return params, _with_row(params_of_workers, worker[e], params)

        return jax.lax.fori_loop(0, num_commits, commit, (params, _repeated(params, num_workers)))[0]

    params = _initial_params(task)

    def trained() -> Any:
        """The server's parameters at the end."""
        schedule = schedule_of(durations, Network())
        num_commits = jnp.isfinite(schedule.time).sum()
        return train(task.data, params, schedule.worker[:, 0].clip(0), schedule.unit[:, 0].clip(0), num_commits)

    return trained


def _ad_psgd_loop(task: tasks.Task, durations: jax.Array) -> Callable[[], Any]:
    """AD-PSGD: a worker and its neighbour average; then it takes the step of a gradient of where it began the unit."""
    num_workers, protocol = durations.shape[1], protocols.ad_psgd(rng_key=KEY)
    task_without_data = task._replace(data=None)
    assert protocol.local is not None and protocol.local.mixing is not None
    assert protocol.local.mixing.neighbour is not None
    neighbours_of, schedule_of = jax.jit(protocol.local.mixing.neighbour), jax.jit(protocol.schedule)

    @jax.jit
    def train(
        data: Any, params: Any, workers: jax.Array, neighbours: jax.Array, unit: jax.Array, num_commits: jax.Array
    ) -> Any:
        def commit(e: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            """The parameters of all workers now, and when each began its unit, both [W, ...], after commit e."""
            now, at_begin = carry
            worker, neighbour = workers[e], neighbours[e]
            params, params_of_neighbour = _rows(now, worker, neighbour)
            (params_at_begin,) = _rows(at_begin, worker)
            gradient = _gradient(task_without_data, data, params_at_begin, worker, unit[e])
            mean = jax.tree.map(lambda x, y: (x + y) / 2, params, params_of_neighbour)
            new = jax.tree.map(lambda x, g: x - _LEARNING_RATE * g, mean, gradient)
            now = _with_row(_with_row(now, neighbour, mean), worker, new)
            return now, _with_row(at_begin, worker, new)

        params_of_workers = _repeated(params, num_workers)
        now, _ = jax.lax.fori_loop(0, num_commits, commit, (params_of_workers, params_of_workers))
        return jax.tree.map(lambda x: x.mean(axis=0), now)

    params = _initial_params(task)

    def trained() -> Any:
        """The mean of all workers' parameters at the end."""
        schedule = schedule_of(durations, Network())
        num_commits = jnp.isfinite(schedule.time).sum()
        worker, unit = schedule.worker[:, 0].clip(0), schedule.unit[:, 0].clip(0)
        return train(task.data, params, worker, neighbours_of(schedule), unit, num_commits)

    return trained


def _ringleader_loop(task: tasks.Task, durations: jax.Array) -> Callable[[], Any]:
    """Ringleader: a table of mean gradients, changed by the contributions to each commit; a step with its mean."""
    num_workers, schedule_of = durations.shape[1], jax.jit(protocols.ringleader().schedule)
    num_versions, task_without_data = 2 * num_workers - 1, task._replace(data=None)  # none older is read

    @jax.jit
    def train(data: Any, params: Any, contributions: dict[str, jax.Array], ends: jax.Array) -> Any:
        def add(i: jax.Array, carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            """The table [W, ...] and by how much its mean has changed, with contribution i; versions as they are."""
            table, versions, change = carry
            worker, unit, version, work, weight = (
                contributions[name][i] for name in ("worker", "unit", "version", "work", "weight")
            )
            (row,), (params_read,) = _rows(table, worker), _rows(versions, version % num_versions)

            def add_gradient(k: jax.Array, total: Any) -> Any:
                """The sum with the gradient of the k-th unit."""
                gradient = _gradient(task_without_data, data, params_read, worker, unit + k)
                return jax.tree.map(jnp.add, total, gradient)

            total = jax.lax.fori_loop(0, work, add_gradient, jax.tree.map(jnp.zeros_like, params_read))
            factor = weight * num_workers
            new = jax.tree.map(lambda old, g: (1 - jnp.minimum(factor * work, 1)) * old + factor * g, row, total)
            change = jax.tree.map(lambda c, x, y: c + (x - y) / num_workers, change, new, row)
            return _with_row(table, worker, new), versions, change

        def commit(e: jax.Array, carry: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
            """The parameters, the table and its mean, and the latest versions [2 W - 1, ...], after commit e."""
            params, table, mean, versions = carry
            no_change = jax.tree.map(jnp.zeros_like, params)
            table, versions, change = jax.lax.fori_loop(ends[e], ends[e + 1], add, (table, versions, no_change))
            mean = jax.tree.map(jnp.add, mean, change)
            params = jax.tree.map(lambda p, g: p - _LEARNING_RATE * g, params, mean)
            return params, table, mean, _with_row(versions, (e + 1) % num_versions, params)

        zero = jax.tree.map(jnp.zeros_like, params)
        carry = params, _repeated(zero, num_workers), zero, _repeated(params, num_versions)
        return jax.lax.fori_loop(0, ends.size - 1, commit, carry)[0]

    params = _initial_params(task)

    def trained() -> Any:
        """The server's parameters at the end."""
        schedule = jax.tree.map(np.asarray, schedule_of(durations, Network()))
        is_contribution = schedule.worker >= 0  # [E, W]; -1 pads
        num_commits = np.isfinite(schedule.time).sum()
        ends = np.concatenate([[0], is_contribution[:num_commits].sum(axis=1).cumsum()]).astype(np.int32)
        contributions = {
            name: getattr(schedule, name)[is_contribution] for name in ("worker", "unit", "version", "work", "weight")
        }
        return train(task.data, params, contributions, ends)

    return trained
