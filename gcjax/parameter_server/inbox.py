"""What a worker has received and not dealt with yet."""

import queue

from gcjax.parameter_server.wire import Message


class Inbox(queue.Queue[Message | None]):
    """Messages in the order in which they came; `None` is the end of the connection."""

    def has_next(self, seconds: float | None = 0.0) -> bool:
        """Whether there is a message, or one comes within `seconds`; None waits for one. It stays in the inbox."""
        with self.not_empty:
            if not self._qsize() and seconds != 0:
                self.not_empty.wait_for(self._qsize, seconds)
            return self._qsize() > 0

    def has_later_order(self) -> bool:
        """Whether another turn was ordered, or the run or the connection has ended: the turn before it is cut off."""
        with self.mutex:
            return any(message is None or message.kind in ("begin", "end") for message in self.queue)

    def put_back(self, message: Message | None) -> None:
        """Puts a message in front of all others."""
        with self.not_empty:
            self.queue.appendleft(message)
            self.not_empty.notify()
