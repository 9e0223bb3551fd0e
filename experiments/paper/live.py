"""Numbers of the runs with a parameter server: what was measured on the clock, and what was predicted.

A row of the results is a run: a scheme in a scenario. The scheme whose runs calibrate the simulator predicts its own
runs from themselves, so it is left out where predictions are counted.
"""

import json
import math
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from statistics import median

from experiments.live_protocols import SCENARIOS
from experiments.paper import live_tables, tex
from experiments.paper.live_tables import NONE, Row, names, or_none, run_rows
from experiments.paper.macros import Macros, binding, fixed, percent, significant
from experiments.paper.trained import Table


def live(folder: Path) -> tuple[Macros, Table]:
    """Of every scheme in every scenario."""
    rows, facts, config = run_rows(folder), json.loads((folder / "run.json").read_text()), folder / "operative.gin"
    loads = [row["load"] for row in rows]
    macros = {
        "LiveRuns": fixed(len(rows)),
        "LiveSchemes": fixed(len(names(rows, "scheme"))),
        "LiveScenarios": fixed(len(names(rows, "scenario"))),
        "LiveWorkers": binding(config, "num_workers"),
        "LiveSeconds": fixed(float(binding(config, "live_protocols.seconds"))),
        "LivePace": fixed(1000 * float(binding(config, "live_protocols.pace"))),
        "LiveStop": fixed(float(binding(config, "live_protocols.stop_seconds"))),
        "LiveSlowFactor": fixed(SCENARIOS["one slow"].slowdown),
        "LiveTarget": percent(facts["target"]),
        "LiveCores": fixed(facts["cores"]),
        "LiveLowLoad": f"{min(loads):.1f}",
        "LiveHighLoad": f"{max(loads):.1f}",
        "LiveCalibrating": tex.escape(_calibrating(folder)),
        **_kept(rows),
        **_replayed(rows),
        **_predicted(rows, _calibrating(folder)),
        **_reached(rows, _calibrating(folder)),
    }
    return macros, {"live": live_tables.tex_table(rows)}


def _calibrating(folder: Path) -> str:
    """The scheme from whose runs the others' times are predicted."""
    return binding(folder / "operative.gin", "live_protocols.calibrated_by")


def _kept(rows: list[Row]) -> Macros:
    """How many records were held against a promise, and keep it."""
    verdicts = [row["promise"] for row in rows if row["promise"] != "-"]
    return {"LiveHeld": fixed(len(verdicts)), "LiveKept": fixed(verdicts.count("kept"))}


def _replayed(rows: list[Row]) -> Macros:
    """The largest difference between the server's parameters and those of the replay, with and without a leaving."""
    left = [row for row in rows if row["num_left"]]
    runs = {"Whole": [row for row in rows if not row["num_left"]], "Left": left}
    largest = {name: max((row["replay_difference"] for row in some), default=math.nan) for name, some in runs.items()}
    return {
        "LiveLeft": fixed(len(left)),
        **{f"LiveReplay{name}": or_none(lambda x: significant(x, 1), value) for name, value in largest.items()},
    }


def _predicted(rows: list[Row], calibrating: str) -> Macros:
    """How far the predicted times of commits are from the measured ones: means over the commits of a run."""
    others = [row for row in rows if row["scheme"] != calibrating and math.isfinite(row["error_mean"])]
    own = [abs(row["error_mean"]) for row in rows if row["scheme"] == calibrating and math.isfinite(row["error_mean"])]
    worst = max(others, key=lambda row: abs(row["error_mean"]), default=None)
    hardest, spread = _largest_median(others, "scheme")
    scenario, scenario_spread = _largest_median(others, "scenario")
    return {
        "LivePredicted": fixed(len(others)),
        "LiveLeftPredicted": fixed(sum(row["num_left"] > 0 for row in others)),
        "LiveOwnError": _percent_or_none(max(own, default=math.nan)),
        "LiveMedianError": _percent_or_none(_median(abs(row["error_mean"]) for row in others)),
        "LiveEarly": fixed(sum(row["error_mean"] < 0 for row in others)),
        "LiveWorstError": NONE if worst is None else fixed(100 * worst["error_mean"], 1),
        "LiveWorstScheme": NONE if worst is None else tex.escape(worst["scheme"]),
        "LiveWorstScenario": NONE if worst is None else tex.escape(worst["scenario"]),
        "LiveHardestScheme": tex.escape(hardest),
        "LiveHardestError": _percent_or_none(spread),
        "LiveHardestScenario": tex.escape(scenario),
        "LiveHardestScenarioError": _percent_or_none(scenario_spread),
    }


def _largest_median(rows: list[Row], column: str) -> tuple[str, float]:
    """Of which value of a column the median size of the errors is largest, and that median."""
    medians = {
        name: _median(abs(row["error_mean"]) for row in rows if row[column] == name) for name in names(rows, column)
    }
    name = max(medians, key=lambda each: medians[each], default=NONE)
    return name, medians.get(name, math.nan)


def _reached(rows: list[Row], calibrating: str) -> Macros:
    """Times to the target: how many got there, who was first, and whether the predicted order is the measured one."""
    arrived = [row for row in rows if math.isfinite(row["reach"])]
    others = [row for row in arrived if row["scheme"] != calibrating and math.isfinite(row["predicted"])]
    errors = [abs(row["predicted"] / row["reach"] - 1) for row in others]
    pairs = [(a, b) for a, b in combinations(others, 2) if a["scenario"] == b["scenario"] and a["reach"] != b["reach"]]
    in_order = sum((a["reach"] < b["reach"]) == (a["predicted"] < b["predicted"]) for a, b in pairs)
    first = {row["scenario"]: row for row in sorted(arrived, key=lambda row: -row["reach"])}
    said = [rf"{tex.escape(first[name]['scheme'])} ({name}, {first[name]['reach']:.2f}~s)"
            for name in names(rows, "scenario") if name in first]  # fmt: skip
    return {
        "LiveReached": fixed(len(arrived)),
        "LiveCompared": fixed(len(others)),
        "LiveReachMedian": _percent_or_none(_median(errors)),
        "LiveReachWorst": _percent_or_none(max(errors, default=math.nan)),
        "LivePairs": fixed(len(pairs)),
        "LiveInOrder": fixed(in_order),
        "LiveFirst": "; ".join(said) or NONE,
    }


def _median(values: Iterable[float]) -> float:
    """The median; NaN of nothing."""
    numbers = list(values)
    return median(numbers) if numbers else math.nan


def _percent_or_none(share: float) -> str:
    """A share in percent with a decimal, or a dash."""
    return or_none(lambda value: percent(value, 1), share)
