"""The other processes' side of the watch: one connection to process 0, whose word counts."""

import asyncio

from gcjax.processes import handshake, wire
from gcjax.processes.relay import open_relay
from gcjax.processes.rendezvous import Rendezvous


class Member:
    """Connects to process 0, then listens to it; see `gcjax.processes.hub`."""

    def __init__(
        self, rendezvous: Rendezvous, secret: bytes, timeout: float, lost_after: float, stop: wire.Stop
    ) -> None:
        """For process `rendezvous.process_id`, not 0; connects to nobody yet; arguments as of `Hub`."""
        self._rendezvous, self._timeout, self._lost_after, self._stop = rendezvous, timeout, lost_after, stop
        self._secret = secret
        self._silent_ticks = 0
        self._is_over, self._may_leave = asyncio.Event(), asyncio.Event()

    async def meet(self) -> str:
        """Waits until all processes have connected, and returns the address of JAX's service for this process.

        Raises:
          ValueError: if process 0 is not reached in time, or refuses this process or another one.
        """
        self._reader, self._writer = await self._connect()
        await self._wait_for_all()
        self._listening = asyncio.create_task(self._handle_messages())
        self._ticking = asyncio.create_task(self._watch_silence())
        return f"127.0.0.1:{await open_relay(self._rendezvous.host, self._rendezvous.port, self._timeout)}"

    async def finish(self) -> None:
        """Waits until all processes are done."""
        wire.send(self._writer, done=True)
        await self._is_over.wait()

    async def fail(self, error: str) -> None:
        """Tells all that this process failed; returns once it is sure that no loss of another one was the cause."""
        wire.send(self._writer, failed=error)
        await self._may_leave.wait()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to process 0, once both sides have proved who they are; tries again until the time-out.

        Raises:
          ValueError: if there is none in time, with the last thing that was wrong.
        """
        now = asyncio.get_running_loop().time
        deadline, reason = now() + self._timeout, ""
        hello = handshake.Hello(self._rendezvous.process_id, self._rendezvous.num_processes)
        while True:
            try:
                reader, writer = await wire.connect(self._rendezvous.host, self._rendezvous.port, deadline)
                patience = max(0.1, min(handshake.PATIENCE, deadline - now()))
                try:
                    problem = await asyncio.wait_for(handshake.enter(reader, writer, self._secret, hello), patience)
                except TimeoutError:
                    problem = reason or "what answers there says nothing"
                if problem is None:
                    return reader, writer
                writer.close()
                reason = problem
            except OSError as error:
                reason = reason or str(error) or "no answer"
            if now() >= deadline - 0.2:  # no time is left for the pause and another try
                raise ValueError(self._unreachable_text(reason))
            await asyncio.sleep(0.2)

    async def _wait_for_all(self) -> None:
        """Waits for the word of process 0 that all processes have come; raises its `ValueError` if it refuses them."""
        try:
            # Process 0 waits no longer than its own time-out, in seconds, and then says who is missing.
            answer = await asyncio.wait_for(wire.receive(self._reader), self._timeout + 10)
        except TimeoutError:
            raise ValueError(self._unreachable_text("process 0 fell silent")) from None
        if answer is None:
            raise ValueError(f"Process 0 at {self._rendezvous.address} ended before all processes had come.")
        if "refused" in answer:
            raise ValueError(answer["refused"])

    def _unreachable_text(self, reason: str) -> str:
        """What is said when there is no connection to process 0 in time."""
        return (
            f"The coordinator, process 0 at {self._rendezvous.address}, must be reachable within {self._timeout:g} s: "
            f"{reason}. Is process 0 started, with the same address, and is the port open?"
        )

    async def _handle_messages(self) -> None:
        """Does what process 0 says, until the connection ends: answers it, lets this process leave, or ends it."""
        while (message := await wire.receive(self._reader)) is not None:
            self._silent_ticks = 0
            if "alive" in message:
                wire.send(self._writer, alive=message["alive"])
            if "over" in message:
                self._is_over.set()
            if "end" in message:
                self._on_end(message["end"], message["spared"])
        if not (self._is_over.is_set() or self._may_leave.is_set()):
            self._stop(wire.lost_text(0, "it was killed, or ran out of memory, or its machine went down"))

    def _on_end(self, text: str, spared: list[int]) -> None:
        """Ends this process with the message, unless it is one of the spared, which show errors of their own."""
        if self._rendezvous.process_id in spared:
            self._may_leave.set()
            self._writer.close()
        else:
            self._stop(text)

    async def _watch_silence(self) -> None:
        """Ends this process once process 0 has been silent for too many ticks."""
        while not self._may_leave.is_set():
            await asyncio.sleep(self._lost_after / wire.TICKS)
            self._silent_ticks += 1
            if self._silent_ticks > wire.TICKS and not self._is_over.is_set():
                self._stop(wire.lost_text(0, f"nothing was heard from it for {self._lost_after:g} s"))
