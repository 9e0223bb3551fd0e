"""A local port that leads to JAX's coordination service, and stays open when the service is gone.

JAX's client aborts its process at once, with a C++ stack trace, when the connection to the service in process 0 closes:
there would be no time to say which process was lost. Behind the relay it notices nothing, and the watch decides.
"""

import asyncio
import contextlib

from gcjax.processes import wire


async def open_relay(host: str, port: int, timeout: float) -> int:
    """Opens a port of this machine that leads to `host:port`, and returns its number; `timeout`: seconds to connect."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Leads one connection to `host:port` and back, until this side closes it."""
        with contextlib.suppress(OSError):
            service_reader, service_writer = await wire.connect(host, port, asyncio.get_running_loop().time() + timeout)
            # The end of the service ends this copying only: the other direction goes on, and the connection stays open.
            copying_back = asyncio.create_task(_copy(service_reader, writer))
            await _copy(reader, service_writer)
            copying_back.cancel()
            service_writer.close()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies until the source ends. What it leads to is left open, and may be gone already."""
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):  # bytes at most; none is the end
            writer.write(data)
            with contextlib.suppress(OSError):
                await writer.drain()
