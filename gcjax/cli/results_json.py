"""What `gcjax run --json` and `gcjax report --json` print of the folder of a run."""

from pathlib import Path
from typing import Any

import numpy as np

from gcjax import analysis, tables
from gcjax.analysis.store import Results

_MEAN_COLUMNS = ("computing", "communicating", "waiting", "mean_staleness", "max_staleness", "chunks", "numbers")


def folder_json(folder: Path) -> dict[str, Any]:
    """The folder, its files, the rows of `summary.md` as text, and for a comparison the numbers of each scheme."""
    summary_page = folder / "summary.md"
    results = analysis.load(folder) if (folder / "metrics.parquet").is_file() else None  # of a comparison
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    visible_files = [path for path in files if not any(part.startswith(".") for part in path.parts)]
    return {
        "folder": str(folder.absolute()),
        "files": sorted(path.as_posix() for path in visible_files),
        "tables": tables.rows_of_tables(summary_page.read_text()) if summary_page.is_file() else [],
        "schemes": [_scheme_json(results, scheme) for scheme in results.schemes] if results is not None else [],
    }


def _scheme_json(results: Results, scheme: str) -> dict[str, Any]:
    """One scheme: seconds to the target of each seed (infinite: not reached), and means over seeds at the end.

    `final`: the target's metric at the end of each seed; the means are those of `_MEAN_COLUMNS`.
    """
    seeds = results.seeds(scheme)  # columns with a value for each evaluation
    target = results.facts["target"]
    return {
        "scheme": scheme,
        "target": target,
        "time_to_target": analysis.reach_times(results, scheme),
        "final": [seed[target["metric"]][-1] for seed in seeds],
        "stalled": results.facts["schemes"][scheme]["stalled"],
        **{name: float(np.mean([seed[name][-1] for seed in seeds])) for name in _MEAN_COLUMNS},
    }
