"""Pythons of this machine, and an environment of each with the oldest or the newest versions that gcjax supports."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".matrix"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OLDEST = "constraints-oldest.txt"


class Environment(NamedTuple):
    """Where a quick subset of the tests runs.

    Attributes:
      name: for a person.
      python: the interpreter with everything installed; None if there is none.
      problem: why there is none.
    """

    name: str
    python: Path | None
    problem: str = ""


def environments(text: str = "") -> list[Environment]:
    """This environment, one of the oldest versions, and for each newer Python one of the newest versions.

    Args:
      text: only those whose names contain this.
    """
    oldest = [(f"oldest, Python {PYTHONS[0]}", PYTHONS[0], ["--constraint", OLDEST])]
    newest: list[tuple[str, str, list[str]]] = [(f"newest, Python {version}", version, []) for version in PYTHONS[1:]]
    pinned = [Environment("pinned", Path(sys.executable))] if text in "pinned" else []
    others = [installed(name, interpreter(version), opts) for name, version, opts in oldest + newest if text in name]
    return pinned + others


def interpreter(version: str) -> Path | None:
    """A Python of this version ("3.12") that runs: on the path, of pyenv, or this one."""
    of_pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    candidates = [shutil.which(f"python{version}"), *map(str, of_pyenv), sys.executable]
    for candidate in filter(None, candidates):
        question = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        answer = subprocess.run(question, capture_output=True, text=True)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return Path(candidate)
    return None


def installed(name: str, python: Path | None, options: list[str]) -> Environment:
    """An environment of this Python in `.matrix`, made and filled unless it is newer than what it depends on."""
    if python is None:
        return Environment(name, None, "there is no such Python on this machine")
    folder = FOLDER / name.replace(", ", "-").replace(" ", "")
    stamp = folder / ".installed"
    sources = [ROOT / "pyproject.toml", ROOT / OLDEST]
    if not stamp.exists() or any(source.stat().st_mtime > stamp.stat().st_mtime for source in sources):
        problem = install(python, folder, options)
        if problem:
            return Environment(name, None, problem)
        stamp.touch()
    return Environment(name, folder / "bin" / "python")


def install(python: Path, folder: Path, options: list[str]) -> str:
    """Makes an environment and installs gcjax with what its tests need; returns what went wrong, or the empty text."""
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    packages = ["--editable", ".", "hatchling", "hypothesis", "pytest"]
    for command in ([python, "-m", "venv", folder], [*pip, *options, *packages]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["it cannot be installed"])[-1]
    return ""


def versions(python: Path) -> str:
    """The versions of Python and JAX of an environment."""
    code = "import platform, jax; print('Python', platform.python_version() + ', JAX', jax.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or "JAX cannot be imported"
