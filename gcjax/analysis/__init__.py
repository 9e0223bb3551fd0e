"""What a run means: costs, summary tables, figures, and the folder that holds them."""

from gcjax.analysis.collect import commit_columns, environment, metric_columns, timeline_columns
from gcjax.analysis.html_report.folder import write_html
from gcjax.analysis.metrics import Costs, costs, is_stalled, num_unused_workers, time_to_target
from gcjax.analysis.report import write_page, write_report
from gcjax.analysis.seal import UnsealedWarning
from gcjax.analysis.store import (
    CHECKPOINTS,
    Results,
    concatenate_tables,
    drop_checkpoints,
    file_name,
    is_complete,
    is_resumable,
    load,
    make_empty_folder,
    resumable_or_new_folder,
    save,
    select_rows,
)
from gcjax.analysis.styles import seed_curves
from gcjax.analysis.summary import best_value, markdown, reach_times, table
from gcjax.analysis.sweeps import Combination, Sweep, load_sweep
from gcjax.analysis.target import Target, target
from gcjax.analysis.timelines.writing import write_timeline
from gcjax.tables import RichTable, markdown_table

__all__ = [
    "CHECKPOINTS",
    "Combination",
    "Costs",
    "Results",
    "RichTable",
    "Sweep",
    "Target",
    "UnsealedWarning",
    "best_value",
    "commit_columns",
    "concatenate_tables",
    "costs",
    "drop_checkpoints",
    "environment",
    "file_name",
    "is_complete",
    "is_resumable",
    "is_stalled",
    "load",
    "load_sweep",
    "make_empty_folder",
    "markdown",
    "markdown_table",
    "metric_columns",
    "num_unused_workers",
    "reach_times",
    "resumable_or_new_folder",
    "save",
    "seed_curves",
    "select_rows",
    "table",
    "target",
    "time_to_target",
    "timeline_columns",
    "write_html",
    "write_page",
    "write_report",
    "write_timeline",
]
