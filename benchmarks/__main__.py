"""Benchmarks: ratios of two things measured in one process, the median of several alternating repetitions.

Run all with `make bench`, or some with `python -m benchmarks plan bsp`. The figures of this machine are kept in
`benchmarks/results`, with the date and the versions; a run of some benchmarks replaces theirs only.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import rich

from benchmarks import results
from benchmarks.accelerator import accelerator, test_suite
from benchmarks.advice import what_if
from benchmarks.algebra import algebra
from benchmarks.by_hand import by_hand
from benchmarks.codes import large_plans, plan_masks, roofline
from benchmarks.engine import asp_commits, bsp_rounds, demo, second_run
from benchmarks.memory import memory
from benchmarks.network import network
from benchmarks.partial import reproduction
from benchmarks.pods import pods
from benchmarks.protocols import python_loop, schedules, seeds, training
from benchmarks.replay import replays
from benchmarks.server import server
from benchmarks.timing import Row, rows_of_child
from benchmarks.traces import traces
from benchmarks.watch import watching
from gcjax import tables


def on_mesh() -> list[Row]:
    """Coded steps and wavefronts on eight CPU devices, in a process of its own."""
    return rows_of_child("benchmarks.mesh")


BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "asp": asp_commits,
    "bsp": bsp_rounds,
    "plan": plan_masks,
    "large": large_plans,
    "roofline": roofline,
    "reproduction": reproduction,
    "schedules": schedules,
    "training": training,
    "by_hand": by_hand,
    "python": python_loop,
    "seeds": seeds,
    "algebra": algebra,
    "recompilation": second_run,
    "memory": memory,
    "mesh": on_mesh,
    "pods": pods,
    "server": server,
    "network": network,
    "traces": traces,
    "advice": what_if,
    "watch": watching,
    "replay": replays,
    "demo": demo,
    "accelerator": accelerator,
    "tests": test_suite,
}


def main() -> None:
    """Runs the benchmarks named on the command line, all by default; prints their table and keeps it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="benchmarks to run; all by default")
    parser.add_argument("--folder", type=Path, default=results.FOLDER, help="of the results (%(default)s)")
    arguments = parser.parse_args()
    machine = results.machine()
    table_lines = []
    for name in arguments.names or BENCHMARKS:
        rows = BENCHMARKS[name]()
        results.save(arguments.folder, machine, name, rows, order=list(BENCHMARKS))
        results.write_page(arguments.folder)  # now, since a later benchmark may be cut off
        table_lines += [results.row_cells(row) for row in rows]
    rich.print(tables.RichTable(machine, results.HEADS, table_lines, left_heads=["aim", "compared with", "note"]))


if __name__ == "__main__":
    main()
