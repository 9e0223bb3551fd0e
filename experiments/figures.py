"""Draws the figures of the docs anew: runs the experiments that they come from, and copies the pictures.

make figures                                     # all of them
make figures FIGURES="loss_vs_time timeline"     # some
python -m experiments.figures --from my_run loss_vs_time timeline    # from a folder of a finished run
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gcjax import files

ROOT = Path(__file__).parent.parent


class Source(NamedTuple):
    """Where a figure comes from.

    Attributes:
      config: of the run, in `configs`.
      picture: in the folder of the run.
    """

    config: str
    picture: str


FIGURES = {
    "loss_vs_time": Source("quickstart.gin", "loss_vs_time.png"),
    "timeline": Source("quickstart.gin", "timeline.png"),
    "codes": Source("codes.gin", "codes.png"),
    "interpolation": Source("conditioning.gin", "interpolation.png"),
    "partial_stragglers": Source("partial_stragglers/approximate.gin", "error.png"),
    "protocols": Source("protocols.gin", "map.png"),
    "groups": Source("grouped/delays.gin", "groups.png"),
}
"""The name of a file in `docs`, without its ending -> where it comes from."""


def draw(names: Sequence[str], *, docs: Path = ROOT / "docs", run: Path | None = None) -> None:
    """Draws figures anew: runs what they come from, each config once, and copies the pictures.

    Args:
      names: of `FIGURES`.
      docs: the folder to copy to.
      run: the folder of a finished run to copy from, instead of a new one.

    Raises:
      ValueError: if the folder of the run has no such picture.
      subprocess.CalledProcessError: if a run fails.
    """
    for config in dict.fromkeys(FIGURES[name].config for name in names):
        names_of_config = [name for name in names if FIGURES[name].config == config]
        with tempfile.TemporaryDirectory() as scratch:
            folder = run or _run_config(config, Path(scratch) / "run")
            _copy_pictures(folder, names_of_config, docs)


def _run_config(config: str, out: Path) -> Path:
    """Runs a config of the folder `configs`, and returns the folder `out`, which it has written."""
    command = [sys.executable, "-m", "gcjax", "run", f"configs/{config}", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, check=True)
    return out


def _copy_pictures(run: Path, names: Sequence[str], docs: Path) -> None:
    """Copies the pictures of figures from the folder `run` of a run to `docs/NAME.png`; a `ValueError` if one lacks."""
    for name in names:
        picture = run / FIGURES[name].picture
        if not picture.is_file():
            raise ValueError(f"The run of {name} must have the picture {picture.name}; {run} has none.")
        with files.atomic_write(docs / f"{name}.png") as part:
            part.write_bytes(picture.read_bytes())
        print(f"{docs / name}.png: {picture.stat().st_size / 1000:.0f} kB", flush=True)


def main() -> None:
    """Draws the figures named on the command line, all by default."""
    parser = argparse.ArgumentParser(description="Draws the figures of the docs anew.")
    parser.add_argument("names", metavar="FIGURE", nargs="*", help=f"of {', '.join(FIGURES)}; all by default")
    parser.add_argument("--from", dest="run", metavar="RUN_DIR", type=Path, help="copy from this finished run")
    options = parser.parse_args()
    unknown = set(options.names) - set(FIGURES)
    if unknown:
        parser.error(f"there is no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    draw(options.names or list(FIGURES), run=options.run)


if __name__ == "__main__":
    main()
