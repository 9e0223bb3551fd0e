"""What is wrong at one side is said there, and strangers change nothing for the others."""

import contextlib
import itertools
import json
import socket
import threading
import time

import jax
import numpy as np
import optax
import pyarrow as pa
import pyarrow.flight
import pytest

from gcjax import codes, parameter_server, protocols, tasks
from gcjax.parameter_server import Limits, Refused, Security, flight, setups, units, wire
from gcjax.parameter_server.transport import Disconnected
from gcjax.parameter_server.wire import Message
from gcjax.protocols.simulation import Rule
from tests.parameter_server.driven import Connection, Driven
from tests.parameter_server.processes import Served
from tests.parameter_server.runs import setup, start_workers
from tests.protocols.test_rules import PROTOCOLS

ASP, LOCAL_SGD = PROTOCOLS["asp"], PROTOCOLS["local_sgd"]
TOKEN = "secret"


@pytest.fixture(scope="module")
def served():
    limits = Limits(5, seconds=60.0, min_workers=1)
    served = Served(setup(ASP), limits, security=Security(token=TOKEN))
    yield served
    served.server.stop()
    served.thread.join(10)


def work(served, other_setup, **arguments):
    arguments = {"worker": 0, "patience": 0.5, "security": Security(token=TOKEN), **arguments}
    return parameter_server.work(other_setup, served.server.address, **arguments)


def test_another_setup_is_refused_with_the_differences(served):
    one = setup(ASP)
    others = {
        r"model.*\[16\] at the server, .*\[7\] here": one._replace(
            task=tasks.linear_regression(num_chunks=4, num_features=7)
        ),
        "data: ": one._replace(task=tasks.linear_regression(num_chunks=4, noise=0.7)),
        "random key: ": one._replace(rng_key=jax.random.key(9)),
        "identity:  at the server, other here": one._replace(identity="other"),
        "loss: ": one._replace(task=one.task._replace(loss=lambda *inputs: 2 * one.task.loss(*inputs))),
        "optimizer: ": one._replace(optimizer=optax.sgd(0.123)),
        "rule: ": one._replace(protocol=PROTOCOLS["ssp"]),
        "number of workers: 4 at the server, 5 here": one._replace(num_workers=5),
    }
    for message, other in others.items():
        with pytest.raises(Refused, match=message) as raised:
            work(served, other)
        assert "must run the same" in str(raised.value)


def with_local_work(**changes):
    return setup(LOCAL_SGD.replace(local=LOCAL_SGD.local._replace(**changes)))


def coded_setup(key):
    code = codes.cyclic_repetition(4, num_stragglers=1, rng_key=jax.random.key(key))
    return setup(protocols.coded(code))


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (with_local_work(), with_local_work(pull=lambda params, version_params: params), "local work"),
        (with_local_work(), with_local_work(push=lambda own, base, version, weight: (own, base)), "local work"),
        (with_local_work(), with_local_work(gradients_at_version=True), "local work"),
        (coded_setup(0), coded_setup(1), "code"),
    ],
    ids=["pull", "push", "flag", "code"],
)
def test_another_local_work_or_code_is_a_difference(one, other, name):
    assert setups.differences(setups.fingerprint(one), setups.fingerprint(one)) == ""
    lines = setups.differences(setups.fingerprint(one), setups.fingerprint(other)).splitlines()
    assert name in {line.partition(":")[0] for line in lines} <= {name, "rule"}  # a rule may ask the code


def test_a_wrong_token_is_refused(served):
    before = served.server._listener.num_refused
    for security in (Security(token="other"), Security()):
        with pytest.raises(Refused, match="token must be that of the server"):
            work(served, setup(ASP), security=security)
    with pytest.raises(pyarrow.flight.FlightUnauthenticatedError):
        list(client(served).list_flights())
    assert served.server._listener.num_refused >= before + 3


def test_a_token_may_be_any_text():
    server = parameter_server.Server(setup(ASP), Limits(1, seconds=5.0), security=Security(token="süß\n\x00"))
    connection = flight.connect(server.address, max_bytes=1, security=Security(token="süß\n\x00"))
    with pytest.raises(Refused, match="token must be that of the server"):
        flight.connect(server.address, max_bytes=1, security=Security(token="süß"))
    connection.close()
    server.close()


def client(served):
    return pyarrow.flight.connect(f"grpc://{served.server.address}")


def options():
    return pyarrow.flight.FlightCallOptions(timeout=5, headers=[(b"authorization", flight._bearer(TOKEN).encode())])


def test_a_format_from_the_future_is_refused(served):
    with pytest.raises(pa.ArrowInvalid, match=f"same format, gcjax-parameter-server-{wire.FORMAT}; got .*99"):
        list(client(served).do_action(pyarrow.flight.Action("hello", b"gcjax-parameter-server-99"), options()))


def exchange(served, *headers):
    """The error that ends a connection which sends these headers."""
    descriptor = pyarrow.flight.FlightDescriptor.for_command(flight.COMMAND)
    writer, reader = client(served).do_exchange(descriptor, options())
    writer.begin(flight.SCHEMA)
    for header in headers:
        writer.write_metadata(header)
    with pytest.raises((pa.ArrowException, OSError)) as raised:
        while True:
            reader.read_chunk()
    with contextlib.suppress(pa.ArrowException, OSError):
        writer.close()
    return str(raised.value)


def test_more_bytes_than_the_model_has_are_refused(served):
    header = json.dumps({"kind": "push", "bytes": 10**9}).encode()
    assert "at most" in exchange(served, header) and "1000000000" in exchange(served, header)
    assert "header in JSON" in exchange(served, b"\xff\xfe") and "header in JSON" in exchange(served, b"[" * 20_000)
    assert "its kind and its bytes" in exchange(served, b"[]")
    with pytest.raises(ValueError, match=r"must have 40 bytes; the message has 44"):
        wire.from_bytes(np.zeros(44, np.uint8), wire.layout_of(jax.ShapeDtypeStruct((10,), np.float32)))


def test_bytes_of_a_stranger_end_no_run(served):
    host, port = served.server.address.rsplit(":", 1)
    for content in (b"\x00" * 1000, b"GET / HTTP/1.1\r\n\r\n", np.random.default_rng(0).bytes(5000)):
        with socket.create_connection((host, int(port)), timeout=5) as stranger:
            stranger.sendall(content)
    assert served.thread.is_alive()
    threads, results = start_workers(served.server.address, ASP, [0, 1], security=Security(token=TOKEN))
    run = served.end()
    for thread in threads:
        thread.join(10)
    assert len(run.loss) == 5 and sum(result.num_pushes for result in results.values() if hasattr(result, "num_pushes"))
    assert {m.worker for m in run.memberships} <= {0, 1}


def test_a_port_that_is_in_use_is_said():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ValueError, match="free port"):
            parameter_server.Server(setup(ASP), Limits(1), address=address)


def test_who_pushes_numbers_that_are_not_finite_is_told_and_the_others_go_on(monkeypatch):
    run = Driven("bsp", monkeypatch, non_finite="refuse", min_workers=2)
    run.join(0)
    run.join(1)
    run.push(0)
    refused = run.connections[1]
    run.push(1, is_finite=False)
    run.push(0)
    run.push(0)
    result = run.end()
    (message,) = [m for m in refused.sent if m.kind == "refused"]
    assert "must be finite; unit 0 at version 0" in message.header["why"]
    assert len(result.loss) == 3 and result.num_refused == 1
    assert [m.change for m in result.memberships] == ["joined", "joined", "left"]
    assert protocols.check(result.schedule, PROTOCOLS["bsp"].specification(4), memberships=result.memberships)


def test_a_stranger_that_has_hung_up_before_it_is_told_why_ends_no_run(monkeypatch):
    class Closed(Connection):
        def send(self, message):
            raise Disconnected("the other side is gone.")

    run = Driven("asp", monkeypatch)
    run.join(0)
    run.deal(Closed(), Message({"kind": "hello", "worker": 99}))
    run.push(0)
    result = run.end()
    assert len(result.loss) == 1 and result.num_refused == 1


def nested(depth):
    """A list in a list in a list, ..."""
    return [nested(depth - 1)] if depth else []


def test_a_stranger_whose_hello_is_too_deep_to_be_shown_ends_no_run(monkeypatch):
    run, stranger = Driven("asp", monkeypatch), Connection()
    monkeypatch.setattr(stranger, "send", lambda message: stranger.sent.append(message))
    run.join(0)
    deep = nested(900)
    for hello in ({"worker": deep}, {"worker": 1, "fingerprint": {"data": deep}}, {"worker": 1, "incarnation": deep}):
        run.deal(stranger, Message({"kind": "hello", **hello}))
    run.push(0)
    assert len(run.end().loss) == 1
    assert len(stranger.sent) == 3 and all(len(m.header["why"]) < 2000 for m in stranger.sent)


@pytest.mark.slow
def test_a_worker_that_is_told_so_ends_with_the_error(monkeypatch):
    finite = units.is_finite
    monkeypatch.setattr(
        units,
        "is_finite",
        lambda tree: finite(tree) & (threading.current_thread().name != "bad"),
    )
    served = Served(setup(ASP), Limits(10, seconds=60.0, min_workers=2, non_finite="refuse"))
    errors = []

    def bad():
        with pytest.raises(Refused, match="must be finite") as raised:
            work(served, setup(ASP), worker=2)
        errors.append(raised.value)

    thread = threading.Thread(target=bad, name="bad", daemon=True)
    thread.start()
    start_workers(served.server.address, ASP, [0])
    run = served.end()
    thread.join(10)
    assert errors and len(run.loss) == 10


def test_a_clock_that_jumps_changes_nothing(monkeypatch):
    jumps = itertools.cycle([0.0, 1e9, -1e9, 3600.0])
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + next(jumps))
    run = Driven("asp", monkeypatch, min_workers=2, lease=5.0, seconds=600.0)
    for worker in (0, 1):
        run.join(worker)
    for _ in range(3):
        run.push(0)
        run.push(1)
    result = run.end()
    assert [m.change for m in result.memberships] == ["joined", "joined"] and len(result.loss) == 6
    time_of_commits = result.schedule.time[:6]
    assert (np.diff(time_of_commits) > 0).all() and time_of_commits[-1] < 600


FLAWS = {
    "a byte too few": lambda header, body: (header, body[:-1]),
    "no bytes": lambda header, body: (header, None),
    "no ends": lambda header, body: ({**header, "unit_ends": []}, body),
    "ends in words": lambda header, body: ({**header, "unit_ends": ["soon"]}, body),
    "an end that never comes": lambda header, body: ({**header, "unit_ends": [float("inf")]}, body),
    "an end that no float can be": lambda header, body: ({**header, "unit_ends": [10**400]}, body),
    "a time of sending that no float can be": lambda header, body: ({**header, "send_start": 10**400}, body),
    "a unit that no array can have": lambda header, body: ({**header, "first_unit_on_version": 2**31}, body),
    "a first fresh unit in words": lambda header, body: ({**header, "first_unit_on_version": "the third"}, body),
    "no loss": lambda header, body: ({name: value for name, value in header.items() if name != "loss"}, body),
    "a loss in words": lambda header, body: ({**header, "loss": "none"}, body),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_push_that_is_not_complete_is_refused_and_the_run_goes_on(monkeypatch, flaw):
    run = Driven("asp", monkeypatch)
    run.join(0)
    run.join(1)
    run.push(0)
    good = run.pushed[0][-1]
    (order,) = run.orders(0)
    header, body = FLAWS[flaw]({**good.header, "turn": order.header["turn"]}, good.body)
    run.deal(run.connections[0], wire.Message(header, body))
    run.push(1)
    result = run.end()
    assert result.num_refused == 1
    assert len(result.loss) == 2


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"commits": lambda view, worker: view.idle}, r"commits of a Rule must return bool\[\]; it returned bool\[4\]"),
        ({"stop": lambda view: view.begin_time}, r"stop of a Rule must return float\[\]; it returned float.*\[4\]"),
        ({"stop": 5.0}, r"stop of a Rule must be a function \(view\) -> float\[\]; got 5.0"),
        (
            {"stop": lambda view: view.now, "remember_unit": lambda view, worker: view.progress},
            r"remember_unit of a Rule must return what it gets as `view.memory`, \(\); it returned int32\[4\]",
        ),
    ],
    ids=["commits", "stop", "stop-value", "remember_unit"],
)
def test_a_rule_whose_functions_return_something_else_is_refused(fields, problem):
    protocol = ASP.replace(rule=lambda num_workers: Rule(num_contributions=num_workers, **fields))
    with pytest.raises(ValueError, match=problem):
        parameter_server.Server(setup(protocol), Limits(5))
