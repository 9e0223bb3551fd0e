"""Two processes with CPU devices, of which the first prints the rows of `pods` for the devices of both, as JSON.

`python -m benchmarks.pod_processes` is the first and starts the other, which does nothing until the first has ended.
"""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import jax

NUM_PROCESSES = 2


@contextlib.contextmanager
def other_process() -> Iterator[None]:
    """In this block JAX has the devices of this process and of the other one."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        address = f"localhost:{listener.getsockname()[1]}"
    command = [sys.executable, "-m", "benchmarks.pod_processes", address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        _meet(address, index=0)
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            jax.distributed.shutdown()


def _meet(address: str, index: int) -> None:
    """Makes this process one of those that meet at the address; returns when it knows the devices of all."""
    jax.distributed.initialize(address, NUM_PROCESSES, index)
    assert jax.device_count() == NUM_PROCESSES * jax.local_device_count()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _meet(sys.argv[1], index=1)
        sys.stdin.read()  # ends when the first process closes it, or is gone
        jax.distributed.shutdown()
    else:
        with other_process():
            from benchmarks.pods import pod_rows  # makes a random key, so JAX must have met the other before

            json.dump([row._asdict() for row in pod_rows()], sys.stdout)
