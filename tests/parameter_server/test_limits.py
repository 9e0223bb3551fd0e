"""When a server ends, and what it says of itself to who asks."""

import contextlib
import json
import threading

import numpy as np
import pytest

from experiments import live_members
from gcjax import protocols
from gcjax.parameter_server import Disconnected, Limits, Security, Server
from gcjax.parameter_server.security import check_server
from tests.parameter_server.runs import setup


@pytest.mark.slow
def test_a_server_that_nobody_joins_ends():
    server = Server(setup(protocols.asp()), Limits(5, seconds=1000.0, join_seconds=0.2))
    run = server.run()
    assert len(run.loss) == 0 and run.memberships == ()


@pytest.mark.slow
def test_a_server_can_be_stopped_from_another_thread():
    server = Server(setup(protocols.asp()), Limits(5))
    timer = threading.Timer(0.1, server.stop)
    timer.start()
    assert len(server.run().loss) == 0


@pytest.mark.parametrize("limits", ["200", 200, None])
def test_what_is_no_limits_is_refused_in_words(limits):
    with pytest.raises(ValueError, match=r"limits must be a Limits, .*Limits\(200\).*; got "):
        Server(setup(protocols.asp()), limits)


def test_numbers_of_numpy_can_be_said_in_json():
    limits = Limits(np.int64(5), seconds=np.float32(2), lease=np.int64(5), min_workers=np.int32(2))
    assert json.loads(json.dumps(limits.validated(4))) == [5, 2.0, 5.0, 2, "stop", None]


@pytest.mark.parametrize(
    ("address", "is_refused"),
    [
        ("localhost.example.org:0", True), ("127.example.org:0", True), ("0.0.0.0:0", True), ("[::]:0", True),
        ("127.0.0.2:0", False), ("localhost:0", False), ("[::1]:0", False),
    ],
)  # fmt: skip
def test_an_address_that_others_can_reach_needs_a_token_or_a_word(address, is_refused):
    for security in (Security(), Security("token"), Security(open_to_all=True)):
        with (
            contextlib.nullcontext()
            if security != Security() or not is_refused
            else pytest.raises(ValueError, match="need a token in common; got none.*open_to_all")
        ):
            check_server(address, security)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_the_seconds_to_join_must_be_some(seconds):
    with pytest.raises(ValueError, match="join_seconds"):
        Server(setup(protocols.asp()), Limits(5, join_seconds=seconds))


def test_a_server_says_what_it_serves():
    server = Server(setup(protocols.asp(), identity="the first run"), Limits(5, seconds=30.0))
    thread = threading.Thread(target=server.run)
    thread.start()
    place = live_members.Place(0, server.address, "", 0.3)
    assert live_members._next_identity(place, "") == "the first run"
    with pytest.raises(Disconnected, match=r"serves no other run. It was waited for for 0.3 s"):
        live_members._next_identity(place, "the first run")
    server.stop()
    thread.join(10)
    with pytest.raises(Disconnected, match="waited for"):
        live_members._next_identity(place, "the first run")
