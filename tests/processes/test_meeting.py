"""How the processes of a group find and watch each other: all on one event loop, without JAX."""

import asyncio

import pytest

from gcjax.processes import handshake
from gcjax.processes.relay import open_relay
from tests.parameters import some
from tests.processes.commands import free_port
from tests.processes.nodes import Node, play, refused, until


async def met(number, **options):
    port = free_port()
    nodes = [Node(port, number, rank, **options) for rank in range(number)]
    await asyncio.gather(*(node.end.meet() for node in nodes))
    return nodes


def test_a_common_end_is_no_loss_though_one_comes_later():
    async def scene():
        nodes = await met(3, lost_after=0.3)
        early = [asyncio.create_task(node.end.finish()) for node in (nodes[0], nodes[2])]
        await asyncio.sleep(0.8)  # they hear of each other, so nobody is lost
        assert not any(task.done() for task in early)
        await nodes[1].end.finish()
        await asyncio.gather(*early)
        nodes[2].end._writer.close()
        await asyncio.sleep(0.2)
        assert [node.stopped for node in nodes] == [None] * 3

    play(scene)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_closed_connection_is_a_loss(lost):
    async def scene():
        nodes = await met(3)
        if lost:
            nodes[1].end._writer.transport.abort()
        else:
            for peer in nodes[0].end._peers.values():
                peer.writer.transport.abort()
        others = [node for rank, node in enumerate(nodes) if rank != lost]
        await until(lambda: all(node.stopped for node in others))
        assert all(node.stopped.startswith(f"process {lost} was lost: it was killed") for node in others)

    play(scene)


@pytest.mark.parametrize("lost", some([0], [1]))
def test_silence_is_a_loss(lost):
    async def scene():
        nodes = await met(3, lost_after=0.3)
        nodes[lost].end._ticking.cancel()
        if lost:
            nodes[1].end._listening.cancel()
        else:
            nodes[0].end._is_over = True  # suspended: nor does it say that a process left which no longer heard it
        others = [node for rank, node in enumerate(nodes) if rank != lost]
        await until(lambda: all(node.stopped for node in others))
        assert all(node.stopped.startswith(f"process {lost} was lost: nothing was heard") for node in others)

    play(scene)


@pytest.mark.parametrize("bad", some([1], [0]))
def test_an_error_names_its_process_and_spares_it(bad):
    async def scene():
        nodes = await met(3)
        await nodes[bad].end.fail("RuntimeError: boom")
        others = [node for rank, node in enumerate(nodes) if rank != bad]
        await until(lambda: all(node.stopped for node in others))
        assert all(node.stopped.startswith(f"process {bad} ended with an error: Run") for node in others)
        assert nodes[bad].stopped is None

    play(scene)


def test_an_error_of_all_spares_all():
    async def scene():
        nodes = await met(3)
        await asyncio.gather(*(node.end.fail("ValueError: too few") for node in nodes))
        assert [node.stopped for node in nodes] == [None] * 3

    play(scene)


@pytest.mark.slow
@pytest.mark.parametrize("reporter", some([1], [0]))
def test_a_loss_is_blamed_though_another_process_reports_an_error_first(reporter):
    async def scene():
        nodes = await met(3)
        nodes[2].end._listening.cancel()  # dead, but its connection is not closed yet
        asyncio.create_task(nodes[reporter].end.fail("ValueError: Gloo all-reduce failed"))  # noqa: RUF006
        await asyncio.sleep(1.5)  # longer than the others are given to report an error as well
        assert nodes[0].stopped is None
        nodes[2].end._writer.transport.abort()
        await until(lambda: nodes[0].stopped and nodes[1].stopped)
        assert nodes[0].stopped.startswith("process 2 was lost")
        assert nodes[1].stopped.startswith("process 2 was lost")

    play(scene)


def test_a_group_of_one_meets_nobody():
    async def scene():
        (node,) = await met(1)
        await node.end.finish()

    play(scene)


def test_those_who_do_not_fit_are_refused_by_all():
    async def scene():
        port = free_port()
        texts = await refused(Node(port, 3, 0), Node(port, 2, 1))
        assert set(texts) == {
            "All processes must be started with the same number of processes; process 1 was with 2, process 0 with 3."
        }
        texts = await refused(Node(port, 3, 0), Node(port, 3, 1), Node(port, 3, 1))
        assert set(texts) == {"Every process must have its own id, from 0 to 2; there are two with the id 1."}

    play(scene)


def test_a_process_that_is_started_again_in_time_is_welcome():
    async def scene():
        port = free_port()
        first = Node(port, 3, 0)
        meeting = asyncio.create_task(first.end.meet())
        await asyncio.sleep(0.1)
        reader, early = await asyncio.open_connection("localhost", port)
        assert await handshake.enter(reader, early, b"", handshake.Hello(2, 3)) is None
        await until(lambda: 2 in first.end._peers)
        early.close()
        await until(lambda: 2 not in first.end._peers)
        await asyncio.gather(meeting, Node(port, 3, 2).end.meet(), Node(port, 3, 1).end.meet())

    play(scene)


def test_others_on_the_port_are_no_coordinator_and_no_process():
    async def scene():
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "localhost", 0)
        port = server.sockets[0].getsockname()[1]
        (text,) = await refused(Node(port, 2, 1, timeout=0.5))
        assert f"localhost:{port}, must be reachable within 0.5 s: what answers there is not process 0" in text
        (text,) = await refused(Node(port, 2, 0))
        assert f"listen on port {port}" in text
        port = free_port()
        meeting = asyncio.create_task(Node(port, 2, 0).end.meet())
        await asyncio.sleep(0.1)
        _, stranger = await asyncio.open_connection("localhost", port)
        stranger.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.gather(meeting, Node(port, 2, 1).end.meet())

    play(scene)


def test_the_relay_stays_open_when_the_service_is_gone():
    async def scene():
        async def service(reader, writer):
            writer.write((await reader.readexactly(4)).upper())
            if await reader.read(1) == b"":
                left.set()
            writer.close()

        left = asyncio.Event()
        server = await asyncio.start_server(service, "127.0.0.1", 0)
        port = await open_relay("127.0.0.1", server.sockets[0].getsockname()[1], 1.0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"PING"
        for _ in range(5):
            writer.write(b"more")
            await asyncio.sleep(0.02)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        assert not left.is_set()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"PING"
        writer.close()
        await left.wait()

    play(scene)
