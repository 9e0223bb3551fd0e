"""Runs what is not done, and writes the numbers, tables and figures of the manuscript.

python -m experiments.paper                      # all
python -m experiments.paper --quick              # smaller sizes
python -m experiments.paper --only codes laws    # runs these, and writes nothing else
python -m experiments.paper --only live --write  # runs these, and writes what is of them; the rest stays as it is
"""

import argparse
from pathlib import Path

from experiments.paper import computed, generate, runs
from experiments.paper.provenance import ROOT


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description="Regenerates the numbers, tables and figures of the manuscript.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, marked as such")
    parser.add_argument("--only", nargs="+", choices=[*runs.RUNS, *computed.COMPUTED], help="run only these")
    parser.add_argument("--write", action="store_true", help="with --only: also write what is of these")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "paper", help="the folder of the runs")
    parser.add_argument("--out", type=Path, default=ROOT / "paper" / "generated", help="the folder to write")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="whose table of live runs is written, if full")
    options = parser.parse_args()
    mode = "quick" if options.quick else "full"
    if options.only and options.write:
        generate.kept(options.out, options.only, mode)  # now, not after the runs
    for name in options.only or [*runs.RUNS, *computed.COMPUTED]:
        print(f"{name} ({mode})", flush=True)
        ensure_results = runs.ensure if name in runs.RUNS else computed.ensure
        ensure_results(name, options.runs, mode)
    if options.write or not options.only:
        docs = options.docs if mode == "full" else None
        generate.write(options.runs, mode, options.out, only=options.only or (), docs=docs)


if __name__ == "__main__":
    main()
