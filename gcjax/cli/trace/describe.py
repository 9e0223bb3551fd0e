"""The command `gcjax trace describe`."""

import argparse
from typing import Any

from gcjax import files
from gcjax.cli import out_files
from gcjax.cli.trace import trace_file


def add(commands: Any) -> None:
    """Adds `gcjax trace describe`."""
    parser = commands.add_parser(
        "describe", help="say who is slow, since when, whether it passes, and what it costs",
        description="One sentence first: who is slow, since when, whether it stays, and what share of the time it "
        "costs. Then the figures.",
    )  # fmt: skip
    trace_file.add_options(parser)
    parser.add_argument(
        "--heat-map", metavar="FILE",
        help="write a figure of all times, steps by workers, new or empty: .png, .pdf or .svg",
    )  # fmt: skip
    parser.set_defaults(command=command, name_of_command="trace describe")


def command(options: argparse.Namespace) -> None:
    """`gcjax trace describe`: prints what a trace says, the verdict first; draws it if asked to."""
    from gcjax.cli.trace import description_json, description_tables
    from gcjax.progress import console
    from gcjax.stragglers import describe

    if options.heat_map is not None:
        files.check_figure_ending(options.heat_map, "--heat-map")
        out_files.check_new_file("--heat-map", options.heat_map)
    trace = trace_file.trace_of_options(options)
    description = describe(trace)
    if options.heat_map is not None:
        from gcjax.analysis.heat_map import write_heat_map

        with files.os_errors_as_value_error("--heat-map must be a file", options.heat_map):
            write_heat_map(trace, options.heat_map)
    if options.json:
        options.result = {"files": options.files, **description_json.whole_description_json(description)}
    else:
        for part in description_tables.printed_parts(description):
            console().print(part, highlight=False)
    if options.heat_map is not None:
        console().print(f"Figure written to {options.heat_map}", markup=False, highlight=False, soft_wrap=True)
