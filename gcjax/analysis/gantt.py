"""The figure of who does what in the first rounds."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from gcjax import files
from gcjax.analysis.store import Columns, Results, select_rows
from gcjax.analysis.timelines.intervals import STATE_COLOURS, state_intervals

_MAX_COLUMNS = 2


def timeline(results: Results, path: Path) -> None:
    """Draws a Gantt chart of the first rounds of the first seed: a panel a scheme, a row a worker."""
    num_workers, timeline_seconds = int(results.facts["num_workers"]), results.facts["timeline_seconds"]
    num_panels = len(results.schemes)
    num_columns, num_rows = min(_MAX_COLUMNS, num_panels), math.ceil(num_panels / _MAX_COLUMNS)
    panel_height = 0.9 + min(0.085 * num_workers, 3.0)  # inches
    figure = files.figure(7 * num_columns, panel_height * num_rows + 0.9)
    panels = figure.subplots(num_rows, num_columns, squeeze=False, sharex=True, sharey=True).ravel()
    for panel, scheme in zip(panels, results.schemes, strict=False):  # the last panel may be empty
        units = select_rows(results.timeline, results.timeline["scheme"] == scheme)
        _draw_units(panel, units, timeline_seconds, num_workers)
        panel.set_title(files.figure_text(scheme), loc="left", fontsize=10)
    _label_outer_axes(panels, num_panels, num_columns)
    handles = [Patch(color=colour, label=state) for state, colour in STATE_COLOURS.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    files.write_figure(path, figure)


def _label_outer_axes(panels: np.ndarray, num_used_panels: int, num_columns: int) -> None:
    """Labels the outer axes of a grid of panels, row by row, and hides those behind the first `num_used_panels`."""
    unused_panels, first_panel_of_rows = panels[num_used_panels:], panels[::num_columns]
    last_panel_of_columns = panels[max(0, num_used_panels - num_columns) : num_used_panels]
    for panel in unused_panels:
        panel.set_visible(False)
    for panel in last_panel_of_columns:
        panel.set_xlabel("virtual time (s)")
        panel.tick_params(labelbottom=True)
    for panel in first_panel_of_rows:
        panel.set_ylabel("worker")
        panel.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _draw_units(panel: Axes, units: Columns, timeline_seconds: float, num_workers: int) -> None:
    """Draws the units of one scheme, a row a worker, worker 0 at the top, with a bar of its colour for each state.

    `units` has the columns of `Results.timeline`.
    """
    panel.set_facecolor(STATE_COLOURS["waiting"])
    panel.set_xlim(0, timeline_seconds)
    panel.set_ylim(bottom=num_workers - 0.5, top=-0.5)
    panel.spines[["top", "right", "left"]].set_visible(False)
    for state, (begin, end) in state_intervals(units, timeline_seconds).items():
        draw_bars(panel, units["worker"], begin, end, STATE_COLOURS[state], height=0.84)


def draw_bars(
    panel: Axes, worker_of_bar: np.ndarray, begin: np.ndarray, end: np.ndarray, colour: str, *, height: float
) -> None:
    """Draws a bar for each interval (seconds) that has a length, in its worker's row; `height` is a share of that.

    `worker_of_bar`, `begin` and `end` are [bars]; an interval with a NaN or inf has no length.
    """
    with np.errstate(invalid="ignore"):
        has_length = np.isfinite(begin) & np.isfinite(end) & (end > begin)
    for worker in np.unique(worker_of_bar[has_length]):
        is_bar = has_length & (worker_of_bar == worker)
        begin_and_length = np.stack([begin[is_bar], end[is_bar] - begin[is_bar]], axis=1).tolist()
        bottom_and_height = worker - height / 2, height
        panel.broken_barh(begin_and_length, bottom_and_height, facecolor=colour, edgecolor="white", linewidth=0.3)
