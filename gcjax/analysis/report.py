"""Everything that a person looks at after a run, made from what the run saved."""

from pathlib import Path

from gcjax import files
from gcjax.analysis import summary
from gcjax.analysis.curves import loss_vs_time
from gcjax.analysis.gantt import timeline
from gcjax.analysis.store import Results


def write_report(results: Results, folder: Path) -> None:
    """Writes `summary.md`, `loss_vs_time.png` and `timeline.png`."""
    files.write_text(folder / "summary.md", summary.markdown(results))
    loss_vs_time(results, folder / "loss_vs_time.png")
    timeline(results, folder / "timeline.png")
