"""Timelines of the folder of a run: what its tables of units and commits say."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gcjax import _validate
from gcjax.analysis import seal
from gcjax.analysis.store import COMMITS, PAGE, REPORT, TIMELINE, Columns, select, table_columns
from gcjax.analysis.timelines.activity import Activity

_TIMES = ("start", "compute_start", "compute_end", "finish")
_LOSSES = ("train_loss", "loss", "test_loss", "suboptimality")


def activities(folder: Path, *, schemes: Sequence[str] = ()) -> list[Activity]:
    """What workers and server did under each scheme, as far as the folder's tables go.

    Args:
      folder: with `timeline.parquet`, and if they are known `commits.parquet` and `metrics.parquet`.
      schemes: those that are wanted, in their order; all if there is none.

    Raises:
      ValueError: if the folder has no timeline, or no such scheme.
    """
    if not (folder / TIMELINE).is_file():
        raise ValueError(
            f"A folder with {TIMELINE} is needed, as experiments write that compare schemes; {folder} has none."
        )
    units, commits = table_columns(folder / TIMELINE), _table_or_none(folder / COMMITS)
    metrics, facts = _table_or_none(folder / "metrics.parquet"), seal.read(folder, rebuilt=(*REPORT, PAGE))
    known = list(dict.fromkeys(units["scheme"].tolist()))
    chosen = [_validate.choice("scheme", scheme, known) for scheme in schemes] or known
    return [_activity(scheme, units, commits, metrics, facts) for scheme in chosen]


def _table_or_none(file: Path) -> Columns | None:
    """The columns of a Parquet file; None if there is no such file."""
    return table_columns(file) if file.is_file() else None


def _activity(
    scheme: str, units: Columns, commits: Columns | None, metrics: Columns | None, facts: dict[str, Any]
) -> Activity:
    """That of one scheme."""
    own = select(units, units["scheme"] == scheme)
    contributions = None if commits is None else select(commits, commits["scheme"] == scheme)
    times = [own[name][np.isfinite(own[name])] for name in _TIMES]
    end = facts.get("timeline_seconds", max((float(x.max()) for x in times if x.size), default=1.0))
    num_workers = int(facts.get("num_workers", units["worker"].max(initial=0) + 1))
    unknown = "" if commits is not None else f"; without commits and arrows, since there is no {COMMITS}"
    loss = _loss_of_commits(contributions) or _loss_of_evaluations(scheme, metrics)
    return Activity(
        scheme, own, contributions, loss, 0.0, float(end), np.arange(num_workers), num_workers, "", without=unknown
    )


def _loss_of_commits(contributions: Columns | None) -> Columns | None:
    """The loss of each commit, if the table has it."""
    if contributions is None or "loss" not in contributions:
        return None
    _, first = np.unique(contributions["commit"], return_index=True)
    return {"time": contributions["time"][first], "value": contributions["loss"][first].astype(np.float64)}


def _loss_of_evaluations(scheme: str, metrics: Columns | None) -> Columns | None:
    """The loss at each evaluation of the first seed, if it is known."""
    name = next((name for name in _LOSSES if metrics is not None and name in metrics), None)
    if metrics is None or name is None:
        return None
    own = select(metrics, metrics["scheme"] == scheme)
    first = select(own, own["seed"] == own["seed"].min()) if own["seed"].size else own
    return {"time": first["time"].astype(np.float64), "value": first[name].astype(np.float64)}
