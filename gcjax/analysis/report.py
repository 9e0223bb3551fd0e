"""Everything that a person looks at after a run, made from what the run saved."""

from pathlib import Path

from gcjax import files
from gcjax.analysis import seal, summary
from gcjax.analysis.curves import loss_vs_time
from gcjax.analysis.gantt import timeline
from gcjax.analysis.store import REPORT, Results


def write_report(results: Results, folder: Path) -> None:
    """Writes `summary.md`, `loss_vs_time.png` and `timeline.png`, and their digests where those of the others are.

    Raises:
      ValueError: if the `run.json` of the folder is damaged.
    """
    with seal.rewriting(folder, REPORT):
        files.write_text(folder / "summary.md", summary.markdown(results))
        loss_vs_time(results, folder / "loss_vs_time.png")
        timeline(results, folder / "timeline.png")
