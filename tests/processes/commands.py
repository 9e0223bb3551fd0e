"""Real `gcjax run` commands, one a process, with an experiment over the devices of all of them."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
EXPERIMENT = """
import time

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from gcjax import config, processes, register


@register("experiment")
def rounds(*, num_rounds, pause=0.0, bad=None, error="", out, progress):
    print("printed by the experiment")
    n = jax.device_count()
    mesh = jax.make_mesh((n,), ("workers",))
    everywhere, shared = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("workers"))
    x = jax.make_array_from_callback((n,), shared, lambda index: np.arange(1.0, n + 1)[index].astype(np.float32))
    add = jax.jit(lambda total, x: total + x.sum(), out_shardings=everywhere)
    total = np.float32(0)
    for done in range(num_rounds):
        if done == 3 and bad in (jax.process_index(), "all"):
            raise (ValueError if bad == "all" else RuntimeError)(error)
        total = np.asarray(add(total, x).addressable_data(0))
        if processes.is_first():
            (out / "round").write_text(str(done))
        time.sleep(pause)
    (out / f"seen{jax.process_index()}").touch()
    if processes.is_first():
        (out / "total").write_text(str(float(total)))
    progress.show(f"{processes.is_first()} {total}")
"""
CONFIG = """
import rounds
run.experiment = @rounds
rounds.num_rounds = 10
"""


class Ended(NamedTuple):
    """How a process ended; seconds since `Started.since`."""

    status: int
    stdout: str
    stderr: str
    seconds: float


class Started:
    """The processes of a group, rank -> process, and when the clock was last set."""

    def __init__(self, folder, processes):
        self.folder, self.processes, self.since = folder, processes, time.monotonic()

    def wait_for_round(self, number, timeout=60.0):
        """Waits until process 0 has written so many rounds, and sets the clock."""
        deadline = time.monotonic() + timeout
        while self.round() < number:
            assert time.monotonic() < deadline, "the rounds do not go on"
            assert all(process.poll() is None for process in self.processes.values()), self.end()
            time.sleep(0.02)
        self.since = time.monotonic()

    def round(self):
        file = self.folder / "out" / "round"
        return int(file.read_text() or -1) if file.exists() else -1

    def suspend(self, rank, seconds=None):
        """Stops a process, for so many seconds or for good."""
        self.processes[rank].send_signal(signal.SIGSTOP)
        if seconds is not None:
            time.sleep(seconds)
            self.processes[rank].send_signal(signal.SIGCONT)

    def end(self, timeout=60.0, without=()):
        """Waits for all processes, except those that will not end, and says how they ended."""
        ends, left = {}, set(self.processes) - set(without)
        while left:
            assert time.monotonic() - self.since < timeout, f"processes {left} still run"
            for rank in [rank for rank in left if self.processes[rank].poll() is not None]:
                ends[rank] = time.monotonic() - self.since
                left.discard(rank)
            time.sleep(0.01)
        return {rank: Ended(self.processes[rank].returncode, *self._said(rank), ends[rank]) for rank in sorted(ends)}

    def _said(self, rank):
        return ((self.folder / f"{name}{rank}").read_text() for name in ("stdout", "stderr"))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def by_hand(rank, number, port):
    address = f"127.0.0.1:{port}"
    return ["--distributed", "--coordinator", address, "--num-processes", str(number), "--process-id", str(rank)]


@contextmanager
def group(folder, number, *arguments, ranks=None, own=None, out="out", port=None, config=CONFIG):
    """Starts the processes of a group, and leaves none behind; all but process 0 run in another directory.

    Args:
      folder: where the experiment is written and the commands are run.
      number: of processes.
      arguments: of every command.
      ranks: the processes that are started; all by default.
      own: rank -> more arguments of that process.
      out: the output folder; the default of the command if None.
      port: of process 0; a free one by default.
      config: the text of the config file.
    """
    (folder / "rounds.py").write_text(EXPERIMENT)
    (folder / "config.gin").write_text(config)
    port = port or free_port()
    chosen = [] if out is None else ["--out", out]
    (folder / "elsewhere").mkdir(exist_ok=True)
    path = os.pathsep.join(filter(None, [str(ROOT), str(folder), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # a killed process could leave half a file
    processes = {}
    try:
        for rank in range(number) if ranks is None else ranks:
            command = [sys.executable, "-m", "gcjax", "run", str(folder / "config.gin"), *chosen]
            command += [*by_hand(rank, number, port), *arguments, *(own or {}).get(rank, ())]
            with open(folder / f"stdout{rank}", "w") as stdout, open(folder / f"stderr{rank}", "w") as stderr:
                cwd = folder / "elsewhere" if rank else folder
                processes[rank] = subprocess.Popen(command, cwd=cwd, env=environment, stdout=stdout, stderr=stderr)
        yield Started(folder, processes)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
