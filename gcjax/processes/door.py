"""Where process 0 tells the processes of its group from strangers, whom it counts and ignores."""

import asyncio

from gcjax.processes import handshake


class Door:
    """Lets in who proves that it belongs to the group; closes the connection of everybody else."""

    def __init__(self, secret: bytes, *, max_open: int) -> None:
        """Of more than `max_open` connections that have proved nothing yet, the oldest is closed."""
        self._secret, self._max_open = secret, max_open
        self._unproven: dict[asyncio.StreamWriter, None] = {}  # connections, the oldest first
        self._num_strangers, self._last_address = 0, ""

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> handshake.Hello | None:
        """Who has connected; None if it is a stranger, whose connection is closed."""
        if len(self._unproven) >= self._max_open:
            oldest = next(iter(self._unproven))
            del self._unproven[oldest]
            oldest.transport.abort()
        self._unproven[writer] = None
        hello = await handshake.admit(reader, writer, self._secret)
        self._unproven.pop(writer, None)
        if hello is None:
            self._num_strangers += 1
            self._last_address = _address(writer)
            writer.close()
        return hello

    def close(self) -> None:
        """Ends all connections that have proved nothing yet."""
        for writer in self._unproven:
            writer.transport.abort()

    def strangers(self) -> str:
        """A sentence on how many connections of strangers were closed, and from where; empty if none came."""
        count = self._num_strangers + len(self._unproven)
        if not count:
            return ""
        last_address = _address(next(reversed(self._unproven))) if self._unproven else self._last_address
        count_words = "1 connection was" if count == 1 else f"{count} connections were"
        return f"{count_words} closed that did not prove to belong to the group, the last from {last_address}."


def _address(writer: asyncio.StreamWriter) -> str:
    """The address at the other end of a connection."""
    return str((writer.get_extra_info("peername") or ["nowhere"])[0])
