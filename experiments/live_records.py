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
        self._unit_tables: list[analysis.store.Columns] = []
        self._commit_tables: list[analysis.store.Columns] = []
        self.calibrations: dict[str, dict[str, Any]] = {}

    def add(self, label: str, run: LiveRun) -> None:
        """Keeps the units and commits of the first `SECONDS` of a run."""
        durations_without_failure = np.zeros(np.shape(run.schedule.start))  # [T, W]; inf would mark a failed unit
        self._unit_tables.append(
            analysis.timeline_columns(label, run.schedule, durations_without_failure, timeline_seconds=SECONDS)
        )
        commits = analysis.commit_columns(label, run.schedule, SECONDS)
        loss_of_row = np.asarray(run.loss)[commits["commit"]]  # a row is a contribution to a commit
        self._commit_tables.append({**commits, "loss": loss_of_row})

    def calibrate(self, scenario: str, calibration: Calibration) -> None:
        """Keeps what was measured in a scenario: seconds, medians of each worker's units `durations float[T, W]`."""
        self.calibrations[scenario] = {
            "unit_seconds": np.nanmedian(calibration.durations, axis=0).tolist(),
            "send_seconds": calibration.send_seconds.tolist(),
            "receive_seconds": calibration.receive_seconds.tolist(),
            "service_seconds": calibration.service_seconds,
        }

    def write(self, folder: Path) -> None:
        """Writes `timeline.parquet` and `commits.parquet`, if a run was kept."""
        if self._unit_tables:
            files.write_table(folder / analysis.store.TIMELINE_FILE, analysis.concatenate_tables(self._unit_tables))
            files.write_table(folder / analysis.store.COMMITS_FILE, analysis.concatenate_tables(self._commit_tables))


def verdict(rows: Sequence[Mapping[str, Any]], target: str) -> str:
    """Who reached the target (in words) first in each scenario, by its rows; and whether all promises were kept.

    A row whose promise is "-" is of a run of which that is not known.
    """
    scenarios = dict.fromkeys(row["scenario"] for row in rows)
    sentences = [_first_scheme_sentence(scenario, rows, target) for scenario in scenarios]
    rows_with_verdict = [row for row in rows if row["promise"] != "-"]
    runs_with_broken_promise = [
        f"{row['scheme']}, {row['scenario']}" for row in rows_with_verdict if row["promise"] != "kept"
    ]
    kept_text = f"kept in all {len(rows_with_verdict)} runs of which it is known"
    promise_text = f"broken: {'; '.join(runs_with_broken_promise)}" if runs_with_broken_promise else kept_text
    chance_sentence = "Each is one run, which does not tell small differences from chance."
    return " ".join([*sentences, chance_sentence, f"Promises are {promise_text}."])


def _first_scheme_sentence(scenario: str, rows: Sequence[Mapping[str, Any]], target: str) -> str:
    """Who reached the target first in a scenario, and who came second, by `reach`: seconds, inf if not reached."""
    rows_of_scenario = [row for row in rows if row["scenario"] == scenario]
    first_row, *later_rows = sorted(rows_of_scenario, key=lambda row: row["reach"])
    if not math.isfinite(first_row["reach"]):
        return f"With {scenario}, no scheme reached {target}."
    second_text = ""
    if later_rows and math.isfinite(later_rows[0]["reach"]):
        second_text = f", before {later_rows[0]['scheme']} ({later_rows[0]['reach']:.2f} s)"
    return (
        f"With {scenario}, {first_row['scheme']} reached {target} first, after {first_row['reach']:.2f} s{second_text}."
    )
