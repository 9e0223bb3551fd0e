"""Numbers of the runs with a parameter server: what was measured on the clock, and what was predicted.

A row of the results is a run: a scheme in a scenario. The scheme whose runs calibrate the simulator predicts its own
runs from themselves, so it is left out where predictions are counted. `error_mean` of a row is the mean over its
commits of the predicted over the measured time of each, less 1; NaN where nothing was predicted.
"""

import json
import math
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from statistics import median

from experiments.live_protocols import SCENARIOS
from experiments.paper import live_tables
from experiments.paper.live_tables import NONE, Row, names, or_none, run_rows
from experiments.paper.macros import Macros, binding, fixed, percent, significant
from experiments.paper.trained import Tables
from gcjax import tex


def live(folder: Path) -> tuple[Macros, Tables]:
    """The macros and the table of every scheme in every scenario on the real clock."""
    rows, run_facts, config = run_rows(folder), json.loads((folder / "run.json").read_text()), folder / "operative.gin"
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
        "LiveTarget": percent(run_facts["target"]),
        "LiveCores": fixed(run_facts["cores"]),
        "LiveLowLoad": f"{min(loads):.1f}",
        "LiveHighLoad": f"{max(loads):.1f}",
        "LiveCalibrating": tex.escape(_calibrating_scheme(folder)),
        **_promise_macros(rows),
        **_replay_macros(rows),
        **_prediction_macros(rows, _calibrating_scheme(folder)),
        **_target_macros(rows, _calibrating_scheme(folder)),
    }
    return macros, {"live": live_tables.tex_table(rows)}


def _calibrating_scheme(folder: Path) -> str:
    """The scheme from whose runs the others' times are predicted."""
    return binding(folder / "operative.gin", "live_protocols.calibrated_by")


def _promise_macros(rows: list[Row]) -> Macros:
    """How many records were held against a promise, and keep it; "-" is the verdict where that is not known."""
    verdicts = [row["promise"] for row in rows if row["promise"] != "-"]
    return {"LiveHeld": fixed(len(verdicts)), "LiveKept": fixed(verdicts.count("kept"))}


def _replay_macros(rows: list[Row]) -> Macros:
    """The largest difference between the server's parameters and those of the replay, with and without a leaving.

    `LiveLeft`: how many runs a worker has left. Differences are over the largest parameter.
    """
    runs_with_leaving = [row for row in rows if row["num_left"]]
    whole_runs = [row for row in rows if not row["num_left"]]
    return {
        "LiveLeft": fixed(len(runs_with_leaving)),
        "LiveReplayWhole": _largest_replay_difference(whole_runs),
        "LiveReplayLeft": _largest_replay_difference(runs_with_leaving),
    }


def _largest_replay_difference(rows: list[Row]) -> str:
    """The largest difference, with one digit, or a dash if there are no runs."""
    largest_difference = max((row["replay_difference"] for row in rows), default=math.nan)
    return or_none(lambda difference: significant(difference, 1), largest_difference)


def _prediction_macros(rows: list[Row], calibrating_scheme: str) -> Macros:
    """How far the predicted times of commits are from the measured ones: means over the commits of a run.

    `calibrating_scheme`: by whose runs things were measured, and which is not predicted from others. `error_mean` is a
    share of the measured times, negative if they are predicted too early; NaN where nothing was predicted.
    """
    predicted_rows = [row for row in rows if math.isfinite(row["error_mean"])]
    rows_of_other_schemes = [row for row in predicted_rows if row["scheme"] != calibrating_scheme]
    errors_of_calibrating_scheme = [
        abs(row["error_mean"]) for row in predicted_rows if row["scheme"] == calibrating_scheme
    ]
    worst_row = max(rows_of_other_schemes, key=lambda row: abs(row["error_mean"]), default=None)
    hardest_scheme, scheme_error = _largest_median(rows_of_other_schemes, "scheme")
    hardest_scenario, scenario_error = _largest_median(rows_of_other_schemes, "scenario")
    return {
        "LivePredicted": fixed(len(rows_of_other_schemes)),
        "LiveLeftPredicted": fixed(sum(row["num_left"] > 0 for row in rows_of_other_schemes)),
        "LiveOwnError": _percent_or_none(max(errors_of_calibrating_scheme, default=math.nan)),
        "LiveMedianError": _percent_or_none(_median(abs(row["error_mean"]) for row in rows_of_other_schemes)),
        "LiveEarly": fixed(sum(row["error_mean"] < 0 for row in rows_of_other_schemes)),
        "LiveWorstError": NONE if worst_row is None else fixed(100 * worst_row["error_mean"], 1),
        "LiveWorstScheme": NONE if worst_row is None else tex.escape(worst_row["scheme"]),
        "LiveWorstScenario": NONE if worst_row is None else tex.escape(worst_row["scenario"]),
        "LiveHardestScheme": tex.escape(hardest_scheme),
        "LiveHardestError": _percent_or_none(scheme_error),
        "LiveHardestScenario": tex.escape(hardest_scenario),
        "LiveHardestScenarioError": _percent_or_none(scenario_error),
    }


def _largest_median(rows: list[Row], column: str) -> tuple[str, float]:
    """Of which scheme or scenario, by `column`, the predictions are worst, and the median size of their errors.

    The error of a run, `error_mean`, is the mean over its commits of predicted over measured time, less 1. Without a
    row it is `NONE`, a dash, and NaN.
    """
    median_of_name = {
        name: _median(abs(row["error_mean"]) for row in rows if row[column] == name) for name in names(rows, column)
    }
    hardest = max(median_of_name, key=lambda name: median_of_name[name], default=NONE)
    return hardest, median_of_name.get(hardest, math.nan)


def _target_macros(rows: list[Row], calibrating_scheme: str) -> Macros:
    """Times to the target: how many got there, who was first, and whether the predicted order is the measured one.

    `reach` and `predicted` are seconds, measured and predicted; inf if not reached, NaN if not predicted.
    `calibrating_scheme` is not predicted from others. Pairs are of one scenario.
    """
    reached_rows = [row for row in rows if math.isfinite(row["reach"])]
    compared_rows = [
        row for row in reached_rows if row["scheme"] != calibrating_scheme and math.isfinite(row["predicted"])
    ]
    errors = [abs(row["predicted"] / row["reach"] - 1) for row in compared_rows]
    pairs = [
        (a, b) for a, b in combinations(compared_rows, 2) if a["scenario"] == b["scenario"] and a["reach"] != b["reach"]
    ]
    num_in_order = sum((a["reach"] < b["reach"]) == (a["predicted"] < b["predicted"]) for a, b in pairs)
    slowest_first = sorted(reached_rows, key=lambda row: -row["reach"])
    fastest_of_scenario = {row["scenario"]: row for row in slowest_first}  # the last one of a scenario stays
    fastest_rows = [fastest_of_scenario[name] for name in names(rows, "scenario") if name in fastest_of_scenario]
    fastest_texts = [rf"{tex.escape(row['scheme'])} ({row['scenario']}, {row['reach']:.2f}~s)" for row in fastest_rows]
    return {
        "LiveReached": fixed(len(reached_rows)),
        "LiveCompared": fixed(len(compared_rows)),
        "LiveReachMedian": _percent_or_none(_median(errors)),
        "LiveReachWorst": _percent_or_none(max(errors, default=math.nan)),
        "LivePairs": fixed(len(pairs)),
        "LiveInOrder": fixed(num_in_order),
        "LiveFirst": "; ".join(fastest_texts) or NONE,
    }


def _median(values: Iterable[float]) -> float:
    """The median; NaN of nothing."""
    numbers = list(values)
    return median(numbers) if numbers else math.nan


def _percent_or_none(share: float) -> str:
    """A share in percent with a decimal, or a dash."""
    return or_none(lambda finite_share: percent(finite_share, 1), share)
