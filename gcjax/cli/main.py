"""The command line: run an experiment, list what can be named, rebuild a report, check a protocol.

Heavy modules are imported by the command that needs them, so that `gcjax --help` answers at once.
"""

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from gcjax import interrupts
from gcjax.cli import internal_errors, json_output, machine_errors
from gcjax.cli.parser import parser

INTERNAL_ERROR = 1
USER_ERROR = 2
OUTPUT_CLOSED = 141
"""As the shell says of a command that SIGPIPE ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status: 0, 1 if a check fails, or 2 if the user has to change something.

    An error that nobody foresaw is status 1, too, and a few lines; with `--traceback`, or GCJAX_TRACEBACK=1, any error
    comes with its traceback.

    A process of several ends with status 3 if another one was lost; see `gcjax.processes`. Ctrl-C ends the process with
    status 130, SIGTERM with 143, at any moment; see `gcjax.interrupts`.

    Args:
      arguments: of the command line; those of this process if None.
    """
    _open_closed_streams()
    with interrupts.end_on_signals(until_exit=arguments is None):
        options = parser().parse_args(arguments)
        if not internal_errors.is_traceback_wanted(getattr(options, "traceback", False)):
            machine_errors.shorten_plugin_errors()
        try:
            with json_output.print_result_at_end(options):
                status: int | None = options.command(options)
                sys.stdout.flush()
        except BrokenPipeError:
            return _status_of_closed_output()
        except Exception as error:
            return _status_after_printing(error, options)
        return status or 0


def _open_closed_streams() -> None:
    """Has stdout and stderr go nowhere if they were closed before the command began: Python has None for them then."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _status_of_closed_output() -> int:
    """The status, `OUTPUT_CLOSED`, of a command whose reader has had enough, as `head` has.

    What is still to be printed goes nowhere, or Python would complain at its end.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return OUTPUT_CLOSED


def _status_after_printing(error: Exception, options: argparse.Namespace) -> int:
    """Prints on stderr what went wrong and returns the exit status.

    A command without the option --traceback (then `options` has no `traceback`) lets unforeseen errors through.
    """
    if internal_errors.is_traceback_wanted(getattr(options, "traceback", False)):
        traceback.print_exception(error)
    sentence_for_user = machine_errors.explanation(error) or (str(error) if isinstance(error, ValueError) else None)
    if sentence_for_user is not None:
        print(f"gcjax: {sentence_for_user}", *internal_errors.own_notes(error), sep="\n", file=sys.stderr)
        return USER_ERROR
    if not hasattr(options, "traceback"):
        raise error
    print(internal_errors.lines(error), file=sys.stderr)
    return INTERNAL_ERROR
