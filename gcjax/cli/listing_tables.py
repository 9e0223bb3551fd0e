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

MAX_WIDTH = 100
"""Characters of a line of text; tables take the width of the terminal."""


def run(name: str | None = None) -> None:
    """Prints all kinds, or what is called `name`: a kind with the parameters of its entries, and an entry of each kind.

    Raises:
      ValueError: if nothing has this name.
    """
    config.register()
    kinds, screen = registry.kinds(), console()
    check_name(name, kinds)
    kinds_of_entry = {title: kind for title, kind in kinds.items() if name is not None and name in kind.entries}
    for title, kind in kinds.items():
        if title == name or (name is None and kind.entries):
            screen.print(_kind_table(title, kind, with_parameters=name is not None), "")
    width = min(screen.width, MAX_WIDTH)
    for title, kind in kinds_of_entry.items():
        _print_lines(screen, _entry_lines(title, kind, str(name), width))


def check_name(name: str | None, kinds: dict[str, registry.Kind]) -> None:
    """Raises `ValueError`, with similar names, if neither a kind nor an entry has this name; None stands for all."""
    names = {*kinds, *(entry for kind in kinds.values() for entry in kind.entries)}
    if name is not None and name not in names:
        raise ValueError(f"There is no kind and no entry '{name}'. {registry.nearest(name, names)}")


def _kind_table(title: str, kind: registry.Kind, *, with_parameters: bool) -> Table:
    """A row for each entry of a kind: its name, and below one another its summary, its parameters and its module.

    Two columns leave room for sentences on a narrow terminal.
    """
    module = f": {kind.module}.…" if kind.module else ""
    table = Table(title=f"{title}{module}", title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("Name", no_wrap=True, style="bold")
    table.add_column("What it is, and its parameters" if with_parameters else "What it is")
    for name, entry in sorted(kind.entries.items()):
        text = Text(_summary(entry))
        if with_parameters:
            text.append(f"\n{_parameters_text(entry) or 'no parameters'}", style="dim")
        if name in kind.outside:
            text.append(f"\nin {entry.factory.__module__}", style="dim")
        table.add_row(name, text)
    if not kind.entries:
        table.add_row("", f"There is none yet; @gcjax.register('{title}') makes one.")
    return table


def _summary(entry: registry.Entry) -> str:
    """The first line of the docstring, and the paper where it does not name it."""
    return entry.summary if entry.paper in entry.summary else f"{entry.summary} {entry.paper}."


def _parameters_text(entry: registry.Entry) -> str:
    """The parameters of an entry with their defaults, without `out` and `progress`, which the command gives."""
    parameters = signature_of(entry.factory).parameters.values()
    return ", ".join(
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name}={default_text(parameter.default)}"
        for parameter in parameters
        if parameter.name not in ("out", "progress")
    )


def default_text(value: object) -> str:
    """A parameter's default as a person would write it."""
    return value.__name__ if inspect.isfunction(value) else repr(value)


def _entry_lines(title: str, kind: registry.Kind, name: str, width: int) -> Iterator[tuple[str, str]]:
    """All about the entry `name` of a kind called `title`, as lines of at most `width` characters with rich's style."""
    entry = kind.entries[name]
    yield f"{title} {name}, in {entry.factory.__module__}", "bold"
    yield "", ""
    yield from ((line, "") for line in _signature_lines(name, entry, width))
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
        yield f"  {_check_command(name, entry)}", ""
    yield "", ""


def _print_lines(screen: Console, lines: Iterator[tuple[str, str]]) -> None:
    """Prints lines, each with its rich style, as they are; the terminal breaks those that are too long."""
    for line, style in lines:
        screen.print(Text(line, style=style), soft_wrap=True)


def _signature_lines(name: str, entry: registry.Entry, width: int) -> list[str]:
    """The signature with the types in short, on one line or with a line for each parameter."""
    signature = signature_of(entry.factory)
    parameters: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in parameters):
            parameters.append("*")
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        typed = "" if parameter.annotation is parameter.empty else f": {in_short(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {default_text(parameter.default)}"
        parameters.append(f"{stars}{parameter.name}{typed}{default}")
    returned = signature.return_annotation
    closing = ")" if returned is signature.empty else f") -> {in_short(returned)}"
    line = f"{name}({', '.join(parameters)}{closing}"
    return [line] if len(line) <= width else [f"{name}(", *(f"    {text}," for text in parameters), closing]


def _check_command(name: str, entry: registry.Entry) -> str:
    """The command that checks a specification, with its whole numbers at their defaults."""
    parameters = signature_of(entry.factory).parameters.values()
    numbers = {parameter.name: parameter.default for parameter in parameters if isinstance(parameter.default, int)}
    options = (f"--{parameter.replace('_', '-')} {value}" for parameter, value in numbers.items())
    return f"gcjax check {name} " + " ".join(options)


def _reflowed(text: str, width: int) -> Iterator[str]:
    """A docstring's lines at another width; each paragraph and each entry of `Args:` and the like is wrapped alone."""
    paragraph: list[str] = []
    for line in text.splitlines():
        if paragraph and not _continues(paragraph, line):
            yield from _wrapped(paragraph, width)
            paragraph = []
        if line.strip():
            paragraph.append(line)
        else:
            yield ""
    yield from _wrapped(paragraph, width) if paragraph else ()


def _continues(paragraph: list[str], line: str) -> bool:
    """Whether a line belongs to the paragraph of the lines before it, by its indent and its first character."""
    first_indent, indent = (len(text) - len(text.lstrip()) for text in (paragraph[0], line))
    if not line.strip() or line.lstrip()[0] in "-*|>`" or paragraph[0].rstrip().endswith(":"):
        return False
    return indent > first_indent if first_indent else indent == 0


def _wrapped(paragraph: list[str], width: int) -> list[str]:
    """The lines of one paragraph at this width; an indented one (of `Args:`) keeps a hanging indent."""
    indent = paragraph[0][: len(paragraph[0]) - len(paragraph[0].lstrip())]
    text = " ".join(line.strip() for line in paragraph)
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + "  " * bool(indent), break_on_hyphens=False
    )
