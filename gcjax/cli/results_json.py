"""What `gcjax run --json` and `gcjax report --json` print of the folder of a run."""

from pathlib import Path
from typing import Any

import numpy as np

from gcjax import analysis, tables
from gcjax.analysis import summary
from gcjax.analysis.store import Results, is_comparison

_MEAN_COLUMNS = ("computing", "communicating", "waiting", "mean_staleness", "chunks", "numbers")


def folder_json(folder: Path, *, against: str | None = None) -> dict[str, Any]:
    """The folder, its files, the rows of `summary.md` as text, and for a comparison the numbers of each scheme.

    The differences seed by seed are from the scheme `against`, or from the best one if None.
    """
    results = analysis.load(folder) if is_comparison(folder) else None
    # `summary.md` may be with another reference, where the folder cannot be written.
    page = summary.markdown(results, against=against) if results is not None else _summary_page(folder)
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    visible_files = [path for path in files if not any(part.startswith(".") for part in path.parts)]
    return {
        "folder": str(folder.absolute()),
        "files": sorted(path.as_posix() for path in visible_files),
        "tables": tables.rows_of_tables(page),
        "schemes": [_scheme_json(results, scheme) for scheme in results.schemes] if results is not None else [],
    }


def _summary_page(folder: Path) -> str:
    """The text of `summary.md`; "" if there is none."""
    path = folder / "summary.md"
    return path.read_text() if path.is_file() else ""


def _scheme_json(results: Results, scheme: str) -> dict[str, Any]:
    """One scheme: seconds to the target of each seed (infinite: not reached), and means over seeds at the end.

    `final`: the target's metric at the end of each seed; the means are those of `_MEAN_COLUMNS`, over the seeds that
    have such a value (without a commit there is no staleness); `max_staleness` is the largest of all.
    """
    seeds = results.seeds(scheme)  # columns with a value for each evaluation
    target, times_to_target = results.facts["target"], analysis.reach_times(results, scheme)
    return {
        "scheme": scheme,
        "target": target,
        "time_to_target": times_to_target,
        **{
            f"{name}_to_target": summary.spent_until_target(seeds, times_to_target, name)
            for name in ("chunks", "numbers")
        },
        "final": [seed[target["metric"]][-1] for seed in seeds],
        "stalled": results.facts["schemes"][scheme]["stalled"],
        "unused_workers": results.facts["schemes"][scheme].get("unused_workers"),
        **{name: _mean_of_finite([seed[name][-1] for seed in seeds]) for name in _MEAN_COLUMNS},
        "max_staleness": max(_finite([seed["max_staleness"][-1] for seed in seeds]), default=float("nan")),
    }


def _mean_of_finite(values: list[float]) -> float:
    """The mean of those values that are finite; NaN if none is."""
    finite_values = _finite(values)
    return float(np.mean(finite_values)) if finite_values else float("nan")


def _finite(values: list[float]) -> list[float]:
    """Those of the values that are finite."""
    return [float(value) for value in values if np.isfinite(value)]
