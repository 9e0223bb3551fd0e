"""The folder of a sweep that is not finished: what it is of, and which combinations are done.

A combination's folder is that of a run, with its checkpoints until it is done. The sweep's own folder `checkpoints`
holds what the sweep is of, so that nobody goes on with another one; it is there until the table is written.
"""

import difflib
from pathlib import Path

from gcjax import files
from gcjax.analysis.store import CHECKPOINTS

_FILE = "sweep.gin"
_DIFFERENCE_LINES = 20


def begin(out: Path, identity: str) -> None:
    """Writes down what the sweep is of, or checks that it is the one that was begun here.

    Args:
      out: the folder of the sweep.
      identity: text of all that its combinations depend on.

    Raises:
      ValueError: if the folder is that of something else.
    """
    file = out / CHECKPOINTS / _FILE
    file.parent.mkdir(exist_ok=True)
    if file.exists():
        _check_identity(out, file.read_text(), identity)
        return
    others = [path.name for path in file.parent.iterdir() if not path.name.startswith(".")]
    if others:
        raise ValueError(f"The folder must be that of a sweep; {out} is that of a run. Choose another one with --out.")
    files.write_text(file, identity)


def is_begun(out: Path) -> bool:
    """Whether there is a sweep here that can be gone on with."""
    return (out / CHECKPOINTS / _FILE).exists()


def is_done(folder: Path) -> bool:
    """Whether a combination was run to its end: its checkpoints are deleted last."""
    return (folder / "run.json").exists() and not (folder / CHECKPOINTS).is_dir()


def _check_identity(out: Path, written: str, identity: str) -> None:
    if written == identity:
        return
    lines = list(difflib.unified_diff(written.splitlines(), identity.splitlines(), "begun", "now", n=0, lineterm=""))
    shown = "\n".join(lines[:_DIFFERENCE_LINES])
    raise ValueError(
        f"The folder {out} belongs to another sweep:\n{shown}\nGo on with what it was begun with, or choose another "
        "folder."
    )
