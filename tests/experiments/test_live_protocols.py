"""The experiment on the real clock: what happens to a worker, what is written, and that it runs."""

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import jax
import optax
import pytest

from experiments import live_members, live_protocols, live_records, live_rows
from gcjax import analysis, cli, files, parameter_server, protocols, stragglers, tasks
from gcjax.analysis.timelines import folder as timelines
from gcjax.parameter_server import flight
from gcjax.parameter_server.wire import Message
from gcjax.progress import silent

ROOT = Path(__file__).parents[2]
CONFIG = "configs/live/protocols.gin"
SMALL = (
    "live_protocols.seconds = 2.0",
    "live_protocols.pace = 0.01",
    "num_workers = 2",
    "live_protocols.patience = 60.0",
)


def row(scheme, scenario, reach, **fields):
    return {
        "scheme": scheme, "scenario": scenario, "num_commits": 200, "seconds": 5.0, "reach": reach, "predicted": 1.25,
        "error_mean": -0.02, "error_std": 0.011, "promise": "kept", "conformance": "", "replay_difference": 2e-7,
        "num_left": 0, "service_seconds": 1e-3, "load": 3.14, **fields,
    }  # fmt: skip


def options():
    return live_rows.Options(analysis.Target("accuracy", 0.95, True), 5.0, 5.0, 60.0, 100, "ASP", 0.02)


def test_the_table_says_what_was_measured_and_what_was_predicted(tmp_path):
    gone = {"predicted": math.nan, "error_mean": math.nan, "error_std": math.nan, "num_left": 1, "promise": "-"}
    rows = [row("ASP", "one slow", 1.2), row("BSP", "one killed", math.inf, **gone)]
    live_protocols._write(tmp_path, rows, options(), silent(), 2.0, live_records.Records())
    page = (tmp_path / "summary.md").read_text()
    assert "| one slow | ASP | 200 | 1.20 s | 1.25 s | -2.0 ± 1.1 % | kept | 2e-07 | 0 | 3.1 |" in page
    assert "| one killed | BSP | 200 | - | - | - | - | 2e-07 | 1 | 3.1 |" in page
    assert "time to 0.95" in page and "Units are paced to 0.02 s" in page
    assert files.read_table(tmp_path / "results.parquet").column("reach").to_pylist() == [1.2, math.inf]


def test_a_run_is_predicted_where_the_same_has_happened():
    def is_predicted(protocol, has_left, absences):
        setup = parameter_server.Setup(None, protocol, None, 2, None)
        change = [parameter_server.Membership(1.0, 0, "left")] if has_left else []
        run = parameter_server.LiveRun(None, None, None, None, tuple(change), None, 0)
        case = live_members.Case("scheme", "scenario", live_members.Scenario(), setup)
        return live_rows.is_predicted(case, run, live_rows.Measured(None, absences))

    away = stragglers.absences(workers=(0,), leave=(1.0,))
    asp, overlap = protocols.asp(), protocols.worker_busy(overlap=True)
    assert is_predicted(asp, True, away) and is_predicted(asp, False, None) and is_predicted(overlap, False, None)
    assert not is_predicted(asp, True, None) and not is_predicted(asp, False, away)
    assert not is_predicted(overlap, True, away)
    adaptive = protocols.adsp(num_windows=3)
    assert is_predicted(adaptive, False, None) and not is_predicted(adaptive, True, away)


def throttle(scenario, calls):
    @contextlib.contextmanager
    def interrupt(**arguments):
        calls.append(arguments)
        yield

    stack = contextlib.ExitStack()
    return live_members.Throttle(scenario, stack, pace=0.5, stop_seconds=2.0, interrupt=interrupt)


def test_what_happens_to_a_worker_happens_at_a_unit(monkeypatch):
    calls = []
    slow = throttle(live_protocols.SCENARIOS["one slow"], calls)
    assert [slow(1, 0), slow(0, 0), slow(1, 99)] == [1.5, 0.5, 1.5] and not calls
    stopped = throttle(live_protocols.SCENARIOS["one stopped"], calls)
    for unit in range(30):
        assert stopped(1, unit) == stopped(2, unit) == 0.5
        assert len(calls) == (unit >= live_members.EVENT_UNIT)
    assert calls == [{"stopped": 2.0, "running": 0.0, "times": 1}]
    monkeypatch.setattr(os, "kill", lambda pid, number: calls.append((pid, number)))
    killed = throttle(live_protocols.SCENARIOS["one killed"], calls)
    killed(1, 0), killed(1, 8), killed(1, 12), killed(1, 13)  # a unit can be passed over
    assert calls[1:] == [(os.getpid(), signal.SIGKILL)]
    later = throttle(live_protocols.SCENARIOS["one killed"], calls)
    later(1, 9), later(1, 10)  # a process that has come in the place of another one
    assert len(calls) == 2


def test_a_worker_that_comes_too_late_is_done(monkeypatch):
    place = live_members.Place(0, "127.0.0.1:1", "", 0.1)
    setup = parameter_server.Setup(None, None, None, 2, None, "a run")
    cases = [live_members.Case("ASP", "one killed", live_members.Scenario(), setup)]
    with pytest.raises(parameter_server.Disconnected, match="waited for for 0.1 s"):
        live_members.take_part(cases, place, pace=0.1, stop_seconds=1.0)
    monkeypatch.setattr(parameter_server, "is_restarted", lambda: True)
    live_members.take_part(cases, place, pace=0.1, stop_seconds=1.0)


@contextlib.contextmanager
def answers(*messages):
    """A place whose server answers one ping after the other with these."""
    left = list(messages)

    def answer(connection):
        assert connection.receive().kind == "ping"
        connection.send(left.pop(0))
        with contextlib.suppress(parameter_server.Disconnected):
            connection.receive()

    listener = flight.listen("127.0.0.1:0", answer, max_bytes=0, security=parameter_server.Security(open_to_all=True))
    with contextlib.closing(listener):
        yield live_members.Place(worker=0, address=listener.address, token="", patience=60.0)
    assert not left


END = Message({"kind": "end"})


def pong(identity):
    return Message({"kind": "pong", "identity": identity})


def test_a_server_whose_run_is_done_is_asked_again():
    with answers(END, pong("last"), pong("next")) as place:
        assert live_members._next_identity(place, "last") == "next"


@pytest.mark.parametrize("answer, is_raised", [(pong("own"), True), (pong("next"), False), (END, False)])
def test_a_refusal_by_another_run_is_let_pass(answer, is_raised):
    raised = pytest.raises(parameter_server.Refused) if is_raised else contextlib.nullcontext()
    with answers(answer) as place, raised, live_members._refusal_by_next_run_ignored(place, "own"):
        raise parameter_server.Refused("another setup")


def test_a_worker_that_fails_before_there_is_a_server_ends_the_run(monkeypatch):
    def run(server):
        assert server._is_stopped  # else it would wait for the workers
        return served(server)

    served = parameter_server.Server.run
    monkeypatch.setattr(parameter_server.Server, "run", run)
    monkeypatch.setattr(live_protocols, "_has_failed", threading.Event())
    task = tasks.digits(num_chunks=2)
    setup = parameter_server.Setup(task, protocols.bsp(), optax.sgd(0.1), 2, jax.random.key(0))
    case = live_members.Case("BSP", "nobody slow", live_members.Scenario(), setup)
    live_protocols._stop_servers()
    place = live_members.Place(-1, "127.0.0.1:0", "token", 60.0)
    with pytest.raises(ValueError, match="BSP, nobody slow: the workers must end without an error"):
        live_protocols._serve_case(case, place, options())


def test_workers_that_do_not_come_are_said(monkeypatch):
    monkeypatch.setattr(live_protocols, "_has_failed", threading.Event())
    setup = parameter_server.Setup(tasks.digits(num_chunks=2), protocols.bsp(), optax.sgd(0.1), 2, jax.random.key(0))
    case = live_members.Case("BSP", "nobody slow", live_members.Scenario(), setup)
    place = live_members.Place(-1, "127.0.0.1:0", "token", 0.2)
    with pytest.raises(ValueError, match="all 2 workers must come within 0.2 s, and did not"):
        live_protocols._serve_case(case, place, options()._replace(patience=0.2))


def bindings(*more):
    return [word for binding in (*SMALL, *more) for word in ("--set", binding)]


@pytest.mark.slow
def test_it_runs_with_processes_of_its_own(tmp_path):
    more = (
        "live_protocols.schemes = {'ASP': @asp(), 'BSP': @bsp()}",
        "live_protocols.scenarios = ('one slow', 'one killed')",
        "live_protocols.check = True",
    )
    assert cli.main(["run", str(ROOT / CONFIG), "--no-cache", "--out", str(tmp_path / "out"), *bindings(*more)]) == 0
    table = files.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    assert [(row["scenario"], row["scheme"]) for row in table] == [
        (scenario, scheme) for scenario in ("one slow", "one killed") for scheme in ("ASP", "BSP")
    ]
    assert [row["num_left"] for row in table] == [0, 0, 1, 1]
    whole = table[:2]  # with nobody lost: what a record without somebody promises is not known here
    assert all(row["promise"] == "kept" and row["replay_difference"] < 1e-2 for row in whole), table
    assert all(math.isfinite(row["error_mean"]) for row in table), table  # also with the worker that was lost
    facts = json.loads((tmp_path / "out" / "run.json").read_text())
    assert facts["target"] == 0.95 and list(facts["calibrations"]) == ["one slow", "one killed"]
    runs = timelines.activities(tmp_path / "out")
    assert [len(run.loss["time"]) for run in runs] == [row["num_commits"] for row in table]


@pytest.mark.slow
def test_each_process_can_be_started_by_itself(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    more = "live_protocols.schemes = {'ASP': @asp()}", "live_protocols.scenarios = ('one killed',)"
    command = [sys.executable, "-m", "gcjax", "run", CONFIG, "--no-cache", *bindings(*more), "--distributed"]
    command += ["--coordinator", address, "--num-processes", "3"]
    outs = [["--out", str(tmp_path / "out")], [], []]
    children = [
        subprocess.Popen([*command, "--process-id", str(i), *outs[i]], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for i in range(3)
    ]
    try:
        printed = [child.communicate(timeout=200)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    assert [child.returncode for child in children] == [0, 0, 0]
    assert printed[1:] == ["", ""] and "one killed" in (tmp_path / "out" / "summary.md").read_text()
    assert files.read_table(tmp_path / "out" / "results.parquet").column("num_left").to_pylist() == [1]
