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
        last_commit = _git("log", "-1", "--abbrev=12", "--format=%h", "--", *_TREE)
        changed_files = _git("status", "--porcelain", "--", *_TREE)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{last_commit}-changed" if changed_files else last_commit


def _git(*words: str) -> str:
    """What a git command prints, in the repository's root."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def machine() -> dict[str, Any]:
    """What runs here: versions of the packages, the kind of processor, cores."""
    return {**analysis.environment(), "cores": os.cpu_count(), "commit": commit()}


@contextmanager
def record(command: str, mode: str) -> Iterator[dict[str, Any]]:
    """A dictionary that says, at the end of the block, where what the block computes comes from.

    Args:
      command: that computes it.
      mode: full or quick.
    """
    provenance: dict[str, Any] = {"command": command, "mode": mode}
    start_time, start_load, start_processor_seconds = time.perf_counter(), _load_average(), _processor_seconds()
    yield provenance
    provenance["date"] = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    provenance["wall_seconds"] = round(time.perf_counter() - start_time, 1)
    provenance["processor_seconds"] = round(_processor_seconds() - start_processor_seconds, 1)
    provenance["load_average"] = [round(start_load, 2), round(_load_average(), 2)]
    provenance |= machine()


def _load_average() -> float:
    """The processes that wanted a core in the last minute."""
    return os.getloadavg()[0]


def _processor_seconds() -> float:
    """Processor time of this process and of its finished children."""
    usages = [
        resource.getrusage(processes_of_usage)
        for processes_of_usage in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
