"""Numbers and tables of what is checked and timed: identities, wavefronts, promises, speed."""

from itertools import zip_longest
from typing import Any

from experiments.paper.macros import Macros, fixed
from experiments.paper.trained import Tables
from gcjax import registry, tex

Result = dict[str, Any]


def identities(result: Result) -> tuple[Macros, Tables]:
    """The macros and tables of protocols that are another protocol for some of their parameters."""
    rows = result["rows"]
    macros = {
        "IdentityCount": fixed(len(rows)),
        "IdentityWorkers": fixed(result["workers"]),
        "IdentityUnits": fixed(result["units"]),
        "IdentityDraws": fixed(rows[0]["draws"]),
        "IdentityFailed": fixed(sum(row["draws"] - row["held"] for row in rows)),
    }
    lines = [
        [tex.escape(row["name"]), f"{row['held']} of {row['draws']}", _difference_text(row["largest"])] for row in rows
    ]
    return macros, {"identities": tex.tabular("@{}lrr@{}", ["Identity", "Held", "Largest difference"], lines)}


def _difference_text(difference: float) -> str:
    """A relative difference of times, in LaTeX."""
    return "0" if difference == 0 else rf"${difference:.0e}$"


def wavefronts(result: Result) -> tuple[Macros, Tables]:
    """The macros and tables of the gradients that can be computed at once: wavefronts, and their mean width."""
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
        [tex.escape(row["name"]), fixed(row["commits"]), fixed(row["gradients"]), fixed(row["wavefronts"]),
         f"{row['width']:.1f}", f"{row['staleness']:.1f}", fixed(row["versions"])]
        for row in result["rows"]
    ]  # fmt: skip
    heads = ["Protocol", "Commits", "Gradients", "Wavefronts", "Width", "Staleness", "Versions"]
    return macros, {"wavefronts": tex.tabular("@{}lrrrrrr@{}", heads, lines)}


def specifications(result: Result) -> tuple[Macros, Tables]:
    """The macros and tables of the specifications, each on a small instance; the table is in two halves."""
    rows = result["rows"]
    eager_worker_busy = next(row for row in rows if row["name"] == "worker_busy_eager")
    large_instance = result["large"]["eight workers"]
    macros = {
        "SpecFewest": fixed(min(row["workers"] for row in rows)),
        "SpecMost": fixed(max(row["workers"] for row in rows)),
        "SpecChecked": fixed(len(rows)),
        "SpecHold": fixed(sum(row["holds"] for row in rows)),
        "SpecBroken": fixed(sum(not row["holds"] for row in rows)),
        "SpecComposed": fixed(sum(row["by_composition"] for row in rows)),
        "SpecEagerSteps": fixed(eager_worker_busy["steps"]),
        "SpecLargeWorkers": fixed(large_instance["workers"]),
        "SpecLargeStates": fixed(large_instance["product"]),
    }
    heads = ["Specification", "Alone", "Together", "Verdict"]
    lines = [[rf"\texttt{{{tex.escape(row['name'])}}}", *_spec_cells(row)] for row in rows]
    num_lines_of_left_half = -(-len(lines) // 2)
    left_lines, right_lines = lines[:num_lines_of_left_half], lines[num_lines_of_left_half:]
    empty_line = [""] * len(heads)
    lines = [
        [*left_cells, *right_cells]
        for left_cells, right_cells in zip_longest(left_lines, right_lines, fillvalue=empty_line)
    ]
    return macros, {"specifications": tex.tabular("@{}lrrl@{\\qquad}lrrl@{}", heads * 2, lines)}


def _spec_cells(row: Result) -> list[str]:
    """The cells of a specification: states of a worker alone and of all together, and the verdict.

    The steps are those of a counterexample.
    """
    verdict = "holds" if row["holds"] else f"fails, {row['steps']} steps"
    return [*(fixed(row[name]) for name in ("alone", "product")), verdict]


def laws(result: Result) -> tuple[Macros, Tables]:
    """The macros of the laws of the algebra on random commands; no table."""
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


def validation(result: Result) -> tuple[Macros, Tables]:
    """The macros and tables of runs held against their promises, and of damaged records."""
    rows = result["rows"]
    caught_and_damaged = [row[sort] for sort in SORTS for row in rows]  # a pair of numbers for each
    num_caught = sum(caught for caught, _ in caught_and_damaged)
    num_damaged = sum(damaged for _, damaged in caught_and_damaged)
    _, damaged_per_sort = rows[0]["early"]
    macros = {
        "ValidWorkers": fixed(result["workers"]),
        "ValidProtocols": fixed(len(rows)),
        "ValidKept": fixed(sum(row["keeps"] for row in rows)),
        "ValidDamaged": fixed(num_damaged),
        "ValidCaught": fixed(num_caught),
        "ValidMissed": fixed(num_damaged - num_caught),
        "ValidPerSort": fixed(damaged_per_sort),
    }
    lines = []
    for row in rows:
        caught_cells = [f"{caught}" for caught, _ in (row[sort] for sort in SORTS)]
        keeps = "yes" if row["keeps"] else "no"
        lines.append([tex.escape(row["name"]), fixed(row["events"]), keeps, *caught_cells])
    heads = ["Protocol", "Steps", "Keeps", *SORTS.values()]
    return macros, {"validation": tex.tabular("@{}lrlrrrr@{}", heads, lines)}


def speed(result: Result) -> tuple[Macros, Tables]:
    """The macros of the speed: ratios of two things in one process, as text, in the order of the rows; no table."""
    asp_ratio, bsp_ratio, loop_ratio, compiled_ratio = (row["value"] for row in result["rows"])
    return {
        "SpeedAsp": asp_ratio,
        "SpeedBsp": bsp_ratio,
        "SpeedLoop": loop_ratio,
        "SpeedCompiled": compiled_ratio,
    }, {}


def schedule_speed(result: Result) -> tuple[Macros, Tables]:
    """The macros of the speed of schedules alone, in processor time; no table.

    `growth`: (workers, microseconds a unit), the fewest workers first; `seconds`: of one schedule of all units.
    """
    (fewest_workers, first_microseconds), *_, (most_workers, last_microseconds) = result["growth"]
    units_of_all_workers = result["workers"] * result["units"]
    nanoseconds_per_unit = 1e9 * result["seconds"] / units_of_all_workers
    return {
        "SpeedWorkers": fixed(result["workers"]),
        "SpeedUnits": fixed(result["units"]),
        "SpeedSchedule": f"{result['seconds']:.2f}",
        "SpeedUnit": fixed(nanoseconds_per_unit),
        "SpeedQueueSmall": fixed(fewest_workers),
        "SpeedQueueFirst": f"{first_microseconds:.1f}",
        "SpeedQueueLarge": fixed(most_workers),
        "SpeedQueueLast": f"{last_microseconds:.1f}",
    }, {}


def validation_speed(result: Result) -> tuple[Macros, Tables]:
    """The macros of how long a long schedule takes to hold against its promise; no table."""
    return {
        "SpeedCheckWorkers": fixed(result["workers"]),
        "SpeedCheckUnits": fixed(result["units"]),
        "SpeedCheckEvents": fixed(result["events"]),
        "SpeedCheck": f"{result['seconds']:.2f}",
    }, {}


def registered() -> Macros:
    """How many schemes of each sort there are."""
    kind_of_macro = {
        "NumCodes": "code", "NumAssignments": "assignment", "NumProtocols": "protocol",
        "NumSpecifications": "specification", "NumStragglers": "straggler",
    }  # fmt: skip
    kinds = registry.own_kinds()
    return {macro: fixed(len(kinds[kind].entries)) for macro, kind in kind_of_macro.items()}
