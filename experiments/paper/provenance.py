"""Where results come from: the command, the code, the versions, the machine, the moment."""

import datetime
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gcjax import analysis

ROOT = Path(__file__).parents[2]
_TREE = ("gcjax", "experiments", "benchmarks", "configs")
"""What results depend on."""


def commit() -> str:
    """The last commit that changed what results depend on; `unknown` without git.

    It ends with `-changed` if the files that they depend on are not those of that commit.
    """
    try:
        last = _git("log", "-1", "--abbrev=12", "--format=%h", "--", *_TREE)
        changed = _git("status", "--porcelain", "--", *_TREE)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{last}-changed" if changed else last


def _git(*words: str) -> str:
    """What a git command prints, in the repository's root."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def machine() -> dict[str, Any]:
    """What runs here: versions of the packages, the kind of processor, cores."""
    return {**analysis.environment(), "processor": _processor(), "cores": os.cpu_count(), "commit": commit()}


def _processor() -> str:
    """The model name of the processor, if the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


@contextmanager
def record(command: str, mode: str) -> Iterator[dict[str, Any]]:
    """A dictionary that says, at the end of the block, where what the block computes comes from.

    Args:
      command: that computes it.
      mode: full or quick.
    """
    facts: dict[str, Any] = {"command": command, "mode": mode}
    start, load, processor_time = time.perf_counter(), os.getloadavg()[0], _processor_seconds()
    yield facts
    facts["date"] = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    facts["wall_seconds"] = round(time.perf_counter() - start, 1)
    facts["processor_seconds"] = round(_processor_seconds() - processor_time, 1)
    facts["load_average"] = [round(load, 2), round(os.getloadavg()[0], 2)]
    facts |= machine()


def _processor_seconds() -> float:
    """Processor time of this process and of its finished children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
