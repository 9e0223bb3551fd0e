"""Rows of runs that are done, kept until the whole experiment is, so that no run is repeated after a break."""

import hashlib
import json
from pathlib import Path
from typing import Any

from gcjax import files, processes

Row = dict[str, Any]


def write_row(file: Path, row: Row, identity: str) -> None:
    """Writes a row, in process 0, with what it depends on."""
    if processes.is_first():
        file.parent.mkdir(parents=True, exist_ok=True)
        body = {"identity": identity, "row": row}
        files.write_text(file, json.dumps({"body": body, "sha256": _digest(body)}) + "\n")


def stored_row(file: Path, identity: str) -> Row | None:
    """The row that process 0 sees; all processes must call.

    Returns:
      None if there is none, or it is damaged, or depends on something else: then the run decides what to do.
    """
    row: Row | None = processes.share(lambda: _read(file, identity) if processes.is_first() else None)[0]
    return row


def _read(file: Path, identity: str) -> Row | None:
    try:
        content = json.loads(file.read_bytes())
        body, digest = content["body"], content["sha256"]
        intact = digest == _digest(body) and body["identity"] == identity
    except (OSError, ValueError, KeyError, TypeError):  # missing, no text, no JSON, or other JSON
        return None
    return body["row"] if intact else None


def _digest(body: Any) -> str:
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()
