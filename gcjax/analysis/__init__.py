"""What a run means: costs, summary tables, figures, and the folder that holds them."""

from gcjax.analysis.collect import commit_columns, environment, metric_columns, timeline_columns
from gcjax.analysis.html_report.folder import write_html
from gcjax.analysis.metrics import Costs, costs, is_stalled, time_to_target
from gcjax.analysis.report import write_page, write_report
from gcjax.analysis.seal import UnsealedWarning
from gcjax.analysis.store import (
    CHECKPOINTS,
    Results,
    drop_checkpoints,
    empty_folder,
    file_name,
    is_complete,
    is_resumable,
    load,
    save,
    select,
    stack,
    unfinished_folder,
)
from gcjax.analysis.summary import best_value, markdown, reach_times, table
from gcjax.analysis.target import Target, target
from gcjax.analysis.timelines.writing import write_timeline
from gcjax.tables import markdown_table, rich_table

__all__ = [
    "CHECKPOINTS",
    "Costs",
    "Results",
    "Target",
    "UnsealedWarning",
    "best_value",
    "commit_columns",
    "costs",
    "drop_checkpoints",
    "empty_folder",
    "environment",
    "file_name",
    "is_complete",
    "is_resumable",
    "is_stalled",
    "load",
    "markdown",
    "markdown_table",
    "metric_columns",
    "reach_times",
    "rich_table",
    "save",
    "select",
    "stack",
    "table",
    "target",
    "time_to_target",
    "timeline_columns",
    "unfinished_folder",
    "write_html",
    "write_page",
    "write_report",
    "write_timeline",
]
