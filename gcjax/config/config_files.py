"""Which config file a path is, and which ones to propose where it is none."""

import difflib
from collections.abc import Iterable
from pathlib import Path

_MAX_FILES = 20  # that an error names


def existing_file(path: Path) -> Path:
    """The absolute path of a config file.

    Raises:
      ValueError: if it is a folder, with the config files in it; or if there is no such file, with those nearby and
        those that are called almost the same.
    """
    file = path.absolute()
    if file.is_file():
        return file
    if file.is_dir():
        raise ValueError(f"A config must be a file; {path} is a folder. {_files_in(file)}")
    folders = [file.parent, Path.cwd(), Path.cwd() / "configs"]
    nearby = sorted({relative_path(path) for folder in folders for path in folder.glob("*.gin")})
    hint = f"Config files nearby: {', '.join(nearby)}." if nearby else "There is no .gin file nearby."
    raise ValueError(f"The config file must exist; there is no file {file}. {_similar_files(file.stem, nearby)}{hint}")


def relative_path(file: Path) -> str:
    """A file relative to the working directory, if it is in it."""
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


def _files_in(folder: Path) -> str:
    """A sentence with the config files in a folder, at any depth."""
    files = sorted(relative_path(file) for file in folder.rglob("*.gin"))
    if not files:
        return "There is no .gin file in it."
    more_files_text = f" and {len(files) - _MAX_FILES} others" if len(files) > _MAX_FILES else ""
    return f"Name one of the files in it: {', '.join(files[:_MAX_FILES])}{more_files_text}."


def _similar_files(name: str, nearby: Iterable[str]) -> str:
    """A question with the config files that are called almost like this, also those that come with gcjax; or "".

    `name` is without folder and `.gin`, `nearby` the paths of files that are there.
    """
    paths = _paths_with_similar_stem(name, nearby)
    if paths:
        return f"Did you mean {' or '.join(paths)}? "
    from gcjax.cli import shipped  # only an error needs it

    return "".join(
        f"Did you mean {config}, which comes with gcjax? Copy it with: gcjax init DIR --config {config}. "
        for config in _paths_with_similar_stem(name, shipped.configs())[:1]
    )


def _paths_with_similar_stem(name: str, paths: Iterable[str]) -> list[str]:
    """At most three of the paths whose last part, without `.gin`, is almost this name; the most similar first."""
    by_name = {Path(path).stem: path for path in paths}
    return [by_name[stem] for stem in difflib.get_close_matches(name, by_name, n=3, cutoff=0.6)]
