"""What the modules that a config imports raise, in words."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from gcjax.config import errors

_IMPORT = re.compile(r"\s*(?:import|from)\s+(?P<module>[\w.]+)")


@contextmanager
def importable() -> Iterator[None]:
    """Reraises whatever ends an import as a `ValueError` that names the module and the line.

    A module that is not there or is no Python, and what it says itself in a `ValueError`, is left to `_gin_errors`.
    """
    try:
        yield
    except SystemExit as error:
        raise ValueError(
            f"A module that a config imports must not end the process; {_line_of(error)} does. Take it out there."
        ) from error
    except Exception as error:
        name = _module(error)
        if name is None or isinstance(error, (SyntaxError, ValueError, RecursionError)) or _is_missing(error):
            raise
        raise ValueError(
            f"{name} must be a module that can be imported; it ends with {type(error).__name__}: "
            f"{errors.first_line(error)} Mend {_line_of(error)}.{errors.place_of(str(error))}"
        ) from error


def _module(error: Exception) -> str | None:
    """The module that was being imported, if it was one."""
    place = errors.PLACE.search(str(error))
    statement = place and _IMPORT.match(place["text"])
    return statement["module"] if statement else None


def _is_missing(error: Exception) -> bool:
    return isinstance(error, ModuleNotFoundError) and errors.explanation(str(error)) is not None


def _line_of(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"line {frame.lineno} of {frame.filename}"
