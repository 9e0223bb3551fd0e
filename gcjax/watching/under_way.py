"""Which watched step is under way, and whether this is still the process that watches it."""

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gcjax.watching.wrapper import Watch


class _OfThread(threading.local):
    """The watched step that is under way on each thread, the innermost of several."""

    watch: "Watch | None" = None


of_this_thread = _OfThread()
num_forks = 0
"""How often a process was forked off between the first process and this one."""


def _count_fork() -> None:
    """Notes, in a process that was just forked off, that it has none of the threads."""
    global num_forks
    num_forks += 1


os.register_at_fork(after_in_child=_count_fork)
