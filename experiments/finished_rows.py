"""Rows of runs that are done, kept until the whole experiment is, so that no run is repeated after a break."""

import hashlib
import json
from pathlib import Path
from typing import Any

from gcjax import files, processes

Row = dict[str, Any]


def write_row(file: Path, row: Row, identity: str) -> None:
    """Writes a row, in process 0, with `identity`, the text of all that it depends on, and their digest."""
    if processes.is_first():
        file.parent.mkdir(parents=True, exist_ok=True)
        body = {"identity": identity, "row": row}
        files.write_text(file, json.dumps({"body": body, "sha256": _digest(body)}) + "\n")


def stored_row(file: Path, identity: str) -> Row | None:
    """The row that process 0 sees; all processes must call.

    Returns:
      None if there is none, or it is damaged, or depends on something else: then the run decides what to do.
    """
    rows_of_processes = processes.share(lambda: _intact_row(file, identity) if processes.is_first() else None)
    row_of_first: Row | None = rows_of_processes[0]
    return row_of_first


def _intact_row(file: Path, identity: str) -> Row | None:
    """The row in a file; None if there is none, it is damaged, or depends on something else than `identity` says."""
    try:
        content = json.loads(file.read_bytes())
        body, digest = content["body"], content["sha256"]
        is_intact = digest == _digest(body)
        is_of_this_run = body["identity"] == identity
    except (OSError, ValueError, KeyError, TypeError):  # missing, no text, no JSON, or other JSON
        return None
    return body["row"] if is_intact and is_of_this_run else None


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()
