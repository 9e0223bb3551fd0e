"""When a server ends, and what it says of itself to who asks."""

import threading

import pytest

from experiments import live_members
from gcjax import protocols
from gcjax.parameter_server import Disconnected, Limits, Server
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
