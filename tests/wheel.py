"""Building a wheel of this repository, and what it should contain."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
SHIPPED = ("experiments", "configs")


def tracked(*folders):
    """The files below these folders of the repository that git does not ignore, or all where there is no git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0 and done.stdout:
        return {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}
    files = [file for folder in folders for file in (ROOT / folder).rglob("*") if file.is_file()]
    return {file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts}


def build(folder):
    """Builds the wheel of this repository in a folder, without the network; returns its path."""
    from hatchling.builders.wheel import WheelBuilder

    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))
