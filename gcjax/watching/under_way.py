"""Which watched step is under way, and whether this is still the process that watches it."""

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gcjax.watching.wrapper import Watch


class _Steps(threading.local):
    """The watched step that is under way on each thread, the innermost of several."""

    watch: "Watch | None" = None


steps = _Steps()
num_forks = 0
"""Between the first process and this one."""


def _count_fork() -> None:
    """A process that is forked off has none of the threads."""
    global num_forks
    num_forks += 1


os.register_at_fork(after_in_child=_count_fork)
