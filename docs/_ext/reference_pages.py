"""The pages of the API reference: one for each public module, made of its `__all__`. Needs no Sphinx.

A name that several modules export stands on the page of the innermost one. A module inside of another one is a link
to its own page.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import gcjax
from gcjax.registry import Entry

CONSTANTS = {
    "CHECKPOINTS": "The folder of checkpoints inside the folder of a run.",
    "LAWS": "All laws of the algebra.",
    "LOST": "The status of a process that ends because another one is lost.",
    "MAX_ENTRIES": "The most entries that the arrays of an automaton may have.",
    "OPERATORS": "What each operator of the laws means in the bounded model.",
}
"""What a constant is that is no table of schemes."""

SECTIONS = ("Modules", "Schemes", "Types", "Functions", "Constants")

TITLES = {
    "gcjax.codes": "Codes",
    "gcjax.codes.assignments": "Assignments",
    "gcjax.codes.stopping": "Stopping rules",
    "gcjax.compression": "Compressions",
    "gcjax.engine.live": "Deadline rules",
    "gcjax.engine.wrong_messages": "Attacks and senders",
    "gcjax.protocols": "Protocols",
    "gcjax.specifications": "Specifications",
    "gcjax.stragglers": "Models and networks",
    "gcjax.study": "For config files",
    "gcjax.tasks": "Tasks",
}
"""What the schemes of a module are called on its page."""


class Symbol(NamedTuple):
    """A public name.

    Attributes:
      name: the full one, for example `gcjax.codes.partial`.
      value: what it names.
      section: the section of the page that it stands in.
      paper: where a scheme comes from; empty for others.
    """

    name: str
    value: Any
    section: str
    paper: str

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.value) or "").partition("\n")[0]


def public_modules() -> dict[str, ModuleType]:
    """Name -> module, of all modules of gcjax that have an `__all__`, outer ones first."""
    inner = (found.name for found in pkgutil.walk_packages(gcjax.__path__, "gcjax."))
    names = ["gcjax", *(name for name in inner if not name.endswith("__main__"))]
    modules = {name: importlib.import_module(name) for name in names}
    return {name: modules[name] for name in sorted(modules) if hasattr(modules[name], "__all__")}


def pages() -> dict[str, list[Symbol]]:
    """Name of a public module -> the symbols that stand on its page."""
    modules = public_modules()
    homes = _homes(modules)
    return {name: [s for s in _symbols(module) if homes.get(id(s.value), s.name) == s.name] for name, module in
            modules.items()}  # fmt: skip


def public_names() -> dict[str, str]:
    """Every name by which something public can be called -> the full name under which it stands in the reference.

    Also the names by which types are known inside, as in `gcjax.codes.base.Assignment`.
    """
    modules = public_modules()
    homes = _homes(modules)
    names = {name: name for name in modules}
    for symbol in (symbol for module in modules.values() for symbol in _symbols(module)):
        home = homes.get(id(symbol.value), symbol.name)
        names[symbol.name] = home
        if id(symbol.value) in homes:
            names[f"{symbol.value.__module__}.{symbol.value.__qualname__}"] = home
    return names


def page(name: str, symbols: list[Symbol]) -> str:
    """The reStructuredText of one page."""
    lines = [name, "=" * len(name), "", f".. automodule:: {name}", ""]
    for section in SECTIONS:
        there = [symbol for symbol in symbols if symbol.section == section]
        if there:
            title = TITLES.get(name, section) if section == "Schemes" else section
            lines += [title, "-" * len(title), "", *_table(there), *(line for s in there for line in _entry(s))]
    return "\n".join(lines) + "\n"


def index(names: list[str]) -> str:
    """The page that lists all pages."""
    title = "API reference"
    said = [
        "Every public name of gcjax, by module. What is not here is private, and may change at any time. Letters in",
        "shapes, as in ``float[T, W]``, and in formulas are those of the :doc:`/glossary`.",
    ]
    heads = [title, "=" * len(title), "", *said, "", ".. toctree::", "   :maxdepth: 1", ""]
    return "\n".join(heads + [f"   {name}" for name in names]) + "\n"


def write(folder: Path) -> None:
    """Writes all pages to a folder, and removes those of modules that are gone; what is right stays untouched."""
    all_pages = pages()
    texts = {name: page(name, symbols) for name, symbols in all_pages.items()} | {"index": index(list(all_pages))}
    folder.mkdir(exist_ok=True)
    for file in folder.glob("*.rst"):
        if file.stem not in texts:
            file.unlink()
    for name, text in texts.items():
        file = folder / f"{name}.rst"
        if not file.exists() or file.read_text() != text:
            file.write_text(text)


def _symbols(module: ModuleType) -> Iterator[Symbol]:
    """The symbols of a module's `__all__`, in its order."""
    papers = {id(entry.factory): entry.paper for entry in _entries(module)}
    for name in module.__all__:
        value = getattr(module, name)
        section = "Schemes" if id(value) in papers else _section(value)
        yield Symbol(f"{module.__name__}.{name}", value, section, papers.get(id(value), ""))


def _entries(module: ModuleType) -> list[Entry]:
    """What the tables of a module list."""
    tables = [value for value in vars(module).values() if isinstance(value, dict)]
    return [entry for table in tables for entry in table.values() if isinstance(entry, Entry)]


def _section(value: Any) -> str:
    if inspect.ismodule(value):
        return "Modules"
    if inspect.isclass(value):
        return "Types"
    return "Functions" if callable(value) else "Constants"


def _homes(modules: dict[str, ModuleType]) -> dict[int, str]:
    """Identity of a type or function -> its full name in the innermost module that exports it."""
    homes: dict[int, str] = {}
    for module in sorted(modules.values(), key=lambda module: module.__name__.count(".")):
        for symbol in _symbols(module):
            if symbol.section not in ("Modules", "Constants"):
                homes[id(symbol.value)] = symbol.name
    return homes


def _table(symbols: list[Symbol]) -> list[str]:
    """A table of names, first lines of docstrings and, if there are any, papers."""
    if symbols[0].section == "Constants":
        return []
    has_papers = any(symbol.paper for symbol in symbols)
    lines = [".. list-table::", f"   :widths: {'25 50 25' if has_papers else '30 70'}", ""]
    for symbol in symbols:
        lines += [f"   * - :py:obj:`~{symbol.name}`", f"     - {symbol.summary}"]
        lines += [f"     - {symbol.paper}"] if has_papers else []
    return [*lines, ""]


def _entry(symbol: Symbol) -> list[str]:
    """The directive that documents a symbol; none for a module, which has a page of its own."""
    if symbol.section == "Modules":
        return []
    if symbol.section == "Constants":
        text = CONSTANTS.get(
            symbol.name.rpartition(".")[2], "Name -> what a config file can call by it, and its paper."
        )
        return [f".. py:data:: {symbol.name}", "", f"   {text}", ""]
    if not inspect.isclass(symbol.value):
        return [f".. autofunction:: {symbol.name}", ""]
    return [f".. autoclass:: {symbol.name}", *_members(symbol.value), ""]


def _members(cls: type) -> list[str]:
    """The option that lists the methods and properties of a type; fields are in its docstring."""
    members = [
        name
        for name, value in vars(cls).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    ]
    if "__call__" in vars(cls):
        members.append("__call__")
    return [f"   :members: {', '.join(members)}"] if members else []
