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
    """Interrupts this process.

    Args:
      stopped: seconds of each stop.
      running: seconds before each stop.
      times: how many stops.
    """
    numbers = [str(number) for number in (stopped, running, times)]
    helper = subprocess.Popen([sys.executable, "-m", "experiments.pause_process", *numbers], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        helper.communicate()


def main(stopped: float, running: float, times: int) -> None:
    """Interrupts the parent process."""
    parent = os.getppid()
    for _ in range(times):
        if select.select([sys.stdin], [], [], running)[0]:
            return
        os.kill(parent, signal.SIGSTOP)
        time.sleep(stopped)
        os.kill(parent, signal.SIGCONT)


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
