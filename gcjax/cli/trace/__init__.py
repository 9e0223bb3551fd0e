"""The commands `gcjax trace ...`: what measured times say, a file for each."""

from typing import Any

from gcjax.cli.trace import advise, describe, fit


def add(commands: Any) -> None:
    """Adds `gcjax trace` and its commands."""
    parser = commands.add_parser(
        "trace", help="say what measured times of a job mean: who is slow, since when, what it costs"
    )
    trace_commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (describe, fit, advise):
        command.add(trace_commands)
