"""The table of laws for people: on a documentation page and in a terminal."""

from collections.abc import Sequence

from rich.text import Text

from gcjax.algebra.laws.table import LAWS, Law
from gcjax.algebra.laws.trials import Result
from gcjax.tables import RichTable

_INTRODUCTION = """# The laws of the algebra

<!-- written by: gcjax algebra laws --page > docs/algebra_laws.md -->

Every row is tried on random commands of the bounded model, with two states and traces of four steps unless asked
otherwise: `gcjax algebra laws --states 3 --steps 3`. Cutting traces at a length respects all operators, so a law that
holds is exact for these traces, and a counterexample is a real one.

`c >= d` says that d refines c: every trace of d is one of c. The papers write it upside down. Programs: c, d, e;
atomic steps: a, b; sets of states: p, u; relations: r, g, q. `or` is choice, `meet` intersection, `;` sequence, `∥`
parallel over a shared memory, `&` weak conjunction, `csp` and `ccs` parallel over events; `tau` is a test, `{p}` an
assertion, `pi` a step of the program, `eps` one of the environment, `p◁r` is r from states in p, and `q1·q2` is first
q1, then q2. `pi{e}` is an event, `pi{e'}` its complement, `pi{i}` the internal one.

The model has no infinite traces and says nothing on whether a program terminates: the rows at the end are out of its
reach.
"""


def markdown(laws: Sequence[Law] = LAWS) -> str:
    """The documentation page, in Markdown: a table of laws for each section."""
    lines = [_INTRODUCTION]
    sections_in_order = dict.fromkeys(law.section for law in laws)
    for section in sections_in_order:
        lines.append(f"## {section[0].upper()}{section[1:]}\n")
        lines.append("| Name | Law | Assumes | Source | |\n| --- | --- | --- | --- | --- |")
        lines += [f"| {' | '.join(_cells(law))} |" for law in laws if law.section == section]
        lines.append("")
    return "\n".join(lines)


def _cells(law: Law) -> tuple[str, ...]:
    """The cells of a law's row: name, claims, condition, source and kind."""
    claims = ", ".join(f"`{claim}`" for claim in law.claims)
    return law.name, claims, law.condition, law.source, law.kind


def table(results: Sequence[Result]) -> RichTable:
    """For the terminal: a row for each law that was tried, with its outcome."""
    headings = ("Law", "Outcome", "", "Source")  # the third column is what the law claims
    rows: list[list[str | Text]] = []
    for result in results:
        law = result.law
        claims_or_condition = "\n".join(map(str, law.claims)) or law.condition
        outcome_style = "" if result.is_expected else "bold red"
        rows.append([law.title, Text(result.outcome, style=outcome_style), claims_or_condition, law.source])
    return RichTable(title="", heads=headings, rows=rows, left_heads=headings)


def counterexamples(results: Sequence[Result], *, is_expected: bool) -> str:
    """The counterexamples of the laws that came out as the table says, or otherwise."""
    refuted = [x for x in results if x.is_expected == is_expected and x.counterexample]
    return "\n\n".join(f"{x.law.title}\n{x.counterexample}" for x in refuted)
