"""Warnings as a command prints them."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def print_warnings() -> Iterator[None]:
    """Prints the warnings of the block on stderr, a line each, without the place in the code."""
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in recorded:
        _print_line(warning.message)


@contextlib.contextmanager
def print_warnings_at_once() -> Iterator[None]:
    """As `print_warnings`, but each as it comes, and no text twice: for a block that takes long."""
    printed_texts = set()
    show_otherwise = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
        """Prints a warning for users that is new; one of another kind is shown as before."""
        if not issubclass(category, UserWarning):
            show_otherwise(message, category, *place, **options)
        elif str(message) not in printed_texts:
            printed_texts.add(str(message))
            _print_line(message)

    with warnings.catch_warnings():  # which restores `showwarning`, too
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def _print_line(message: Warning | str) -> None:
    """Prints a warning on stderr."""
    print(f"gcjax: warning: {message}", file=sys.stderr)
