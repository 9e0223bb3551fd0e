"""Threads for the time of a block."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor


@contextlib.contextmanager
def named_threads(num_threads: int, name: str) -> Iterator[Executor]:
    """The threads, which bear this name; at the end of the block, for whatever reason, nothing more is begun."""
    threads = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
    try:
        yield threads
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
