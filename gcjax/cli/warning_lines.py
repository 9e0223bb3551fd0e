"""Warnings as a command prints them."""

import contextlib
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def print_warnings() -> Iterator[None]:
    """Prints the warnings of the block on stderr, a line each, without the place in the code."""
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in recorded:
        print(f"gcjax: warning: {warning.message}", file=sys.stderr)
