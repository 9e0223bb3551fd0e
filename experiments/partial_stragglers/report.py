"""What both experiments leave behind: raw results, a table that a person compares with the paper, facts."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.partial_stragglers import published
from gcjax import _checks, analysis, codes, config, files
from gcjax.progress import Progress
from gcjax.tables import RichTable

Found = dict[tuple[str, int, str], np.ndarray]
"""(setting, L, scheme) -> float[S, D] or, without deadlines, float[S]."""

ZERO = 1e-9
"""Errors below are rounding: the sum is exact."""


class Row(NamedTuple):
    """One mean, beside what was published; NaN where nothing was.

    Attributes:
      setting: the name of the assignment.
      num_blocks: L.
      scheme: its name.
      deadline: seconds; NaN where there is none.
      published: the mean in the paper.
      ours: our mean over the trials that end.
      standard_error: of our mean.
      never: the share of trials that never end.
      num_trials: behind our mean.
    """

    setting: str
    num_blocks: int
    scheme: str
    deadline: float
    published: float
    ours: float
    standard_error: float
    never: float
    num_trials: int

    @property
    def difference(self) -> float:
        """Ours less published in its standard errors, those of both means; NaN where our trials do not differ.

        It is 0 where both are zero up to rounding.
        """
        if abs(self.ours) < ZERO and abs(self.published) < ZERO:
            return 0.0
        error = self.standard_error * np.sqrt(1 + self.num_trials / published.NUM_TRIALS)
        return float((self.ours - self.published) / error) if error > ZERO else float("nan")


def rows(found: Found, deadlines: Sequence[float], source: Callable[..., float] | None) -> list[Row]:
    """A row for every mean.

    Args:
      found: the results.
      deadlines: [D] seconds; empty if there are none.
      source: the published mean for a setting, L, scheme and, if there are deadlines, a deadline; None if none is.
    """
    made = []
    for key, values in found.items():
        for column, deadline in enumerate(deadlines or (float("nan"),)):
            mine = values[:, column] if deadlines else values
            ended = mine[np.isfinite(mine)]
            spread = ended.std(ddof=1) / np.sqrt(ended.size) if ended.size > 1 else float("nan")
            mean = float(ended.mean()) if ended.size else float("inf")
            where = (*key, deadline) if deadlines else key
            theirs = source(*where) if source else float("nan")
            made.append(Row(*key, deadline, theirs, mean, float(spread), 1 - ended.size / mine.size, ended.size))
    return made


def table(made: list[Row], title: str) -> RichTable:
    """For the terminal."""
    heads, lines = _cells(made)
    return analysis.rich_table(title, heads, lines, keys=_keys(heads))


def markdown(made: list[Row], title: str) -> str:
    """The same as a Markdown page."""
    heads, lines = _cells(made)
    return "\n".join([f"# {title}", "", analysis.markdown_table(heads, lines, keys=_keys(heads)), ""])


def _keys(heads: Sequence[str]) -> int:
    """How many columns say which mean it is."""
    return sum(head in ("setting", "L", "scheme", "deadline") for head in heads)


def _cells(made: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Heads and lines; columns that say nothing anywhere are left out."""
    columns = {
        "setting": [row.setting for row in made],
        "L": [str(row.num_blocks) for row in made],
        "scheme": [row.scheme for row in made],
        "deadline": [_number(row.deadline) for row in made],
        "published": [_number(row.published) for row in made],
        "ours": [_number(row.ours) for row in made],
        "standard error": [_number(row.standard_error) for row in made],
        "difference in standard errors": ["-" if np.isnan(r.difference) else f"{r.difference:+.1f}" for r in made],
        "never": [f"{row.never:.1%}" if row.never else "-" for row in made],
    }
    kept = {head: cells for head, cells in columns.items() if any(cell != "-" for cell in cells)}
    return list(kept), [list(line) for line in zip(*kept.values(), strict=True)]


def _number(value: float) -> str:
    if np.isnan(value):
        return "-"
    return "0" if abs(value) < ZERO else f"{value:.4g}"


def columns(found: Found, deadlines: Sequence[float], **more: Found) -> dict[str, np.ndarray]:
    """One line for every trial (and deadline): the raw results, with further values beside."""
    parts = []
    for (setting, num_blocks, scheme), values in found.items():
        size, width = values.size, len(deadlines) or 1
        part = {
            "setting": np.full(size, setting, object),
            "num_blocks": np.full(size, num_blocks),
            "scheme": np.full(size, scheme, object),
            "trial": np.repeat(np.arange(len(values)), width),
            **({"deadline": np.tile(np.asarray(deadlines, float), len(values))} if deadlines else {}),
            "value": values.ravel(),
        }
        for name, others in more.items():
            beside = others.get((setting, num_blocks, scheme))
            part[name] = np.full(size, np.nan) if beside is None else beside.ravel()
        parts.append(part)
    return analysis.stack(parts)


def write(
    out: Path, raw: dict[str, np.ndarray], made: list[Row], title: str, facts: dict[str, Any], progress: Progress
) -> None:
    """Writes `results.parquet`, `summary.md`, `run.json` and `operative.gin`, and shows the table.

    Where published numbers stand beside ours, the page says how they compare.
    """
    files.write_table(out / "results.parquet", raw)
    notes = published.NOTES if any(np.isfinite(row.published) for row in made) else ""
    files.write_text(out / "summary.md", markdown(made, title) + "\n" + notes)
    summary = [{name: _json(value) for name, value in row._asdict().items()} for row in made]
    text = json.dumps({**facts, "summary": summary, **analysis.environment()}, indent=2)
    files.write_text(out / "run.json", text + "\n")
    files.write_text(out / "operative.gin", config.operative())
    progress.show(table(made, title))


def _json(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def check(
    assignments: dict[str, codes.Assignment], blocks: Sequence[int], num_failed: int | None, deadlines: Sequence[float]
) -> None:
    """Refuses settings in which nothing could be computed.

    Raises:
      ValueError: if something is empty, a deadline is not above zero, a chunk has fewer than L holders, or more workers
        fail than there are.
    """
    _checks.number("deadlines", deadlines, above=True, finite=True)
    for what, given in (("assignments", assignments), ("blocks", blocks), ("deadlines", deadlines)):
        if not len(given):
            raise ValueError(f"{what} must not be empty; got {given!r}.")
    for name, assignment in assignments.items():
        fewest = int(codes.holders(assignment).counts.min())
        for num_blocks in blocks:
            if not 1 <= num_blocks <= fewest:
                raise ValueError(
                    f"every entry of blocks must be between 1 and {fewest}, the fewest holders of a chunk of "
                    f"'{name}'; got {num_blocks}."
                )
        if num_failed is not None and not 0 <= num_failed < assignment.num_workers:
            raise ValueError(
                f"num_failed must be between 0 and {assignment.num_workers - 1} for '{name}', which has "
                f"{assignment.num_workers} workers; got {num_failed}."
            )


def keys(seed: int, setting: int) -> jax.Array:
    """Four keys of one setting: random orders, rows of the partial codes, trials, one to spare."""
    return jax.random.split(jax.random.fold_in(config.key(seed=seed), setting), 4)
