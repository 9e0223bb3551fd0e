"""Digests of all files of a run, kept in its `run.json`, so that a damaged file is refused by its name.

`run.json` holds beside its facts `files`, the SHA-256 of every other file, and `sha256`, that of its own content: of
its JSON without this field, with sorted keys and no spaces. So one flipped bit in any of the files is noticed.
"""

import contextlib
import hashlib
import json
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from gcjax import files

NAME = "run.json"
CHECKPOINTS = "checkpoints"
"""The folder, in that of a run, of what it can go on from; there until the run is finished. It has its own digests."""
_FILES, _OWN = "files", "sha256"


class UnsealedWarning(UserWarning):
    """A folder was written without digests, so damage to it cannot be noticed."""


def write(folder: Path, facts: dict[str, Any]) -> None:
    """Writes `run.json`, when all other files have been written.

    Args:
      folder: of the run; hidden files and checkpoints in it are left out.
      facts: what `run.json` says; JSON.
    """
    _write(folder, facts, {name: _sha256(folder / name) for name in _results(folder)})


def complete(folder: Path) -> None:
    """Seals a folder whose experiment has written no digests, or not of all files."""
    content = _content(folder)
    known = content.get(_FILES, {})
    if any(name not in known for name in _results(folder)):
        write(folder, _facts(content))


@contextlib.contextmanager
def rewriting(folder: Path, names: Collection[str]) -> Iterator[None]:
    """For a block that writes these files anew: in it they have no digests, after it those of the new ones.

    Does nothing for a folder without digests: of its other files nobody knows whether they are as written.
    """
    content = _content(folder)
    if _FILES not in content:
        yield
        return
    kept = {name: digest for name, digest in content[_FILES].items() if name not in names}
    _write(folder, _facts(content), kept)
    yield
    _write(folder, _facts(content), kept | {name: _sha256(folder / name) for name in names})


def read(folder: Path, *, needed: Collection[str] = (), rebuilt: Collection[str] = ()) -> dict[str, Any]:
    """Checks all files of a run, and returns the facts.

    Args:
      folder: of the run.
      needed: files that must have a digest.
      rebuilt: files that `gcjax report` makes anew, so that they may be missing.

    Raises:
      ValueError: if a file is not as it was written; it names the file and what is wrong with it.

    Warns:
      UnsealedWarning: if there are no digests, as in folders of earlier versions.
    """
    content = _content(folder)
    if _FILES not in content:
        hint = "an earlier version or an unfinished run has written it, so damage to its files cannot be noticed"
        warnings.warn(f"the folder {folder} has no digests: {hint}.", UnsealedWarning, stacklevel=3)
        return content
    digests = content[_FILES]
    for name in needed:
        if name not in digests:
            raise _damage(folder / name, f"has no digest in {NAME}")
    for name, digest in digests.items():
        is_there = (folder / name).is_file()
        if not is_there and name not in rebuilt:
            raise _damage(folder / name, f"is missing, and {NAME} lists it")
        if is_there and _sha256(folder / name) != digest:
            hint = ", or delete it, and 'gcjax report' makes it anew" if name in rebuilt else ""
            raise _damage(folder / name, "has changed since it was written: its SHA-256 is another one", hint)
    return _facts(content)


def _results(folder: Path) -> list[str]:
    """The files that get a digest, relative to the folder; folders of runs in it have their own."""
    runs = [path.parent for path in folder.glob(f"*/**/{NAME}")]
    files = [path for path in folder.rglob("*") if path.is_file() and not any(map(path.is_relative_to, runs))]
    inside = (path.relative_to(folder) for path in sorted(files))
    shown = (path for path in inside if not any(part.startswith(".") for part in path.parts))
    return [path.as_posix() for path in shown if path.parts[0] != CHECKPOINTS and path != Path(NAME)]


def _content(folder: Path) -> dict[str, Any]:
    """All of `run.json`, which is as it was written, or has no digest of its own; empty if there is none."""
    if not (folder / NAME).exists():
        return {}
    try:
        content = json.loads((folder / NAME).read_bytes())
    except ValueError as error:  # not text, or not JSON
        raise _damage(folder / NAME, f"is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise _damage(folder / NAME, "is no JSON object")
    if (_FILES in content or _OWN in content) and content.pop(_OWN, None) != _digest(content):
        raise _damage(folder / NAME, "has changed since it was written: the SHA-256 of its content is another one")
    return content


def _facts(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != _FILES}


def _write(folder: Path, facts: dict[str, Any], digests: dict[str, str]) -> None:
    content = json.loads(json.dumps({**facts, _FILES: digests}))
    files.write_text(folder / NAME, json.dumps({**content, _OWN: _digest(content)}, indent=2) + "\n")


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damage(path: Path, problem: str, hint: str = "") -> ValueError:
    return ValueError(
        f"The files of a run must be as they were written; {path} {problem}. Restore it from a copy{hint}."
    )
