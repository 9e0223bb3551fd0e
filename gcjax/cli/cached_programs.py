"""Compiled programs kept on disk, so that the second run of a config starts at once."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

MAX_BYTES = 1 << 30
_MAX_LOCK_WAIT_SECONDS = 10.0


def use_cache_folder() -> Path | None:
    """Has JAX keep compiled programs in the user's cache folder, up to `MAX_BYTES`; the least recently used go first.

    Where JAX has been given a folder already (`JAX_COMPILATION_CACHE_DIR`), nothing is changed. Several processes may
    share the folder: it is locked while one of them reads or writes.

    Returns:
      The folder; None if it cannot be written, which is said on stderr.
    """
    given_folder = _given_cache_folder()
    if given_folder is not None:
        return given_folder
    try:
        cache_folder = default_cache_folder()
        cache_folder.mkdir(parents=True, exist_ok=True)
        _remove_unfinished_programs(cache_folder)
    except (OSError, RuntimeError) as error:  # no home folder
        print(f"gcjax: compiled programs are not kept: {error}", file=sys.stderr)
        return None
    import jax

    jax.config.update("jax_compilation_cache_dir", str(cache_folder))
    has_no_size_limit = _jax_setting("jax_compilation_cache_max_size") == -1  # JAX's default
    if has_no_size_limit:
        jax.config.update("jax_compilation_cache_max_size", MAX_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # also what compiles fast
    return cache_folder


def _jax_setting(name: str) -> Any:
    """What JAX's configuration says under a name, from the environment or set in the program."""
    import jax

    return getattr(jax.config, name)


def _given_cache_folder() -> Path | None:
    """The folder that JAX has been given for compiled programs; None if it has none, or an empty text for one."""
    folder = _jax_setting("jax_compilation_cache_dir")
    return Path(folder) if folder else None


def default_cache_folder() -> Path:
    """The folder of compiled programs: below `XDG_CACHE_HOME`, or `~/.cache`."""
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache_home) / "gcjax" / "programs"


def _remove_unfinished_programs(folder: Path) -> None:
    """Removes the compiled programs that a killed process left half written.

    JAX writes `NAME-cache` first and its time of use, `NAME-atime`, last. If others hold the lock for long, nothing
    is removed.
    """
    import filelock

    with contextlib.suppress(filelock.Timeout), filelock.FileLock(folder / ".lockfile", timeout=_MAX_LOCK_WAIT_SECONDS):
        for program in folder.glob("*-cache"):
            file_written_last = program.with_name(program.name.removesuffix("-cache") + "-atime")
            if not file_written_last.exists():
                program.unlink(missing_ok=True)
