"""Where process 0 tells the processes of its group from strangers, whom it counts and ignores."""

import asyncio

from gcjax.processes import handshake


class Door:
    """Lets in who proves that it belongs to the group; closes the connection of everybody else."""

    def __init__(self, secret: bytes, *, max_open: int) -> None:
        """Of more than `max_open` connections that have proved nothing yet, the oldest is closed."""
        self._secret, self._max_open = secret, max_open
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._number, self._last = 0, ""

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> handshake.Hello | None:
        """Who has connected; None if it is a stranger, whose connection is closed."""
        if len(self._open) >= self._max_open:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        hello = await handshake.admit(reader, writer, self._secret)
        self._open.pop(writer, None)
        if hello is None:
            self._number += 1
            self._last = _address(writer)
            writer.close()
        return hello

    def close(self) -> None:
        """Ends all connections that have proved nothing yet."""
        for writer in self._open:
            writer.transport.abort()

    def strangers(self) -> str:
        """What is to be said of them; empty if none came."""
        number = self._number + len(self._open)
        if not number:
            return ""
        last = _address(next(reversed(self._open))) if self._open else self._last
        closed = "1 connection was" if number == 1 else f"{number} connections were"
        return f"{closed} closed that did not prove to belong to the group, the last from {last}."


def _address(writer: asyncio.StreamWriter) -> str:
    return str((writer.get_extra_info("peername") or ["nowhere"])[0])
