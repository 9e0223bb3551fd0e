"""Process 0's side of the watch: it gathers the others, hears when one is lost, and tells all."""

import asyncio
import dataclasses
from typing import Any

from gcjax.processes import handshake, wire
from gcjax.processes.door import Door
from gcjax.processes.listening import listeners
from gcjax.processes.rendezvous import Rendezvous


@dataclasses.dataclass
class Peer:
    """Another process: its connection, ticks since it was last heard, last question answered, whether it is done."""

    writer: asyncio.StreamWriter
    silent: int = 0
    answered: int = 0
    done: bool = False


class Hub:
    """Waits for the others at the address, then watches them on the same connections.

    The port is free again, for JAX's coordination service, as soon as all have come: connections outlive the socket
    that accepted them.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        secret: bytes,
        timeout: float,
        lost_after: float,
        stop: wire.Stop,
        host: str | None = None,
    ) -> None:
        """As in `gcjax.processes.group`; `stop` ends this process with a message; listens on `host`, or on all."""
        self._rendezvous, self._timeout, self._lost_after, self._stop = rendezvous, timeout, lost_after, stop
        self._host, self._door = host, Door(secret, max_open=rendezvous.num_processes + 100)
        self._peers: dict[int, Peer] = {}
        self._met = self._over = False
        self._question, self._failing = 0, set[int]()
        self._released = asyncio.Event()
        self._all_connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def meet(self) -> str:
        """Waits until all processes have connected, and returns the address of JAX's service.

        Raises:
          ValueError: if some do not come in time, or do not belong to the group; all that have come raise the same.
        """
        if self._rendezvous.num_processes > 1:
            servers = await self._listen()
            try:
                await asyncio.wait_for(self._all_connected, self._timeout)
            except TimeoutError:
                raise self._refusal(self._missing()) from None
            finally:
                self._door.close()
                for server in servers:
                    server.close()
        self._met = True
        self._tell(go=True)
        self._ticking = asyncio.create_task(self._tick())
        return self._rendezvous.address

    async def finish(self) -> None:
        """Waits until all processes are done."""
        while not all(peer.done for peer in self._peers.values()):
            await asyncio.sleep(0.05)
        self._over = True
        self._tell(over=True)

    async def fail(self, error: str) -> None:
        """Tells all that this process failed; returns once it is sure that no loss of another one was the cause."""
        self._explaining = asyncio.create_task(self._explain_failure(0, error))
        await self._released.wait()

    def strangers(self) -> str:
        """What is to be said of connections by others than the processes of the group; empty if there were none."""
        return self._door.strangers()

    async def _listen(self) -> list[asyncio.Server]:
        try:
            sockets = listeners(self._host, self._rendezvous.port)
        except OSError as error:
            raise ValueError(
                f"Process 0 must be able to listen on port {self._rendezvous.port} of {self._host or 'its machine'}: "
                f"{error.strerror}. Choose another port with --coordinator, for all processes, or another interface "
                "with --bind."
            ) from None
        return [await asyncio.start_server(self._serve, sock=each, limit=wire.MAX_BYTES) for each in sockets]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Everything that one of the others says, from its arrival to the end of its connection."""
        hello = None if self._met else await self._door.admit(reader, writer)
        if hello is None or self._met:
            writer.close()
            return
        rank, problem = hello.process, self._objection(hello)
        peer = Peer(writer)
        if problem:
            wire.send(writer, refused=problem)
            writer.close()
            if not self._all_connected.done():
                self._all_connected.set_exception(self._refusal(problem))
            return
        self._peers[rank] = peer
        if len(self._peers) == self._rendezvous.num_processes - 1 and not self._all_connected.done():
            self._all_connected.set_result(None)
        while (message := await wire.receive(reader)) is not None:
            self._note(rank, peer, message)
        writer.close()
        if self._met:
            await self._end(wire.lost(rank, "it was killed, or ran out of memory, or its machine went down"))
        elif self._peers.get(rank) is peer:
            del self._peers[rank]  # stopped by its user, who may start it again in time

    def _objection(self, hello: handshake.Hello) -> str | None:
        """Why a process cannot join: it says another number of processes, or an id that is taken; None if it can."""
        rank, number = hello
        if number != self._rendezvous.num_processes:
            return (
                f"All processes must be started with the same number of processes; process {rank} was with {number}, "
                f"process 0 with {self._rendezvous.num_processes}."
            )
        if rank in self._peers:
            return f"Every process must have its own id, from 0 to {number - 1}; there are two with the id {rank}."
        return None

    def _missing(self) -> str:
        number = self._rendezvous.num_processes
        missing = [str(rank) for rank in range(1, number) if rank not in self._peers]
        return (
            f"All {number} processes must reach process 0 at {self._rendezvous.address} within {self._timeout:g} s; "
            f"missing: process {', '.join(missing)}. Are they started, and can they reach that address? "
            f"{self.strangers()}"
        ).rstrip()

    def _refusal(self, problem: str) -> ValueError:
        self._tell(refused=problem)
        return ValueError(problem)

    def _note(self, rank: int, peer: Peer, message: dict[str, Any]) -> None:
        peer.silent = 0
        answered = message.get("alive")
        peer.answered = answered if type(answered) is int else peer.answered
        peer.done |= "done" in message
        if "failed" in message:
            self._explaining = asyncio.create_task(self._explain_failure(rank, message["failed"]))

    def _tell(self, **message: Any) -> None:
        for peer in self._peers.values():
            wire.send(peer.writer, **message)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self._lost_after / wire.TICKS)
            self._tell(alive=self._question)
            for rank, peer in self._peers.items():
                peer.silent += 1
                if peer.silent > wire.TICKS:
                    await self._end(wire.lost(rank, f"nothing was heard from it for {self._lost_after:g} s"))

    async def _explain_failure(self, rank: int, error: str) -> None:
        """Finds out why a process reports an error.

        A lost process makes collectives fail in all others. So they are all asked whether they are still there: either
        every one answers a question that was put after the report, or one is found to be lost. Then there is a short
        while for the others to report as well, since an error in the config is met by all of them.
        """
        self._failing.add(rank)
        self._question += 1
        question = self._question
        self._tell(alive=question)
        while any(peer.answered < question for other, peer in self._peers.items() if other != rank):
            await asyncio.sleep(0.01)
        for _ in range(20):
            if len(self._failing) == self._rendezvous.num_processes:
                break
            await asyncio.sleep(0.05)
        await self._end(wire.failed(rank, error), spared=frozenset(self._failing))

    async def _end(self, text: str, spared: frozenset[int] = frozenset()) -> None:
        """Tells all processes to end, and ends this one.

        Args:
          text: why.
          spared: the processes that have an error of their own to show.
        """
        if self._over:
            return
        self._over = True
        self._tell(end=text, spared=sorted(spared))
        for _ in range(100):  # they close their connections; whoever leaves first could cut off what it said
            await asyncio.sleep(0.02)
            if all(peer.writer.is_closing() for peer in self._peers.values()):
                break
        if 0 in spared:
            self._released.set()
        else:
            self._stop(text)
