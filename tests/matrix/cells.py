"""One cell of the matrix: a quick subset of the tests, or all configs, in one environment with one setting of JAX."""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.matrix import configs
from tests.matrix.environments import ROOT

QUICK = (
    "tests/codes/test_codes.py", "tests/protocols/test_closed_forms.py", "tests/stragglers/test_iid.py",
    "tests/tasks/test_regression.py", "tests/cli/test_json.py", "tests/engine/test_base.py",
)  # fmt: skip
SETTINGS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "float32, 8 devices": ({}, ("tests/engine/test_mesh.py",)),
    "float32, 1 device": ({"GCJAX_TEST_DEVICES": "1"}, ()),
    "float64": ({"JAX_ENABLE_X64": "1"}, ()),
    "debug NaNs": ({"JAX_DEBUG_NANS": "1"}, ()),
}
"""Name -> environment variables, and the tests that run only there."""


class Outcome(NamedTuple):
    """What came of a cell.

    Attributes:
      passed: whether it did; None if it was skipped.
      text: for the table.
      details: the end of what was printed, if it failed.
    """

    passed: bool | None
    text: str
    details: str = ""


def run_tests(python: Path, setting: str) -> Outcome:
    """Runs the quick subset with one setting."""
    variables, more_tests = SETTINGS[setting]
    command = [str(python), "-m", "pytest", "--disable-warnings", "-p", "no:cacheprovider", *QUICK, *more_tests]
    done = _run(command, variables)
    summary = re.search(r"\d+ (?:passed|failed|error).*?(?= in |$)", done.stdout)
    text = summary[0] if summary else "no tests ran" if done.returncode else "passed"
    return Outcome(
        done.returncode == 0, text, "" if done.returncode == 0 else done.stdout[-2000:] + done.stderr[-1000:]
    )


def run_configs(python: Path, names: Iterable[str] = configs.BINDINGS) -> Outcome:
    """Runs each config at a tiny size."""
    names, failures = list(names), []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            words = [word for binding in configs.BINDINGS[name] for word in ("--set", binding)]
            command = [str(python), "-m", "gcjax", "run", f"configs/{name}.gin", *words, "--out", f"{folder}/{name}"]
            done = _run(command, {})
            if done.returncode != 0:
                failures.append(f"{name}: {done.stderr[-500:]}")
    return Outcome(not failures, f"{len(names) - len(failures)} of {len(names)} run", "\n".join(failures))


def _run(command: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a command in the repository, with environment variables beside those of this process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
