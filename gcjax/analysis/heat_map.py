"""The figure of a trace: how slow each worker was in each step."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from gcjax import files
from gcjax.stragglers import Trace
from gcjax.stragglers.traces.description.step_times import step_times

_MAX_CELLS = 1000
"""Of each axis; where there are more steps or workers, a cell is the largest of those it stands for."""
_MAX_RATIO = 4.0
"""Colours go from 1 / _MAX_RATIO times the median to _MAX_RATIO times; what is beyond has the last colour."""
_MAX_NAMES = 40


def write_heat_map(trace: Trace, path: str | Path) -> None:
    """Draws the times of a trace over the median of their step: a row a worker, a column a step.

    What was not measured is grey, and so is a failed worker.

    Args:
      trace: with a finite time.
      path: of the figure; its ending says the format.

    Raises:
      ValueError: if the trace has no finite time, or the format is not known.
    """
    files.check_figure_ending(path, "the file of a heat map")
    times = step_times(trace)
    with np.errstate(divide="ignore", invalid="ignore"):
        # float64[W, T]; NaN where there is none. At least 1e-6, as a logarithmic scale has no 0.
        ratios = np.maximum(times.seconds / times.step_median[:, None], 1e-6).T
    num_workers, num_steps = ratios.shape
    height = 1.6 + min(0.25 * num_workers, 6.0)  # inches
    figure = files.figure(9, height)
    panel = figure.subplots()
    panel.set_facecolor("#BBBBBB")
    cells = panel.imshow(
        _max_pooled(_max_pooled(ratios, axis=0), axis=1), aspect="auto", interpolation="nearest", cmap="RdBu_r",
        norm=LogNorm(1 / _MAX_RATIO, _MAX_RATIO, clip=True), extent=(-0.5, num_steps - 0.5, num_workers - 0.5, -0.5),
    )  # fmt: skip
    colour_bar = figure.colorbar(cells, ax=panel, extend="both", label="time / median of the step")
    colour_bar.ax.yaxis.set_major_locator(FixedLocator([0.25, 0.5, 1, 2, 4]))
    colour_bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}"))
    colour_bar.ax.yaxis.set_minor_formatter(NullFormatter())
    _label_axes(panel, times.steps, trace.workers)
    files.write_figure(path, figure)


def _max_pooled(values: np.ndarray, *, axis: int) -> np.ndarray:
    """The largest of neighbouring values (NaN only if all are); there are at most `_MAX_CELLS` along the axis then."""
    length = values.shape[axis]
    if length <= _MAX_CELLS:
        return values
    cell_begins = np.linspace(0, length, _MAX_CELLS, endpoint=False).astype(int)  # each cell goes on to the next begin
    return np.fmax.reduceat(values, cell_begins, axis=axis)


def _label_axes(panel: Axes, steps: np.ndarray, worker_names: tuple[str, ...]) -> None:
    """Labels columns with the numbers `steps int[columns]`, and rows with the workers' names, numbers if too many."""
    panel.set_xlabel("step")
    panel.set_ylabel("worker")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    panel.xaxis.set_major_formatter(
        FuncFormatter(lambda column, _: str(steps[int(column)]) if 0 <= column < len(steps) else "")
    )
    if len(worker_names) <= _MAX_NAMES:
        panel.set_yticks(range(len(worker_names)), labels=[files.figure_text(name) for name in worker_names])
    else:
        panel.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
