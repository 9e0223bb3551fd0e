"""Stops and continues the process that starts it (SIGSTOP, SIGCONT), as a busy machine or a debugger would.

    python -m experiments.pause_process STOPPED RUNNING TIMES

stops it TIMES times for STOPPED seconds, each after RUNNING seconds. It ends early when its stdin is closed, which
happens when its parent ends, too; it never leaves its parent stopped.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupted(*, stopped: float, running: float, times: int) -> Iterator[None]:
    """In this block, this process is stopped and continued, by another process.

    Args:
      stopped: seconds of each stop.
      running: seconds before each stop; the first counts from the begin of the block.
      times: how many stops.
    """
    arguments = [str(argument) for argument in (stopped, running, times)]
    interrupter = subprocess.Popen(
        [sys.executable, "-m", "experiments.pause_process", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert interrupter.stdout is not None
    interrupter.stdout.readline()  # it is there, which may take long on a busy machine
    try:
        yield
    finally:
        interrupter.communicate()  # closes its input, which ends it


def main(stopped: float, running: float, times: int) -> None:
    """Stops the parent process for `stopped` seconds, after each `running` seconds, `times` times.

    Ends when its input is closed.
    """
    parent = os.getppid()
    print("ready", flush=True)
    for _ in range(times):
        is_input_closed, _, _ = select.select([sys.stdin], [], [], running)
        if is_input_closed:
            return
        os.kill(parent, signal.SIGSTOP)
        time.sleep(stopped)
        os.kill(parent, signal.SIGCONT)


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
