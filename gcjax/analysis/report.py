"""Everything that a person looks at after a run, made from what the run saved."""

import json
from pathlib import Path
from typing import Any

from gcjax import config, files
from gcjax.analysis import seal, summary
from gcjax.analysis.collect import environment
from gcjax.analysis.curves import loss_vs_time
from gcjax.analysis.gantt import timeline
from gcjax.analysis.store import REPORT_FILES, Results


def write_page(folder: Path, page: str, facts: dict[str, Any]) -> None:
    """Writes the page as `summary.md`, `run.json` with what the run ran on, and `operative.gin`.

    Args:
      folder: of the run.
      page: Markdown.
      facts: what `run.json` says besides; JSON.
    """
    files.write_text(folder / "summary.md", page)
    files.write_text(folder / "run.json", json.dumps({**facts, **environment()}, indent=2) + "\n")
    files.write_text(folder / "operative.gin", config.operative())


def write_report(results: Results, folder: Path, *, against: str | None = None) -> None:
    """Writes `summary.md`, `loss_vs_time.png` and `timeline.png`, and their digests if `run.json` has digests at all.

    Args:
      results: of a comparison.
      folder: of its run.
      against: the scheme that the differences seed by seed are from; the best one if None.

    Raises:
      ValueError: if the `run.json` of the folder is damaged, or there is no scheme `against`.
    """
    page = summary.markdown(results, against=against)
    with seal.rewriting(folder, REPORT_FILES):
        files.write_text(folder / "summary.md", page)
        loss_vs_time(results, folder / "loss_vs_time.png")
        timeline(results, folder / "timeline.png")
