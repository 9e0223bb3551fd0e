"""Words that depend on a number."""


def counted(number: int, noun: str) -> str:
    """A number with thousands set apart and its noun, which takes an s unless there is one of it."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
