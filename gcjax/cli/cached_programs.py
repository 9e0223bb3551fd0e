"""Compiled programs kept on disk, so that the second run of a config starts at once."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import filelock
import jax

MAX_BYTES = 1 << 30
_LOCK_SECONDS = 10.0


def keep() -> Path | None:
    """Has JAX keep what it compiles in the user's cache folder, up to `MAX_BYTES`, the least recently used go first.

    Where JAX has been given a folder already (`JAX_COMPILATION_CACHE_DIR`), nothing is changed. Several processes may
    share the folder: it is locked while one of them reads or writes.

    Returns:
      The folder; None if it cannot be written, which is said on stderr.
    """
    if _is_set():
        return Path(_setting("jax_compilation_cache_dir") or "")
    try:
        path = folder()
        path.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(path)
    except (OSError, RuntimeError) as error:  # no home folder
        print(f"gcjax: compiled programs are not kept: {error}", file=sys.stderr)
        return None
    jax.config.update("jax_compilation_cache_dir", str(path))
    if _setting("jax_compilation_cache_max_size") == -1:
        jax.config.update("jax_compilation_cache_max_size", MAX_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return path


def _setting(name: str) -> Any:
    return getattr(jax.config, name)


def _is_set() -> bool:
    return bool(_setting("jax_compilation_cache_dir"))


def folder() -> Path:
    """The folder of compiled programs: below `XDG_CACHE_HOME`, or `~/.cache`."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache) / "gcjax" / "programs"


def _remove_unfinished(path: Path) -> None:
    """Removes what a process that was killed has left half written: JAX writes the time of use last."""
    with contextlib.suppress(filelock.Timeout), filelock.FileLock(path / ".lockfile", timeout=_LOCK_SECONDS):
        for program in path.glob("*-cache"):
            if not program.with_name(program.name.removesuffix("-cache") + "-atime").exists():
                program.unlink(missing_ok=True)
