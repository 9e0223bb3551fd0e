"""What `gcjax list` prints: everything that can be named, the entries of one kind, or all about one entry."""

import inspect
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from gcjax import config, registry
from gcjax.cli import gin_lines
from gcjax.config.arguments import GIVEN_BY_COMMAND, short_type_text, signature_of
from gcjax.progress import console

MAX_WIDTH = 100
"""Characters of a line of text; tables take the width of the terminal."""


class StyledLine(NamedTuple):
    """A line of text, and how rich is to print it."""

    text: str
    style: str = ""


def run(name: str | None = None) -> None:
    """Prints all kinds, or what is called `name`: a kind with the parameters of its entries, and an entry of each kind.

    Raises:
      ValueError: if nothing has this name.
    """
    config.register_entries()
    kinds, screen = registry.kinds(), console()
    check_name(name, kinds)
    for kind_name, kind in kinds.items():
        is_listed = kind_name == name or (name is None and kind.entries)
        if is_listed:
            screen.print(_kind_table(kind_name, kind, with_parameters=name is not None), "")
    width = min(screen.width, MAX_WIDTH)
    for kind_name, kind in kinds.items():
        if name is not None and name in kind.entries:
            for line in _entry_lines(kind_name, kind, name, width):
                screen.print(Text(line.text, style=line.style), soft_wrap=True)  # the terminal breaks long lines


def check_name(name: str | None, kinds: dict[str, registry.Kind]) -> None:
    """Raises `ValueError`, with similar names, if neither a kind nor an entry has this name; None stands for all."""
    names = {*kinds, *(entry for kind in kinds.values() for entry in kind.entries)}
    if name is not None and name not in names:
        raise ValueError(
            f"There is no kind and no entry '{name}'. {registry.nearest_names_sentence(name, names)} What a package of "
            "your own registers is listed once that is installed."
        )


def _kind_table(kind_name: str, kind: registry.Kind, *, with_parameters: bool) -> Table:
    """A row for each entry of a kind: its name, and below one another its summary, its parameters and its module.

    Two columns leave room for sentences on a narrow terminal.
    """
    module_text = f": {kind.module}.…" if kind.module else ""
    table = Table(title=f"{kind_name}{module_text}", title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("Name", no_wrap=True, style="bold")
    table.add_column("What it is, and its parameters" if with_parameters else "What it is")
    for name, entry in sorted(kind.entries.items()):
        description = Text(_summary_with_paper(entry))
        if with_parameters:
            description.append(f"\n{_parameters_text(entry) or 'no parameters'}", style="dim")
        is_of_another_package = name in kind.outside_names
        if is_of_another_package:
            description.append(f"\nin {entry.factory.__module__}", style="dim")
        table.add_row(name, description)
    if not kind.entries:
        table.add_row("", f"There is none yet; @gcjax.register('{kind_name}') makes one.")
    return table


def _summary_with_paper(entry: registry.Entry) -> str:
    """The first line of the docstring, and the paper where it does not name it."""
    return entry.summary if entry.paper in entry.summary else f"{entry.summary} {entry.paper}."


def _parameters_text(entry: registry.Entry) -> str:
    """The parameters of an entry with their defaults, without those that the command gives."""
    parameters = signature_of(entry.factory).parameters.values()
    return ", ".join(
        parameter.name
        if parameter.default is parameter.empty
        else f"{parameter.name}={default_text(parameter.default)}"
        for parameter in parameters
        if parameter.name not in GIVEN_BY_COMMAND
    )


def default_text(value: object) -> str:
    """A parameter's default as a person would write it."""
    return value.__name__ if inspect.isfunction(value) else repr(value)


def _entry_lines(kind_name: str, kind: registry.Kind, name: str, width: int) -> Iterator[StyledLine]:
    """All about the entry `name` of a kind; text is wrapped at `width` characters, what can be copied is not."""
    entry = kind.entries[name]
    docstring = inspect.getdoc(entry.factory) or "It has no docstring."
    yield StyledLine(f"{kind_name} {name}, in {entry.factory.__module__}", style="bold")
    yield StyledLine("")
    yield from map(StyledLine, _signature_lines(name, entry, width))
    yield StyledLine("")
    yield from map(StyledLine, _rewrapped_lines(docstring, width))
    yield StyledLine("")
    if entry.paper:
        yield from (StyledLine(f"Paper: {entry.paper}"), StyledLine(""))
    if kind.in_configs:
        yield StyledLine("In a config file, with values of yours:", style="bold")
        yield from (StyledLine(f"  {line}") for line in gin_lines.lines(kind_name, name))
    else:
        yield StyledLine("On the command line:", style="bold")
        yield StyledLine(f"  {_command_line_of_check(name, entry)}")
    yield StyledLine("")


def _signature_lines(name: str, entry: registry.Entry, width: int) -> list[str]:
    """The signature with the types in short, on one line or with a line for each parameter."""
    signature = signature_of(entry.factory)
    parameter_texts: list[str] = []
    for parameter in signature.parameters.values():
        has_star = any(text.startswith("*") for text in parameter_texts)
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            parameter_texts.append("*")
        parameter_texts.append(_parameter_text(parameter))
    return_type = signature.return_annotation
    closing = ")" if return_type is signature.empty else f") -> {short_type_text(return_type)}"
    one_line = f"{name}({', '.join(parameter_texts)}{closing}"
    several_lines = [f"{name}(", *(f"    {text}," for text in parameter_texts), closing]
    return [one_line] if len(one_line) <= width else several_lines


def _parameter_text(parameter: inspect.Parameter) -> str:
    """A parameter as in a signature, with the type in short."""
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
    type_text = "" if parameter.annotation is parameter.empty else f": {short_type_text(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {default_text(parameter.default)}"
    return f"{stars}{parameter.name}{type_text}{default}"


def _command_line_of_check(name: str, entry: registry.Entry) -> str:
    """The line `gcjax check NAME ...` that checks a specification, with its whole numbers at their defaults."""
    parameters = signature_of(entry.factory).parameters.values()
    defaults = {parameter.name: parameter.default for parameter in parameters if isinstance(parameter.default, int)}
    options = (f"--{parameter.replace('_', '-')} {value}" for parameter, value in defaults.items())
    return f"gcjax check {name} " + " ".join(options)


def _rewrapped_lines(text: str, width: int) -> Iterator[str]:
    """A docstring's lines at another width; each paragraph and each entry of `Args:` and the like is wrapped alone."""
    paragraph: list[str] = []
    for line in text.splitlines():
        if paragraph and not _continues_paragraph(line, paragraph):
            yield from _wrapped_lines(paragraph, width)
            paragraph = []
        if line.strip():
            paragraph.append(line)
        else:
            yield ""
    yield from _wrapped_lines(paragraph, width) if paragraph else ()


def _continues_paragraph(line: str, paragraph: list[str]) -> bool:
    """Whether a line belongs to the paragraph of the lines before it, by its indent and its first character.

    Nothing continues a line that ends in a colon, as `Args:` does; items, tables, quotes and code begin anew.
    """
    first_line = paragraph[0]
    if not line.strip() or line.lstrip()[0] in "-*|>`" or first_line.rstrip().endswith(":"):
        return False
    first_indent, indent = len(_indent(first_line)), len(_indent(line))
    is_hanging = indent > first_indent  # as the further lines of an entry of `Args:` are
    return is_hanging if first_indent else indent == 0


def _indent(line: str) -> str:
    """The spaces at the begin of a line."""
    return line[: len(line) - len(line.lstrip())]


def _wrapped_lines(paragraph: list[str], width: int) -> list[str]:
    """The lines of one paragraph at this width; an indented one (of `Args:`) keeps a hanging indent."""
    indent = _indent(paragraph[0])
    hanging_indent = f"{indent}  " if indent else ""
    text = " ".join(line.strip() for line in paragraph)
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=hanging_indent, break_on_hyphens=False)
