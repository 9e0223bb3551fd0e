"""Numbers as LaTeX macros, one a number, grouped by the experiment that they come from."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NAME = re.compile(r"[A-Za-z]+")

Macros = dict[str, str]
"""Name, letters only -> text."""


def fixed(value: float, decimals: int = 0) -> str:
    """A number with so many decimals, thousands set apart, and a minus sign that is one."""
    text = f"{abs(value):,.{decimals}f}".replace(",", r"\,")
    is_negative = value < 0 and float(f"{value:.{decimals}f}") != 0
    return rf"\ensuremath{{-}}{text}" if is_negative else text


def percent(share: float, decimals: int = 0) -> str:
    """A share in percent, without the sign."""
    return fixed(100 * share, decimals)


def significant(value: float, digits: int = 3) -> str:
    """A number with so many significant digits; a power of ten where it is 10^4 or more, or below 10^-3."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e4:
        text_without_exponent = f"{float(f'{value:.{digits}g}'):.10g}"
        num_decimals = len(text_without_exponent.partition(".")[2])
        return fixed(float(text_without_exponent), num_decimals)
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return rf"\ensuremath{{{mantissa}\times 10^{{{int(exponent)}}}}}"


def text_of(groups: dict[str, Macros], heads: dict[str, str]) -> str:
    """The file that defines all macros.

    Args:
      groups: experiment -> its macros.
      heads: experiment -> where it comes from, a line.

    Raises:
      ValueError: if a name is not of letters only, or is there twice.
    """
    lines, names = [], set()
    for group, macros in groups.items():
        lines += [f"% {group}: {heads[group]}"]
        for name, text in macros.items():
            if not _NAME.fullmatch(name) or name in names:
                raise ValueError(f"a macro's name must be of letters only, and there once; got {name!r} in {group}.")
            names.add(name)
            lines.append(rf"\newcommand{{\{name}}}{{{text}}}")
        lines.append("")
    return "\n".join(lines)


def groups_of(text: str) -> dict[str, Macros]:
    """Experiment -> its macros, of the text of a file that `text_of` wrote."""
    groups: dict[str, Macros] = {}
    for line in text.splitlines():
        if head_match := re.match(r"% (?P<group>\w+): ", line):
            macros_of_group = groups[head_match["group"]] = {}
        elif macro_match := re.fullmatch(r"\\newcommand\{\\(?P<name>[A-Za-z]+)\}\{(?P<text>.*)\}", line):
            macros_of_group[macro_match["name"]] = macro_match["text"]
    return groups


def binding(config: Path, name: str) -> str:
    r"""The value that a config gives to a parameter, as text, from it or from the first config that it includes.

    Raises:
      ValueError: if there is no such line.
    """
    config_text = config.read_text()
    binding_match = re.search(rf"^{re.escape(name)} = (?P<value>[^#\n]+)", config_text, re.MULTILINE)
    if binding_match:
        return binding_match["value"].strip().strip("'")
    include_match = re.search(r"^include '(?P<file>.+)'", config_text, re.MULTILINE)
    if include_match:
        return binding(ROOT / include_match["file"], name)
    raise ValueError(f"the config must set {name}; {config} does not.")
