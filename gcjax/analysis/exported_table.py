"""The main table of a comparison or sweep for other programs, in CSV and LaTeX; and all of its evaluations in CSV.

A comparison is a sweep over nothing (`gcjax.analysis.sweeps.of_comparison`).
"""

import io
import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from gcjax import tex
from gcjax.analysis import paired, summary, sweep_summary, sweeps
from gcjax.analysis.store import Columns
from gcjax.analysis.sweep_summary import Entry
from gcjax.analysis.sweeps import Sweep
from gcjax.analysis.table_cells import finite, mean_of_finite


def csv(sweep: Sweep, *, against: str | None = None) -> str:
    """The table as CSV: a line of names, in quotes as all texts are, and a line for each combination and scheme.

    Args:
      sweep: what it found.
      against: the scheme that the others are compared with; the best one if None (see `sweep_summary.references`).

    Raises:
      ValueError: if a combination has no scheme `against`.
    """
    return _csv_text([columns(sweep, against=against)])


def curves(sweep: Sweep) -> str:
    """The curves of all seeds of all schemes as CSV: a line for each evaluation, as in `metrics.parquet`.

    The values of a sweep's parameters stand first, with "(parameter)" behind a name that another column has, too.
    """
    metrics_of_combinations = [combination.results.metrics for combination in sweep.combinations]
    parameters = _beside(sweeps.parameter_columns(sweep), set().union(*metrics_of_combinations))
    tables = []
    for index, metrics in enumerate(metrics_of_combinations):
        num_rows = metrics["time"].size
        values = {name: np.repeat(column[index : index + 1], num_rows) for name, column in parameters.items()}
        tables.append(values | metrics)
    return _csv_text(tables)


def _csv_text(tables: Sequence[Columns]) -> str:
    """Tables as one in CSV; what is not a number, or a column that a table has not, is an empty cell."""
    import pyarrow as pa
    from pyarrow.csv import write_csv

    arrow_tables = [
        pa.table({name: pa.array(column, from_pandas=True) for name, column in table.items()}) for table in tables
    ]
    output = io.BytesIO()
    write_csv(pa.concat_tables(arrow_tables, promote_options="permissive"), output)
    return output.getvalue().decode()


def _beside(parameters: Columns, names: Collection[str]) -> Columns:
    """Columns of parameters that are to stand beside others of these names, which stay."""
    return {f"{name} (parameter)" if name in names else name: column for name, column in parameters.items()}


def columns(sweep: Sweep, *, against: str | None = None) -> Columns:
    """The table as numbers, with units in the names of the columns; NaN where there is no number.

    Args:
      sweep: what it found.
      against: as of `csv`, as are the errors.

    Returns:
      A column for each parameter, with "(parameter)" behind a name that another column has, too; then those of
      `_numbers_of_scheme` and `_numbers_of_difference`.
    """
    entries = sweep_summary.entries(sweep)
    rows = [
        {**_numbers_of_scheme(entry), "against": name, **_numbers_of_difference(entry, reference)}
        for entry, reference, name in zip(
            entries, sweep_summary.references(sweep, against), _reference_names(sweep, against), strict=True
        )
    ]
    numbers = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    index_of_combination = {combination.folder: index for index, combination in enumerate(sweep.combinations)}
    indices = [index_of_combination[entry.combination.folder] for entry in entries]
    values = {name: column[indices] for name, column in sweeps.parameter_columns(sweep).items()}
    return _beside(values, numbers) | numbers


def latex(sweep: Sweep, *, against: str | None = None) -> str:
    """The table in LaTeX, with rules of `booktabs`; arguments and errors as of `csv`.

    Its columns are the parameters, the scheme, seconds to the target and the final value (each mean ± standard
    deviation), the seeds, and how many times as long as the reference, with the interval. Where there are several
    references, there is a column with their names.
    """
    names = _reference_names(sweep, against)
    distinct_names = [name for name in dict.fromkeys(names) if name]
    has_name_column = len(distinct_names) > 1
    as_long_as = f" as {distinct_names[0]}" if len(distinct_names) == 1 else ""
    table_heads, num_parameters = sweep_summary.heads(sweep), len(sweep.parameters)
    heads = [
        *table_heads[: num_parameters + 3],  # the parameters, the scheme, the time to the target, the final value
        "Seeds",
        *(["Later than"] if has_name_column else []),
        f"Times as long{as_long_as}",
        paired.INTERVAL_NAME,
    ]
    rows = [
        [
            *table_row[: num_parameters + 3],
            str(entry.times.size),
            *([name or "-"] if has_name_column else []),
            *_difference_cells(entry, reference),
        ]
        for table_row, entry, reference, name in zip(
            sweep_summary.rows(sweep),
            sweep_summary.entries(sweep),
            sweep_summary.references(sweep, against),
            names,
            strict=True,
        )
    ]
    num_right = len(heads) - num_parameters - 1
    specification = f"@{{}}{'l' * (num_parameters + 1)}{'r' * num_right}@{{}}"
    return tex.tabular(specification, [*map(tex.escape, heads)], [[*map(tex.escape, row)] for row in rows])


def _reference_names(sweep: Sweep, against: str | None) -> list[str]:
    """What each of `sweep_summary.entries` is compared with, by name; "" for nothing."""
    references = sweep_summary.references(sweep, against)
    if against is not None:
        return [against] * len(references)
    return [sweep_summary.reference_name(reference, sweep) if reference is not None else "" for reference in references]


def _numbers_of_scheme(entry: Entry) -> dict[str, Any]:
    """What a scheme needed for the target, and means over seeds at the end, as in the summary."""
    results = entry.combination.results
    target, seeds = results.facts["target"], results.seeds(entry.scheme)
    seconds = entry.times[np.isfinite(entry.times)]  # of the seeds that reached the target
    last_values = {name: np.array([seed[name][-1] for seed in seeds]) for name in results.metrics}
    final_values = last_values[target["metric"]].astype(np.float64)
    spent = {name: np.array(summary.spent_until_target(seeds, entry.times, name)) for name in ("chunks", "numbers")}
    return {
        "scheme": entry.scheme,
        "metric": target["metric"],
        "target": target["value"],
        "seeds": entry.times.size,
        "seeds_at_target": seconds.size,
        "time_to_target_mean_s": _mean(seconds),
        "time_to_target_std_s": _std(seconds),
        "final_mean": _mean(final_values),
        "final_std": _std(final_values),
        **{f"{name}_share": mean_of_finite(last_values[name]) for name in ("computing", "communicating", "waiting")},
        "mean_staleness_commits": mean_of_finite(last_values["mean_staleness"]),
        "max_staleness_commits": max(finite(last_values["max_staleness"]), default=math.nan),
        **{f"{name}_to_target_per_worker": mean_of_finite(values) for name, values in spent.items()},
    }


def _numbers_of_difference(entry: Entry, reference: Entry | None) -> dict[str, Any]:
    """How much longer a scheme takes than the reference, with the interval of the ratio; all NaN of the reference."""
    names = ("pairs", "later_mean_s", "times_as_long", "times_as_long_low_95", "times_as_long_high_95")
    if reference is None or sweep_summary.is_same(entry, reference):
        return dict.fromkeys(names, math.nan)
    difference = paired.pair(reference.times, entry.times)
    ratio = difference.ratio
    numbers = [math.nan] * 4 if ratio is None else [difference.seconds_later, ratio.mean, ratio.low, ratio.high]
    return dict(zip(names, [difference.num_pairs, *numbers], strict=True))


def _difference_cells(entry: Entry, reference: Entry | None) -> tuple[str, str]:
    """How many times as long as the reference a scheme takes, and the interval, as text."""
    if reference is None or sweep_summary.is_same(entry, reference):
        return "-", "-"
    row = paired.row(entry.scheme, reference.times, entry.times)
    return row.times_as_long, row.interval


def _mean(values: np.ndarray) -> float:
    """The mean; NaN if there is none, or it is not finite."""
    return float(values.mean()) if values.size and np.isfinite(values).all() else math.nan


def _std(values: np.ndarray) -> float:
    """The standard deviation of what the values are a sample of; NaN of fewer than 2, or if it is not finite."""
    return float(values.std(ddof=1)) if values.size > 1 and np.isfinite(values).all() else math.nan
