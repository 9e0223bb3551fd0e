"""The table of everything that a user can name: assignments, codes, stopping rules, protocols, ...

Each subpackage lists its own entries in its `__init__`; nothing here knows a code or a protocol by name.
"""

import difflib
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, NamedTuple

_TABLES = {
    "assignment": ("gcjax.codes", "ASSIGNMENTS"),
    "code": ("gcjax.codes", "TABLE"),
    "stopping": ("gcjax.codes", "STOPPING"),
    "deadline": ("gcjax.engine.live", "TABLE"),
    "protocol": ("gcjax.protocols", "TABLE"),
    "groups": ("gcjax.protocols", "GROUPS"),
    "specification": ("gcjax.algebra.specifications", "SPECIFICATIONS"),
    "straggler": ("gcjax.stragglers", "TABLE"),
    "task": ("gcjax.tasks", "TABLE"),
}

_NOT_IN_CONFIGS = ("specification",)  # they are named as the protocols


class Entry(NamedTuple):
    """One thing that a user can name.

    Attributes:
      factory: the function that makes it.
      paper: where it comes from (authors, year); empty if it is nobody's in particular.
    """

    factory: Callable[..., Any]
    paper: str = ""

    @property
    def summary(self) -> str:
        """The first line of the factory's docstring."""
        return (self.factory.__doc__ or "").strip().partition("\n")[0]


class Kind(NamedTuple):
    """The entries of one sort.

    Attributes:
      module: the module in whose name they are known, in Python and in config files.
      entries: name -> entry.
      in_configs: whether config files can name them.
    """

    module: str
    entries: dict[str, Entry]
    in_configs: bool = True


def kinds() -> dict[str, Kind]:
    """All entries by kind; the subpackages are imported only now, since they import `Entry` from here."""
    return {
        name: Kind(module, getattr(import_module(module), table), name not in _NOT_IN_CONFIGS)
        for name, (module, table) in _TABLES.items()
    }


def select(name: str | None = None) -> dict[str, Kind]:
    """All kinds, or the one of this name.

    Raises:
      ValueError: if there is no such kind.
    """
    everything = kinds()
    if name is None:
        return everything
    if name not in everything:
        raise ValueError(f"There is no kind '{name}'. {nearest(name, everything)}")
    return {name: everything[name]}


def nearest(name: str, valid: Iterable[str]) -> str:
    """A sentence with the valid names that look most like `name`; all of them if none does."""
    names = sorted(set(valid))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"Known: {', '.join(names)}." if names else "There is none."
