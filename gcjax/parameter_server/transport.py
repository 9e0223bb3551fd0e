"""The seam between the server and whatever carries its messages.

Arrow Flight is what there is (`gcjax.parameter_server.flight`). Another transport gives a `Listener` and a `connect`
function with these methods.
"""

from collections.abc import Callable
from typing import Protocol

from gcjax.parameter_server.wire import Message


class Disconnected(ConnectionError):
    """The other side is gone, or was never there."""


class NotLetIn(Disconnected):
    """The server does not let the worker in now; it may later."""


class Refused(ValueError):
    """The other side does not talk to us, and says why."""


class Sender(Protocol):
    """A way for messages to the other side, in order. Any thread may send."""

    def send(self, message: Message) -> None:
        """Sends a message, now or soon. Raises `Disconnected`, here or from a later call, if it cannot arrive."""

    def close(self) -> None:
        """Ends it, after what was sent; the other side's `receive` raises `Disconnected` then."""


class Connection(Sender, Protocol):
    """A way for messages in both directions, each in order. One thread receives; any may send."""

    def receive(self) -> Message:
        """Waits for the next message. Raises `Disconnected` once no more can come."""


class Listener(Protocol):
    """Where workers connect to; the callback it was made with is called with each connection, in a thread for it."""

    @property
    def address(self) -> str:
        """HOST:PORT that it listens at."""

    @property
    def num_refused(self) -> int:
        """The calls that were refused: without the token, or in another format."""

    def close(self) -> None:
        """Ends it and all its connections."""


OnConnection = Callable[[Connection], None]
