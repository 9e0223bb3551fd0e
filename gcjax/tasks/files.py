"""Files of a data set that the user has put into a local folder: found, decompressed, verified."""

import gzip
import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """The files of a data set as published.

    Attributes:
      title: what the data set is called.
      formats: a sentence that says which files are accepted.
      md5: file name -> digest of the file, decompressed.
      subfolders: where else in the folder the files may lie.
      hints: path in the folder -> what to tell a user who has that, but not the files.
    """

    title: str
    formats: str
    md5: Mapping[str, str]
    subfolders: tuple[str, ...] = ()
    hints: Mapping[str, str] = {}


def contents(source: Source, folder: str | Path, checksums: Mapping[str, str] | None = None) -> dict[str, bytes]:
    """The bytes of all files of a data set, decompressed.

    Args:
      source: which files.
      folder: where they lie; relative to the working directory, or to the home directory after `~`.
      checksums: file name -> MD5 digest, in place of the published ones; a file without one is not verified.

    Raises:
      ValueError: if a file is missing, cannot be decompressed, or has another digest.
    """
    checksums = source.md5 if checksums is None else checksums
    if unknown := sorted(set(checksums) - set(source.md5)):
        raise ValueError(f"checksums may name {', '.join(source.md5)}; got {', '.join(unknown)}.")
    paths = _paths(source, Path(folder).expanduser())
    files = {name: _decompressed(path) for name, path in paths.items()}
    for name, expected in checksums.items():
        digest = hashlib.md5(files[name], usedforsecurity=False).hexdigest()
        if digest != str(expected).lower():
            raise ValueError(
                f"{paths[name]} is damaged, or another version of {source.title}: the MD5 digest of its "
                f"{len(files[name]):,} bytes (decompressed) must be {expected}; got {digest}. Get the file again."
            )
    return files


def _paths(source: Source, folder: Path) -> dict[str, Path]:
    """Name -> path of each file, compressed or not, all in one folder; or an error that names the missing ones."""
    folders = [folder, *(folder / name for name in source.subfolders)]
    candidates = [{name: _existing(each / name) for name in source.md5} for each in folders]
    best = max(candidates, key=lambda paths: sum(path is not None for path in paths.values()))
    present = {name: path for name, path in best.items() if path is not None}
    if len(present) == len(source.md5):
        return present
    missing = ", ".join(name for name in source.md5 if name not in present)
    where = " or ".join(str(each.absolute()) for each in folders)
    state = "" if folder.is_dir() else " There is no such folder."
    hints = "".join(f" {text}" for path, text in source.hints.items() if (folder / path).exists())
    raise ValueError(
        f"{source.title} needs the files {missing} in {where}.{state} {source.formats}{hints} "
        "gcjax downloads nothing; tasks.digits needs no files."
    )


def _existing(path: Path) -> Path | None:
    """The file, or the same with .gz."""
    compressed = path.with_name(path.name + ".gz")
    return next((candidate for candidate in (path, compressed) if candidate.is_file()), None)


def _decompressed(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} must be a whole gzip file; got one that ends or changes early: {error}.") from error
