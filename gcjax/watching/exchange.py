"""How the rows of a process come to the others; N rows, whose columns are the worker and `COLUMNS`."""

from typing import Protocol

import numpy as np


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
