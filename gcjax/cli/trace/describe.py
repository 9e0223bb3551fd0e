"""The command `gcjax trace describe`."""

import argparse
from typing import Any

from gcjax.cli.trace import trace_file


def add(commands: Any) -> None:
    """Adds `gcjax trace describe`."""
    parser = commands.add_parser(
        "describe", help="say who is slow, since when, whether it passes, and what it costs",
        description="One sentence first: who is slow, since when, whether it stays, and what share of the time it "
        "costs. Then the figures.",
    )  # fmt: skip
    trace_file.add_options(parser)
    parser.add_argument("--heat-map", metavar="FILE", help="write a figure of all times, steps by workers, as PNG")
    parser.set_defaults(command=command, name_of_command="trace describe")


def command(options: argparse.Namespace) -> None:
    """`gcjax trace describe`: prints what a trace says."""
    trace = trace_file.trace(options)
    print(f"{len(trace.steps)} steps of {len(trace.workers)} workers.")
    if options.json:
        options.result = {}
