"""The command `gcjax doctor`: whether a run would work here, and what to do if not."""

import argparse
import os
import platform
import shutil
import sys
import textwrap
from importlib import metadata
from pathlib import Path
from typing import Any

from gcjax.cli import cached_programs, machine_errors

_GIBIBYTE = 2**30
_COLUMNS = 80  # also where there is no terminal
_HEAD_WIDTH = 10
_UNBREAKABLE_SPACE = "\0"  # where a line must not end


def command(options: argparse.Namespace) -> int:
    """`gcjax doctor`: prints versions, devices, memory, the cache and problems; returns the exit status, 0 or 1."""
    packages = package_versions()
    problems = [package["problem"] for package in packages if package["problem"]]
    devices, device_problem = ([], "") if problems else _devices_and_problem()
    memory_bytes, cache = _memory_bytes(devices), _cache_facts()
    problems += [problem for problem in (device_problem, cache["problem"]) if problem]
    options.result = {
        "works": not problems,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "devices": devices,
        "memory": memory_bytes,
        "cache": cache,
        "problems": problems,
    }
    if not options.json:
        print("\n".join(_report_lines(options.result)))
    return 1 if problems else 0


def package_versions() -> list[dict[str, str | None]]:
    """Of each package that gcjax needs: name, version (None: missing), the range it must be in, and what is wrong."""
    try:
        from packaging.requirements import Requirement

        requirements = [Requirement(text) for text in metadata.requires("gcjax") or ()]
    except ImportError as error:  # of packaging, or gcjax itself is not installed
        return [_package_facts(str(error.name or "packaging"), specifier=None, version=None)]
    unconditional = [requirement for requirement in requirements if requirement.marker is None]
    return [
        _package_facts(requirement.name, requirement.specifier, version=_installed_version(requirement.name))
        for requirement in unconditional
    ]


def _installed_version(name: str) -> str | None:
    """The version of a package that is installed; None if it is not."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package_facts(name: str, specifier: Any | None, *, version: str | None) -> dict[str, str | None]:
    """A package for `package_versions`: its name, version (None: missing), those supported, and what is wrong, or "".

    `specifier`: the versions that are supported; None for any.
    """
    supported = str(specifier or "")
    is_supported = version is not None and (specifier is None or specifier.contains(version, prereleases=True))
    problem = (
        f"{name} must be {supported or 'installed'}; got {version or 'none'}. Install it with: "
        f"{Path(sys.executable).name} -m pip install '{name}{supported}'"
    )
    return {"name": name, "version": version, "supported": supported, "problem": "" if is_supported else problem}


def _devices_and_problem() -> tuple[list[dict[str, Any]], str]:
    """The devices that JAX would take, with their memory in bytes (None: the host's); and what is wrong, or ""."""
    try:
        import jax

        devices = jax.devices()
    except Exception as error:
        return [], machine_errors.explanation(error) or f"JAX cannot start: {error}"
    memory_limits = [(device.memory_stats() or {}).get("bytes_limit") for device in devices]
    return [
        {"id": device.id, "platform": device.platform, "kind": device.device_kind, "memory": num_bytes}
        for device, num_bytes in zip(devices, memory_limits, strict=True)
    ], ""


def _memory_bytes(devices: list[dict[str, Any]]) -> dict[str, Any]:
    """Bytes that this machine or container has, and those that arrays can have on the devices."""
    if not devices:
        return {"host": None, "arrays": None}
    from gcjax import memory

    return {"host": memory.machine_bytes(), "arrays": memory.available_bytes()}


def _cache_facts() -> dict[str, Any]:
    """The folder of compiled programs, its bytes, the free bytes of its disk; and as "problem" what is wrong, or ""."""
    folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cached_programs.default_cache_folder())
    nearest_existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    is_writable = nearest_existing.is_dir() and os.access(nearest_existing, os.W_OK | os.X_OK)
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    advice = "Name another one with JAX_COMPILATION_CACHE_DIR, or run with --no-cache."
    return {
        "folder": str(folder),
        "bytes": sum(file.stat().st_size for file in files),
        "free": shutil.disk_usage(nearest_existing).free,
        "problem": "" if is_writable else f"The cache must be a folder that can be written; {folder} cannot. {advice}",
    }


def _report_lines(result: dict[str, Any]) -> list[str]:
    """What the command found, for a person."""
    package_texts = [f"{package['name']} {package['version'] or 'missing'}" for package in result["packages"]]
    device_texts = [f"{device['platform']} {device['id']} ({device['kind']})" for device in result["devices"]]
    memory_bytes, cache = result["memory"], result["cache"]
    lines = [
        f"Python    {result['python']} on {result['platform']}",
        *_paragraph_lines("Packages", package_texts),
        *_paragraph_lines("Devices", device_texts),
        f"Memory    {_gibibytes_text(memory_bytes['host'])} of this machine, "
        f"{_gibibytes_text(memory_bytes['arrays'])} for arrays",
        f"Cache     {_gibibytes_text(cache['bytes'])} in {cache['folder']}; "
        f"{_gibibytes_text(cache['free'])} free on its disk",
    ]
    problem_lines = [f"Problem   {problem}" for problem in result["problems"]]
    return [*lines, *(problem_lines or ["A run would work."])]


def _paragraph_lines(head: str, items: list[str]) -> list[str]:
    """Lines of at most 80 columns, the first with a head, and the items after it, none of which is over two lines."""
    unbreakable_items = [item.replace(" ", _UNBREAKABLE_SPACE) for item in items]
    lines = textwrap.wrap(
        ", ".join(unbreakable_items) or "none", _COLUMNS - _HEAD_WIDTH, break_long_words=False, break_on_hyphens=False
    )
    heads = [head, *[""] * (len(lines) - 1)]
    return [
        f"{line_head:<{_HEAD_WIDTH}}{line}".replace(_UNBREAKABLE_SPACE, " ")
        for line_head, line in zip(heads, lines, strict=True)
    ]


def _gibibytes_text(num_bytes: int | None) -> str:
    """A number of bytes as text."""
    return "unknown" if num_bytes is None else f"{num_bytes / _GIBIBYTE:.2f} GiB"
