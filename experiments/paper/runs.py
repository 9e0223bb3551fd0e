"""The runs that the manuscript reads: each config once, in a folder of its own, resumed if it was cut off."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from experiments.paper import provenance
from gcjax import analysis, files


class Run(NamedTuple):
    """A run of a config.

    Attributes:
      config: its path in `configs`.
      quick: bindings that make it smaller in quick mode.
    """

    config: str
    quick: tuple[str, ...]


_FEW_GRAPHS = ("{}.num_trials = 100", "{}.num_graphs = 3")
_SHORT_GROUPS = ("group_delays.num_rounds = 40", "study.num_units = 120", "study.num_seeds = 2")

RUNS = {
    "quickstart": Run("quickstart.gin", ("study.num_seeds = 2", "study.num_units = 200", "study.seconds = 120.0")),
    "codes": Run("codes.gin", ("compare_codes.num_trials = 50", "compare_codes.max_masks = 32")),
    "approximate": Run("partial_stragglers/approximate.gin", tuple(b.format("approximate") for b in _FEW_GRAPHS)),
    "exact": Run("partial_stragglers/exact.gin", (*(b.format("exact") for b in _FEW_GRAPHS), "exact.num_orders = 5")),
    "worker_busy": Run("worker_busy/digits.gin", ("study.num_seeds = 2",)),
    "delays": Run("grouped/delays.gin", (*_SHORT_GROUPS, "group_delays.delays = (0, 200, 400)")),
    "two_stragglers": Run("grouped/two_stragglers.gin", _SHORT_GROUPS),
    "scheme_map": Run(
        "protocols.gin",
        (
            "protocol_map.schemes = {'BSP': @bsp(), 'ASP': @asp(), 'fractional repetition': @frc/coded(), "
            "'pipelined codes': @pipelined_coded()}",
            "study.optimizers = {}",
            "study.num_seeds = 2",
            "tuning.own_rates = {}",
            "tuning.num_trials = 3",
        ),
    ),
    "live": Run(
        "live/protocols.gin",
        (
            "live_protocols.schemes = {'ASP': @asp(), 'BSP': @bsp()}",
            "live_protocols.scenarios = ('nobody slow', 'one killed')",
            "live_protocols.seconds = 1.0",
            "num_workers = 2",
        ),
    ),
}
"""Name -> what is run."""


def folder_of(name: str, runs: Path, mode: str) -> Path:
    """Where the run of this name lies."""
    return runs / mode / name


def ensure(name: str, runs: Path, mode: str) -> Path:
    """Runs a config if it is not done, or goes on with it, and writes beside its folder where it comes from.

    A finished run of another command (other bindings) is deleted first.

    Args:
      name: of `RUNS`.
      runs: the folder of all runs of the manuscript.
      mode: full or quick.

    Returns:
      The folder of the finished run.

    Raises:
      subprocess.CalledProcessError: if the run fails.
    """
    run, out = RUNS[name], folder_of(name, runs, mode)
    bindings = run.quick if mode == "quick" else ()
    options = [word for binding in bindings for word in ("--set", binding)]
    command = ["gcjax", "run", f"configs/{run.config}", *options]
    provenance_file = out.with_suffix(".json")
    if provenance_file.exists() and json.loads(provenance_file.read_text())["command"] == shlex.join(command):
        return out
    is_of_other_command = (out / "run.json").exists() and not analysis.is_resumable(out)  # or without provenance yet
    if is_of_other_command:
        shutil.rmtree(out)
    with provenance.record(shlex.join(command), mode) as provenance_of_run:
        python_command = [sys.executable, "-m", *command, "--out", str(out.absolute()), "--resume"]
        subprocess.run(python_command, cwd=provenance.ROOT, check=True)
    provenance_of_run["seed"] = json.loads((out / "run.json").read_text()).get(
        "seed", 0
    )  # of a study, the first of its seeds
    files.write_text(provenance_file, json.dumps(provenance_of_run, indent=2) + "\n")
    return out
