"""Plugins: modules of other packages that register schemes of their own, found by their entry points.

A package names its module under the group `gcjax.plugins`, in its `pyproject.toml`:

    [project.entry-points."gcjax.plugins"]
    my_schemes = "my_schemes"

The module is imported when the registry is first asked for its entries, not before.
"""

import sys
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from gcjax import registry

ENTRY_POINT_GROUP = "gcjax.plugins"

_problems: list[str] | None = None


def load() -> list[str]:
    """Imports the plugins, the first time that it is called; a broken one is left out, and stderr says so.

    Returns:
      A sentence for each plugin that is broken.
    """
    global _problems
    if _problems is None:
        _problems = []  # a plugin that asks for the entries itself sees those that there are so far
        # A folder may be on `sys.path` twice, and with it its plugins.
        distinct_entry_points = {
            (entry_point.name, entry_point.value): entry_point for entry_point in entry_points(group=ENTRY_POINT_GROUP)
        }
        sentences_or_none = map(_problem_of_import, distinct_entry_points.values())
        _problems += filter(None, sentences_or_none)
        for problem in _problems:
            print(f"gcjax: {problem}", file=sys.stderr)
    return _problems


def _problem_of_import(entry_point: EntryPoint) -> str | None:
    """Imports the module of one plugin; returns a sentence if it is broken, None if it is not."""
    package = f" of the package {entry_point.dist.name}" if entry_point.dist is not None else ""
    error_prefix = f"The plugin '{entry_point.name}'{package} is left out"
    if ":" in entry_point.value:
        return f"{error_prefix}: it must name a module, such as {entry_point.module}; got {entry_point.value}."
    earlier_entries = set(map(id, registry.outside_entries()))
    try:
        import_module(entry_point.module)
    except (Exception, SystemExit) as error:
        # Those of this import whose module has not been imported to its end.
        registry.remove_outside_entries(
            lambda entry: id(entry) not in earlier_entries and entry.factory.__module__ not in sys.modules
        )
        message = " ".join(str(error).split())
        reason = message if isinstance(error, ValueError) else f"{type(error).__name__}: {message}".rstrip(": ")
        return f"{error_prefix}: its module {entry_point.module} cannot be imported. {reason}"
    return None
