r"""What the manuscript's text may say, and what must be there.

The text states no number of its own: each is a macro of `generated/numbers.tex`. Digits are allowed only

- in keys and names of files: the arguments of `\cite`, `\ref`, `\label`, `\input`, `\includegraphics` and their like;
- in layout: what `\documentclass`, `\usepackage`, `\lstset`, `\setlength`, columns and pictures are given;
- in mathematics, as the constants 0, 1 and 2, where they stand alone: `F[n-1]`, `L=1`, `q_2`;
- in the names in `NAMES`, which are what a paper calls its settings.

Words for numbers above ten, and for multiples (twice, three times, tenfold), count as numbers. Years stand in the
bibliography, which is not looked at. Comments are not text. All macros of generated numbers begin with a capital
letter, and no other command of the text does.
"""

import re
from pathlib import Path

NAMES = ("H1", "H2", "H3", "double precision")
COMMANDS = re.findall(
    r"\w+",
    "abovecaptionskip author begin bibliography bibliographystyle bibsep bigl bigr cap caption centering citep citet "
    "date documentclass emph end eqref floatsep footnotesize ge graphicspath hat includegraphics input label lstset "
    "maketitle mathrm max paragraph parallel pm ref scriptsize section setlength small subsection sum textfloatsep "
    "texttt textwidth title ttfamily usepackage vee wedge",
)
"""The commands of LaTeX that the text may use: a misspelled one is found without LaTeX."""

_KEYS = r"\\(?:cite[pt]?|ref|eqref|label|input|includegraphics|bibliography|bibliographystyle|graphicspath)"
_LAYOUT = r"\\(?:documentclass|usepackage|lstset|setlength|begin\{multicols\})"
_ARGUMENT = r"(?:\[[^\]]*\])?(\{(?:[^{}]|\{[^{}]*\})*\})"
_SMALL = "two|three|four|five|six|seven|eight|nine|ten"
_LARGE = (
    "eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundreds?|"
    "thousands?|(?:m|b)illions?|dozens?|scores? of"
)
_MULTIPLES = rf"twice|thrice|doubled?|tripled?|quadrupled?|\w+fold|(?:{_SMALL}|several) times|orders? of magnitude"
_MATHS = re.compile(r"\\begin\{(equation|align)\*?\}.*?\\end\{\1\*?\}|\$[^$]*\$", re.DOTALL)


def without_comments(text):
    """The text without what stands after a % that is not escaped."""
    return re.sub(r"(?<!\\)%.*", "", text)


def numbers(text):
    """The numbers that the text states by itself."""
    text = re.sub(_KEYS + _ARGUMENT, " ", re.sub(rf"{_LAYOUT}(?:{_ARGUMENT})+", " ", without_comments(text)))
    stated = []
    for part in _MATHS.finditer(text):
        inside = re.sub(r"\\(?:begin|end)\{[a-z*]+\}", "", part[0])
        stated += [number for number in re.findall(r"\d[\d.,]*\d|\d", inside) if number not in ("0", "1", "2")]
    prose = _MATHS.sub(" ", text)
    prose = re.sub(rf"\b(?:{'|'.join(NAMES)})\b", " ", prose)
    stated += re.findall(r"\w*\d[\w.,]*", prose)
    return stated + re.findall(rf"\b(?:{_LARGE}|{_MULTIPLES})\b", prose, re.IGNORECASE)


def used_macros(text):
    """The generated macros that the text uses: all its commands that begin with a capital letter."""
    return set(re.findall(r"\\([A-Z][A-Za-z]*)", without_comments(text)))


def unknown_commands(text):
    """The commands of LaTeX that are not in `COMMANDS`."""
    return sorted(set(re.findall(r"(?<!\\)\\([a-z]+)", without_comments(text))) - set(COMMANDS))


def bare_macros(text):
    r"""Generated macros after which a space would be lost: each is written with braces, as \GenDate{}."""
    return re.findall(r"\\[A-Z][A-Za-z]*(?![A-Za-z{])", without_comments(text))


def keys(text, command):
    """The keys in the arguments of a command, where they are separated by commas."""
    arguments = re.findall(rf"\\(?:{command})(?:\[[^\]]*\])?\{{([^}}]*)\}}", without_comments(text))
    return [key.strip() for argument in arguments for key in argument.split(",")]


def titles(path):
    """The key of each entry of a .bib file, and its title as `letters`; all keys differ."""
    entries = re.findall(r"^@\w+\{([^,]+),.*?^  title = \{(.*?)\},?$", path.read_text(), re.MULTILINE | re.DOTALL)
    assert len(dict(entries)) == len(entries) == path.read_text().count("\n@") + 1
    return {key: letters(title) for key, title in entries}


def letters(text):
    """The letters and digits of a text, in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def missing_files(text, folder):
    """Files that the text takes in and that are not there."""
    inputs = [Path(folder, f"{name}.tex") for name in keys(text, "input")]
    pictures = [Path(folder, "generated", f"{name}.pdf") for name in keys(text, "includegraphics")]
    return [str(path) for path in (*inputs, *pictures) if not path.is_file()]


def imbalance(text):
    """What is opened and not closed, or the other way round: braces, dollars, environments."""
    text, open_environments, problems = without_comments(text), [], []
    plain = re.sub(r"\\[{}$]", "", text)
    if plain.count("{") != plain.count("}"):
        problems.append(f"{plain.count('{')} opening and {plain.count('}')} closing braces")
    problems += [
        f"an odd number of $ in: {paragraph.strip()[:60]}"
        for paragraph in re.split(r"\n\s*\n", plain)
        if paragraph.count("$") % 2
    ]
    for kind, name in re.findall(r"\\(begin|end)\{([a-z*]+)\}", text):
        if kind == "begin":
            open_environments.append(name)
        elif not open_environments or open_environments.pop() != name:
            problems.append(f"\\end{{{name}}} ends another environment")
    return problems + [f"\\begin{{{name}}} has no end" for name in open_environments]


def unescaped(text):
    """Letters that mean something to LaTeX, outside of tables, mathematics and code: & # _ ^ in prose."""
    text = re.sub(_KEYS + _ARGUMENT, " ", re.sub(rf"{_LAYOUT}(?:{_ARGUMENT})+", " ", without_comments(text)))
    text = re.sub(r"\\begin\{lstlisting\}.*?\\end\{lstlisting\}", " ", text, flags=re.DOTALL)
    return re.findall(r"(?<!\\)[&#_^]\w*", _MATHS.sub(" ", text))
