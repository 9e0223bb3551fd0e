"""What a command says of an error that nobody foresaw: a few lines, unless everything is asked for."""

import argparse
import os
import traceback

from gcjax.wording import RAISED_IN

_MAX_MESSAGE_CHARACTERS = 300
_GIN_CALL_SUFFIX = "\n  In call to configurable "


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--traceback` to a command's parser; only commands that have it promise to put all errors in words."""
    parser.add_argument("--traceback", action="store_true", help="show all of an error (or set GCJAX_TRACEBACK=1)")


def is_traceback_wanted(flag: bool) -> bool:
    """Whether everything is to be shown, by the option --traceback or by the environment."""
    return flag or os.environ.get("GCJAX_TRACEBACK", "") not in ("", "0")


def own_notes(error: Exception) -> list[str]:
    """Lines with the notes of gcjax on an error, in whose function it was raised; JAX has notes of its own."""
    notes = getattr(error, "__notes__", [])
    return [f"  {note[:_MAX_MESSAGE_CHARACTERS]}" for note in notes if note.startswith(RAISED_IN)]


def lines(error: Exception) -> str:
    """A few lines of text: the error, the function of the config, the line of code, how to see everything.

    gin appends a line to the message for each configurable that was being called, the innermost first.
    """
    message, *gin_calls = str(error).split(_GIN_CALL_SUFFIX)
    first_line = (message.strip().splitlines() or ["without a message"])[0]
    configurables = [call.split("'")[1] for call in gin_calls if call.count("'") > 1]  # the innermost first
    frames = traceback.extract_tb(error.__traceback__)  # the innermost last
    lines = [f"gcjax: unexpected {type(error).__name__}: {first_line[:_MAX_MESSAGE_CHARACTERS]}"]
    lines += own_notes(error)
    if configurables:
        innermost_configurable = configurables[0]
        lines.append(f"  (in {innermost_configurable} of the config)")
    if frames:
        innermost_frame = frames[-1]
        lines.append(f"  (at {innermost_frame.filename} line {innermost_frame.lineno})")
    lines.append("  Nobody foresaw this. The option --traceback, or GCJAX_TRACEBACK=1, shows all of it.")
    return "\n".join(lines)
