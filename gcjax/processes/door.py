"""Where process 0 tells the processes of its group from strangers, whom it counts and ignores."""

import asyncio

from gcjax.processes import handshake


class Door:
    """Lets in who proves that it belongs to the group; closes the connection of everybody else."""

    def __init__(self, secret: bytes, *, max_open: int) -> None:
        """Of more than `max_open` connections that have proved nothing yet, the oldest is closed."""
        self._secret, self._max_open = secret, max_open
        self._unproven_connections: dict[asyncio.StreamWriter, None] = {}  # connections, the oldest first
        self._num_strangers, self._last_address = 0, ""

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> handshake.Hello | None:
        """Who has connected; None if it is a stranger, whose connection is closed.

        If too many have proved nothing yet, the connection that was opened first is closed, too.
        """
        if len(self._unproven_connections) >= self._max_open:
            oldest = next(iter(self._unproven_connections))
            del self._unproven_connections[oldest]
            oldest.transport.abort()
        self._unproven_connections[writer] = None
        hello = await handshake.admit(reader, writer, self._secret)
        self._unproven_connections.pop(writer, None)
        if hello is None:
            self._num_strangers += 1
            self._last_address = _address(writer)
            writer.close()
        return hello

    def close(self) -> None:
        """Ends all connections that have proved nothing yet."""
        for writer in self._unproven_connections:
            writer.transport.abort()

    def strangers_text(self) -> str:
        """A sentence on how many connections of strangers were closed, and from where; empty if none came."""
        num_strangers = self._num_strangers + len(self._unproven_connections)  # who has proved nothing yet is one, too
        if not num_strangers:
            return ""
        newest_unproven = next(reversed(self._unproven_connections), None)
        last_address = self._last_address if newest_unproven is None else _address(newest_unproven)
        count_words = "1 connection was" if num_strangers == 1 else f"{num_strangers} connections were"
        return f"{count_words} closed that did not prove to belong to the group, the last from {last_address}."


def _address(writer: asyncio.StreamWriter) -> str:
    """The address at the other end of a connection."""
    return str((writer.get_extra_info("peername") or ["nowhere"])[0])
