"""Who does not know the secret of a group takes nobody's place, and keeps nobody from meeting."""

import asyncio
import json

import pytest

from gcjax.processes import door, handshake, wire
from tests.parameters import some
from tests.processes.commands import free_port
from tests.processes.nodes import Node, first_of, play, refused, until

SECRET = b"0123456789abcdef"
HELLO = handshake.Hello(1, 2)


async def say(port, line):
    """What process 0 answers to a line, after its nonce, until it closes the connection."""
    reader, writer = await asyncio.open_connection("localhost", port)
    nonce = json.loads(await reader.readline())["nonce"]
    writer.write(line(nonce) if callable(line) else line)
    try:
        writer.write_eof()
        return await reader.read()
    except OSError:  # closed with more to read
        return b""
    finally:
        writer.close()


def claim(hub_nonce, secret=SECRET, **said):
    """What a process that knows the secret says, also where that is no process of any group."""
    said = {**HELLO._asdict(), "nonce": "00", **said}
    proof = handshake._proof(secret, "member", hub_nonce, said["nonce"], (said["process"], said["of"]))
    return json.dumps({**said, "proof": proof}).encode() + b"\n"


WITHOUT_PROOF = [
    b'{"process": 1, "of": 2}\n',
    b'{"process": 99, "of": 2}\n',
    b'{"process": -1, "of": 2}\n',
    b'{"process": 1, "of": 3}\n',
    b'{"process": 1, "of": 2, "nonce": "00", "proof": null}\n',
    b'{"process": 1, "of": 2, "nonce": "00", "proof": "\\ud800"}\n',
    b'{"process": [], "of": {}, "nonce": [], "proof": {}}\n',
    b"[]\n",
    b"[" * 60_000 + b"\n",
    b"[" * 500 + b"\n",
    b"x" * 300_000,
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff\xfe\n",
    b"",
]


@pytest.mark.parametrize("secret", [SECRET, b""], ids=["secret", "none"])
def test_without_proof_nobody_comes_in_and_everybody_is_counted(secret):
    async def scene():
        port = free_port()
        hub, meeting = await first_of(port, 2, secret=secret)
        for number, line in enumerate(WITHOUT_PROOF, start=1):
            assert await say(port, line) == b"", line
            assert hub.end._peers == {} and not meeting.done(), line
            assert hub.end.strangers_text().startswith(f"{number} connection"), line
        await asyncio.gather(meeting, Node(port, 2, 1, secret=secret).end.meet())
        assert (
            hub.end.strangers_text()
            == "14 connections were closed that did not prove to belong to the group, the "
            + (f"last from {'127.0.0.1' if '127' in hub.end.strangers_text() else '::1'}.")
        )

    play(scene)


@pytest.mark.parametrize("line", [b"[" * 60_000, b'{"a":' * 10_000, b"9" * 60_000, b"{}" + b" " * 70_000, b"[]", b"{}"])
def test_what_is_no_message_is_the_end_of_a_connection(line):
    async def scene():
        reader = asyncio.StreamReader(limit=wire.MAX_BYTES)
        reader.feed_data(line + b"\n")
        assert await wire.receive(reader) == ({} if line == b"{}" else None)

    play(scene)


def test_a_process_of_the_group_that_says_nonsense_is_heard_and_harms_nobody():
    async def scene():
        port = free_port()
        hub, meeting = await first_of(port, 2, secret=SECRET)
        reader, writer = await asyncio.open_connection("localhost", port)
        assert await handshake.enter(reader, writer, SECRET, HELLO) is None
        await meeting
        for message in ({"alive": "x"}, {"alive": [1]}, {"alive": None, "x": 1}, {"done": []}):
            wire.send(writer, **message)
        await hub.end.finish()
        assert hub.stopped is None and hub.end._peers[1].last_answer == 0

    play(scene)


@pytest.mark.parametrize(
    "said",
    [
        *({"process": process} for process in (99, 2, 0, -1, True, 1.0, "1", None, [1])),
        *({"process": 3, "of": of} for of in (3, 1, 0, -1, True, 3.5, "4", None, [4])),
        {"nonce": "0" * 600},
    ],
    ids=lambda said: str(said)[:20],
)
def test_what_is_no_process_is_a_stranger_though_it_knows_the_secret(said):
    async def scene():
        port = free_port()
        hub, meeting = await first_of(port, 2, secret=SECRET)
        assert await say(port, lambda nonce: claim(nonce, **said)) == b""
        assert hub.end._peers == {} and hub.end.strangers_text().startswith("1 connection was closed")
        assert b"proof" in await say(port, claim)
        meeting.cancel()

    play(scene)


def test_what_was_overheard_proves_nothing_on_another_connection():
    async def scene():
        port, lines = free_port(), []
        hub, meeting = await first_of(port, 3, secret=SECRET)
        await say(port, lambda nonce: lines.append(claim(nonce, of=3)) or lines[0])
        await until(lambda: hub.end._peers == {})
        assert await say(port, lines[0]) == b""
        assert hub.end._peers == {}
        meeting.cancel()

    play(scene)


def test_a_process_that_came_first_keeps_its_place():
    async def scene():
        port = free_port()
        hub, meeting = await first_of(port, 3, secret=SECRET)
        first = asyncio.create_task(Node(port, 3, 1, secret=SECRET).end.meet())
        await until(lambda: 1 in hub.end._peers)
        peer = hub.end._peers[1]
        assert b"two with the id 1" in await say(port, lambda nonce: claim(nonce, of=3))
        assert hub.end._peers == {1: peer}
        assert "two with the id 1" in str(await asyncio.gather(meeting, first, return_exceptions=True))

    play(scene)


@pytest.mark.parametrize("secrets", some([((SECRET, b"another secret 00"),)], [((SECRET, b""),), ((b"", SECRET),)]))
def test_another_secret_is_said_by_all(secrets):
    async def scene():
        port = free_port()
        first, other = (Node(port, 2, rank, timeout=1.0, secret=secrets[rank]) for rank in (0, 1))
        waits, tries = await refused(first, other)
        assert "missing: process 1" in waits and "closed that did not prove to belong to the group" in waits
        assert "takes this process for a stranger; do all have the same secret?" in tries

    play(scene)


@pytest.mark.slow("<lambda>-does not know the secret0", "<lambda>-does not know the secret1")
@pytest.mark.parametrize(
    ("answer", "text"),
    some(
        [
            (lambda nonce, hello: {"proof": hello["proof"]}, "does not know the secret"),  # sent back
            (lambda nonce, hello: {"refused": "Give up."}, "does not know the secret"),
            (None, "says nothing"),
        ],
        [
            (lambda nonce, hello: {"proof": "00"}, "does not know the secret"),
            (lambda nonce, hello: {"go": True}, "does not know the secret"),
            (lambda nonce, hello: {"nonce": nonce}, "does not know the secret"),
        ],
    ),
)
def test_a_process_does_not_believe_who_pretends_to_be_process_0(answer, text):
    async def scene():
        async def pretend(reader, writer):
            if answer is not None:
                writer.write(b'{"nonce": "00"}\n')
                writer.write(json.dumps(answer("00", json.loads(await reader.readline()))).encode() + b"\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(pretend, "localhost", 0)
        port = server.sockets[0].getsockname()[1]
        (said,) = await refused(Node(port, 2, 1, timeout=0.5, secret=SECRET))
        assert f"what answers there {text}" in said

    play(scene)


def test_those_who_are_silent_or_slow_keep_nobody_out(monkeypatch):
    monkeypatch.setattr(handshake, "PATIENCE", 0.5)

    async def scene():
        port = free_port()
        hub, meeting = await first_of(port, 2, timeout=20.0, secret=SECRET)
        silent = [await asyncio.open_connection("localhost", port) for _ in range(20)]
        slow = asyncio.create_task(trickle(port))
        assert all([await reader.read() != b"" for reader, _ in silent])  # their nonce, and the end
        await slow
        assert not meeting.done() and hub.end.strangers_text().startswith("21 connections")
        monkeypatch.setattr(handshake, "PATIENCE", 100.0)
        silent = [await asyncio.open_connection("localhost", port) for _ in range(20)]
        await asyncio.gather(meeting, Node(port, 2, 1, secret=SECRET).end.meet())
        assert hub.end.strangers_text().startswith("41 connections")
        assert all([await reader.read() != b"" for reader, _ in silent])

    async def trickle(port):
        """A byte now and then, until the connection is closed."""
        reader, writer = await asyncio.open_connection("localhost", port)
        await reader.readline()
        while not reader.at_eof():
            writer.write(b" ")
            await asyncio.sleep(0.1)
        writer.close()

    play(scene)


def test_of_many_open_connections_the_oldest_is_closed():
    async def scene():
        first = door.Door(SECRET, max_open=3)
        server = await asyncio.start_server(first.admit, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        opened = []
        for _ in range(8):
            opened.append(await asyncio.open_connection("127.0.0.1", port))
            await opened[-1][0].readline()
        for reader, _ in opened[:5]:
            assert await reader.read() == b""
        await until(lambda: first._num_strangers == 5)
        assert len(first._unproven_connections) == 3
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await handshake.enter(reader, writer, SECRET, HELLO) is None
        first.close()
        assert first.strangers_text().startswith("8 connections")

    play(scene)
