"""Process 0's side of the watch: it gathers the others, hears when one is lost, and tells all."""

import asyncio
import dataclasses
from typing import Any

from gcjax.processes import handshake, wire
from gcjax.processes.door import Door
from gcjax.processes.listening import listeners
from gcjax.processes.rendezvous import Rendezvous

_MAX_STRANGERS_AT_ONCE = 100


@dataclasses.dataclass
class Peer:
    """Another process.

    Attributes:
      writer: its connection.
      silent_ticks: ticks since it was last heard; see `wire.TICKS`.
      last_answer: the number of the last question, whether it is still there, that it has answered.
      is_done: whether it has left the block of the group.
    """

    writer: asyncio.StreamWriter
    silent_ticks: int = 0
    last_answer: int = 0
    is_done: bool = False


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
        host: str | None,
    ) -> None:
        """For process 0; does not listen yet.

        Args:
          rendezvous: where the group meets.
          secret: of the group.
          timeout: seconds to wait for all others; a member waits so long for process 0, and then for the others.
          lost_after: seconds of silence after which a process counts as lost.
          stop: ends this process with a message.
          host: the address or name to listen on; None for all of the machine.
        """
        self._rendezvous, self._timeout, self._lost_after, self._stop = rendezvous, timeout, lost_after, stop
        self._host = host
        self._door = Door(secret, max_open=rendezvous.num_processes + _MAX_STRANGERS_AT_ONCE)
        self._peers: dict[int, Peer] = {}
        self._have_all_met = self._is_over = False
        self._last_question_number, self._failed_ranks = 0, set[int]()  # questions are numbered
        self._may_leave = asyncio.Event()
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
                raise self._refuse_all(self._missing_text()) from None
            finally:
                self._door.close()
                for server in servers:
                    server.close()
        self._have_all_met = True
        self._send_to_all(go=True)
        # Tasks are kept in fields, since the event loop itself holds them only weakly.
        self._ticking = asyncio.create_task(self._watch_silence())
        return self._rendezvous.address

    async def finish(self) -> None:
        """Waits until all processes are done, and tells them."""
        while not all(peer.is_done for peer in self._peers.values()):
            await asyncio.sleep(0.05)
        self._is_over = True
        self._send_to_all(over=True)

    async def fail(self, error: str) -> None:
        """Tells all that this process failed; returns once it is sure that no loss of another one was the cause."""
        self._explaining = asyncio.create_task(self._explain_failure(0, error))
        await self._may_leave.wait()

    def strangers_text(self) -> str:
        """What is to be said of connections by others than the processes of the group; empty if there were none."""
        return self._door.strangers_text()

    async def _listen(self) -> list[asyncio.Server]:
        """Listens for the others on the port of the rendezvous; one server for each address of the host."""
        try:
            sockets = listeners(self._host, self._rendezvous.port)
        except OSError as error:
            raise ValueError(
                f"Process 0 must be able to listen on port {self._rendezvous.port} of {self._host or 'its machine'}: "
                f"{error.strerror}. Choose another port with --coordinator, for all processes, or another interface "
                "with --bind."
            ) from None
        return [
            await asyncio.start_server(self._serve_connection, sock=listener, limit=wire.MAX_BYTES)
            for listener in sockets
        ]

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handles all that one of the others says, until its connection ends.

        Once all have met, that end is a loss, and ends the group.
        """
        # None for strangers; once all have met, everybody is one.
        hello = None if self._have_all_met else await self._door.admit(reader, writer)
        if hello is None or self._have_all_met:
            writer.close()
            return
        rank, problem = hello.process, self._objection(hello)
        peer = Peer(writer)
        if problem:
            wire.send(writer, refused=problem)
            writer.close()
            if not self._all_connected.done():
                self._all_connected.set_exception(self._refuse_all(problem))
            return
        self._peers[rank] = peer
        if len(self._peers) == self._rendezvous.num_processes - 1 and not self._all_connected.done():
            self._all_connected.set_result(None)
        while (message := await wire.receive(reader)) is not None:
            self._handle_message(rank, peer, message)
        writer.close()
        if self._have_all_met:
            await self._end_group(wire.lost_text(rank, "it was killed, or ran out of memory, or its machine went down"))
        elif self._peers.get(rank) is peer:
            del self._peers[rank]  # stopped by its user, who may start it again in time

    def _objection(self, hello: handshake.Hello) -> str | None:
        """Why a process cannot join: it says another number of processes, or an id that is taken; None if it can."""
        rank, num_processes = hello
        if num_processes != self._rendezvous.num_processes:
            return (
                f"All processes must be started with the same number of processes; process {rank} was with "
                f"{num_processes}, process 0 with {self._rendezvous.num_processes}."
            )
        if rank in self._peers:
            return (
                f"Every process must have its own id, from 0 to {num_processes - 1}; there are two with the id {rank}."
            )
        return None

    def _missing_text(self) -> str:
        """What is said when not all processes have come in time."""
        num_processes = self._rendezvous.num_processes
        missing_ranks = [str(rank) for rank in range(1, num_processes) if rank not in self._peers]
        return (
            f"All {num_processes} processes must reach process 0 at {self._rendezvous.address} within "
            f"{self._timeout:g} s; missing: process {', '.join(missing_ranks)}. Are they started, and can they reach "
            f"that address? {self.strangers_text()}"
        ).rstrip()

    def _refuse_all(self, problem: str) -> ValueError:
        """Tells all processes why they cannot start, and returns the error for this one."""
        self._send_to_all(refused=problem)
        return ValueError(problem)

    def _handle_message(self, rank: int, peer: Peer, message: dict[str, Any]) -> None:
        """Notes what process `rank` says: the number of the question that it answers, that it is done, its error."""
        peer.silent_ticks = 0
        answered_question = message.get("alive")
        # `type`, as JSON's true is an int too.
        peer.last_answer = answered_question if type(answered_question) is int else peer.last_answer
        peer.is_done |= "done" in message
        if "failed" in message:
            self._explaining = asyncio.create_task(self._explain_failure(rank, message["failed"]))

    def _send_to_all(self, **message: Any) -> None:
        """Sends the other processes a message."""
        for peer in self._peers.values():
            wire.send(peer.writer, **message)

    async def _watch_silence(self) -> None:
        """Asks all, every tick, whether they are still there, and ends the group once one has been silent too long."""
        while True:
            await asyncio.sleep(self._lost_after / wire.TICKS)
            self._send_to_all(alive=self._last_question_number)
            for rank, peer in self._peers.items():
                peer.silent_ticks += 1  # 0 again with each message
                if peer.silent_ticks > wire.TICKS:
                    await self._end_group(wire.lost_text(rank, f"nothing was heard from it for {self._lost_after:g} s"))

    async def _explain_failure(self, rank: int, error: str) -> None:
        """Finds out why a process reports an error.

        A lost process makes collectives fail in all others. So they are all asked whether they are still there: either
        every one answers a question that was put after the report, or one is found to be lost. Then there is a short
        while for the others to report as well, since an error in the config is met by all of them.
        """
        self._failed_ranks.add(rank)
        self._last_question_number += 1
        question = self._last_question_number
        self._send_to_all(alive=question)
        while any(peer.last_answer < question for other, peer in self._peers.items() if other != rank):
            await asyncio.sleep(0.01)
        for _ in range(20):  # for a second
            if len(self._failed_ranks) == self._rendezvous.num_processes:
                break
            await asyncio.sleep(0.05)
        await self._end_group(wire.failed_text(rank, error), spared=frozenset(self._failed_ranks))

    async def _end_group(self, text: str, spared: frozenset[int] = frozenset()) -> None:
        """Tells all processes why to end, and ends this one; the spared ones have an error of their own to show."""
        if self._is_over:
            return
        self._is_over = True
        self._send_to_all(end=text, spared=sorted(spared))
        # For two seconds: they close their connections; whoever leaves first could cut off what it said.
        for _ in range(100):
            await asyncio.sleep(0.02)
            if all(peer.writer.is_closing() for peer in self._peers.values()):
                break
        if 0 in spared:  # this process
            self._may_leave.set()
        else:
            self._stop(text)
