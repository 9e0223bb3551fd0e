"""What `gcjax run --json` and `gcjax report --json` print of the folder of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gcjax import analysis, tables
from gcjax.analysis.store import Results

_MEAN_COLUMNS = ("computing", "communicating", "waiting", "mean_staleness", "max_staleness", "chunks", "numbers")


def folder_json(folder: Path) -> dict[str, Any]:
    """The folder, its files, the rows of `summary.md` as text, and for a comparison the numbers of each scheme."""
    summary_page = folder / "summary.md"
    is_comparison = (folder / "metrics.parquet").is_file()
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    visible_files = [path for path in files if not any(part.startswith(".") for part in path.parts)]
    return {
        "folder": str(folder.absolute()),
        "files": sorted(path.as_posix() for path in visible_files),
        "tables": tables.rows_of_tables(summary_page.read_text()) if summary_page.is_file() else [],
        "schemes": _schemes_json(analysis.load(folder)) if is_comparison else [],
    }


def _schemes_json(results: Results) -> list[dict[str, Any]]:
    """The numbers of each scheme, in the order of the config."""
    return [_scheme_json(results, scheme) for scheme in results.schemes]


def _scheme_json(results: Results, scheme: str) -> dict[str, Any]:
    """One scheme: seconds to the target of each seed (infinite: not reached), and means over seeds at the end."""
    seeds = results.seeds(scheme)
    target = results.facts["target"]
    return {
        "scheme": scheme,
        "target": target,
        "time_to_target": analysis.reach_times(results, scheme),
        "final": [seed[target["metric"]][-1] for seed in seeds],
        "stalled": results.facts["schemes"][scheme]["stalled"],
        **{name: _mean_of_last_values(seeds, name) for name in _MEAN_COLUMNS},
    }


def _mean_of_last_values(seeds: Sequence[dict[str, np.ndarray]], column: str) -> float:
    """The mean over seeds of a column's last entry."""
    return float(np.mean([seed[column][-1] for seed in seeds]))
