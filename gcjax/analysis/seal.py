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

RUN_JSON = "run.json"
CHECKPOINTS = "checkpoints"
"""The folder, in that of a run, of what it can go on from; there until the run is finished. It has its own digests."""
_FILE_DIGESTS, _OWN_DIGEST = "files", "sha256"


class UnsealedWarning(UserWarning):
    """A folder was written without digests, so damage to it cannot be noticed."""


def write(folder: Path, facts: dict[str, Any]) -> None:
    """Writes `run.json`, with the digests of all other files of the folder, which must have been written before.

    Args:
      folder: of the run; hidden files and checkpoints in it are left out.
      facts: what `run.json` says; JSON.
    """
    digest_of_file = {name: files.sha256(folder / name) for name in _files_to_seal(folder)}
    _write_run_json(folder, facts, digest_of_file)


def add_missing_digests(folder: Path) -> None:
    """Writes digests (SHA-256) of all files into the `run.json` of a folder, if it lacks that of any of them."""
    content = _verified_run_json(folder)
    digest_of_file = content.get(_FILE_DIGESTS, {})
    is_incomplete = any(name not in digest_of_file for name in _files_to_seal(folder))
    if is_incomplete:
        write(folder, _without_file_digests(content))


def run_facts(folder: Path) -> dict[str, Any]:
    """What the `run.json` of a folder says besides digests, whatever other files are like; empty if there is none.

    Raises:
      ValueError: if it is damaged.
    """
    return _without_file_digests(_verified_run_json(folder))


def digest_of_run(folder: Path, file: str) -> str:
    """A SHA-256 that tells a run from others: of the facts in its `run.json`, and of one file, as it was written.

    That file is made by the run alone; others of the folder may be made anew, and have another digest then.
    """
    content = _verified_run_json(folder)
    return _content_digest({**content, _FILE_DIGESTS: content.get(_FILE_DIGESTS, {}).get(file)})


def check_is_run(folder: Path, file: str, digest: str) -> None:
    """Raises a `ValueError` if the run in the folder has another digest, as of `digest_of_run`.

    Of a folder without any digests nobody knows.
    """
    if _FILE_DIGESTS in _verified_run_json(folder) and digest_of_run(folder, file) != digest:
        raise _damage_error(folder, "holds another run than the sweep has written there")


def check_not_of_run(folder: Path, path: str | Path) -> None:
    """Raises a `ValueError` if the file at this path is one that the run in the folder has written."""
    path = Path(path)
    written_names = {RUN_JSON, *_verified_run_json(folder).get(_FILE_DIGESTS, {})}
    if path.resolve() in {(folder / name).resolve() for name in written_names}:
        raise ValueError(f"the file must be a new one; {path} is a file of the run. Choose another name.")


@contextlib.contextmanager
def rewriting(folder: Path, names: Collection[str]) -> Iterator[None]:
    """For a block that writes these files anew: `run.json` has no digests of them in it, and the new ones after it.

    Does nothing for a folder without digests: of its other files nobody knows whether they are as written.

    Args:
      folder: of the run.
      names: of the files, relative to the folder.
    """
    content = _verified_run_json(folder)
    if _FILE_DIGESTS not in content:
        yield
        return
    other_digests = {name: digest for name, digest in content[_FILE_DIGESTS].items() if name not in names}
    _write_run_json(folder, _without_file_digests(content), other_digests)
    yield
    new_digests = {name: files.sha256(folder / name) for name in names}
    _write_run_json(folder, _without_file_digests(content), other_digests | new_digests)


def read(folder: Path, *, needed_files: Collection[str] = (), rebuilt_files: Collection[str] = ()) -> dict[str, Any]:
    """Checks all files of a run against their digests, and returns what `run.json` says besides the digests.

    Args:
      folder: of the run.
      needed_files: files that must have a digest.
      rebuilt_files: files that `gcjax report` makes anew, so that they may be missing.

    Raises:
      ValueError: if a file is not as it was written; it names the file and what is wrong with it.

    Warns:
      UnsealedWarning: if there are no digests, as in folders of earlier versions.
    """
    content = _verified_run_json(folder)
    if _FILE_DIGESTS not in content:
        hint = "an earlier version or an unfinished run has written it, so damage to its files cannot be noticed"
        warnings.warn(f"the folder {folder} has no digests: {hint}.", UnsealedWarning, stacklevel=3)
        return content
    digest_of_file = content[_FILE_DIGESTS]
    for name in needed_files:
        if name not in digest_of_file:
            raise _damage_error(folder / name, f"has no digest in {RUN_JSON}")
    for name, written_digest in digest_of_file.items():
        exists = (folder / name).is_file()
        if not exists and name not in rebuilt_files:
            raise _damage_error(folder / name, f"is missing, and {RUN_JSON} lists it")
        if exists and files.sha256(folder / name) != written_digest:
            hint = ", or delete it, and 'gcjax report' makes it anew" if name in rebuilt_files else ""
            raise _damage_error(folder / name, "has changed since it was written: its SHA-256 is another one", hint)
    return _without_file_digests(content)


def _files_to_seal(folder: Path) -> list[str]:
    """The files that get a digest, as sorted paths relative to the folder.

    Left out are `run.json`, hidden files, checkpoints, and folders of other runs, which have their own digests.
    """
    folders_of_inner_runs = [path.parent for path in folder.glob(f"*/**/{RUN_JSON}")]
    own_files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and not any(map(path.is_relative_to, folders_of_inner_runs))
    ]
    relative_paths = (path.relative_to(folder) for path in sorted(own_files))
    visible_paths = (path for path in relative_paths if not any(component.startswith(".") for component in path.parts))
    return [path.as_posix() for path in visible_paths if path.parts[0] != CHECKPOINTS and path != Path(RUN_JSON)]


def _verified_run_json(folder: Path) -> dict[str, Any]:
    """All of `run.json` but its own digest; empty if there is no such file.

    Raises:
      ValueError: if it is no JSON object, or has digests and is not as it was written.
    """
    if not (folder / RUN_JSON).exists():
        return {}
    try:
        content = json.loads((folder / RUN_JSON).read_bytes())
    except ValueError as error:  # not text, or not JSON
        raise _damage_error(folder / RUN_JSON, f"is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise _damage_error(folder / RUN_JSON, "is no JSON object")
    is_sealed = _FILE_DIGESTS in content or _OWN_DIGEST in content
    written_digest = content.pop(_OWN_DIGEST, None)
    if is_sealed and written_digest != _content_digest(content):
        raise _damage_error(
            folder / RUN_JSON, "has changed since it was written: the SHA-256 of its content is another one"
        )
    return content


def _without_file_digests(content: dict[str, Any]) -> dict[str, Any]:
    """The content of `run.json` without the digests of the files."""
    return {name: value for name, value in content.items() if name != _FILE_DIGESTS}


def _write_run_json(folder: Path, run_facts: dict[str, Any], digests: dict[str, str]) -> None:
    """Writes `run.json`: the facts, the digests of the files by name, and the digest of these two."""
    content = json.loads(json.dumps({**run_facts, _FILE_DIGESTS: digests}))  # as it will be read: tuples become lists
    files.write_text(folder / RUN_JSON, json.dumps({**content, _OWN_DIGEST: _content_digest(content)}, indent=2) + "\n")


def _content_digest(content: dict[str, Any]) -> str:
    """The SHA-256 of the content of `run.json`, as JSON with sorted keys and no spaces."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _damage_error(path: Path, problem: str, hint: str = "") -> ValueError:
    """The error to raise for a file of a run that is not as it was written."""
    return ValueError(
        f"The files of a run must be as they were written; {path} {problem}. Restore it from a copy{hint}."
    )
