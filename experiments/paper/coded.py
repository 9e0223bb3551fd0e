"""Numbers and tables of the codes: all of them side by side, and the partial-straggler paper."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper import tex
from experiments.paper.macros import ROOT, Macros, binding, fixed, significant
from experiments.paper.trained import Table
from gcjax import files

MODELS = ("constant speeds, exponential", "Markov slow spells", "Pareto, independent")
"""The straggler models of the comparison of codes."""

EXACT = 1e-3
"""Relative errors up to it are rounding."""


def code_rows(folder: Path) -> list[dict[str, Any]]:
    """A row for each code."""
    rows: list[dict[str, Any]] = files.read_table(folder / "codes.parquet").to_pylist()
    return rows


def codes(folder: Path) -> tuple[Macros, Table]:
    """Of all codes on the same workers."""
    rows, facts = code_rows(folder), json.loads((folder / "run.json").read_text())
    by_name = {row["code"]: row for row in rows}
    times = {name: [row[f"{model} time"] for model in MODELS] for name, row in by_name.items()}
    macros = {
        "CodesWorkers": binding(ROOT / "configs/codes.gin", "n"),
        "CodesStragglers": fixed(facts["num_stragglers"]),
        "CodesLoad": binding(ROOT / "configs/codes.gin", "load"),
        "CodesTrials": fixed(facts["num_trials"]),
        "CodesMasks": fixed(facts["num_masks"]),
        "CodesCount": fixed(len(rows)),
        "CodesUncodedTime": f"{times['uncoded'][0]:.2f}",
        "CodesPartialTime": f"{times['partial, L=1'][0]:.2f}",
        "CodesMessagesTime": f"{times['UC-MMC'][0]:.2f}",
        "CodesMessagesSent": significant(by_name["UC-MMC"]["sent"]),
        "CodesCrcTime": f"{times['CRC'][0]:.2f}",
        "CodesCrcWorst": significant(by_name["CRC"]["worst_condition"]),
        "CodesCrcBfloat": significant(by_name["CRC"]["bfloat16_error"], 2),
        "CodesHalfSent": significant(by_name["partial, L=2"]["sent"]),
        "CodesHalfTime": f"{times['partial, L=2'][0]:.2f}",
        "CodesNever": fixed(sum(bool(np.isnan(each).all()) for each in times.values())),
    }
    heads = ["Code", "Load", "Sent", "Mean", "Largest", "Constant", "Slow spells", "Pareto", "Typical", "Worst"]
    above = [
        r" & & & \multicolumn{2}{c}{error} & \multicolumn{3}{c}{time to an exact sum}"
        r" & \multicolumn{2}{c}{condition} \\"
    ]
    return macros, {"codes": tex.tabular("@{}lrrrrrrrrr@{}", heads, [_code_row(row) for row in rows], above=above)}


def _code_row(row: dict[str, Any]) -> list[str]:
    """The cells of one code."""
    errors = ["exact" if row[name] <= EXACT else f"{row[name]:.2g}" for name in ("mean_error", "worst_error")]
    times = ["never" if np.isnan(row[f"{model} time"]) else f"{row[f'{model} time']:.2f}" for model in MODELS]
    conditions = [significant(row[name]) for name in ("typical_condition", "worst_condition")]
    return [tex.escape(row["code"]), f"{row['load']:.3g}", f"{row['sent']:.3g}", *errors, *times, *conditions]


def reproduction_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a reproduction that have a published figure."""
    summary: list[dict[str, Any]] = json.loads((folder / "run.json").read_text())["summary"]
    return [row for row in summary if row["published"] is not None]


def difference(row: dict[str, Any]) -> float:
    """z: ours less published, in standard deviations of that difference; NaN where nothing differs."""
    from experiments.partial_stragglers.report import Row

    values: dict[str, Any] = {name: float("nan") if value is None else value for name, value in row.items()}
    return Row(**values).difference


def approximate(folder: Path) -> tuple[Macros, Table]:
    """Of the error against the deadline, beside what was published."""
    rows, facts = reproduction_rows(folder), json.loads((folder / "run.json").read_text())
    shown = [row for row in rows if row["published"] or row["ours"] > EXACT]
    original = [row for row in rows if row["scheme"] == "original"]
    late = max(original, key=lambda row: row["deadline"])
    sizes = [abs(z) for z in map(difference, shown) if np.isfinite(z)]
    macros = {
        "RepWorkers": binding(ROOT / "configs/partial_stragglers/approximate.gin", "g1/random_regular.num_workers"),
        "RepLoad": binding(ROOT / "configs/partial_stragglers/approximate.gin", "random_regular.load"),
        "RepFailed": fixed(facts["num_failed"]),
        "RepTrials": fixed(facts["num_trials"]),
        "RepGraphs": fixed(facts["num_graphs"]),
        "RepCompared": fixed(len(shown)),
        "RepLargestZ": fixed(max(sizes), 1),
        "RepLateDeadline": fixed(late["deadline"]),
        "RepLatePublished": f"{late['published']:.3f}",
        "RepLateOurs": f"{late['over_graphs']:.3f}",
        "RepLateBetween": f"{late['between_graphs']:.3f}",
        "RepLateError": f"{late['trials_error']:.3f}",
    }
    return macros, {"errors": _reproduction_table(shown)}


def _reproduction_table(rows: list[dict[str, Any]]) -> str:
    """Published, ours, and how they differ; a line for each mean."""
    has_deadline = any(row["deadline"] is not None for row in rows)
    lines = []
    for row in rows:
        z = difference(row)
        label = [str(row["num_blocks"]), row["scheme"], *([f"{row['deadline']:.0f}"] if has_deadline else [])]
        values = [
            _value(row[name]) for name in ("published", "ours", "standard_error", "over_graphs", "between_graphs")
        ]
        lines.append([*label, *values, "" if np.isnan(z) else f"${z:+.1f}$"])
    heads = [
        "$L$",
        "Scheme",
        *(["Deadline"] if has_deadline else []),
        "Published",
        "Ours",
        "s.e.",
        "Graphs",
        "s.d.",
        "$z$",
    ]
    return tex.tabular("@{}rl" + "r" * (len(heads) - 2) + "@{}", heads, lines)


def _value(value: float | None) -> str:
    """A cell with four significant digits."""
    return "" if value is None else "0" if abs(value) < 1e-9 else f"{value:.4g}"


def exact(folder: Path) -> tuple[Macros, Table]:
    """Of completion times, beside what was published, and of random orders."""
    rows, facts = reproduction_rows(folder), json.loads((folder / "run.json").read_text())
    orders = {order["draws"]: np.array(order["means"]) for order in facts["orders"] if order["num_blocks"] == 1}
    cyclic = {
        (row["setting"], row["scheme"]): row["ours"] for row in facts["summary"] if row["num_blocks"] == 1
    }  # fmt: skip
    by_scheme = {row["scheme"]: row for row in rows}
    macros = {
        "RepOrders": fixed(len(orders[2])),
        "RepDraws": fixed(max(orders)),
        "RepOneDraw": f"{orders[1].mean():.3f}",
        "RepTwoDraws": f"{orders[2].mean():.3f}",
        "RepManyDraws": f"{orders[max(orders)].mean():.3f}",
        "RepOrderSpread": f"{orders[2].std(ddof=1):.3f}",
        "RepOriginalTime": f"{by_scheme['original']['over_graphs']:.2f}",
        "RepPartialTime": f"{by_scheme['partial']['over_graphs']:.2f}",
        "RepClaimedRatio": "2",
        "RepRatio": f"{by_scheme['original']['over_graphs'] / by_scheme['partial']['over_graphs']:.2f}",
        "RepCyclicFailed": f"{cyclic['cyclic', 'original']:.2f}",
        "RepCyclicNone": f"{cyclic['cyclic, nobody fails', 'original']:.2f}",
    }
    return macros, {"completion": _reproduction_table(rows)}
