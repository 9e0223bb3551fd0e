"""Programs that other threads compile while this one traces the next ones, or runs: XLA compiles without Python's lock.

What is compiled is the same as without, and so is every result.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")
_NUM_THREADS = 2  # beside the one that traces: training a scheme takes two programs


@contextlib.contextmanager
def compiling_threads(name: str) -> Iterator[Executor]:
    """The threads, which bear this name; at the end of the block, for whatever reason, no more programs are begun."""
    threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix=name)
    try:
        yield threads
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def one_ahead(items: Iterable[_T]) -> Iterator[_T]:
    """The items, in order, each of which is made before the one in front of it is given."""
    end: list[Any] = [None]  # what is behind the last one, which is not given
    return (item for item, _ in itertools.pairwise(itertools.chain(items, end)))
