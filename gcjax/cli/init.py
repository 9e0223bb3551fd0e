"""The command `gcjax init`."""

import argparse
import shlex
from pathlib import Path

from gcjax import files
from gcjax.cli import shipped


def command(options: argparse.Namespace) -> None:
    """`gcjax init DIR`: copies a config, and the source of its experiment, to start from; `--list` shows which."""
    has_folder = options.folder is not None
    if options.list == has_folder:
        raise ValueError("init takes either a DIR to write or --list; see gcjax init --help.")
    if options.list:
        _print_configs()
        return
    copy(shipped.needed_files(options.config), Path(options.folder))
    print(f"Next: cd {shlex.quote(options.folder)} && gcjax run {shipped.CONFIGS}/{options.config}.gin")


def copy(sources: dict[str, Path], folder: Path) -> None:
    """Copies files into a folder and prints where each is; one that is there with the same content stays as it is.

    Args:
      sources: path below the folder -> file to copy.
      folder: to write; made if it does not exist.

    Raises:
      ValueError: if one of them is there with another content, before any is written; or if nothing can be written.
    """
    with files.os_errors_as_value_error("DIR must be one", folder):
        different_files = [path for path, source in sources.items() if _has_other_content(folder / path, source)]
        if different_files:
            raise ValueError(
                f"Files that are there are not overwritten; {folder} has {', '.join(different_files)} with another "
                "content. Choose another DIR, or move them away."
            )
        for path, source in sources.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with files.atomic_write(folder / path) as temporary_path:
                temporary_path.write_bytes(source.read_bytes())
            print(folder / path)


def _print_configs() -> None:
    """Prints the name and the first sentence of each config."""
    from gcjax import progress, tables

    rows = [[name, shipped.summary(file)] for name, file in shipped.configs().items()]
    progress.console().print(tables.RichTable("", ["Config", "What it runs"], rows, left_heads=["What it runs"]))


def _has_other_content(file: Path, source: Path) -> bool:
    """Whether there is something at the place of a file that is no copy of the source."""
    return file.exists() and not (file.is_file() and file.read_bytes() == source.read_bytes())
