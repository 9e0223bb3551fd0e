"""Programs that other threads compile while this one traces the next ones, or runs: XLA compiles without Python's lock.

What is compiled is the same as without, and so is every result.
"""

import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from gcjax._threads import named_threads

_T = TypeVar("_T")
_NUM_THREADS = 2  # beside the one that traces: training a scheme takes two programs


def compiling_threads(name: str) -> AbstractContextManager[Executor]:
    """The threads, which bear this name; at the end of the block, for whatever reason, no more programs are begun."""
    return named_threads(_NUM_THREADS, name)


def one_ahead(items: Iterable[_T]) -> Iterator[_T]:
    """The items, in order, each of which is made before the one in front of it is given."""
    end: list[Any] = [None]  # what is behind the last one, which is not given
    return (item for item, _ in itertools.pairwise(itertools.chain(items, end)))
