"""Benchmarks of the parameter server: pushes over a bare echo, rounds over their slowest worker, memory, a kill."""

import contextlib
import json
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pyarrow.flight as flight

from benchmarks.timing import Row
from gcjax import parameter_server, protocols, tasks
from gcjax.parameter_server import Limits, Server, Setup
from gcjax.parameter_server import flight as transport
from gcjax.parameter_server.setups import fingerprint
from gcjax.parameter_server.transport import Disconnected
from gcjax.parameter_server.wire import Message

KEY = jax.random.key(0)
NUM_PUSHERS = 2
SIZES = {10_000: 2000, 10_000_000: 60}  # parameters -> pushes
ROUND_SECONDS, NUM_ROUNDS = 0.1, 50
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


def quick(worker: int, unit: int) -> float:
    """A unit of a worker that is killed."""
    del worker, unit
    return 0.02


def pusher(num_params: int, address: str, worker: int) -> int:
    """A worker that computes nothing: it pushes the same bytes whenever it may; returns how often."""
    setup = setup_of(num_params, NUM_PUSHERS)
    connection = transport.connect(address, max_bytes=4 * num_params)
    body, now, count = np.zeros(4 * num_params, np.uint8), 0.0, 0
    hello = {"kind": "hello", "worker": worker, "incarnation": str(worker), "fingerprint": fingerprint(setup)}
    connection.send(Message(hello))
    connection.send(Message({"kind": "ready"}))
    with contextlib.suppress(Disconnected):
        while (order := connection.receive()).kind != "end":
            header = {"kind": "push", "turn": order.header["turn"], "compute_start": now, "ends": [now], "loss": 0.0,
                      "is_finite": True, "lost": 0, "send_start": now}  # fmt: skip
            connection.send(Message(header, body))
            count += 1
    connection.close()
    return count


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
    body = np.zeros(4 * num_params, np.uint8)
    batch = pa.record_batch([pa.Array.from_buffers(pa.uint8(), body.size, [None, pa.py_buffer(body)])], schema=SCHEMA)
    with flight.connect(address) as client:
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"echo"))
        writer.begin(SCHEMA)
        begin = time.time()
        for _ in range(count):
            writer.write_batch(batch)
            reader.read_chunk()
        end = time.time()
        writer.done_writing()
    return [begin, end]


def pushes_run(num_params: int, count: int, **arguments: Any) -> parameter_server.LiveRun:
    """A run of a server, made with these arguments, to which workers push as fast as they may."""
    limits = Limits(count, seconds=60.0, join_seconds=60.0, lease=30.0)
    server = Server(setup_of(num_params, NUM_PUSHERS), limits, **arguments)
    workers = {w: {"num_params": num_params, "address": server.address, "worker": w} for w in range(NUM_PUSHERS)}
    with parameter_server.processes(pusher, workers, on_error=server.stop):
        return server.run()


def pushes_per_second(num_params: int, count: int) -> tuple[float, float]:
    """Pushes that a server takes a second from all pushers, and the median seconds for one in its thread."""
    run = pushes_run(num_params, count)
    times = np.asarray(run.schedule.time)
    return (len(times) - 1) / float(times[-1] - times[0]), float(np.median(run.service_seconds))


def echoes_per_second(num_params: int, count: int) -> float:
    """Answers that a bare server gives a second, to as many processes."""
    server = Echo("grpc://127.0.0.1:0")
    each = count // NUM_PUSHERS
    arguments = {
        w: {"num_params": num_params, "address": f"grpc://127.0.0.1:{server.port}", "count": each}
        for w in range(NUM_PUSHERS)
    }
    with parameter_server.processes(echo_client, arguments) as children:
        children.join(120.0)
    server.shutdown()
    begins, ends = zip(*children.results.values(), strict=True)
    return NUM_PUSHERS * each / (max(ends) - min(begins))


def pushes() -> list[Row]:
    """Pushes a second at the server, under ASP, against a bare Flight echo of the same bytes."""
    rows = []
    for num_params, count in SIZES.items():
        ours, seconds = pushes_per_second(num_params, count)
        bare = echoes_per_second(num_params, count)
        value = ours / bare
        note = f"{ours:,.0f} pushes/s, {1000 * seconds:.2f} ms each in the server's thread; echo {bare:,.0f}/s"
        rows.append(
            Row(
                what=f"pushes a second over a bare echo, {num_params:,} parameters",
                value=f"{value:.2f}",
                target=">= 0.5",
                met=value >= 0.5,
                note=note,
                peer="a Flight server that answers each batch",
            )
        )
    return rows


def check() -> list[Row]:
    """The check of a run while it goes on, by push, over what the server takes for a push; ASP, 10 000 parameters."""
    run = pushes_run(10_000, 2000, check=True)
    seconds, service = run.check_seconds / len(run.loss), float(np.median(run.service_seconds))
    note = f"{1e6 * seconds:.0f} us a push, whose service takes {1e6 * service:.0f} us"
    return [
        Row(
            what="check of a push against the promise over its service", value=f"{seconds / service:.2f}",
            target="<= 0.5", met=seconds / service <= 0.5, note=note,
        )
    ]  # fmt: skip


def log() -> list[Row]:
    """What a push takes in the server's thread if the log is forced to the disk never, each second, at each commit."""
    seconds = {}
    for sync_seconds in (float("inf"), 1.0, 0.0):
        with tempfile.TemporaryDirectory(dir=".") as folder:
            run = pushes_run(10_000, 2000, checkpoints=folder, checkpoint_every=10**6, sync_seconds=sync_seconds)
        seconds[sync_seconds] = float(np.median(run.service_seconds))
    never, each_second, each_commit = (1e6 * value for value in seconds.values())
    note = f"{never:.0f} us without fsync, {each_second:.0f} us with one a second, {each_commit:.0f} us at each commit"
    return [
        Row(
            what="fsync of the log at each commit, by push", value=f"{each_commit - never:.0f} us", target="", met=True,
            note=note,
        )
    ]  # fmt: skip


def rounds() -> list[Row]:
    """Wall time of a BSP round of four workers over the computing of the slowest, at 100 ms a unit."""
    limits = Limits(NUM_ROUNDS, seconds=60.0, join_seconds=120.0)
    run = parameter_server.local_run(
        setup_of, limits, arguments={"num_params": 10_000, "num_workers": 4, "name": "bsp"}, throttle=throttle
    )
    schedule = jax.device_get(run.schedule)
    walls = np.diff(schedule.time)
    units = slice(1, len(walls) + 1)
    slowest = (schedule.compute_end[units] - schedule.compute_start[units]).max(axis=1)
    value = float(np.median(walls / slowest))
    note = f"round {1000 * np.median(walls):.1f} ms, slowest worker {1000 * np.median(slowest):.1f} ms"
    return [
        Row(
            what="BSP round on the real clock over its slowest worker", value=f"{value:.3f}", target="<= 1.1",
            met=value <= 1.1, note=note,
        )
    ]  # fmt: skip


def killed_worker() -> list[Row]:
    """Seconds from the SIGKILL of a worker to the next commit, under BSP with four workers and units of 20 ms."""
    arguments: dict[str, Any] = {"num_params": 10_000, "num_workers": 4, "name": "bsp"}
    server = Server(setup_of(**arguments), Limits(10**6, seconds=6.0, join_seconds=120.0))
    killed: list[float] = []
    with (
        parameter_server.workers(
            setup_of, server.address, range(4), arguments=arguments, throttle=quick, on_error=server.stop
        ) as children,
        _later(server, lambda: children.send_signal(1, signal.SIGKILL), killed),
    ):
        run = server.run()
    times = np.asarray(run.schedule.time)
    seconds = float(times[times > killed[0]][0] - killed[0])
    note = f"median round {1000 * statistics.median(np.diff(times)):.0f} ms"
    return [
        Row(
            what="from the SIGKILL of a worker to the next commit", value=f"{seconds:.3f} s", target="< 1 s",
            met=seconds < 1, note=note,
        )
    ]  # fmt: skip


@contextlib.contextmanager
def _later(server: Server, action: Any, moments: list[float]) -> Iterator[None]:
    """Does something once the server has made 50 commits; `moments` gets the time on the server's clock."""

    def wait() -> None:
        while server.num_commits < 50:
            time.sleep(0.01)
        moments.append(server._clock.now())
        action()

    threading.Thread(target=wait, daemon=True).start()
    yield


def memory() -> list[Row]:
    """The most memory that a server takes for a model of 10 million parameters, in models, in a process of its own."""
    printed = subprocess.run([sys.executable, "-m", "benchmarks.server"], check=True, capture_output=True, text=True)
    return [Row(**row) for row in json.loads(printed.stdout)]


def _own_memory(num_params: int = 10_000_000) -> Row:
    """That of this process."""
    jax.block_until_ready(jnp.ones(1))
    before = _peak_bytes()
    pushes_per_second(num_params, 40)
    models = (_peak_bytes() - before) / (4 * num_params)
    return Row(
        what="memory of the server, in models", value=f"{models:.1f}", target="", met=True,
        note=f"peak, {num_params:,} parameters, {NUM_PUSHERS} workers; plain SGD, messages under way included",
    )  # fmt: skip


def _peak_bytes() -> int:
    """The most memory that this process has had."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def server() -> list[Row]:
    """All of them."""
    return [*pushes(), *check(), *log(), *rounds(), *killed_worker(), *memory()]


if __name__ == "__main__":
    print(json.dumps([_own_memory()._asdict()]))
