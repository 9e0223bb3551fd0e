"""Which secret a group has, where it needs one, and on which interfaces process 0 listens."""

import asyncio
import contextlib
import errno
import socket

import pytest

from gcjax import cli, processes
from gcjax.processes import listening
from gcjax.processes.rendezvous import Rendezvous
from gcjax.processes.secret import secret
from tests.processes.commands import free_port
from tests.processes.nodes import first_of, play

HERE, ELSEWHERE = Rendezvous("127.0.0.1:1234", 2, 1), Rendezvous("10.0.0.1:1234", 2, 1)
TEXT = "0123456789abcdef"


@pytest.fixture(autouse=True)
def no_secret(monkeypatch):
    for name in ("GCJAX_SECRET", "GCJAX_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_an_argument_wins_over_the_environment(tmp_path, monkeypatch):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text(f"  {TEXT}1\n")
    other.write_text(f"{TEXT}2")
    assert secret(HERE) == b""
    monkeypatch.setenv("GCJAX_SECRET_FILE", str(other))
    assert secret(ELSEWHERE) == f"{TEXT}2".encode()
    monkeypatch.setenv("GCJAX_SECRET", f"{TEXT}3\n")
    assert secret(ELSEWHERE) == f"{TEXT}3".encode()
    assert secret(ELSEWHERE, file=one) == f"{TEXT}1".encode()
    assert secret(ELSEWHERE, no_secret=True) == b""


@pytest.mark.parametrize("host", ["10.0.0.1", "node007", "0.0.0.0", "[fe80::1]", "127.0.0.1.example.org", "128.0.0.1"])
def test_where_others_can_come_a_secret_is_needed(host):
    place = Rendezvous(f"{host}:1234", 2, 0)
    with pytest.raises(ValueError, match=r"need a secret in common; got none. Set GCJAX_SECRET .* with --no-secret"):
        secret(place)
    assert secret(place._replace(num_processes=1)) == secret(place, no_secret=True) == b""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LocalHost", "[::1]", "127.9.9.9"])
def test_on_loopback_none_is_needed(host):
    assert secret(Rendezvous(f"{host}:1234", 2, 0)) == b""


def test_bad_secrets_are_refused_and_not_shown(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="must be a file that can be read; got .*nowhere.*: No such file"):
        secret(HERE, file=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="a secret or has none; got both secret-file"):
        secret(HERE, file=tmp_path / "nowhere", no_secret=True)
    monkeypatch.setenv("GCJAX_SECRET", "sesame ")
    with pytest.raises(ValueError, match="^GCJAX_SECRET must hold a secret of at least 16 bytes; got 6. Make") as error:
        secret(HERE)
    assert "sesame" not in str(error.value)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ("--no-secret --bind ::", "need --distributed; got --no-secret, --bind without it"),
        (
            "--distributed --coordinator 10.0.0.1:1 --num-processes 2 --process-id 1",
            "need a secret in common; got none",
        ),
        ("--distributed --coordinator 127.0.0.1:1 --num-processes 2 --process-id 1 --secret-file no", "got 'no'"),
    ],
)
def test_the_command_says_what_is_missing(flags, text, capsys):
    assert cli.main(["run", "config.gin", *flags.split()]) == 2
    assert text in capsys.readouterr().err


def test_a_group_in_a_script_needs_one_too():
    place = {"coordinator": "10.0.0.1:1", "num_processes": 2, "process_id": 1}
    with pytest.raises(ValueError, match="need a secret"), processes.group(**place):
        pass


def test_process_0_listens_on_the_interface_of_the_coordinator(monkeypatch):
    names = {
        "node": ["192.0.2.7"],
        "two": ["192.0.2.7", "192.0.2.8"],
        "debian": ["127.0.1.1"],
        "translated": ["198.51.100.1"],
        "half": ["192.0.2.7", "198.51.100.1"],
        "v6": ["::1"],
    }

    def addresses(host, port):
        if host not in names:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET6 if ":" in each else socket.AF_INET, (each, port)) for each in names[host]]

    class Probe:
        def __init__(self, family):
            pass

        __enter__, __exit__ = (lambda self: self), (lambda self, *error: None)

        def bind(self, address):
            if address[0].startswith("198.51.100."):
                raise OSError(errno.EADDRNOTAVAIL, "")

    monkeypatch.setattr(listening, "_addresses", addresses)
    monkeypatch.setattr(listening.socket, "socket", Probe)
    chosen = {host: listening.interface(Rendezvous(f"{host}:1234", 2, 0), None) for host in [*names, "unknown"]}
    assert chosen == {"node": "node", "two": "two"} | dict.fromkeys(("debian", "translated", "half", "v6", "unknown"))
    assert listening.interface(Rendezvous("[::1]:1234", 2, 0), None) == "::1"
    assert listening.interface(Rendezvous("node:1234", 2, 0), "192.0.2.8") == "192.0.2.8"
    assert listening.interface(HERE, "0.0.0.0") == "0.0.0.0"


@pytest.mark.parametrize(("host", "open_to_others"), [("127.0.0.1", False), ("localhost", False), (None, True)])
def test_who_is_not_on_the_interface_does_not_reach_it(host, open_to_others):
    async def scene():
        port = free_port()
        _, meeting = await first_of(port, 2, host=host)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        with contextlib.nullcontext() if open_to_others else pytest.raises(OSError):
            _, writer = await asyncio.open_connection("127.0.0.2", port)
            writer.close()
        meeting.cancel()

    play(scene)


def test_an_address_that_is_not_here_or_taken_is_no_place_to_listen():
    with pytest.raises(OSError):
        listening.listeners("192.0.2.7", 0)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        listening.listeners("127.0.0.1", taken.getsockname()[1])
