"""Timelines of the folder of a run: what its tables of units and commits say."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gcjax import _validate
from gcjax.analysis import seal
from gcjax.analysis.store import (
    COMMITS_FILE,
    METRICS_FILE,
    PAGE_FILE,
    REPORT_FILES,
    TIMELINE_FILE,
    Columns,
    select_rows,
    table_columns,
    table_columns_or_none,
)
from gcjax.analysis.timelines.activity import Activity

_TIME_COLUMNS = ("start", "compute_start", "compute_end", "finish")
_LOSS_COLUMNS = ("train_loss", "loss", "test_loss", "suboptimality")


def activities(folder: Path, *, schemes: Sequence[str] = ()) -> list[Activity]:
    """What workers and server did under each scheme, as far as the folder's tables go.

    Args:
      folder: with `timeline.parquet`, and if they are known `commits.parquet` and `metrics.parquet`.
      schemes: those that are wanted, in their order; all if there is none.

    Raises:
      ValueError: if the folder has no timeline, or no such scheme.
    """
    if not (folder / TIMELINE_FILE).is_file():
        raise ValueError(
            f"A folder with {TIMELINE_FILE} is needed, as experiments write that compare schemes; {folder} has none."
        )
    units, commits = table_columns(folder / TIMELINE_FILE), table_columns_or_none(folder / COMMITS_FILE)
    metrics = table_columns_or_none(folder / METRICS_FILE)
    facts = seal.read(folder, rebuilt_files=(*REPORT_FILES, PAGE_FILE))
    all_schemes = list(dict.fromkeys(units["scheme"].tolist()))
    chosen_schemes = [_validate.choice("scheme", scheme, all_schemes) for scheme in schemes] or all_schemes
    return [_activity(scheme, units, commits, metrics, facts) for scheme in chosen_schemes]


def _activity(
    scheme: str, units: Columns, commits: Columns | None, metrics: Columns | None, facts: dict[str, Any]
) -> Activity:
    """What workers and server did under one scheme; arguments are the tables of all schemes, and `run.json`'s facts."""
    scheme_units = select_rows(units, units["scheme"] == scheme)
    contributions = None if commits is None else select_rows(commits, commits["scheme"] == scheme)
    end = float(facts.get("timeline_seconds", _last_time(scheme_units)))
    num_workers = int(facts.get("num_workers", units["worker"].max(initial=0) + 1))
    missing_data_note = "" if commits is not None else f"; without commits and arrows, since there is no {COMMITS_FILE}"
    loss = _loss_of_commits(contributions) or _loss_of_evaluations(scheme, metrics)
    return Activity(
        scheme, scheme_units, contributions, loss, begin=0.0, end=end, workers=np.arange(num_workers),
        num_workers=num_workers, shown_part_text="", missing_data_note=missing_data_note,
    )  # fmt: skip


def _last_time(units: Columns) -> float:
    """Seconds: the last finite time of all units; 1 if there is none."""
    finite_times = [units[name][np.isfinite(units[name])] for name in _TIME_COLUMNS]
    return max((float(times.max()) for times in finite_times if times.size), default=1.0)


def _loss_of_commits(contributions: Columns | None) -> Columns | None:
    """The loss of each commit, columns `time` (seconds) and `value`; None if the table does not have it."""
    if contributions is None or "loss" not in contributions:
        return None
    _, first_row_of_commit = np.unique(contributions["commit"], return_index=True)
    commits = select_rows(contributions, first_row_of_commit)
    return {"time": commits["time"], "value": commits["loss"].astype(np.float64)}


def _loss_of_evaluations(scheme: str, metrics: Columns | None) -> Columns | None:
    """The loss at each evaluation of the first seed, columns `time` (seconds) and `value`; None if it is not known."""
    loss_column = next((name for name in _LOSS_COLUMNS if metrics is not None and name in metrics), None)
    if metrics is None or loss_column is None:
        return None
    evaluations = select_rows(metrics, metrics["scheme"] == scheme)
    if evaluations["seed"].size:
        evaluations = select_rows(evaluations, evaluations["seed"] == evaluations["seed"].min())
    return {"time": evaluations["time"].astype(np.float64), "value": evaluations[loss_column].astype(np.float64)}
