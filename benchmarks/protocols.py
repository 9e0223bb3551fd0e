"""Benchmarks of protocols: schedules alone, whole runs, and seeds in one program.

The comparison with SimPy needs `simpy`, which `make bench` installs.
"""

import heapq
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.engine import plain_sgd_run, run_params
from benchmarks.timing import KEY, Row, alternate, ratio
from gcjax import codes, compiler_options, engine, memory, protocols, stragglers, tasks
from gcjax.protocols import Protocol
from gcjax.stragglers import Network

NUM_WORKERS = 16
NEVER = 10**6  # more commits than any run has: only its end is evaluated


def _durations(num_units: int, num_workers: int) -> jax.Array:
    return stragglers.sample_durations(stragglers.exponential(), KEY, num_units, num_workers)


def schedules() -> list[Row]:
    """SSP(3) alone: the full size, against SimPy on less work, and for growing numbers of workers."""
    rows = []
    schedule = jax.jit(protocols.ssp(staleness=3).schedule)
    large_durations = _durations(10_000, 1000)
    (seconds,) = alternate(lambda: schedule(large_durations, Network()), repeats=5)
    least_seconds = min(seconds)
    nanoseconds_per_unit = least_seconds * 100  # of 10^7 units
    rows.append(
        Row(
            what="schedule of SSP(3), 1000 workers x 10,000 units",
            value=f"{least_seconds:.2f} s",
            target="1 s",
            met=least_seconds <= 1,
            note=f"{nanoseconds_per_unit:.0f} ns a unit",
        )
    )
    small_durations = _durations(200, 100)
    host_durations = np.asarray(small_durations, np.float64)
    schedule_seconds, simpy_seconds = alternate(
        lambda: schedule(small_durations, Network()), lambda: _simulate_ssp_in_simpy(host_durations, 3), repeats=5
    )
    speedup = ratio(schedule_seconds, simpy_seconds)
    note = f"100 workers x 200 units: {1e3 * min(schedule_seconds):.1f} ms, SimPy {min(simpy_seconds):.2f} s"
    rows.append(
        Row(
            what="schedule of SSP(3) over SimPy",
            value=f"{speedup:.0f}",
            target=">= 200",
            met=speedup >= 200,
            note=note,
            peer=f"SimPy {metadata.version('simpy')}",
        )
    )
    ssp_sizes, k_async_sizes = (100, 1000, 10_000, 100_000), (100, 1000, 10_000)
    rows.append(_growth_row("SSP(3)", lambda size: protocols.ssp(staleness=3), num_units=20, sizes=ssp_sizes))
    rows.append(
        _growth_row(
            "K-async (K=W/2)", lambda size: protocols.k_async(num_contributions=size // 2), num_units=4,
            sizes=k_async_sizes,
        )
    )  # fmt: skip
    return rows


def _growth_row(
    name: str, protocol_of_size: Callable[[int], Protocol], *, num_units: int, sizes: tuple[int, ...]
) -> Row:
    """Microseconds a unit for growing numbers of workers, compiled as for a run."""
    options = compiler_options.small_operations()
    microseconds_per_unit = []
    for size in sizes:
        schedule = jax.jit(protocol_of_size(size).schedule, compiler_options=options)
        durations = _durations(num_units, size)
        (seconds,) = alternate(partial(schedule, durations, Network()), repeats=3)
        microseconds_per_unit.append(1e6 * min(seconds) / (size * num_units))
    microseconds_text = ", ".join(
        f"{size:,}: {microseconds:.2f}" for size, microseconds in zip(sizes, microseconds_per_unit, strict=True)
    )
    growth = microseconds_per_unit[-1] / microseconds_per_unit[0]
    return Row(
        what=f"{name}: microseconds a unit, by workers",
        value=microseconds_text,
        target="near linear",
        met=growth <= 3,
        note=f"{num_units} units each",
    )


def _simulate_ssp_in_simpy(durations: np.ndarray, staleness: int) -> int:
    """SSP in SimPy: a process for each worker, which waits for the slowest clock; returns the number of commits."""
    import simpy

    num_units, num_workers = durations.shape
    environment, units_done = simpy.Environment(), [0] * num_workers
    waiting_workers: list[
        tuple[int, int, Any]
    ] = []  # (unit, worker, the event that lets it go on), the lowest unit first
    commits: list[tuple[float, int, int]] = []

    def compute_units(worker: int) -> Any:
        for unit in range(num_units):
            if unit - min(units_done) > staleness:
                may_go_on = environment.event()
                heapq.heappush(waiting_workers, (unit, worker, may_go_on))
                yield may_go_on
            yield environment.timeout(durations[unit, worker])
            commits.append((environment.now, worker, unit))
            was_slowest = units_done[worker] == min(units_done)
            units_done[worker] += 1
            if was_slowest:
                release_waiting()

    def release_waiting() -> None:
        while waiting_workers:
            lowest_unit, _, may_go_on = waiting_workers[0]
            if lowest_unit - min(units_done) > staleness:
                return
            heapq.heappop(waiting_workers)
            may_go_on.succeed()

    for worker in range(num_workers):
        environment.process(compute_units(worker))
    environment.run()
    return len(commits)


def _protocols() -> dict[str, Protocol]:
    """The protocols whose runs are compared with their bare gradients, by name."""
    return {**_server_protocols(), **_local_protocols(), **_group_protocols(), **_coded_protocols()}


def _server_protocols() -> dict[str, Protocol]:
    """Those in which a server makes each step with gradients."""
    return {
        "ASP": protocols.asp(),
        "SSP(3)": protocols.ssp(staleness=3),
        "BSP": protocols.bsp(),
        "DSSP": protocols.dssp(),
        "PSP": protocols.psp(num_sampled=4, rng_key=KEY),
        "K-sync": protocols.k_sync(num_contributions=8),
        "K-batch-sync": protocols.k_batch_sync(num_contributions=8),
        "K-async": protocols.k_async(num_contributions=8),
        "K-batch-async": protocols.k_batch_async(num_contributions=8),
        "Rennala": protocols.rennala(num_contributions=8),
        "Ringmaster": protocols.ringmaster(delay_threshold=16),
        "Ringleader": protocols.ringleader(),
        "backup workers": protocols.backup_workers(num_backup=2),
        "staleness-aware": protocols.staleness_aware(),
        "delay-adaptive": protocols.delay_adaptive(),
        "eager-SGD": protocols.eager_sgd(),
        "anytime": protocols.anytime_minibatch(seconds=2.0),
    }


def _local_protocols() -> dict[str, Protocol]:
    """Those with local steps, or local parameters."""
    return {
        "local SGD": protocols.local_sgd(num_local_steps=8),
        "DiLoCo": protocols.diloco(num_local_steps=8),
        "DiLoCo dynamic": protocols.diloco(num_local_steps=8, dynamic=True),
        "streaming DiLoCo": protocols.streaming_diloco(num_local_steps=8, num_fragments=2, overlap_steps=1),
        "decoupled DiLoCo": protocols.decoupled_diloco(num_local_steps=8),
        "FedBuff": protocols.fedbuff(num_local_steps=8, num_contributions=4),
        "async local SGD": protocols.async_local_sgd(num_local_steps=8),
        "DyLU": protocols.async_local_sgd(num_local_steps=8, dynamic=True),
        "STSyn": protocols.stsyn(num_local_steps=8, num_waited=12),
        "elastic": protocols.elastic_averaging(num_local_steps=8),
        "AdaComm": protocols.adacomm(num_local_steps=8, seconds=20.0, num_windows=5),
        "ADSP": protocols.adsp(seconds=20.0, num_windows=5, min_interval=2.0),
        "WBSP": protocols.worker_busy(),
        "WBSP overlap": protocols.worker_busy(overlap=True),
        "WBSP eager": protocols.worker_busy(eager=True),
    }


def _group_protocols() -> dict[str, Protocol]:
    """Those with servers of groups, and those without a server."""
    four_groups = protocols.contiguous_groups(NUM_WORKERS, num_groups=4)
    return {
        "groups": protocols.grouped(groups=four_groups),
        "groups, 4 rounds": protocols.grouped(groups=four_groups, num_local_steps=4, merge="change"),
        "progressive": protocols.progressive_groups(),
        "HALoS": protocols.halos(groups=four_groups, num_local_steps=8, num_contributions=8, max_pushes=16),
        "D-PSGD": protocols.d_psgd(),
        "SGP": protocols.sgp(),
        "Hop": protocols.hop(),
        "Prague": protocols.prague(group_size=4, rng_key=KEY),
        "AD-PSGD": protocols.ad_psgd(rng_key=KEY),
    }


def _coded_protocols() -> dict[str, Protocol]:
    """Those with a code; each chunk is computed once in a run, however many workers hold it."""
    repetition = codes.fractional_repetition(NUM_WORKERS, num_stragglers=1)
    return {
        "coded, fractional repetition": protocols.coded(repetition),
        "adaptive codes": protocols.adaptive_coded({"uncoded": codes.uncoded(NUM_WORKERS), "repetition": repetition}),
        "pipelined coded": protocols.pipelined_coded(repetition),
        "SR-SGC": protocols.sr_sgc(NUM_WORKERS, burst=1, window=2, max_slow=3, rng_key=KEY),
    }


def training() -> list[Row]:
    """A run over its bare gradient evaluations in a scan, for every protocol: MLP 64-128-10, 16 workers.

    With batches of 32 the network is so small that the overhead shows at its worst; 256 is more like a real gradient.
    Left out are m_sgc and coded_reduce, which cut the data of 16 workers into other chunks.
    """
    return _training_rows(batch_size=32, num_units=1280) + _training_rows(batch_size=256, num_units=160)


def _training_rows(*, batch_size: int, num_units: int) -> list[Row]:
    """A row for each protocol: a whole run over the bare gradients of as many contributions.

    Most take 0.3 s or longer, so that beginning and end, 2 to 6 ms, count as they do in short runs of people.
    """
    task, optimizer = tasks.digits(NUM_WORKERS, batch_size=batch_size), optax.sgd(0.1)
    durations = _durations(num_units, NUM_WORKERS)
    sum_gradients, params = _sum_gradients_program(task), task.init(KEY)

    def run_of(protocol: Protocol) -> engine.Run:
        return jax.block_until_ready(engine.run(task, protocol, optimizer, durations, rng_key=KEY, eval_every=NEVER))

    rows = []
    for name, protocol in _protocols().items():
        memory.forget_programs()
        start_time = time.perf_counter()
        run = run_of(protocol)
        first_seconds = time.perf_counter() - start_time
        num_gradients = _num_gradients(run, protocol)
        bare_gradients = partial(sum_gradients, task.data, params, jnp.asarray(num_gradients))
        run_seconds, bare_seconds = alternate(partial(run_of, protocol), bare_gradients, repeats=5)
        cost = 1 / ratio(run_seconds, bare_seconds)
        compile_seconds = first_seconds - statistics.median(run_seconds)
        note = (
            f"{num_gradients / statistics.median(run_seconds):,.0f} gradients/s, schedule included; compiled in "
            f"{compile_seconds:.1f} s"
        )
        what = f"{name}: run over bare gradients, batch {batch_size}"
        rows.append(Row(what=what, value=f"{cost:.2f}", target="<= 1.15", met=cost <= 1.15, note=note))
    return rows


def _num_gradients(run: engine.Run, protocol: Protocol) -> int:
    """The gradients that a run computes: of all contributions, or, where it has a code, of each chunk in each round."""
    if protocol.code is None:
        return int(np.asarray(run.schedule.work).clip(0).sum())
    return int(np.isfinite(np.asarray(run.schedule.time)).sum()) * protocol.code.assignment.num_chunks


def _sum_gradients_program(task: tasks.Task) -> Callable[..., Any]:
    """A program `(data, params, num_gradients) -> sum`: so many gradients of units, one after the other, added up."""
    task_without_data = task._replace(data=None)

    @jax.jit
    def sum_gradients(data: Any, params: Any, num_gradients: jax.Array) -> Any:
        def add_gradient(i: jax.Array, total: Any) -> Any:
            worker, unit = i % NUM_WORKERS, i // NUM_WORKERS
            batch = task_without_data.unit_batch(data, KEY, worker, unit)
            params_depending_on_total = jax.tree.map(lambda p, t: p + 0 * t, params, total)
            gradient = jax.grad(task_without_data.loss)(params_depending_on_total, batch, KEY)
            return jax.tree.map(jnp.add, total, gradient)

        return jax.lax.fori_loop(0, num_gradients, add_gradient, jax.tree.map(jnp.zeros_like, params))

    return sum_gradients


def python_loop() -> list[Row]:
    """ASP against a parameter server written as a Python loop, with a jitted gradient.

    The note has the most that any run could reach: as many plain SGD steps in a scan, over the same loop.
    """
    task, optimizer = tasks.digits(NUM_WORKERS, batch_size=32), optax.sgd(0.1)
    durations = _durations(240, NUM_WORKERS)
    host_durations, task_without_data = np.asarray(durations), task._replace(data=None)

    @jax.jit
    def gradient_of_unit(data: Any, params: Any, worker: jax.Array, unit: jax.Array) -> Any:
        batch = task_without_data.unit_batch(data, KEY, worker, unit)
        return jax.grad(task_without_data.loss)(params, batch, KEY)

    initial_params = task.init(KEY)

    def run_python_loop() -> Any:
        params = initial_params
        queue = [(float(host_durations[0, worker]), worker, 0, params) for worker in range(NUM_WORKERS)]
        heapq.heapify(queue)
        while True:
            now, worker, unit, params_read = heapq.heappop(queue)
            gradient = gradient_of_unit(task.data, params_read, worker, unit)
            params = jax.tree.map(lambda p, g: p - 0.1 / NUM_WORKERS * g, params, gradient)
            next_unit = unit + 1
            if next_unit == len(host_durations):
                return params
            finish_time = now + float(host_durations[next_unit, worker])
            heapq.heappush(queue, (finish_time, worker, next_unit, params))

    protocol = protocols.asp()
    num_commits = int(np.isfinite(protocol(durations).time).sum())
    plain_sgd = plain_sgd_run(task, optimizer, NUM_WORKERS, num_commits)
    run = partial(run_params, task, protocol, optimizer, durations)
    run_seconds, loop_seconds, sgd_seconds = alternate(run, run_python_loop, plain_sgd, repeats=5)
    speedup, most_speedup = ratio(run_seconds, loop_seconds), ratio(sgd_seconds, loop_seconds)
    return [
        Row(
            what="ASP run over a Python parameter-server loop",
            value=f"{speedup:.1f}",
            target=">= 10",
            met=speedup >= 10,
            note=f"same commits; as many plain SGD steps in a scan: {most_speedup:.1f}",
            peer="a parameter server in Python, with a jitted gradient",
        )
    ]


def seeds() -> list[Row]:
    """32 seeds by vmap against 32 runs in a loop: SSP(3) and WBSP, small regression, where the overhead counts."""
    task, optimizer = tasks.linear_regression(NUM_WORKERS, num_features=16, batch_size=32), optax.sgd(0.05)
    keys = jax.random.split(KEY, 32)
    model = stragglers.exponential()
    sample_of_key = jax.vmap(lambda key: stragglers.sample_durations(model, key, 60, NUM_WORKERS))
    durations_of_seeds = jax.jit(sample_of_key)(keys)
    rows = []
    for name, protocol in {"SSP(3)": protocols.ssp(staleness=3), "WBSP": protocols.worker_busy()}.items():

        def run_of_seed(durations: jax.Array, key: jax.Array, protocol: Protocol = protocol) -> Any:
            return engine.run(task, protocol, optimizer, durations, rng_key=key, eval_every=NEVER).params

        run_under_vmap = partial(jax.jit(jax.vmap(run_of_seed)), durations_of_seeds, keys)
        run_in_loop = partial(_run_one_by_one, run_of_seed, durations_of_seeds, keys)
        vmap_seconds, loop_seconds = alternate(run_under_vmap, run_in_loop, repeats=3)
        speedup = ratio(vmap_seconds, loop_seconds)
        rows.append(
            Row(
                what=f"{name}: 32 seeds by vmap over a loop of runs",
                value=f"{speedup:.1f}",
                target="> 1",
                met=speedup > 1,
                note="",
            )
        )
    return rows


def _run_one_by_one(
    run_of_seed: Callable[[jax.Array, jax.Array], Any], durations_of_seeds: jax.Array, keys: jax.Array
) -> list[Any]:
    return [run_of_seed(durations, key) for durations, key in zip(durations_of_seeds, keys, strict=True)]
