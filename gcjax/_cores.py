"""How many cores this process may use."""

import os


def num_cores() -> int:
    """The cores that this process may use, where the system says that; else those of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
