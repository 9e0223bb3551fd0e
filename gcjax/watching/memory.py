"""The rows of a process that knows of no others."""

from collections import deque

from gcjax.watching.timeline import Row

MAX_ROWS = 100_000
"""Older rows are forgotten."""


class Memory:
    """The latest rows of this process, in memory."""

    is_shared = False

    def __init__(self) -> None:
        """Starts without rows."""
        self._rows: deque[tuple[int, Row]] = deque(maxlen=MAX_ROWS)
        self._news: list[tuple[int, Row]] = []

    def open(self, worker: int) -> None:
        """There is nothing to open."""

    def append(self, rows: list[Row]) -> None:
        """Keeps the rows."""
        self._news += [(0, row) for row in rows]
        self._rows += [(0, row) for row in rows]

    def news(self) -> list[tuple[int, Row]]:
        """The rows since the last call."""
        news, self._news = self._news, []
        return news

    def all_rows(self) -> list[tuple[int, Row]]:
        """All rows that are kept."""
        return list(self._rows)

    def close(self) -> None:
        """There is nothing to write."""
