"""The other processes' side of the watch: one connection to process 0, whose word counts."""

import asyncio
from typing import Any

from gcjax.processes import handshake, wire
from gcjax.processes.relay import open_relay
from gcjax.processes.rendezvous import Rendezvous


class Member:
    """Connects to process 0, then listens to it; see `gcjax.processes.hub`."""

    def __init__(
        self, rendezvous: Rendezvous, secret: bytes, timeout: float, lost_after: float, stop: wire.Stop
    ) -> None:
        """As in `gcjax.processes.group`; `stop` ends this process with a message."""
        self._rendezvous, self._timeout, self._lost_after, self._stop = rendezvous, timeout, lost_after, stop
        self._secret = secret
        self._silent = 0
        self._over, self._released = asyncio.Event(), asyncio.Event()

    async def meet(self) -> str:
        """Waits until all processes have connected, and returns the address of JAX's service for this process.

        Raises:
          ValueError: if process 0 is not reached in time, or refuses this process or another one.
        """
        self._reader, self._writer = await self._connect()
        await self._wait_for_all()
        self._listening = asyncio.create_task(self._listen())
        self._ticking = asyncio.create_task(self._tick())
        return f"127.0.0.1:{await open_relay(self._rendezvous.host, self._rendezvous.port, self._timeout)}"

    async def finish(self) -> None:
        """Waits until all processes are done."""
        wire.send(self._writer, done=True)
        await self._over.wait()

    async def fail(self, error: str) -> None:
        """Tells all that this process failed; returns once it is sure that no loss of another one was the cause."""
        wire.send(self._writer, failed=error)
        await self._released.wait()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        clock = asyncio.get_running_loop().time
        deadline, reason = clock() + self._timeout, ""
        hello = handshake.Hello(self._rendezvous.process_id, self._rendezvous.num_processes)
        while True:
            try:
                reader, writer = await wire.connect(self._rendezvous.host, self._rendezvous.port, deadline)
                patience = max(0.1, min(handshake.PATIENCE, deadline - clock()))
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
            if clock() >= deadline - 0.2:
                raise ValueError(self._unreachable_text(reason))
            await asyncio.sleep(0.2)

    async def _wait_for_all(self) -> None:
        try:
            # Process 0 waits no longer than its own time-out, and then says who is missing.
            answer = await asyncio.wait_for(wire.receive(self._reader), self._timeout + 10)
        except TimeoutError:
            raise ValueError(self._unreachable_text("process 0 fell silent")) from None
        if answer is None:
            raise ValueError(f"Process 0 at {self._rendezvous.address} ended before all processes had come.")
        self._check(answer)

    def _check(self, answer: dict[str, Any]) -> None:
        if "refused" in answer:
            raise ValueError(answer["refused"])

    def _unreachable_text(self, reason: str) -> str:
        return (
            f"The coordinator, process 0 at {self._rendezvous.address}, must be reachable within {self._timeout:g} s: "
            f"{reason}. Is process 0 started, with the same address, and is the port open?"
        )

    async def _listen(self) -> None:
        while (message := await wire.receive(self._reader)) is not None:
            self._silent = 0
            if "alive" in message:
                wire.send(self._writer, alive=message["alive"])
            if "over" in message:
                self._over.set()
            if "end" in message:
                self._on_end(message["end"], message["spared"])
        if not (self._over.is_set() or self._released.is_set()):
            self._stop(wire.lost(0, "it was killed, or ran out of memory, or its machine went down"))

    def _on_end(self, text: str, spared: list[int]) -> None:
        if self._rendezvous.process_id in spared:
            self._released.set()
            self._writer.close()
        else:
            self._stop(text)

    async def _tick(self) -> None:
        while not self._released.is_set():
            await asyncio.sleep(self._lost_after / wire.TICKS)
            self._silent += 1
            if self._silent > wire.TICKS and not self._over.is_set():
                self._stop(wire.lost(0, f"nothing was heard from it for {self._lost_after:g} s"))
