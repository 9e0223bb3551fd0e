"""The parameter server over a network: four hosts, which are network namespaces of this machine, with a token and TLS.

Each worker has a link of 20 Mb/s to the server. Needs Linux, root, and the commands `ip`, `tc` and `openssl`; where
they are not there, one line says so.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from benchmarks.timing import KEY, Row
from gcjax import engine, files, parameter_server, protocols, tasks
from gcjax.memory import bytes_of_arrays
from gcjax.parameter_server import Calibration, Limits, Security, Server, Setup

NUM_WORKERS = 3
LINK_BITS = 20e6  # a second, each way
ADDRESS = "10.9.0.1:7000"
_SERVER_HOST = f"gcjax-{os.getpid()}"  # its namespace; two of these benchmarks can run at once
RUN_SECONDS, UNIT_SECONDS, LEASE = 12.0, 0.02, 2.0
CUT_AFTER, CUT_SECONDS = 4.0, 4.0  # of the run in which a cable is out
WIDTHS = (512, 2048)  # of the hidden layer: 154 and 616 kB
PROTOCOLS: dict[str, Callable[[], protocols.Protocol]] = {
    "ASP": protocols.asp,
    "BSP": protocols.bsp,
    "K-async, K=2": lambda: protocols.k_async(num_contributions=2),
    "local SGD, H=4": lambda: protocols.local_sgd(num_local_steps=4),
}


class LiveResult(NamedTuple):
    """What is kept of a run.

    Attributes:
      commit_times: seconds since it began.
      change_times: change -> seconds since it began, when a worker last joined, left or came back.
      begin: when the first unit began, in seconds of the system's clock.
      replay_error: the largest difference between its parameters and those of a replay.
      measured: its calibration.
    """

    commit_times: np.ndarray
    change_times: dict[str, float]
    begin: float
    replay_error: float
    measured: Calibration


def network() -> list[Row]:
    """Bandwidth as fitted, commit times as predicted, and how soon a worker is back whose cable was out."""
    missing = [name for name in ("ip", "tc", "openssl") if shutil.which(name) is None]
    if missing or not hasattr(os, "geteuid") or os.geteuid() != 0:
        reason = f"{', '.join(missing)} missing" if missing else "needs root"
        return [Row(what="network", value="none", target="", met=True, note=f"skipped: {reason}")]
    with tempfile.TemporaryDirectory() as name, _hosts():
        folder = Path(name)
        _write_certificate(folder)
        small, large = (_live_run("ASP", width, folder) for width in WIDTHS)
        return [_bandwidth_row(small, large), *_prediction_rows(small, folder), _cut_row(folder)]


def _bandwidth_row(small: LiveResult, large: LiveResult) -> Row:
    """The bandwidth fitted through the runs with two models, over that of the links."""
    num_bytes = [bytes_of_arrays(jax.eval_shape(_setup("ASP", width).task.init, KEY)) for width in WIDTHS]
    links = parameter_server.fitted_links([small.measured, large.measured], num_bytes)
    shares = [8 * float(np.mean(rate)) / LINK_BITS for rate in (links.upload, links.download)]
    worst = max(shares, key=lambda share: abs(share - 1))
    note = f"upload {shares[0]:.3f}, download {shares[1]:.3f}; a full frame has 1448 bytes of data in 1514"
    met = abs(worst - 1) <= 0.1
    return Row(
        what="bandwidth fitted over that of the link", value=f"{worst:.2f}", target="0.9 to 1.1", met=met, note=note
    )


def _prediction_rows(calibrated_by: LiveResult, folder: Path) -> list[Row]:
    """The error of the commit times that are predicted from the run of ASP, of each other protocol."""
    rows = []
    for name, make_protocol in list(PROTOCOLS.items())[1:]:
        result = _live_run(name, WIDTHS[0], folder)
        times = result.commit_times
        num_units = 6 * len(times) + 50  # enough for 4 local steps
        predicted_times = parameter_server.predicted_times(
            make_protocol(), calibrated_by.measured, KEY, num_units=num_units
        )[: len(times)]
        error = float(np.mean((predicted_times / times)[len(times) // 2 :])) - 1
        note = f"{len(times)} commits; replay to {result.replay_error:.0e}"
        rows.append(
            Row(
                what=f"{name} over a network: error of the predicted commit times", value=f"{100 * error:+.1f} %",
                target="<= 5 %", met=abs(error) <= 0.05, note=note,
            )
        )  # fmt: skip
    return rows


def _cut_row(folder: Path) -> Row:
    """How long after its cable is in again a worker takes part again."""
    result, cut_time = _run_with_cut(folder)
    seconds = result.change_times["came back"] - (cut_time + CUT_SECONDS)
    seconds_until_left = result.change_times["left"] - cut_time
    longest_gap = float(np.diff(result.commit_times).max())
    note = f"left {seconds_until_left:.1f} s after the cut, lease {LEASE:g} s; {longest_gap:.2f} s without a commit"
    return Row(
        what=f"cable out for {CUT_SECONDS:g} s: back after", value=f"{seconds:.2f} s", target="<= 2 s",
        met=seconds <= 2, note=note,
    )  # fmt: skip


@contextlib.contextmanager
def _hosts() -> Iterator[None]:
    """A network namespace for the server, with a bridge, and one for each worker, linked to it; removed at the end."""
    names = [_SERVER_HOST, *map(_host_of, range(NUM_WORKERS))]
    try:
        for name in names:
            _command(f"ip netns add {name}")
            _command(f"ip -n {name} link set lo up")
        _command(f"ip -n {_SERVER_HOST} link add bridge type bridge")
        _command(f"ip -n {_SERVER_HOST} addr add 10.9.0.1/24 dev bridge")
        _command(f"ip -n {_SERVER_HOST} link set bridge up")
        shaped = f"root tbf rate {LINK_BITS:.0f}bit burst 16kb latency 2s"
        for worker in range(NUM_WORKERS):
            host = _host_of(worker)
            _command(f"ip -n {_SERVER_HOST} link add port{worker} type veth peer name eth0 netns {host}")
            _command(f"ip -n {_SERVER_HOST} link set port{worker} master bridge up")
            _command(f"ip -n {host} addr add 10.9.0.{worker + 2}/24 dev eth0")
            _command(f"ip -n {host} link set eth0 up")
            _command(f"tc -n {_SERVER_HOST} qdisc add dev port{worker} {shaped}")
            _command(f"tc -n {host} qdisc add dev eth0 {shaped}")
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _live_run(name: str, width: int, folder: Path) -> LiveResult:
    """A run of a protocol, with a hidden layer of this width, by processes on all hosts."""
    with _processes(name, width, folder):
        return _result(folder)


def _run_with_cut(folder: Path) -> tuple[LiveResult, float]:
    """A run of ASP in which the cable of worker 0 is out for a while; and when, in seconds since it began."""
    with _processes("ASP", WIDTHS[0], folder):
        while not (folder / "begin-0").exists():
            time.sleep(0.01)
        time.sleep(CUT_AFTER)
        cut_clock = time.time()
        _command(f"ip -n {_SERVER_HOST} link set port0 down")
        time.sleep(CUT_SECONDS)
        _command(f"ip -n {_SERVER_HOST} link set port0 up")
        result = _result(folder)
    return result, cut_clock - result.begin


@contextlib.contextmanager
def _processes(name: str, width: int, folder: Path) -> Iterator[None]:
    """A server and workers, each on its host; ended with the block."""
    for file in (folder / "result.json", *(folder / f"begin-{worker}" for worker in range(NUM_WORKERS))):
        file.unlink(missing_ok=True)
    roles = {_SERVER_HOST: "server", **{_host_of(worker): str(worker) for worker in range(NUM_WORKERS)}}
    command = [sys.executable, "-m", "benchmarks.network"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    children = [
        subprocess.Popen(["ip", "netns", "exec", host, *command, role, name, str(width), str(folder)], env=environment)
        for host, role in roles.items()
    ]
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def _result(folder: Path) -> LiveResult:
    """What the server of a run writes at its end, for which it is waited three minutes."""
    end = time.monotonic() + 180.0
    while not (folder / "result.json").exists():
        if time.monotonic() > end:
            raise RuntimeError("the run over the network has not ended within 180 s.")
        time.sleep(0.1)
    fields = json.loads((folder / "result.json").read_text())
    measured: dict[str, Any] = {
        name: np.asarray(x) if isinstance(x, list) else x for name, x in fields["measured"].items()
    }
    begin = min(float((folder / f"begin-{worker}").read_text()) for worker in range(NUM_WORKERS))
    return LiveResult(
        commit_times=np.asarray(fields["commit_times"]), change_times=fields["change_times"], begin=begin,
        replay_error=fields["replay_error"], measured=Calibration(**measured),
    )  # fmt: skip


def _serve(name: str, width: int, folder: Path) -> None:
    """Serves a run, holds it against its promise, repeats it, and writes what is kept of it."""
    security = Security("token", (folder / "cert.pem").read_bytes(), (folder / "key.pem").read_bytes())
    setup = _setup(name, width)
    limits = Limits(10**6, seconds=RUN_SECONDS, lease=LEASE, join_seconds=120.0)
    run = Server(setup, limits, address=ADDRESS, security=security).run()
    assert setup.protocol.specification is not None
    checked = protocols.check(run.schedule, setup.protocol.specification(NUM_WORKERS), memberships=run.memberships)
    if not checked:
        raise RuntimeError(str(checked))
    replay = engine.replay(
        setup.task, setup.protocol, setup.optimizer, run.schedule, rng_key=KEY, memberships=run.memberships
    )
    errors = jax.tree.map(lambda one, other: float(abs(one - other).max()), replay.params, run.params)
    measured = parameter_server.calibration(run)._asdict()
    result = {
        "commit_times": np.asarray(run.schedule.time).tolist(),
        "change_times": {str(change.change): float(change.time) for change in run.memberships},
        "replay_error": max(jax.tree.leaves(errors)),
        "measured": {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in measured.items()},
    }
    files.write_text(folder / "result.json", json.dumps(result))


def _work(worker: int, name: str, width: int, folder: Path) -> None:
    """Works for the server, and notes when its first unit begins."""
    security = Security("token", (folder / "cert.pem").read_bytes())

    def throttle(worker: int, unit: int) -> float:
        """The seconds of a unit."""
        if unit == 0:
            files.write_text(folder / f"begin-{worker}", str(time.time()))
        return UNIT_SECONDS

    parameter_server.work(_setup(name, width), ADDRESS, worker=worker, throttle=throttle, security=security)


def _setup(name: str, width: int) -> Setup:
    """A setup of a protocol, with a hidden layer of this width."""
    task = tasks.digits(num_chunks=NUM_WORKERS, hidden=(width,))
    return Setup(task, PROTOCOLS[name](), optax.sgd(0.1), NUM_WORKERS, KEY)


def _write_certificate(folder: Path) -> None:
    """A certificate of the server's address and its key, in files."""
    options = "-x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=gcjax -addext subjectAltName=IP:10.9.0.1"
    _command(f"openssl req {options} -keyout {folder / 'key.pem'} -out {folder / 'cert.pem'}")


def _host_of(worker: int) -> str:
    """The network namespace of a worker."""
    return f"{_SERVER_HOST}-{worker}"


def _command(line: str) -> None:
    """Runs a command; an error has what it said."""
    process = subprocess.run(line.split(), capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(f"{line}: {process.stderr.strip()}")


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    name, width, folder = arguments[0], int(arguments[1]), Path(arguments[2])
    _serve(name, width, folder) if role == "server" else _work(int(role), name, width, folder)
