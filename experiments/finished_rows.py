"""Rows of runs that are done, kept until the whole experiment is, so that no run is repeated after a break."""

import json
from pathlib import Path
from typing import Any

from gcjax import files, processes

Row = dict[str, Any]


def write_row(file: Path, row: Row, identity: str) -> None:
    """Writes a row, in process 0, with `identity`, the text of all that it depends on, and their digest."""
    if processes.is_first():
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write_text(file, json.dumps(files.with_digest({"identity": identity, "row": row})) + "\n")


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
        body = files.intact_body(file)
        return body["row"] if body is not None and body["identity"] == identity else None
    except (OSError, KeyError, TypeError):  # missing, or of something else
        return None
