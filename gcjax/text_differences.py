"""In what two texts differ, for an error."""

import difflib

MAX_LINES = 20


def differing_lines(text: str, other_text: str, name: str, other_name: str) -> list[str]:
    """The two names, and the lines that differ: those of the first text begin with -, those of the other with +.

    Of more than `MAX_LINES` the last one says how many are left out.
    """
    unified_diff = difflib.unified_diff(text.splitlines(), other_text.splitlines(), name, other_name, n=0, lineterm="")
    lines = [line for line in unified_diff if not line.startswith("@@")]  # the positions
    num_left_out = len(lines) - MAX_LINES
    return [*lines[:MAX_LINES], f"... and {num_left_out} more lines"] if num_left_out > 0 else lines
