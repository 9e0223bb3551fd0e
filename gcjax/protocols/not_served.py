"""The rule of a protocol that no server runs."""

from collections.abc import Callable
from typing import NoReturn


def not_served(why: str) -> Callable[[int], NoReturn]:
    """The `rule` of a protocol that no server can run: called for so many workers, it raises `ValueError(why)`."""

    def rule(num_workers: int) -> NoReturn:
        """Raises the error."""
        del num_workers
        raise ValueError(why)

    return rule
