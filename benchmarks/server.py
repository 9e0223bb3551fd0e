"""Benchmarks of the parameter server: pushes over a bare echo, rounds over their slowest worker, memory, a kill."""

import contextlib
import json
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pyarrow.flight as flight

from benchmarks.timing import Row, peak_mebibytes, rows_of_child
from gcjax import parameter_server, protocols, tasks
from gcjax.parameter_server import Limits, Server, Setup
from gcjax.parameter_server import flight as transport
from gcjax.parameter_server.rule_state import JOIN, MESSAGE, RuleState
from gcjax.parameter_server.security import NO_SECURITY
from gcjax.parameter_server.setups import fingerprint
from gcjax.parameter_server.transport import Disconnected
from gcjax.parameter_server.wire import Message

KEY = jax.random.key(0)
NUM_PUSHERS, NUM_WORKERS = 2, 1000
SIZES = {10_000: 2000, 10_000_000: 60}  # parameters -> pushes
NUM_REPETITIONS = 7
"""Of pushes and echoes: echoes of one run can be twice as fast as those of the next one."""
ROUND_SECONDS, NUM_ROUNDS = 0.1, 50
BYTES_OF_FLOAT = 4
SCHEMA = pa.schema([("bytes", pa.uint8())])


def quadratic(num_params: int) -> tasks.Task:
    """The distance from zero of so many parameters; a batch has nothing in it."""

    def no_batch(data: Any, rng_key: jax.Array, worker: jax.Array, unit: jax.Array) -> jax.Array:
        del rng_key, worker, unit
        return data

    return tasks.Task(
        data=jnp.zeros(1),
        init=lambda rng_key: jnp.ones(num_params),
        loss=lambda params, batch, rng_key: (params**2).sum() / 2,
        unit_batch=no_batch,
        chunk_batch=no_batch,
        metrics=lambda params, data: {},
        num_chunks=1,
    )


def setup_of(num_params: int, num_workers: int, name: str = "asp") -> Setup:
    """A setup with plain SGD."""
    protocol = {"asp": protocols.asp, "bsp": protocols.bsp}[name]()
    return Setup(quadratic(num_params), protocol, optax.sgd(1e-6), num_workers, KEY)


def throttle(worker: int, unit: int) -> float:
    """A unit takes so long at least."""
    del worker, unit
    return ROUND_SECONDS


def throttle_of_killed_worker(worker: int, unit: int) -> float:
    """A unit of a worker that is killed."""
    del worker, unit
    return 0.02


def pusher(num_params: int, address: str, worker: int, num_workers: int = NUM_PUSHERS) -> int:
    """A worker that computes nothing: it pushes the same bytes whenever it may; returns how often."""
    setup = setup_of(num_params, num_workers)
    message_bytes = BYTES_OF_FLOAT * num_params
    connection = transport.connect(address, max_bytes=message_bytes)
    zero_gradient, moment, num_pushes = np.zeros(message_bytes, np.uint8), 0.0, 0
    hello = {"kind": "hello", "worker": worker, "incarnation": str(worker), "fingerprint": fingerprint(setup)}
    connection.send(Message(hello))
    connection.send(Message({"kind": "ready"}))
    with contextlib.suppress(Disconnected):
        while (order := connection.receive()).kind != "end":
            header = {"kind": "push", "turn": order.header["turn"], "loss": 0.0, "is_finite": True, "num_lost": 0}
            header |= {"compute_start": moment, "unit_ends": [moment], "send_start": moment}
            connection.send(Message(header, zero_gradient))
            num_pushes += 1
    connection.close()
    return num_pushes


def many_pushers(num_params: int, address: str, workers: list[int], num_workers: int) -> int:
    """Several pushers in threads of one process; returns how often all of them have pushed."""
    with ThreadPoolExecutor(len(workers)) as threads:
        return sum(threads.map(lambda worker: pusher(num_params, address, worker, num_workers), workers))


class Echo(flight.FlightServerBase):
    """Answers each record batch with as many bytes, and nothing else."""

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """One exchange."""
        del context, descriptor
        writer.begin(SCHEMA)
        with contextlib.suppress(StopIteration, pa.ArrowException):
            while True:
                writer.write_batch(reader.read_chunk().data)


def echo_client(num_params: int, address: str, count: int) -> list[float]:
    """Sends so many batches and waits for the answer to each; when it began and ended."""
    message = np.zeros(BYTES_OF_FLOAT * num_params, np.uint8)
    column_without_copy = pa.Array.from_buffers(pa.uint8(), message.size, [None, pa.py_buffer(message)])
    batch = pa.record_batch([column_without_copy], schema=SCHEMA)
    with flight.connect(address) as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"echo"))
        writer.begin(SCHEMA)
        begin_time = time.time()
        for _ in range(count):
            writer.write_batch(batch)
            reader.read_chunk()
        end_time = time.time()
        writer.done_writing()
    return [begin_time, end_time]


def pushes_run(num_params: int, count: int, **arguments: Any) -> parameter_server.LiveRun:
    """A run of a server, made with these arguments, to which workers push as fast as they may."""
    limits = Limits(count, seconds=60.0, join_seconds=60.0, lease=30.0)
    server = Server(setup_of(num_params, NUM_PUSHERS), limits, **arguments)
    arguments_of_pushers = {
        worker: {"num_params": num_params, "address": server.address, "worker": worker} for worker in range(NUM_PUSHERS)
    }
    with parameter_server.processes(pusher, arguments_of_pushers, on_error=server.stop):
        return server.run()


def pushes_per_second(num_params: int, count: int) -> tuple[float, float]:
    """Pushes that a server takes a second from all pushers, and the median seconds for one in its thread."""
    run = pushes_run(num_params, count)
    commit_times = np.asarray(run.schedule.time)
    seconds_after_first = float(commit_times[-1] - commit_times[0])
    return (len(commit_times) - 1) / seconds_after_first, float(np.median(run.service_seconds))


def echoes_per_second(num_params: int, count: int) -> float:
    """Answers that a bare server gives a second, to as many processes."""
    server = Echo("grpc://127.0.0.1:0")
    count_of_client = count // NUM_PUSHERS
    arguments = {"num_params": num_params, "address": f"grpc://127.0.0.1:{server.port}", "count": count_of_client}
    with parameter_server.processes(echo_client, dict.fromkeys(range(NUM_PUSHERS), arguments)) as children:
        children.join(120.0)
    server.shutdown()
    begin_times, end_times = zip(*children.results.values(), strict=True)
    return NUM_PUSHERS * count_of_client / (max(end_times) - min(begin_times))


def answers_per_second(num_params: int, count: int) -> float:
    """Pushes a second that would be answered if nothing followed from them: the messages are those of a server."""
    message_bytes = BYTES_OF_FLOAT * num_params
    order = Message({"kind": "begin", "turn": 0, "first_unit": 0, "num_units": 1}, np.zeros(message_bytes, np.uint8))
    times: list[float] = []

    def answer_pushes(connection: transport.Connection) -> None:
        """Answers each message with parameters, and the last ones with the end."""
        with contextlib.suppress(Disconnected):
            while len(times) < count:
                if connection.receive().kind != "hello":
                    times.append(time.monotonic())
                    connection.send(order)
            connection.send(Message({"kind": "end"}))

    listener = transport.listen("127.0.0.1:0", answer_pushes, max_bytes=message_bytes, security=NO_SECURITY)
    arguments_of_pushers = {
        worker: {"num_params": num_params, "address": listener.address, "worker": worker}
        for worker in range(NUM_PUSHERS)
    }
    with parameter_server.processes(pusher, arguments_of_pushers) as children:
        children.join(120.0)
    listener.close()
    return (len(times) - 1) / (times[-1] - times[0])


def pushes() -> list[Row]:
    """Pushes a second at the server, under ASP, against a bare Flight echo of the same bytes, in turn."""
    rows = []
    for num_params, count in SIZES.items():
        push_rates, seconds_of_services, answer_rates, echo_rates = [], [], [], []
        for _ in range(NUM_REPETITIONS):
            push_rate, service_seconds = pushes_per_second(num_params, count)
            push_rates.append(push_rate)
            seconds_of_services.append(service_seconds)
            answer_rates.append(answers_per_second(num_params, count))
            echo_rates.append(echoes_per_second(num_params, count))
        ratios = [push_rate / echo_rate for push_rate, echo_rate in zip(push_rates, echo_rates, strict=True)]
        median_ratio, service_ms = statistics.median(ratios), 1000 * statistics.median(seconds_of_services)
        note = (
            f"{min(ratios):.2f} to {max(ratios):.2f} in {NUM_REPETITIONS} repetitions; {_range(push_rates)} pushes/s, "
        )
        note += f"{service_ms:.2f} ms each in the server's thread; echo {_range(echo_rates)}/s"
        note += f"; the same messages with nothing done about them: {_range(answer_rates)}/s"
        rows.append(
            Row(
                what=f"pushes a second over a bare echo, {num_params:,} parameters",
                value=f"{median_ratio:.2f}",
                target=">= 0.5",
                met=median_ratio >= 0.5,
                note=note,
                peer="a Flight server that answers each batch",
            )
        )
    return rows


def _range(rates: list[float]) -> str:
    """The least and the largest of rates, for people."""
    return f"{min(rates):,.0f} to {max(rates):,.0f}"


def check() -> list[Row]:
    """The check of a run while it goes on, by push, over what the server takes for a push; ASP, 10 000 parameters."""
    run = pushes_run(10_000, 2000, check=True)
    check_seconds, service_seconds = run.check_seconds / len(run.loss), float(np.median(run.service_seconds))
    share = check_seconds / service_seconds
    note = f"{1e6 * check_seconds:.0f} us a push, whose service takes {1e6 * service_seconds:.0f} us"
    return [
        Row(
            what="check of a push against the promise over its service", value=f"{share:.2f}",
            target="<= 0.5", met=share <= 0.5, note=note,
        )
    ]  # fmt: skip


def log() -> list[Row]:
    """What a push takes in the server's thread if the log is forced to the disk never, each second, at each commit."""
    never_us, each_second_us, each_commit_us = (_service_microseconds(sync) for sync in (float("inf"), 1.0, 0.0))
    note = (
        f"{never_us:.0f} us without fsync, {each_second_us:.0f} us with one a second, {each_commit_us:.0f} us at each "
        "commit"
    )
    return [
        Row(
            what="fsync of the log at each commit, by push", value=f"{each_commit_us - never_us:.0f} us", target="",
            met=True, note=note,
        )
    ]  # fmt: skip


def _service_microseconds(sync_seconds: float) -> float:
    """The median for a push, where the log is forced to the disk after so many seconds."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        run = pushes_run(10_000, 2000, checkpoints=folder, checkpoint_every=10**6, sync_seconds=sync_seconds)
    return 1e6 * float(np.median(run.service_seconds))


def many_workers(num_workers: int = NUM_WORKERS, num_processes: int = 4) -> list[Row]:
    """Pushes a second of many workers, each with a connection of its own, over those of two; 10 000 parameters."""
    num_params, count = 10_000, 10 * num_workers
    limits = Limits(count, seconds=120.0, join_seconds=120.0, lease=60.0)
    server = Server(setup_of(num_params, num_workers), limits)
    arguments_of_processes = {
        process: {
            "num_params": num_params, "address": server.address, "num_workers": num_workers,
            "workers": list(range(process, num_workers, num_processes)),
        }
        for process in range(num_processes)
    }  # fmt: skip
    with parameter_server.processes(many_pushers, arguments_of_processes, on_error=server.stop):
        commit_times = np.asarray(server.run().schedule.time)
    rate = (len(commit_times) - 1) / float(commit_times[-1] - commit_times[0])
    rate_of_two, _ = pushes_per_second(num_params, count=2000)
    return [
        Row(
            what=f"pushes a second of {num_workers:,} workers over those of {NUM_PUSHERS}",
            value=f"{rate / rate_of_two:.2f}", target="", met=True,
            note=f"{rate:,.0f} and {rate_of_two:,.0f}/s; the workers compute nothing, in {num_processes} processes",
        )
    ]  # fmt: skip


def rule() -> list[Row]:
    """What the server takes to ask the rule of ASP for a push, by the number of workers; nothing else happens."""
    notes = []
    for num_workers in (2, 16, 1000):
        rule_state = RuleState(setup_of(10, num_workers).rule(), num_workers)
        rule_state.warm_up()
        for worker in range(num_workers):
            rule_state.decide(JOIN, worker, now=0.5, compute_seconds=0.0)
        begin_times = []
        for push in range(2001):
            begin_times.append(time.perf_counter())
            rule_state.decide(MESSAGE, push % num_workers, now=1.0 + push, compute_seconds=0.1)
        notes.append(f"{1e6 * statistics.median(np.diff(begin_times)):.0f} us with {num_workers:,}")
    return [Row(what="asking the rule for a push, by workers", value=", ".join(notes), target="", met=True, note="")]


def rounds() -> list[Row]:
    """Wall time of a BSP round of four workers over the computing of the slowest, at 100 ms a unit."""
    limits = Limits(NUM_ROUNDS, seconds=60.0, join_seconds=120.0)
    run = parameter_server.local_run(
        setup_of, limits, arguments={"num_params": 10_000, "num_workers": 4, "name": "bsp"}, throttle=throttle
    )
    schedule = jax.device_get(run.schedule)
    round_seconds = np.diff(schedule.time)
    units_after_first = slice(1, len(round_seconds) + 1)  # a unit of each worker for each of these rounds
    compute_seconds = schedule.compute_end[units_after_first] - schedule.compute_start[units_after_first]
    slowest_seconds = compute_seconds.max(axis=1)
    median_ratio = float(np.median(round_seconds / slowest_seconds))
    round_ms, slowest_ms = 1000 * np.median(round_seconds), 1000 * np.median(slowest_seconds)
    note = f"round {round_ms:.1f} ms, slowest worker {slowest_ms:.1f} ms"
    return [
        Row(
            what="BSP round on the real clock over its slowest worker", value=f"{median_ratio:.3f}", target="<= 1.1",
            met=median_ratio <= 1.1, note=note,
        )
    ]  # fmt: skip


def killed_worker() -> list[Row]:
    """Seconds from the SIGKILL of a worker to the next commit, under BSP with four workers and units of 20 ms."""
    arguments: dict[str, Any] = {"num_params": 10_000, "num_workers": 4, "name": "bsp"}
    server = Server(setup_of(**arguments), Limits(10**6, seconds=6.0, join_seconds=120.0))
    kill_times: list[float] = []
    with (
        parameter_server.workers(
            setup_of,
            server.address,
            range(4),
            arguments=arguments,
            throttle=throttle_of_killed_worker,
            on_error=server.stop,
        ) as children,
        _after_50_commits(server, lambda: children.send_signal(1, signal.SIGKILL), kill_times),
    ):
        run = server.run()
    commit_times, kill_time = np.asarray(run.schedule.time), kill_times[0]
    next_commit_time = commit_times[commit_times > kill_time][0]
    seconds = float(next_commit_time - kill_time)
    note = f"median round {1000 * statistics.median(np.diff(commit_times)):.0f} ms"
    return [
        Row(
            what="from the SIGKILL of a worker to the next commit", value=f"{seconds:.3f} s", target="< 1 s",
            met=seconds < 1, note=note,
        )
    ]  # fmt: skip


@contextlib.contextmanager
def _after_50_commits(server: Server, action: Any, action_times: list[float]) -> Iterator[None]:
    """Does something once the server has made 50 commits; `action_times` gets the time on the server's clock."""

    def wait_and_act() -> None:
        while server.num_commits < 50:
            time.sleep(0.01)
        action_times.append(server._clock.now())
        action()

    threading.Thread(target=wait_and_act, daemon=True).start()
    yield


def memory() -> list[Row]:
    """The most memory that a server takes for a model of 10 million parameters, in models, in a process of its own."""
    return rows_of_child("benchmarks.server")


def _own_memory_row() -> Row:
    """That of this process."""
    num_params = 10_000_000
    jax.block_until_ready(jnp.ones(1))  # so that JAX itself does not count
    mebibytes_before = peak_mebibytes()
    pushes_per_second(num_params, 40)
    mebibytes_of_model = BYTES_OF_FLOAT * num_params / 2**20
    peak_in_models = (peak_mebibytes() - mebibytes_before) / mebibytes_of_model
    return Row(
        what="memory of the server, in models", value=f"{peak_in_models:.1f}", target="", met=True,
        note=f"peak, {num_params:,} parameters, {NUM_PUSHERS} workers; plain SGD, messages under way included",
    )  # fmt: skip


def server() -> list[Row]:
    """All of them."""
    return [*pushes(), *many_workers(), *check(), *log(), *rule(), *rounds(), *killed_worker(), *memory()]


if __name__ == "__main__":
    print(json.dumps([_own_memory_row()._asdict()]))
