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
      source: which files, and their published digests.
      folder: where they lie; relative to the working directory, or to the home directory after `~`.
      checksums: file name -> MD5 digest, in place of the published ones; a file without one is not verified.

    Raises:
      ValueError: if a file is missing, cannot be decompressed, or has another digest.
    """
    checksums = source.md5 if checksums is None else checksums
    if unknown_names := sorted(set(checksums) - set(source.md5)):
        raise ValueError(f"checksums may name {', '.join(source.md5)}; got {', '.join(unknown_names)}.")
    paths = _find_paths(source, Path(folder).expanduser())
    files = {name: _read_decompressed(path) for name, path in paths.items()}
    for name, expected_digest in checksums.items():
        digest = hashlib.md5(files[name], usedforsecurity=False).hexdigest()
        if digest != str(expected_digest).lower():
            raise ValueError(
                f"{paths[name]} is damaged, or another version of {source.title}: the MD5 digest of its "
                f"{len(files[name]):,} bytes (decompressed) must be {expected_digest}; got {digest}. "
                "Get the file again."
            )
    return files


def _find_paths(source: Source, folder: Path) -> dict[str, Path]:
    """Name -> path of each file, compressed or not, all in one folder; or an error that names the missing ones."""
    folders = [folder, *(folder / name for name in source.subfolders)]
    paths_by_folder = [{name: _plain_or_gzip(path / name) for name in source.md5} for path in folders]
    most_complete_paths = max(paths_by_folder, key=lambda paths: sum(path is not None for path in paths.values()))
    existing_paths = {name: path for name, path in most_complete_paths.items() if path is not None}
    if len(existing_paths) == len(source.md5):
        return existing_paths
    missing_names = ", ".join(name for name in source.md5 if name not in existing_paths)
    folder_words = " or ".join(str(path.absolute()) for path in folders)
    folder_note = "" if folder.is_dir() else " There is no such folder."
    hints = "".join(f" {hint}" for path, hint in source.hints.items() if (folder / path).exists())
    raise ValueError(
        f"{source.title} needs the files {missing_names} in {folder_words}.{folder_note} {source.formats}{hints} "
        "gcjax downloads nothing; tasks.digits needs no files."
    )


def _plain_or_gzip(path: Path) -> Path | None:
    """The path if there is such a file, or else the same with .gz, or None."""
    gzip_path = path.with_name(path.name + ".gz")
    return next((candidate for candidate in (path, gzip_path) if candidate.is_file()), None)


def _read_decompressed(path: Path) -> bytes:
    """The bytes of a file, decompressed if its name ends with .gz."""
    file_bytes = path.read_bytes()
    if path.suffix != ".gz":
        return file_bytes
    try:
        return gzip.decompress(file_bytes)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} must be a whole gzip file; got one that ends or changes early: {error}.") from error
