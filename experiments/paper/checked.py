"""Numbers and tables of what is checked and timed: identities, wavefronts, promises, speed."""

from itertools import zip_longest
from typing import Any

from experiments.paper import tex
from experiments.paper.macros import Macros, fixed
from experiments.paper.trained import Table
from gcjax import registry

Result = dict[str, Any]


def identities(result: Result) -> tuple[Macros, Table]:
    """Of protocols that are another protocol for some of their parameters."""
    rows = result["rows"]
    macros = {
        "IdentityCount": fixed(len(rows)),
        "IdentityWorkers": fixed(result["workers"]),
        "IdentityUnits": fixed(result["units"]),
        "IdentityDraws": fixed(rows[0]["draws"]),
        "IdentityFailed": fixed(sum(row["draws"] - row["held"] for row in rows)),
    }
    lines = [[tex.escape(r["name"]), f"{r['held']} of {r['draws']}", _gap(r["largest"])] for r in rows]
    return macros, {"identities": tex.tabular("@{}lrr@{}", ["Identity", "Held", "Largest difference"], lines)}


def _gap(value: float) -> str:
    """A difference of times."""
    return "0" if value == 0 else rf"${value:.0e}$"


def wavefronts(result: Result) -> tuple[Macros, Table]:
    """Of the gradients that can be computed at once."""
    by_name = {row["name"]: row for row in result["rows"]}
    macros = {
        "WaveWorkers": fixed(result["workers"]),
        "WaveUnits": fixed(result["units"]),
        "WaveAspWidth": f"{by_name['ASP']['width']:.1f}",
        "WaveSspWidth": f"{by_name['SSP(3)']['width']:.1f}",
        "WaveAspVersions": fixed(by_name["ASP"]["versions"]),
        "WaveGroupVersions": fixed(by_name["groups of four"]["versions"]),
    }
    lines = [
        [tex.escape(r["name"]), fixed(r["commits"]), fixed(r["gradients"]), fixed(r["wavefronts"]), f"{r['width']:.1f}",
         f"{r['staleness']:.1f}", fixed(r["versions"])]
        for r in result["rows"]
    ]  # fmt: skip
    heads = ["Protocol", "Commits", "Gradients", "Wavefronts", "Width", "Staleness", "Versions"]
    return macros, {"wavefronts": tex.tabular("@{}lrrrrrr@{}", heads, lines)}


def specifications(result: Result) -> tuple[Macros, Table]:
    """Of the specifications, each on a small instance."""
    rows = result["rows"]
    eager = next(row for row in rows if row["name"] == "worker_busy_eager")
    large = result["large"]["eight workers"]
    macros = {
        "SpecFewest": fixed(min(row["workers"] for row in rows)),
        "SpecMost": fixed(max(row["workers"] for row in rows)),
        "SpecChecked": fixed(len(rows)),
        "SpecHold": fixed(sum(row["holds"] for row in rows)),
        "SpecBroken": fixed(sum(not row["holds"] for row in rows)),
        "SpecComposed": fixed(sum(row["by_composition"] for row in rows)),
        "SpecEagerSteps": fixed(eager["steps"]),
        "SpecLargeWorkers": fixed(large["workers"]),
        "SpecLargeStates": fixed(large["product"]),
    }
    cells = [[rf"\texttt{{{tex.escape(row['name'])}}}", *_spec_cells(row)] for row in rows]
    half = -(-len(cells) // 2)
    lines = [[*left, *right] for left, right in zip_longest(cells[:half], cells[half:], fillvalue=[""] * 4)]
    heads = ["Specification", "Alone", "Together", "Verdict"]
    return macros, {"specifications": tex.tabular("@{}lrrl@{\\qquad}lrrl@{}", heads * 2, lines)}


def _spec_cells(row: Result) -> list[str]:
    """The cells of a specification."""
    verdict = "holds" if row["holds"] else f"fails, {row['steps']} steps"
    return [*(fixed(row[name]) for name in ("alone", "product")), verdict]


def laws(result: Result) -> tuple[Macros, Table]:
    """Of the laws of the algebra on random commands."""
    return {
        "LawStates": fixed(result["states"]),
        "LawSteps": fixed(result["steps"]),
        "LawInstances": fixed(result["instances"]),
        "LawHold": fixed(result["hold"]),
        "LawRefuted": fixed(result["refuted"]),
        "LawReach": fixed(result["out_of_reach"]),
        "LawUnexpected": fixed(result["unexpected"]),
    }, {}


SORTS = {"newer version": "Newer version", "missing": "Missing", "early": "Early", "swapped": "Swapped"}
"""Sort of damage -> the head of its column."""


def validation(result: Result) -> tuple[Macros, Table]:
    """Of runs held against their promises, and of damaged records."""
    rows = result["rows"]
    caught = {sort: [sum(row[sort][i] for row in rows) for i in (0, 1)] for sort in SORTS}
    total = [sum(each[i] for each in caught.values()) for i in (0, 1)]
    macros = {
        "ValidWorkers": fixed(result["workers"]),
        "ValidProtocols": fixed(len(rows)),
        "ValidKept": fixed(sum(row["keeps"] for row in rows)),
        "ValidDamaged": fixed(total[1]),
        "ValidCaught": fixed(total[0]),
        "ValidMissed": fixed(total[1] - total[0]),
        "ValidExplained": fixed(sum(row["explained"] for row in rows)),
        "ValidPerSort": fixed(rows[0]["early"][1]),
    }
    lines = [
        [tex.escape(r["name"]), fixed(r["events"]), "yes" if r["keeps"] else "no", *(f"{r[s][0]}" for s in SORTS)]
        for r in rows
    ]
    heads = ["Protocol", "Steps", "Keeps", *SORTS.values()]
    return macros, {"validation": tex.tabular("@{}lrlrrrr@{}", heads, lines)}


def speed(result: Result) -> tuple[Macros, Table]:
    """Of ratios of two things in one process."""
    asp, bsp, loop, second = (row["value"] for row in result["rows"])
    return {"SpeedAsp": asp, "SpeedBsp": bsp, "SpeedLoop": loop, "SpeedCompiled": second}, {}


def schedule_speed(result: Result) -> tuple[Macros, Table]:
    """Of schedules alone."""
    (small, first), *_, (large, last) = result["growth"]
    units = result["workers"] * result["units"]
    return {
        "SpeedWorkers": fixed(result["workers"]),
        "SpeedUnits": fixed(result["units"]),
        "SpeedSchedule": f"{result['seconds']:.2f}",
        "SpeedUnit": fixed(1e9 * result["seconds"] / units),
        "SpeedQueueSmall": fixed(small),
        "SpeedQueueFirst": f"{first:.1f}",
        "SpeedQueueLarge": fixed(large),
        "SpeedQueueLast": f"{last:.1f}",
    }, {}


def validation_speed(result: Result) -> tuple[Macros, Table]:
    """Of a long schedule held against its promise."""
    return {
        "SpeedCheckWorkers": fixed(result["workers"]),
        "SpeedCheckUnits": fixed(result["units"]),
        "SpeedCheckEvents": fixed(result["events"]),
        "SpeedCheck": f"{result['seconds']:.2f}",
    }, {}


def registered() -> Macros:
    """How many schemes of each sort there are."""
    names = {"Codes": "code", "Assignments": "assignment", "Protocols": "protocol", "Specifications": "specification",
             "Stragglers": "straggler"}  # fmt: skip
    kinds = registry.own_kinds()
    return {f"Num{name}": fixed(len(kinds[kind].entries)) for name, kind in names.items()}
