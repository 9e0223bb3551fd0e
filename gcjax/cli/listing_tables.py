"""What `gcjax list` prints: everything that can be named, the entries of one kind, or all about one entry."""

import inspect
import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gcjax import config, registry
from gcjax.cli import gin_lines
from gcjax.config.arguments import in_short, signature_of
from gcjax.progress import console

WIDEST = 100


def run(name: str | None = None) -> None:
    """Prints all kinds, or what is called `name`: a kind with the parameters of its entries, an entry, or both.

    Raises:
      ValueError: if nothing has this name.
    """
    config.register()
    kinds, screen = registry.kinds(), console()
    holding = {title: kind for title, kind in kinds.items() if name is not None and name in kind.entries}
    if name is not None and name not in kinds and not holding:
        known = {*kinds, *(entry for kind in kinds.values() for entry in kind.entries)}
        raise ValueError(f"There is no kind and no entry '{name}'. {registry.nearest(name, known)}")
    for title, kind in kinds.items():
        if title == name or (name is None and kind.entries):
            screen.print(_table(title, kind, parameters=name is not None), "")
    width = min(screen.width, WIDEST)
    for title, kind in holding.items():
        _print(screen, _entry(title, kind, str(name), width))


def _table(title: str, kind: registry.Kind, *, parameters: bool) -> Table:
    """Two columns, which leave room for sentences on a narrow terminal."""
    where = f": {kind.module}.…" if kind.module else ""
    table = Table(title=f"{title}{where}", title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("Name", no_wrap=True, style="bold")
    table.add_column("What it is, and its parameters" if parameters else "What it is")
    for name, entry in sorted(kind.entries.items()):
        text = Text(_summary(entry))
        if parameters:
            text.append(f"\n{_parameters(entry) or 'no parameters'}", style="dim")
        if name in kind.outside:
            text.append(f"\nin {entry.factory.__module__}", style="dim")
        table.add_row(name, text)
    if not kind.entries:
        table.add_row("", f"There is none yet; @gcjax.register('{title}') makes one.")
    return table


def _summary(entry: registry.Entry) -> str:
    """The first line of the docstring, and the paper where it does not name it."""
    return entry.summary if entry.paper in entry.summary else f"{entry.summary} {entry.paper}."


def _parameters(entry: registry.Entry) -> str:
    shown = [
        p.name if p.default is p.empty else f"{p.name}={_default(p.default)}"
        for p in signature_of(entry.factory).parameters.values()
        if p.name not in ("out", "progress")
    ]
    return ", ".join(shown)


def _default(value: object) -> str:
    return value.__name__ if inspect.isfunction(value) else repr(value)


def _entry(title: str, kind: registry.Kind, name: str, width: int) -> Iterator[tuple[str, str]]:
    """All about one entry, as lines with their styles."""
    entry = kind.entries[name]
    yield f"{title} {name}, in {entry.factory.__module__}", "bold"
    yield "", ""
    yield from ((line, "") for line in _signature(name, entry, width))
    yield "", ""
    yield from ((line, "") for line in _reflowed(inspect.getdoc(entry.factory) or "It has no docstring.", width))
    yield "", ""
    if entry.paper:
        yield from ((f"Paper: {entry.paper}", ""), ("", ""))
    if kind.in_configs:
        yield "In a config file, with values of yours:", "bold"
        yield from ((f"  {line}", "") for line in gin_lines.lines(title, name))
    else:
        yield "On the command line:", "bold"
        yield f"  {_command(name, entry)}", ""
    yield "", ""


def _print(screen: Console, lines: Iterator[tuple[str, str]]) -> None:
    for line, style in lines:
        screen.print(Text(line, style=style), soft_wrap=True)


def _signature(name: str, entry: registry.Entry, width: int) -> list[str]:
    """The signature with the types in short, on one line or with a line for each parameter."""
    signature = signature_of(entry.factory)
    parameters: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in parameters):
            parameters.append("*")
        stars = "*" * (2 if parameter.kind is parameter.VAR_KEYWORD else parameter.kind is parameter.VAR_POSITIONAL)
        typed = "" if parameter.annotation is parameter.empty else f": {in_short(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
        parameters.append(f"{stars}{parameter.name}{typed}{default}")
    returned = signature.return_annotation
    end = ")" if returned is signature.empty else f") -> {in_short(returned)}"
    line = f"{name}({', '.join(parameters)}{end}"
    return [line] if len(line) <= width else [f"{name}(", *(f"    {text}," for text in parameters), end]


def _command(name: str, entry: registry.Entry) -> str:
    numbers = {n: p.default for n, p in signature_of(entry.factory).parameters.items() if isinstance(p.default, int)}
    return f"gcjax check {name} " + " ".join(f"--{n.replace('_', '-')} {value}" for n, value in numbers.items())


def _reflowed(text: str, width: int) -> Iterator[str]:
    """Text with its lines broken anew, where paragraphs and the entries of `Args:` and the like stay what they are."""
    item: list[str] = []
    for line in text.splitlines():
        if item and not _continues(item, line):
            yield from _wrapped(item, width)
            item = []
        if line.strip():
            item.append(line)
        else:
            yield ""
    yield from _wrapped(item, width) if item else ()


def _continues(item: list[str], line: str) -> bool:
    """Whether a line belongs to the paragraph of those before it."""
    first_indent, indent = (len(text) - len(text.lstrip()) for text in (item[0], line))
    if not line.strip() or line.lstrip()[0] in "-*|>`" or item[0].rstrip().endswith(":"):
        return False
    return indent > first_indent if first_indent else indent == 0


def _wrapped(item: list[str], width: int) -> list[str]:
    indent = item[0][: len(item[0]) - len(item[0].lstrip())]
    text = " ".join(line.strip() for line in item)
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + "  " * bool(indent), break_on_hyphens=False
    )
