"""Runs what is not done, and writes the numbers, tables and figures of the manuscript.

python -m experiments.paper                      # all
python -m experiments.paper --quick              # smaller sizes
python -m experiments.paper --only codes laws    # runs these, and writes nothing else
"""

import argparse
from pathlib import Path

from experiments.paper import computed, runs
from experiments.paper.provenance import ROOT


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description="Regenerates the numbers, tables and figures of the manuscript.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, marked as such")
    parser.add_argument("--only", nargs="+", choices=[*runs.RUNS, *computed.COMPUTED], help="run only these")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "paper", help="the folder of the runs")
    parser.add_argument("--out", type=Path, default=ROOT / "paper" / "generated", help="the folder to write")
    options = parser.parse_args()
    mode = "quick" if options.quick else "full"
    for name in options.only or [*runs.RUNS, *computed.COMPUTED]:
        print(f"{name} ({mode})", flush=True)
        (runs if name in runs.RUNS else computed).ensure(name, options.runs, mode)
    if not options.only:
        from experiments.paper import generate

        generate.write(options.runs, mode, options.out)


if __name__ == "__main__":
    main()
