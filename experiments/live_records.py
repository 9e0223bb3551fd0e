"""What `experiments.live_protocols` keeps of each run: who did what when, what was measured, and the verdict."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gcjax import analysis, files
from gcjax.parameter_server import Calibration, LiveRun

SECONDS = 60.0
"""How much of a run is kept."""


class Records:
    """The units and the commits of runs, each under its label, and calibrations.

    Attributes:
      calibrations: scenario -> medians in seconds, as JSON.
    """

    def __init__(self) -> None:
        """Of no run yet."""
        self._units: list[analysis.store.Columns] = []
        self._commits: list[analysis.store.Columns] = []
        self.calibrations: dict[str, dict[str, Any]] = {}

    def add(self, label: str, run: LiveRun) -> None:
        """Keeps the begin of a run."""
        durations = np.zeros(np.shape(run.schedule.start))  # nobody is known to have failed
        self._units.append(analysis.timeline_columns(label, run.schedule, durations, SECONDS))
        commits = analysis.commit_columns(label, run.schedule, SECONDS)
        self._commits.append({**commits, "loss": np.asarray(run.loss)[commits["commit"]]})

    def calibrate(self, scenario: str, measured: Calibration) -> None:
        """Keeps what was measured in a scenario."""
        self.calibrations[scenario] = {
            "unit_seconds": np.nanmedian(measured.durations, axis=0).tolist(),
            "send_seconds": measured.send_seconds.tolist(),
            "receive_seconds": measured.receive_seconds.tolist(),
            "service_seconds": measured.service_seconds,
        }

    def write(self, folder: Path) -> None:
        """Writes `timeline.parquet` and `commits.parquet`, if a run was kept."""
        if self._units:
            files.write_table(folder / analysis.store.TIMELINE, analysis.stack(self._units))
            files.write_table(folder / analysis.store.COMMITS, analysis.stack(self._commits))


def verdict(rows: Sequence[Mapping[str, Any]], target: str) -> str:
    """Who reached the target first in each scenario, by its rows; and whether all promises were kept."""
    sentences = [_first(scenario, rows, target) for scenario in dict.fromkeys(row["scenario"] for row in rows)]
    said = [row for row in rows if row["promise"] != "-"]
    broken = [f"{row['scheme']}, {row['scenario']}" for row in said if row["promise"] != "kept"]
    promise = f"broken: {'; '.join(broken)}" if broken else f"kept in all {len(said)} runs of which it is known"
    chance = "Each is one run, which does not tell small differences from chance."
    return " ".join([*sentences, chance, f"Promises are {promise}."])


def _first(scenario: str, rows: Sequence[Mapping[str, Any]], target: str) -> str:
    """Who reached the target first in a scenario, and who came second."""
    order = sorted((row for row in rows if row["scenario"] == scenario), key=lambda row: row["reach"])
    first, second = order[0], order[1] if len(order) > 1 else None
    if not math.isfinite(first["reach"]):
        return f"With {scenario}, no scheme reached {target}."
    before = "" if second is None or not math.isfinite(second["reach"]) else (
        f", before {second['scheme']} ({second['reach']:.2f} s)"
    )  # fmt: skip
    return f"With {scenario}, {first['scheme']} reached {target} first, after {first['reach']:.2f} s{before}."
