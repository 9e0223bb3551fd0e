"""Words that depend on a number."""

from collections.abc import Sequence

RAISED_IN = "This was raised in "
"""How the notes of gcjax on errors of somebody's function begin."""


def counted(number: int, noun: str) -> str:
    """A number with thousands set apart and its noun, which takes an s unless there is one of it."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def text_list(texts: Sequence[str], num_in_all: int) -> str:
    """Texts with commas, the last with "and"; or with how many more there are in all, if these are not all."""
    if num_in_all > len(texts):
        return f"{', '.join(texts)} and {num_in_all - len(texts):,} more"
    return texts[0] if num_in_all == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
