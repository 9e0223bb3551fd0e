"""Numbers and tables of the codes: all of them side by side, and the partial-straggler paper."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper.macros import ROOT, Macros, binding, fixed, significant
from experiments.paper.trained import Tables
from gcjax import files, tex

STRAGGLER_MODELS = ("constant speeds, exponential", "Markov slow spells", "Pareto, independent")
"""The straggler models of the comparison of codes."""

MAX_ROUNDING_ERROR, MAX_ROUNDING_ERROR_FLOAT64 = 1e-3, 1e-9
"""Relative errors up to these are rounding, in float32 and in float64."""


def code_rows(folder: Path) -> list[dict[str, Any]]:
    """A row for each code."""
    rows: list[dict[str, Any]] = files.read_table(folder / "codes.parquet").to_pylist()
    return rows


def codes(folder: Path) -> tuple[Macros, Tables]:
    """The macros and tables of all codes on the same workers, from the folder of their run.

    A time is the mean until the sum can be decoded exactly; NaN if it never can.
    """
    rows, run_facts = code_rows(folder), json.loads((folder / "run.json").read_text())
    row_of_code = {row["code"]: row for row in rows}
    times_of_code = {code: [row[f"{model} time"] for model in STRAGGLER_MODELS] for code, row in row_of_code.items()}
    is_never_decoded = [bool(np.isnan(times).all()) for times in times_of_code.values()]
    # Of the first of STRAGGLER_MODELS.
    exponential_time = {code: f"{times[0]:.2f}" for code, times in times_of_code.items()}
    macros = {
        "CodesWorkers": binding(ROOT / "configs/codes.gin", "n"),
        "CodesStragglers": fixed(run_facts["num_stragglers"]),
        "CodesLoad": binding(ROOT / "configs/codes.gin", "load"),
        "CodesTrials": fixed(run_facts["num_trials"]),
        "CodesMasks": fixed(run_facts["num_masks"]),
        "CodesCount": fixed(len(rows)),
        "CodesUncodedTime": exponential_time["uncoded"],
        "CodesPartialTime": exponential_time["partial, L=1"],
        "CodesMessagesTime": exponential_time["UC-MMC"],
        "CodesMessagesSent": significant(row_of_code["UC-MMC"]["sent"]),
        "CodesCrcTime": exponential_time["CRC"],
        "CodesCrcWorst": significant(row_of_code["CRC"]["worst_condition"]),
        "CodesCrcBfloat": significant(row_of_code["CRC"]["bfloat16_error"], 2),
        "CodesHalfSent": significant(row_of_code["partial, L=2"]["sent"]),
        "CodesHalfTime": exponential_time["partial, L=2"],
        "CodesNever": fixed(sum(is_never_decoded)),
    }
    heads = ["Code", "Load", "Sent", "Mean", "Largest", "Constant", "Slow spells", "Pareto", "Typical", "Worst"]
    group_heads = [
        r" & & & \multicolumn{2}{c}{error} & \multicolumn{3}{c}{time to an exact sum}"
        r" & \multicolumn{2}{c}{condition} \\"
    ]
    lines = [_code_cells(row) for row in rows]
    return macros, {"codes": tex.tabular("@{}lrrrrrrrrr@{}", heads, lines, above=group_heads)}


def _code_cells(row: dict[str, Any]) -> list[str]:
    """The cells of one code: load, sent, errors ("exact" up to rounding), times ("never": NaN), condition numbers."""
    errors = [
        "exact" if row[name] <= MAX_ROUNDING_ERROR else f"{row[name]:.2g}" for name in ("mean_error", "worst_error")
    ]
    times = ["never" if np.isnan(row[f"{model} time"]) else f"{row[f'{model} time']:.2f}" for model in STRAGGLER_MODELS]
    conditions = [significant(row[name]) for name in ("typical_condition", "worst_condition")]
    return [tex.escape(row["code"]), f"{row['load']:.3g}", f"{row['sent']:.3g}", *errors, *times, *conditions]


def reproduction_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a reproduction that have a published figure."""
    summary: list[dict[str, Any]] = json.loads((folder / "run.json").read_text())["summary"]
    return [row for row in summary if row["published"] is not None]


def difference(row: dict[str, Any]) -> float:
    """z: ours less published, in standard deviations of that difference; NaN where our trials do not differ."""
    from experiments.partial_stragglers.report import Row

    row_with_nans: dict[str, Any] = {name: float("nan") if value is None else value for name, value in row.items()}
    return Row(**row_with_nans).difference


def approximate(folder: Path) -> tuple[Macros, Tables]:
    """The macros and tables of the error against the deadline, beside what was published."""
    rows, run_facts = reproduction_rows(folder), json.loads((folder / "run.json").read_text())
    config = ROOT / "configs/partial_stragglers/approximate.gin"
    # Not exact everywhere; ours are in float64.
    rows_with_errors = [row for row in rows if any(_is_above_rounding(row[name]) for name in _MEANS)]
    original_rows = [row for row in rows if row["scheme"] == "original"]
    latest_row = max(original_rows, key=lambda row: row["deadline"])
    absolute_zs = [abs(z) for z in map(difference, rows_with_errors) if np.isfinite(z)]
    macros = {
        "RepWorkers": binding(config, "g1/random_regular.num_workers"),
        "RepLoad": binding(config, "random_regular.load"),
        "RepFailed": fixed(run_facts["num_failed"]),
        "RepTrials": fixed(run_facts["num_trials"]),
        "RepGraphs": fixed(run_facts["num_graphs"]),
        "RepCompared": fixed(len(rows_with_errors)),
        "RepLargestZ": fixed(max(absolute_zs), 1),
        "RepLateDeadline": fixed(latest_row["deadline"]),
        "RepLatePublished": f"{latest_row['published']:.3f}",
        "RepLateOurs": f"{latest_row['over_graphs']:.3f}",
        "RepLateBetween": f"{latest_row['between_graphs']:.3f}",
        "RepLateError": f"{latest_row['trials_error']:.3f}",
    }
    return macros, {"errors": _reproduction_table(rows_with_errors)}


_MEANS = "published", "ours", "over_graphs"


def _is_above_rounding(mean_error: float | None) -> bool:
    """Whether an error in float64 is more than rounding; one that is not there (None, NaN) is not."""
    return mean_error is not None and mean_error > MAX_ROUNDING_ERROR_FLOAT64


def _reproduction_table(rows: list[dict[str, Any]]) -> str:
    """The LaTeX table of published means, ours, and how they differ; a line for each.

    Ours has a standard error; beside it are the mean over graphs and the standard deviation between them, empty where
    there is one graph, and z, the difference in its standard deviations.
    """
    has_deadline = any(row["deadline"] is not None for row in rows)
    lines = []
    for row in rows:
        z = difference(row)
        deadline_cells = [f"{row['deadline']:.0f}"] if has_deadline else []
        columns = ("published", "ours", "standard_error", "over_graphs", "between_graphs")
        number_cells = [_number_text(row[column]) for column in columns]
        z_text = "" if np.isnan(z) else f"${z:+.1f}$"
        lines.append([str(row["num_blocks"]), row["scheme"], *deadline_cells, *number_cells, z_text])
    deadline_heads = ["Deadline"] if has_deadline else []
    heads = ["$L$", "Scheme", *deadline_heads, "Published", "Ours", "s.e.", "Graphs", "s.d.", "$z$"]
    return tex.tabular("@{}rl" + "r" * (len(heads) - 2) + "@{}", heads, lines)


def _number_text(value: float | None) -> str:
    """A cell with four significant digits; 0 for rounding, and empty where there is no number."""
    return "" if value is None else "0" if abs(value) < 1e-9 else f"{value:.4g}"


def exact(folder: Path) -> tuple[Macros, Tables]:
    """The macros and tables of completion times, beside what was published, and of random orders."""
    rows, run_facts = reproduction_rows(folder), json.loads((folder / "run.json").read_text())
    # For L = 1: best of how many draws -> float[orders], the mean completion time of each.
    times_of_draws = {
        order["draws"]: np.array(order["means"]) for order in run_facts["orders"] if order["num_blocks"] == 1
    }
    most_draws = max(times_of_draws)
    time_of_setting = {
        (row["setting"], row["scheme"]): row["ours"] for row in run_facts["summary"] if row["num_blocks"] == 1
    }
    time_of_scheme = {row["scheme"]: row["over_graphs"] for row in rows}
    macros = {
        "RepOrders": fixed(len(times_of_draws[2])),
        "RepDraws": fixed(most_draws),
        "RepOneDraw": f"{times_of_draws[1].mean():.3f}",
        "RepTwoDraws": f"{times_of_draws[2].mean():.3f}",
        "RepManyDraws": f"{times_of_draws[most_draws].mean():.3f}",
        "RepOrderSpread": f"{times_of_draws[2].std(ddof=1):.3f}",
        "RepOriginalTime": f"{time_of_scheme['original']:.2f}",
        "RepPartialTime": f"{time_of_scheme['partial']:.2f}",
        "RepClaimedRatio": "2",
        "RepRatio": f"{time_of_scheme['original'] / time_of_scheme['partial']:.2f}",
        "RepCyclicFailed": f"{time_of_setting['cyclic', 'original']:.2f}",
        "RepCyclicNone": f"{time_of_setting['cyclic, nobody fails', 'original']:.2f}",
    }
    return macros, {"completion": _reproduction_table(rows)}
