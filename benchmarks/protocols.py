"""Benchmarks of protocols: schedules alone, whole runs, and seeds in one program.

The comparison with SimPy needs `simpy`, which `make bench` installs.
"""

import heapq
import statistics
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.timing import KEY, Row, alternate, ratio
from gcjax import engine, protocols, stragglers, tasks
from gcjax.protocols import Protocol
from gcjax.stragglers import Network

NUM_WORKERS = 16


def _durations(num_units: int, num_workers: int) -> jax.Array:
    return stragglers.sample_durations(stragglers.exponential(), KEY, num_units, num_workers)


def schedules() -> list[Row]:
    """SSP(3) alone: the full size, against SimPy on less work, and for growing numbers of workers."""
    rows = []
    schedule = jax.jit(protocols.ssp(staleness=3).schedule)
    large = _durations(10_000, 1000)
    (seconds,) = alternate(lambda: schedule(large, Network()), repeats=5)
    least = min(seconds)
    rows.append(
        Row(
            what="schedule of SSP(3), 1000 workers x 10,000 units",
            value=f"{least:.2f} s",
            target="1 s",
            met=least <= 1,
            note=f"{least * 100:.0f} ns a unit",
        )
    )
    small = _durations(200, 100)
    on_host = np.asarray(small, np.float64)
    ours, theirs = alternate(lambda: schedule(small, Network()), lambda: _simpy(on_host, 3), repeats=5)
    value = ratio(ours, theirs)
    note = f"100 workers x 200 units: {1e3 * min(ours):.1f} ms, SimPy {min(theirs):.2f} s"
    rows.append(
        Row(
            what="schedule of SSP(3) over SimPy",
            value=f"{value:.0f}",
            target=">= 200",
            met=value >= 200,
            note=note,
            peer=f"SimPy {metadata.version('simpy')}",
        )
    )
    for name, protocol in {"SSP(3)": protocols.ssp(staleness=3), "K-async (K=W/2)": None}.items():
        rows.append(_growth(name, protocol))
    return rows


def _growth(name: str, protocol: Protocol | None) -> Row:
    """Seconds a unit for 10^2, ... workers."""
    num_units, sizes = (20, (100, 1000, 10_000, 100_000)) if protocol else (4, (100, 1000, 4000))
    each = []
    for size in sizes:
        schedule = jax.jit((protocol or protocols.k_async(num_contributions=size // 2)).schedule)
        durations = _durations(num_units, size)
        (seconds,) = alternate(partial(schedule, durations, Network()), repeats=3)
        each.append(1e6 * min(seconds) / (size * num_units))
    text = ", ".join(f"{size:,}: {value:.2f}" for size, value in zip(sizes, each, strict=True))
    growth = each[-1] / each[0]
    return Row(
        what=f"{name}: microseconds a unit, by workers",
        value=text,
        target="near linear",
        met=growth <= 3,
        note=f"{num_units} units each",
    )


def _simpy(durations: np.ndarray, staleness: int) -> int:
    """SSP in SimPy: a process for each worker, which waits for the slowest clock."""
    import simpy

    num_units, num_workers = durations.shape
    environment, clock = simpy.Environment(), [0] * num_workers
    waiting: list[tuple[int, int, Any]] = []
    commits: list[tuple[float, int, int]] = []

    def worker(w: int) -> Any:
        for n in range(num_units):
            if n - min(clock) > staleness:
                go = environment.event()
                heapq.heappush(waiting, (n, w, go))
                yield go
            yield environment.timeout(durations[n, w])
            commits.append((environment.now, w, n))
            slowest = clock[w] == min(clock)
            clock[w] += 1
            if slowest:
                while waiting and waiting[0][0] - min(clock) <= staleness:
                    heapq.heappop(waiting)[2].succeed()

    for w in range(num_workers):
        environment.process(worker(w))
    environment.run()
    return len(commits)


def _protocols() -> dict[str, Protocol]:
    """The protocols whose runs are compared with their bare gradients, by name."""
    pairs = protocols.contiguous_groups(NUM_WORKERS, num_groups=4)
    return {
        "ASP": protocols.asp(),
        "SSP(3)": protocols.ssp(staleness=3),
        "BSP": protocols.bsp(),
        "DSSP": protocols.dssp(),
        "PSP": protocols.psp(num_sampled=4, rng_key=KEY),
        "K-sync": protocols.k_sync(num_contributions=8),
        "K-batch-sync": protocols.k_batch_sync(num_contributions=8),
        "K-async": protocols.k_async(num_contributions=8),
        "staleness-aware": protocols.staleness_aware(),
        "anytime": protocols.anytime_minibatch(seconds=2.0),
        "local SGD": protocols.local_sgd(num_local_steps=8),
        "DiLoCo": protocols.diloco(num_local_steps=8),
        "STSyn": protocols.stsyn(num_local_steps=8, num_waited=12),
        "elastic": protocols.elastic_averaging(num_local_steps=8),
        "AdaComm": protocols.adacomm(num_local_steps=8, seconds=20.0, num_windows=5),
        "ADSP": protocols.adsp(seconds=20.0, num_windows=5, min_interval=2.0),
        "WBSP": protocols.worker_busy(),
        "WBSP overlap": protocols.worker_busy(overlap=True),
        "WBSP eager": protocols.worker_busy(eager=True),
        "groups": protocols.grouped(groups=pairs),
        "groups, 4 rounds": protocols.grouped(groups=pairs, num_local_steps=4, merge="change"),
        "progressive": protocols.progressive_groups(),
    }


def training() -> list[Row]:
    """A run over its bare gradient evaluations in a scan, for every protocol: MLP 64-128-10, 16 workers.

    With batches of 32 the network is so small that the overhead shows at its worst; 256 is more like a real gradient.
    """
    return [row for batch_size in (32, 256) for row in _training(batch_size)]


def _training(batch_size: int) -> list[Row]:
    """A row for each protocol: a whole run over the bare gradients of as many contributions."""
    task, optimizer = tasks.digits(NUM_WORKERS, batch_size=batch_size), optax.sgd(0.1)
    durations = _durations(160, NUM_WORKERS)
    bare, params = _bare(task), task.init(KEY)
    rows = []
    for name, protocol in _protocols().items():

        def ours(protocol: Protocol = protocol) -> Any:
            return engine.run(task, protocol, optimizer, durations, rng_key=KEY, eval_every=10**6).params

        run = engine.run(task, protocol, optimizer, durations, rng_key=KEY, eval_every=10**6)
        count = jnp.asarray(int(np.asarray(run.schedule.work).clip(0).sum()))
        seconds, plain = alternate(ours, partial(bare, task.data, params, count), repeats=5)
        cost = 1 / ratio(seconds, plain)
        note = f"{int(count) / statistics.median(seconds):,.0f} gradients/s, schedule included"
        what = f"{name}: run over bare gradients, batch {batch_size}"
        rows.append(Row(what=what, value=f"{cost:.2f}", target="<= 1.15", met=cost <= 1.15, note=note))
    return rows


def _bare(task: tasks.Task) -> Callable[..., Any]:
    """So many gradients of units, one after the other, added up."""
    functions = task._replace(data=None)

    @jax.jit
    def bare(data: Any, params: Any, count: jax.Array) -> Any:
        def step(i: jax.Array, total: Any) -> Any:
            batch = functions.unit_batch(data, KEY, i % NUM_WORKERS, i // NUM_WORKERS)
            gradient = jax.grad(functions.loss)(jax.tree.map(lambda p, t: p + 0 * t, params, total), batch, KEY)
            return jax.tree.map(jnp.add, total, gradient)

        return jax.lax.fori_loop(0, count, step, jax.tree.map(jnp.zeros_like, params))

    return bare


def python_loop() -> list[Row]:
    """ASP against a parameter server written as a Python loop, with a jitted gradient."""
    task, optimizer = tasks.digits(NUM_WORKERS, batch_size=32), optax.sgd(0.1)
    durations = _durations(60, NUM_WORKERS)
    on_host, functions = np.asarray(durations), task._replace(data=None)
    gradient = jax.jit(lambda data, p, w, n: jax.grad(functions.loss)(p, functions.unit_batch(data, KEY, w, n), KEY))
    initial = task.init(KEY)

    def loop() -> Any:
        params = initial
        queue = [(float(on_host[0, w]), w, 0, params) for w in range(NUM_WORKERS)]
        heapq.heapify(queue)
        while True:
            now, w, n, read = heapq.heappop(queue)
            change = gradient(task.data, read, w, n)
            params = jax.tree.map(lambda p, g: p - 0.1 / NUM_WORKERS * g, params, change)
            if n + 1 == len(on_host):
                return params
            heapq.heappush(queue, (now + float(on_host[n + 1, w]), w, n + 1, params))

    protocol = protocols.asp()

    def ours() -> Any:
        return engine.run(task, protocol, optimizer, durations, rng_key=KEY, eval_every=10**6).params

    seconds, slow = alternate(ours, loop, repeats=5)
    value = ratio(seconds, slow)
    return [
        Row(
            what="ASP run over a Python parameter-server loop",
            value=f"{value:.1f}",
            target=">= 10",
            met=value >= 10,
            note="same commits",
            peer="a parameter server in Python, with a jitted gradient",
        )
    ]


def seeds() -> list[Row]:
    """32 seeds by vmap against 32 runs in a loop: SSP(3) and WBSP, small regression, where the overhead counts."""
    task, optimizer = tasks.linear_regression(NUM_WORKERS, num_features=16, batch_size=32), optax.sgd(0.05)
    keys = jax.random.split(KEY, 32)
    model = stragglers.exponential()
    batch = jax.jit(jax.vmap(lambda key: stragglers.sample_durations(model, key, 60, NUM_WORKERS)))(keys)
    rows = []
    for name, protocol in {"SSP(3)": protocols.ssp(staleness=3), "WBSP": protocols.worker_busy()}.items():

        def one(durations: jax.Array, key: jax.Array, protocol: Protocol = protocol) -> Any:
            return engine.run(task, protocol, optimizer, durations, rng_key=key, eval_every=10**6).params

        together = partial(jax.jit(jax.vmap(one)), batch, keys)
        ours, loop = alternate(together, partial(_each, one, batch, keys), repeats=3)
        value = ratio(ours, loop)
        rows.append(
            Row(
                what=f"{name}: 32 seeds by vmap over a loop of runs",
                value=f"{value:.1f}",
                target="> 1",
                met=value > 1,
                note="",
            )
        )
    return rows


def _each(run: Callable[[jax.Array, jax.Array], Any], durations: jax.Array, keys: jax.Array) -> list[Any]:
    return [run(d, key) for d, key in zip(durations, keys, strict=True)]
