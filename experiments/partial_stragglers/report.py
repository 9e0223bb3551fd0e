"""What both experiments leave behind: raw results, a table that a person compares with the paper, facts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.partial_stragglers import published
from gcjax import _validate, analysis, codes, config, files
from gcjax.progress import Progress
from gcjax.tables import RichTable

Samples = dict[tuple[str, int, str], np.ndarray]
"""(setting, L, scheme) -> float[S, deadlines] or, without deadlines, float[S]."""

Others = dict[tuple[str, int, str], list[np.ndarray]]
"""The same on each of several further graphs."""

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
      num_graphs: on how many graphs this was repeated; ours is the first of them.
      over_graphs: the mean of the means of all graphs.
      between_graphs: their standard deviation; all graphs see the same trials.
      trials_error: the standard error of the mean of one graph (the root of the mean square).
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
    num_graphs: int = 1
    over_graphs: float = float("nan")
    between_graphs: float = float("nan")
    trials_error: float = float("nan")

    @property
    def difference(self) -> float:
        """z: ours less published over the standard deviation of that difference; NaN where our trials do not differ.

        A published mean is of one graph and its own trials. With several graphs of ours their mean is compared, and
        what differs between graphs counts besides the trials; with one of ours only the trials of both do. It is 0
        where both are zero up to rounding.
        """
        has_many_graphs = self.num_graphs > 1
        our_mean = self.over_graphs if has_many_graphs else self.ours
        trials_error = self.trials_error if has_many_graphs else self.standard_error
        if abs(our_mean) < ZERO and abs(self.published) < ZERO:
            return 0.0
        variance = trials_error**2 * (1 + self.num_trials / published.NUM_TRIALS)
        if has_many_graphs:
            variance += self.between_graphs**2 * (1 + 1 / self.num_graphs)
        return float((our_mean - self.published) / np.sqrt(variance)) if variance > ZERO**2 else float("nan")


def rows(
    samples: Samples,
    deadlines: Sequence[float],
    source: Callable[..., float] | None,
    others: Others | None = None,
) -> list[Row]:
    """A row for every mean.

    Args:
      samples: the results.
      deadlines: seconds; empty if there are none.
      source: the published mean for a setting, L, scheme and, if there are deadlines, a deadline; None if none is.
      others: the results on further graphs, for the same keys or some of them.
    """
    rows = []
    for key, values in samples.items():
        values_of_graphs = [values, *(others or {}).get(key, ())]
        if not deadlines:
            published_mean = source(*key) if source else float("nan")
            rows.append(_row(key, float("nan"), published_mean, values_of_graphs))
        for column, deadline in enumerate(deadlines):
            published_mean = source(*key, deadline) if source else float("nan")
            at_deadline = [values_of_graph[:, column] for values_of_graph in values_of_graphs]
            rows.append(_row(key, deadline, published_mean, at_deadline))
    return rows


def _row(
    key: tuple[str, int, str], deadline: float, published_mean: float, values_of_graphs: Sequence[np.ndarray]
) -> Row:
    """The row of one mean: of the values float[S] on the first graph, and on all graphs if there are several.

    A value that is not finite is of a trial that never ends; it counts in no mean. `deadline`: NaN where there is none.
    """
    has_ended = np.isfinite(values_of_graphs[0])
    means, errors = np.array([mean_and_error(values) for values in values_of_graphs]).T  # float[graphs] each
    row = Row(
        *key,
        deadline=deadline,
        published=published_mean,
        ours=float(means[0]),
        standard_error=float(errors[0]),
        never=float(1 - has_ended.mean()),
        num_trials=int(has_ended.sum()),
    )
    if len(values_of_graphs) == 1:
        return row
    return row._replace(
        num_graphs=len(values_of_graphs),
        over_graphs=float(means.mean()),
        between_graphs=float(means.std(ddof=1)),
        trials_error=float(np.sqrt((errors**2).mean())),
    )


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """The mean over the trials that end, inf if none does, and its standard error, NaN with fewer than two."""
    finite_values = values[np.isfinite(values)]
    standard_error = finite_values.std(ddof=1) / np.sqrt(finite_values.size) if finite_values.size > 1 else float("nan")
    return float(finite_values.mean()) if finite_values.size else float("inf"), float(standard_error)


def table(rows: list[Row], title: str) -> RichTable:
    """For the terminal."""
    return analysis.RichTable(title, **_heads_and_lines(rows))


def markdown(rows: list[Row], title: str) -> str:
    """The table of rows as a Markdown page."""
    return "\n".join([f"# {title}", "", analysis.markdown_table(**_heads_and_lines(rows)), ""])


def _heads_and_lines(rows: list[Row]) -> dict[str, Any]:
    """`heads`, `rows` and `num_key_columns` of the table; columns that are a dash in all rows are left out."""
    columns = {
        "setting": [row.setting for row in rows],
        "L": [str(row.num_blocks) for row in rows],
        "scheme": [row.scheme for row in rows],
        "deadline": [_number_text(row.deadline) for row in rows],
        "published": [_number_text(row.published) for row in rows],
        "ours": [_number_text(row.ours) for row in rows],
        "standard error": [_number_text(row.standard_error) for row in rows],
        "mean over graphs": [_number_text(row.over_graphs) for row in rows],
        "sd between graphs": [_number_text(row.between_graphs) for row in rows],
        "z": ["-" if np.isnan(row.difference) else f"{row.difference:+.1f}" for row in rows],
        "never": [f"{row.never:.1%}" if row.never else "-" for row in rows],
    }
    telling_columns = {head: cells for head, cells in columns.items() if any(cell != "-" for cell in cells)}
    lines = [list(line) for line in zip(*telling_columns.values(), strict=True)]
    num_key_columns = sum(head in ("setting", "L", "scheme", "deadline") for head in telling_columns)
    return {"heads": list(telling_columns), "rows": lines, "num_key_columns": num_key_columns}


def _number_text(value: float) -> str:
    if np.isnan(value):
        return "-"
    return "0" if abs(value) < ZERO else f"{value:.4g}"


def add(samples: Samples, others: Others, setting: str, results: dict[tuple[int, str], jax.Array]) -> None:
    """Adds the results on one more graph of a setting: those on its first graph are the samples."""
    for (num_blocks, scheme), values in results.items():
        key, array = (setting, num_blocks, scheme), np.asarray(values)
        if key in samples:
            others.setdefault(key, []).append(array)
        else:
            samples[key] = array


def columns(samples: Samples, deadlines: Sequence[float], **more: Samples) -> dict[str, np.ndarray]:
    """One line for every trial (and deadline): the raw results, with further values beside.

    `samples` are float[S, deadlines] each, or float[S] if there are no deadlines; `more`: column -> values of the same
    shape, NaN where there are none for a key.
    """
    tables = []
    for (setting, num_blocks, scheme), values in samples.items():
        num_lines, num_trials, lines_per_trial = values.size, len(values), len(deadlines) or 1
        deadline_column = {"deadline": np.tile(np.asarray(deadlines, float), num_trials)} if deadlines else {}
        table = {
            "setting": np.full(num_lines, setting, object),
            "num_blocks": np.full(num_lines, num_blocks),
            "scheme": np.full(num_lines, scheme, object),
            "trial": np.repeat(np.arange(num_trials), lines_per_trial),
            **deadline_column,
            "value": values.ravel(),
        }
        for name, further_samples in more.items():
            further_values = further_samples.get((setting, num_blocks, scheme))
            table[name] = np.full(num_lines, np.nan) if further_values is None else further_values.ravel()
        tables.append(table)
    return analysis.concatenate_tables(tables)


def write(
    out: Path,
    raw: dict[str, np.ndarray],
    rows: list[Row],
    title: str,
    facts: dict[str, Any],
    progress: Progress,
    more: str = "",
) -> None:
    """Writes `results.parquet`, `summary.md`, `run.json` and `operative.gin`, and shows the table.

    Where published numbers stand beside ours, the page says how they compare; `more` stands between the two.
    """
    files.write_table(out / "results.parquet", raw)
    notes = published.NOTES if any(np.isfinite(row.published) for row in rows) else ""
    summary = [{name: _finite_or_none(value) for name, value in row._asdict().items()} for row in rows]
    analysis.write_page(out, markdown(rows, title) + "\n" + more + notes, {**facts, "summary": summary})
    progress.show(table(rows, title))


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def check(
    assignments: dict[str, codes.Assignment],
    blocks: Sequence[int],
    num_failed: int | dict[str, int] | None,
    deadlines: Sequence[float],
) -> None:
    """Refuses settings in which nothing could be computed.

    Raises:
      ValueError: if something is empty, a deadline is not above zero, a chunk has fewer than L holders, or more workers
        fail than there are.
    """
    _validate.number("deadlines", deadlines, above=True, finite=True)
    for name, entries in (("assignments", assignments), ("blocks", blocks), ("deadlines", deadlines)):
        if not len(entries):
            raise ValueError(f"{name} must not be empty; got {entries!r}.")
    for name, assignment in assignments.items():
        fewest_holders = int(codes.holders(assignment).counts.min())
        for num_blocks in blocks:
            if not 1 <= num_blocks <= fewest_holders:
                raise ValueError(
                    f"every entry of blocks must be between 1 and {fewest_holders}, the fewest holders of a chunk of "
                    f"'{name}'; got {num_blocks}."
                )
        num_failed_of_setting = failures(num_failed, name)
        if num_failed_of_setting is not None and not 0 <= num_failed_of_setting < assignment.num_workers:
            raise ValueError(
                f"num_failed must be between 0 and {assignment.num_workers - 1} for '{name}', which has "
                f"{assignment.num_workers} workers; got {num_failed_of_setting}."
            )


def failures(num_failed: int | dict[str, int] | None, setting: str) -> int | None:
    """The number for one setting: one for all, or one by name; None where there is none."""
    return num_failed.get(setting) if isinstance(num_failed, dict) else num_failed


def keys(seed: int, setting: int) -> jax.Array:
    """Four keys of one setting: random orders, rows of the partial codes, trials, one for further graphs."""
    return jax.random.split(jax.random.fold_in(config.key(seed=seed), setting), 4)
