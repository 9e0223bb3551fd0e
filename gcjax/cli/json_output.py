"""What scripts read: with `--json` a command prints one JSON object on stdout, and all else on stderr.

Every object has `command` (its name) and `gcjax` (the version). Numbers that are infinite or not a number are null.
A command that is refused prints no object, only its sentence on stderr.
"""

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gcjax


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--json` to a command's parser; the command puts what is to be printed into `options.result`."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, for scripts, and all else on stderr"
    )


@contextlib.contextmanager
def print_result_at_end(options: argparse.Namespace) -> Iterator[None]:
    """Runs a command in this block: with `--json` its prints go to stderr, and its result to stdout at the end."""
    is_json_wanted = getattr(options, "json", False)
    if not is_json_wanted:
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield
    result = getattr(options, "result", None)
    if result is not None:  # of several processes only the first has one
        command_and_version = {"command": options.name_of_command, "gcjax": gcjax.__version__}
        print(json.dumps(_as_json({**command_and_version, **result})))


def _as_json(value: Any) -> Any:
    """A value as JSON has it: no tuples, no numbers of NumPy, and null for what is infinite or not a number."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_as_json(item) for item in value]
    if hasattr(value, "tolist"):
        return _as_json(value.tolist())
    is_no_json_number = isinstance(value, float) and not math.isfinite(value)
    return None if is_no_json_number else value
