"""What `gcjax run --json` and `gcjax report --json` print of the folder of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gcjax import analysis, tables
from gcjax.analysis.store import Results

_MEANS = ("computing", "communicating", "waiting", "mean_staleness", "max_staleness", "chunks", "numbers")


def of_folder(folder: Path) -> dict[str, Any]:
    """The folder, its files, the rows of `summary.md` as text, and for a comparison the numbers of each scheme."""
    page = folder / "summary.md"
    is_comparison = (folder / "metrics.parquet").is_file()
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {
        "folder": str(folder.absolute()),
        "files": sorted(path.as_posix() for path in files if not any(part.startswith(".") for part in path.parts)),
        "tables": tables.page_rows(page.read_text()) if page.is_file() else [],
        "schemes": _schemes(analysis.load(folder)) if is_comparison else [],
    }


def _schemes(results: Results) -> list[dict[str, Any]]:
    """The numbers of each scheme, in the order of the config."""
    return [_scheme(results, scheme) for scheme in results.schemes]


def _scheme(results: Results, scheme: str) -> dict[str, Any]:
    """One scheme: seconds to the target of each seed (infinite: not reached), and means over seeds at the end."""
    seeds = results.seeds(scheme)
    metric = results.facts["target"]["metric"]
    return {
        "scheme": scheme,
        "target": results.facts["target"],
        "time_to_target": analysis.reach_times(results, scheme),
        "final": [seed[metric][-1] for seed in seeds],
        "stalled": results.facts["schemes"][scheme]["stalled"],
        **{name: _mean_at_end(seeds, name) for name in _MEANS},
    }


def _mean_at_end(seeds: Sequence[dict[str, np.ndarray]], column: str) -> float:
    """The mean over seeds of a column's last entry."""
    return float(np.mean([seed[column][-1] for seed in seeds]))
