"""The figure of who does what in the first rounds."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from gcjax import files
from gcjax.analysis.store import Columns, Results, select
from gcjax.analysis.timelines.intervals import STATE_COLOURS, intervals


def timeline(results: Results, path: Path) -> None:
    """Draws a Gantt chart of the first rounds of the first seed: a panel a scheme, a row a worker."""
    num_workers, seconds = int(results.facts["num_workers"]), results.facts["timeline_seconds"]
    num_panels = len(results.schemes)
    columns, rows = min(2, num_panels), -(-num_panels // 2)  # at most two panels side by side
    panel_height = 0.9 + min(0.085 * num_workers, 3.0)  # inches
    figure = files.figure(7 * columns, panel_height * rows + 0.9)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for i, scheme in enumerate(results.schemes):
        units = select(results.timeline, results.timeline["scheme"] == scheme)
        _draw_units(panels[i], units, seconds, num_workers)
        panels[i].set_title(scheme, loc="left", fontsize=10)
    _label_axes(panels, num_panels, columns)
    handles = [Patch(color=colour, label=state) for state, colour in STATE_COLOURS.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    files.write_figure(path, figure)


def _label_axes(panels: np.ndarray, num_used: int, columns: int) -> None:
    """Labels the outer axes of a grid of panels, row by row, and hides those behind the first `num_used`."""
    for panel in panels[num_used:]:
        panel.set_visible(False)
    for panel in panels[max(0, num_used - columns) : num_used]:  # the lowest of each column
        panel.set_xlabel("virtual time (s)")
        panel.tick_params(labelbottom=True)
    for panel in panels[::columns]:
        panel.set_ylabel("worker")
        panel.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _draw_units(panel: Axes, units: Columns, seconds: float, num_workers: int) -> None:
    """Draws the units of one scheme, a row a worker, with a bar of the state's colour for each interval.

    Args:
      panel: to draw on.
      units: a row for each unit, with the columns of `Results.timeline`.
      seconds: how far the timeline goes.
      num_workers: W; worker 0 is at the top.
    """
    panel.set_facecolor(STATE_COLOURS["waiting"])
    panel.set_xlim(0, seconds)
    panel.set_ylim(num_workers - 0.5, -0.5)
    panel.spines[["top", "right", "left"]].set_visible(False)
    for state, (begin, end) in intervals(units, seconds).items():
        has_length = np.isfinite(begin) & (end > begin)
        for worker in np.unique(units["worker"][has_length]):
            of_worker = has_length & (units["worker"] == worker)
            bars = np.stack([begin[of_worker], end[of_worker] - begin[of_worker]], axis=1).tolist()  # begin, length
            bottom_and_height = worker - 0.42, 0.84
            panel.broken_barh(bars, bottom_and_height, facecolor=STATE_COLOURS[state], edgecolor="white", linewidth=0.3)
