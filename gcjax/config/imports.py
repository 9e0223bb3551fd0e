"""What the modules that a config imports raise, in words."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from gcjax.config import errors

_IMPORT = re.compile(r"\s*(?:import|from)\s+(?P<module>[\w.]+)")


@contextmanager
def import_errors_in_words() -> Iterator[None]:
    """Reraises whatever ends an import as a `ValueError` that names the module and the line.

    A module that is missing or is no Python, and its own `ValueError`s, are left to `errors.errors_in_words`.
    """
    try:
        yield
    except SystemExit as error:
        raise ValueError(
            f"A module that a config imports must not end the process; {_raising_line(error)} does. Take it out there."
        ) from error
    except Exception as error:
        module = _imported_module(error)
        is_explained_elsewhere = isinstance(error, (SyntaxError, ValueError, RecursionError)) or (
            isinstance(error, ModuleNotFoundError) and errors.explanation(str(error)) is not None
        )
        if module is None or is_explained_elsewhere:
            raise
        raise ValueError(
            f"{module} must be a module that can be imported; it ends with {type(error).__name__}: "
            f"{errors.first_line(error)} Mend {_raising_line(error)}.{errors.config_place_text(str(error))}"
        ) from error


def _imported_module(error: Exception) -> str | None:
    """The module that a config was importing, by the line of the config in gin's message; None for another line."""
    place = errors.PLACE.search(str(error))
    statement = place and _IMPORT.match(place["text"])
    return statement["module"] if statement else None


def _raising_line(error: BaseException) -> str:
    """The line of code that raised an error, in words."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"line {frame.lineno} of {frame.filename}"
