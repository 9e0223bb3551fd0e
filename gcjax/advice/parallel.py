"""Several schemes at once, a thread for each core: XLA compiles and runs without holding up the other threads."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def pool() -> Iterator[ThreadPoolExecutor]:
    """A pool of as many threads as there are cores, 8 at most; what has not begun is given up if an error leaves it."""
    executor = ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1))
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)
