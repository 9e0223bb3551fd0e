"""Warnings as a command prints them."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def print_warnings() -> Iterator[None]:
    """Prints the warnings of the block on stderr as they come, a line each, without the place; no text twice."""
    printed_texts = set()
    show_otherwise = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **options: Any) -> None:
        """Prints a warning for users that is new; one of another kind is shown as before."""
        if not issubclass(category, UserWarning):
            show_otherwise(message, category, *place, **options)
        elif str(message) not in printed_texts:
            printed_texts.add(str(message))
            print(f"gcjax: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():  # which restores `showwarning`, too
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
