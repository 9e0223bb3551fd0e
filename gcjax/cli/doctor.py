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


def command(options: argparse.Namespace) -> int:
    """`gcjax doctor`: prints versions, devices, memory, the cache and problems; returns the exit status, 0 or 1."""
    packages = package_versions()
    problems = [package["problem"] for package in packages if package["problem"]]
    devices, device_problem = ([], "") if problems else _devices()
    memory_bytes, cache = _memory(devices), _cache()
    problems += list(filter(None, (device_problem, cache["problem"])))
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
        print("\n".join(_lines(options.result)))
    return 1 if problems else 0


def package_versions() -> list[dict[str, str | None]]:
    """Of each package that gcjax needs: name, version (None: missing), the range it must be in, and what is wrong."""
    try:
        from packaging.requirements import Requirement

        requirements = [Requirement(text) for text in metadata.requires("gcjax") or ()]
    except ImportError as error:  # of packaging, or gcjax itself is not installed
        return [_package(str(error.name or "packaging"), None, version=None)]
    needed = [requirement for requirement in requirements if requirement.marker is None]
    return [_package(each.name, each.specifier, version=_version(each.name)) for each in needed]


def _version(name: str) -> str | None:
    """The version of a package that is installed; None if it is not."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package(name: str, specifier: Any | None, *, version: str | None) -> dict[str, str | None]:
    """A package by its name, the versions that are supported, and the one that is there, for `package_versions`."""
    supported = str(specifier or "")
    if version is not None and (specifier is None or specifier.contains(version, prereleases=True)):
        return {"name": name, "version": version, "supported": supported, "problem": ""}
    problem = (
        f"{name} must be {supported or 'installed'}; got {version or 'none'}. Install it with: "
        f"{Path(sys.executable).name} -m pip install '{name}{supported}'"
    )
    return {"name": name, "version": version, "supported": supported, "problem": problem}


def _devices() -> tuple[list[dict[str, Any]], str]:
    """The devices that JAX would take, with their memory in bytes (None: that of the host), and what is wrong."""
    try:
        import jax

        devices = jax.devices()
    except Exception as error:
        return [], machine_errors.sentence(error) or f"JAX cannot start: {error}"
    stats = [(device.memory_stats() or {}).get("bytes_limit") for device in devices]
    return [
        {"id": device.id, "platform": device.platform, "kind": device.device_kind, "memory": num_bytes}
        for device, num_bytes in zip(devices, stats, strict=True)
    ], ""


def _memory(devices: list[dict[str, Any]]) -> dict[str, Any]:
    """Bytes that this machine or container has, and those that arrays can have on the devices."""
    if not devices:
        return {"host": None, "arrays": None}
    from gcjax import memory

    return {"host": memory.machine_bytes(), "arrays": memory.limit()}


def _cache() -> dict[str, Any]:
    """The folder of compiled programs, its bytes, the free bytes of its disk; and what is wrong."""
    folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cached_programs.folder())
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    advice = "Name another one with JAX_COMPILATION_CACHE_DIR, or run with --no-cache."
    return {
        "folder": str(folder),
        "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else 0,
        "free": shutil.disk_usage(existing).free,
        "problem": "" if writable else f"The cache must be a folder that can be written; {folder} cannot. {advice}",
    }


def _lines(result: dict[str, Any]) -> list[str]:
    """What the command found, for a person."""
    packages = [f"{package['name']} {package['version'] or 'missing'}" for package in result["packages"]]
    devices = [f"{device['platform']} {device['id']} ({device['kind']})" for device in result["devices"]]
    host, cache = result["memory"]["host"], result["cache"]
    lines = [
        f"Python    {result['python']} on {result['platform']}",
        *_paragraph("Packages", packages),
        *_paragraph("Devices", devices),
        f"Memory    {_gibibytes(host)} of this machine, {_gibibytes(result['memory']['arrays'])} for arrays",
        f"Cache     {_gibibytes(cache['bytes'])} in {cache['folder']}; {_gibibytes(cache['free'])} free on its disk",
    ]
    problems = [f"Problem   {problem}" for problem in result["problems"]]
    return [*lines, *(problems or ["A run would work."])]


def _paragraph(head: str, items: list[str]) -> list[str]:
    """Lines of at most 80 columns with a head and the items after it, none of them over two lines."""
    unbroken = ", ".join(item.replace(" ", "\0") for item in items) or "none"
    lines = textwrap.wrap(unbroken, _COLUMNS - 10, break_long_words=False, break_on_hyphens=False)
    return [f"{'' if number else head:<10}{line}".replace("\0", " ") for number, line in enumerate(lines)]


def _gibibytes(num_bytes: int | None) -> str:
    """A number of bytes as text."""
    return "unknown" if num_bytes is None else f"{num_bytes / _GIBIBYTE:.2f} GiB"
