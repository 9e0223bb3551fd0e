"""The folder of a sweep that is not finished: what it is of, and which combinations are done.

A combination's folder is that of a run, with its checkpoints until it is done. The sweep's own folder `checkpoints`
holds what the sweep is of, so that nobody goes on with another one; it is there until the table is written.
"""

import contextlib
from pathlib import Path

from gcjax import files
from gcjax.analysis import seal
from gcjax.analysis.store import CHECKPOINTS, CONFIG_DIGEST, has_finished_run
from gcjax.text_differences import differing_lines

_IDENTITY_FILE = "sweep.gin"


def write_or_check_identity(out: Path, identity: str) -> None:
    """Writes what the sweep depends on into its folder, or checks that the sweep begun there depends on the same.

    Args:
      out: the folder of the sweep.
      identity: text of all that its combinations depend on.

    Raises:
      ValueError: if the folder is that of something else.
    """
    identity_file = out / CHECKPOINTS / _IDENTITY_FILE
    identity_file.parent.mkdir(exist_ok=True)
    if identity_file.exists():
        _check_identity(out, identity_file.read_text(), identity)
        return
    checkpoints_of_run = [path.name for path in identity_file.parent.iterdir() if not path.name.startswith(".")]
    if checkpoints_of_run:
        raise ValueError(f"The folder must be that of a sweep; {out} is that of a run. Choose another one with --out.")
    files.write_text(identity_file, identity)


def remove_identity_if_nothing_was_run(out: Path) -> None:
    """Removes what the sweep depends on, unless a combination has left something: the folder may then be another's."""
    if not any(path.is_dir() and path.name != CHECKPOINTS for path in out.iterdir()):
        (out / CHECKPOINTS / _IDENTITY_FILE).unlink()
        with contextlib.suppress(OSError):  # somebody else has put something there
            (out / CHECKPOINTS).rmdir()


def is_begun(out: Path) -> bool:
    """Whether there is a sweep here that can be gone on with."""
    return (out / CHECKPOINTS / _IDENTITY_FILE).exists()


def check_is_of_config(folder: Path, config_digest: str) -> None:
    """Raises `ValueError` if a combination's folder has a finished run of another config than the combination's.

    Args:
      folder: of the combination; it may be missing, or have a run that can go on, whose checkpoints are checked then.
      config_digest: of the combination's config, as of `gcjax.config.digest`.
    """
    if has_finished_run(folder) and seal.run_facts(folder).get(CONFIG_DIGEST) != config_digest:
        raise ValueError(
            f"The finished runs of a sweep must be of its combinations' configs; the run in {folder} is of another "
            "config, or of an earlier version. Move it elsewhere, and its combination is run."
        )


def _check_identity(out: Path, written_identity: str, identity: str) -> None:
    """Raises `ValueError`, with the difference, unless the sweep in `out` was begun with this identity."""
    if written_identity == identity:
        return
    difference_text = "\n".join(differing_lines(written_identity, identity, "begun", "now"))
    raise ValueError(
        f"The folder {out} belongs to another sweep:\n{difference_text}\nGo on with what it was begun with, or choose "
        "another folder."
    )
