"""Runs what is not done, and writes the numbers, tables and figures of the manuscript.

python -m experiments.paper                      # all
python -m experiments.paper --quick              # smaller sizes
python -m experiments.paper --only codes laws    # runs these, and writes nothing else
python -m experiments.paper --only live --write  # runs these, and writes what is of them; the rest stays as it is
python -m experiments.paper --only traces --write --traces "Job 1=FILE" "Job 2=FILE"  # of measured traces that you have

What is of measured traces stays as it is where no files are given.
"""

import argparse
from pathlib import Path

from experiments.paper import computed, generate, measured, runs
from experiments.paper.provenance import ROOT

_NAMES = [*runs.RUNS, *computed.COMPUTED, *measured.MEASURED]


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description="Regenerates the numbers, tables and figures of the manuscript.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, marked as such")
    parser.add_argument("--only", nargs="+", choices=_NAMES, help="run only these")
    parser.add_argument("--traces", nargs="+", type=_named_file, metavar="JOB=FILE", help="measured traces, for traces")
    parser.add_argument("--write", action="store_true", help="with --only: also write what is of these")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "paper", help="the folder of the runs")
    parser.add_argument("--out", type=Path, default=ROOT / "paper" / "generated", help="the folder to write")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="whose table of live runs is written, if full")
    options = parser.parse_args()
    mode, names = "quick" if options.quick else "full", options.only or _NAMES
    if options.traces is None and options.only and set(measured.MEASURED) & set(names):
        parser.error('traces needs the files of measured traces: --traces "Job 1=FILE" ...')
    if options.traces is None:
        names = [name for name in names if name not in measured.MEASURED]
    if options.write:
        generate.results_to_keep(options.out, names, mode)  # now, not after the runs
    for name in names:
        print(f"{name} ({mode})", flush=True)
        _ensure(name, options, mode)
    if options.write or not options.only:
        docs = options.docs if mode == "full" else None
        generate.write(options.runs, mode, options.out, only=names, docs=docs)


def _ensure(name: str, options: argparse.Namespace, mode: str) -> None:
    """Runs or computes the results called `name`, if that is not done; `mode` is "quick" or "full"."""
    if name in measured.MEASURED:
        measured.ensure(name, dict(options.traces), options.runs, mode)
    else:
        (runs if name in runs.RUNS else computed).ensure(name, options.runs, mode)


def _named_file(argument: str) -> tuple[str, str]:
    """The name of a job and its file, from JOB=FILE."""
    job, separator, file = argument.partition("=")
    if not (job and separator and Path(file).is_file()):
        raise argparse.ArgumentTypeError(f"must be JOB=FILE with a file that is there; got {argument!r}")
    return job, file


if __name__ == "__main__":
    main()
