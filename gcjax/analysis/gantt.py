"""The figure of who does what in the first rounds."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from gcjax import files
from gcjax.analysis.store import Columns, Results, select

_STATES = {
    "computing": "#4477AA",
    "cut off": "#EE6677",
    "receiving": "#CCBB44",
    "sending": "#228833",
    "failed": "#333333",
    "waiting": "#E6E6E6",
}


def timeline(results: Results, path: Path) -> None:
    """Draws a Gantt chart of the first rounds of the first seed: a panel a scheme, a row a worker."""
    workers, seconds = int(results.facts["num_workers"]), results.facts["timeline_seconds"]
    number = len(results.schemes)
    columns, rows = min(2, number), -(-number // 2)
    height = 0.9 + min(0.085 * workers, 3.0)
    figure = files.figure(7 * columns, height * rows + 0.9)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for i, scheme in enumerate(results.schemes):
        units = select(results.timeline, results.timeline["scheme"] == scheme)
        _draw_units(panels[i], units, seconds, workers)
        panels[i].set_title(scheme, loc="left", fontsize=10)
    _label(panels, number, columns)
    handles = [Patch(color=colour, label=state) for state, colour in _STATES.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    files.write_figure(path, figure)


def _label(panels: np.ndarray, number: int, columns: int) -> None:
    """Labels the outer axes, and hides the panels that no scheme uses."""
    for panel in panels[number:]:
        panel.set_visible(False)
    for panel in panels[max(0, number - columns) : number]:
        panel.set_xlabel("virtual time (s)")
        panel.tick_params(labelbottom=True)
    for panel in panels[::columns]:
        panel.set_ylabel("worker")
        panel.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _draw_units(panel: Axes, units: Columns, seconds: float, num_workers: int) -> None:
    panel.set_facecolor(_STATES["waiting"])
    panel.set_xlim(0, seconds)
    panel.set_ylim(num_workers - 0.5, -0.5)
    panel.spines[["top", "right", "left"]].set_visible(False)
    for state, (begin, end) in _intervals(units, seconds).items():
        shown = np.isfinite(begin) & (end > begin)
        for worker in np.unique(units["worker"][shown]):
            of_worker = shown & (units["worker"] == worker)
            bars = np.stack([begin[of_worker], end[of_worker] - begin[of_worker]], axis=1).tolist()
            row = worker - 0.42, 0.84
            panel.broken_barh(bars, row, facecolor=_STATES[state], edgecolor="white", linewidth=0.3)


def _intervals(units: Columns, seconds: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """State -> (begin, end) of the units in that state, NaN for all others."""
    begin, end = units["compute_start"], np.minimum(units["compute_end"], seconds)
    failed = units["failed"]
    cut = ~failed & ~np.isfinite(units["finish"])
    computed = ~failed & ~cut
    return {
        "computing": (np.where(computed, begin, np.nan), end),
        "cut off": (np.where(cut, begin, np.nan), end),
        "failed": (np.where(failed, begin, np.nan), end),
        "receiving": (units["start"], np.where(np.isfinite(begin), begin, units["start"])),
        "sending": (units["send_start"], np.where(np.isfinite(units["send_start"]), units["finish"], np.nan)),
    }
