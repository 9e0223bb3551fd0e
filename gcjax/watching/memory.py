"""The rows of a process that knows of no others."""

import numpy as np

from gcjax.watching.joining import empty_rows

MAX_ROWS = 100_000
"""Older rows are forgotten."""


class Memory:
    """The latest rows of this process, in memory."""

    is_shared = False

    def __init__(self) -> None:
        """Starts without rows."""
        self._rows = self._news = empty_rows()

    def open(self, worker: int) -> None:
        """There is nothing to open."""

    def append(self, rows: np.ndarray) -> None:
        """Keeps the rows."""
        self._news = np.concatenate([self._news, rows])[-MAX_ROWS:]
        self._rows = np.concatenate([self._rows, rows])[-MAX_ROWS:]

    def news(self) -> np.ndarray:
        """The rows since the last call."""
        news, self._news = self._news, empty_rows()
        return news

    def all_rows(self) -> np.ndarray:
        """All rows that are kept."""
        return self._rows

    def close(self) -> None:
        """There is nothing to write."""
