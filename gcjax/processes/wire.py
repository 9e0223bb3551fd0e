"""What the processes of a group tell each other: JSON objects, one a line, on one TCP connection a process."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

# A process is lost after so many ticks without a word. Ticks are counted and not seconds, so that a process that was
# itself suspended does not take the others for lost when it wakes.
TICKS = 10

Stop = Callable[[str], None]
"""Ends this process with a message; called on the thread that watches."""


MAX_BYTES = 1 << 16
"""Of a message; what is longer is not looked at."""


async def receive(reader: asyncio.StreamReader, max_bytes: int = MAX_BYTES) -> dict[str, Any] | None:
    """The next message of at most so many bytes; None if the connection is closed, or speaks another language."""
    try:
        line = await reader.readline()
        message = json.loads(line) if line.endswith(b"\n") and len(line) <= max_bytes else None
    except (OSError, ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def send(writer: asyncio.StreamWriter, **message: Any) -> None:
    """Sends a message. Whether it arrives is told by the answer, or by the end of the connection."""
    if not writer.is_closing():
        writer.write(json.dumps(message).encode() + b"\n")


async def connect(host: str, port: int, deadline: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects, trying again until the deadline, seconds in the time of the event loop.

    Raises:
      OSError: what the last try met.
    """
    while True:
        seconds_left = deadline - asyncio.get_running_loop().time()
        try:
            return await asyncio.wait_for(asyncio.open_connection(host, port, limit=MAX_BYTES), max(seconds_left, 0.1))
        except OSError:  # a time-out is one too
            if seconds_left <= 0.2:  # the pause before the next try
                raise
        await asyncio.sleep(0.2)


def lost_text(rank: int, reason: str) -> str:
    """What the others say of a lost process."""
    return (
        f"process {rank} was lost: {reason}. All processes stop. "
        "Start all of them again with --resume to go on from the last checkpoint."
    )


def failed_text(rank: int, error: str) -> str:
    """What the others say of a process that ended with an error."""
    return (
        f"process {rank} ended with an error: {error}\nAll processes stop; see the output of process {rank}. "
        "Start all of them again, with --resume to go on from the last checkpoint."
    )
