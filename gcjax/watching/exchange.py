"""How the rows of a process come to the others; N rows, whose columns are the worker and `COLUMNS`."""

from typing import Protocol

import numpy as np

from gcjax.watching.joining import empty_rows

MAX_ROWS = 100_000
"""Older rows are forgotten."""


class Exchange(Protocol):
    """Where a process puts its rows and finds those of others. Nothing here is called by the training loop's thread.

    Attributes:
      is_shared: whether there are others.
    """

    is_shared: bool

    def open(self, worker: int) -> None:
        """Before anything else: the number of this process."""

    def append(self, rows: np.ndarray) -> None:
        """Gives float64[rows, 7], rows of this process, to all."""

    def news(self) -> np.ndarray:
        """float64[rows, 7]: the rows of all processes, this one included, that have come since the last call."""

    def all_rows(self) -> np.ndarray:
        """float64[rows, 7]: all that have ever come; later ones last."""

    def close(self) -> None:
        """At the end, in process 0 only."""


class Memory:
    """The latest rows of a process that knows of no others, in memory; an `Exchange`."""

    is_shared = False

    def __init__(self) -> None:
        """Starts without rows."""
        self._rows = self._new_rows = empty_rows()

    def open(self, worker: int) -> None:
        """There is nothing to open."""

    def append(self, rows: np.ndarray) -> None:
        """Keeps the rows."""
        self._new_rows = np.concatenate([self._new_rows, rows])[-MAX_ROWS:]
        self._rows = np.concatenate([self._rows, rows])[-MAX_ROWS:]

    def news(self) -> np.ndarray:
        """The rows since the last call."""
        news, self._new_rows = self._new_rows, empty_rows()
        return news

    def all_rows(self) -> np.ndarray:
        """All rows that are kept."""
        return self._rows

    def close(self) -> None:
        """There is nothing to write."""
