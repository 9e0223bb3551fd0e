"""The figure of an advice: what each scheme wins back, and how sure that is."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from gcjax import _validate, files
from gcjax.advice.base import CLASSES, Advice, SchemeAdvice
from gcjax.advice.evaluation import LEVEL
from gcjax.advice.verdicts import share_text
from gcjax.analysis.styles import COLOURS

_LIMITS = -100, 200
"""In percent: what lies beyond is drawn as an arrow at the edge. All numbers stand on the right."""
_MARGIN = 4  # of the axis beyond what is drawn, in percent
_MARKERS = ("o", "s", "D", "P", "X")  # so that kinds of gradients can also be told without colours
_STYLES = dict(zip(CLASSES, zip(COLOURS, _MARKERS, strict=False), strict=False))
_MAX_SCHEMES_OF_COLUMN = 24
_MAX_CHARACTERS_OF_NAME = 44


def write_figure(advice: Advice, path: str | Path, *, top: int | None = None) -> None:
    """Draws what the schemes of an advice win back, with intervals, in the order and with the numbers of its table.

    The colour and the form of a marker say what a step computes. More than 24 schemes stand in two columns.

    Args:
      advice: of `gcjax.advice.advise`.
      path: of the figure; its ending says the format: .png, .pdf or .svg.
      top: draw so many of the fastest schemes only; all if None.

    Raises:
      ValueError: if the format is not known, or `top` is below 1.
    """
    files.check_figure_ending(path, "the file of a figure")
    rows = advice.schemes if top is None else advice.schemes[: _validate.integer("top", top, minimum=1)]
    num_columns = 1 if len(rows) <= _MAX_SCHEMES_OF_COLUMN else 2
    num_rows = math.ceil(len(rows) / num_columns)
    row_height = float(np.clip(6 / num_rows, 0.24, 0.4))  # inches, as all below
    figure = files.figure(10 if num_columns == 1 else 13.3, 1.7 + row_height * num_rows)
    panels = figure.subplots(1, num_columns, squeeze=False)[0]
    limits = _limits(rows)
    handle_of_class: dict[str, Artist] = {}
    for index, panel in enumerate(panels):
        rows_of_panel = rows[index * num_rows : (index + 1) * num_rows]
        handle_of_class |= _draw_rows(panel, rows_of_panel, limits)
        _label_axes(panel, rows_of_panel, limits, num_rows)
    figure.suptitle(files.figure_text(advice.verdict.split("\n")[0]), fontsize=11)
    handles = [handle_of_class[name] for name in CLASSES if name in handle_of_class]
    files.add_legend(figure, handles, loc="outside lower center", max_columns=len(CLASSES), fontsize=10)
    files.write_figure(path, figure)


def _limits(rows: Sequence[SchemeAdvice]) -> tuple[float, float]:
    """From where to where values are drawn, in percent: all of them, BSP's 0 and 100, but not beyond `_LIMITS`."""
    values = 100 * np.array([row.won_back for row in rows], float).reshape(-1)
    low, high = np.nanmin([0, *values]), np.nanmax([100, *values])
    return max(float(low), _LIMITS[0]), min(float(high), _LIMITS[1])


def _draw_rows(panel: Axes, rows: Sequence[SchemeAdvice], limits: tuple[float, float]) -> dict[str, Artist]:
    """Draws a marker and a line for each scheme, the first at the top; kind of gradient -> its entry of the legend."""
    handle_of_class: dict[str, Artist] = {}
    for height, row in enumerate(rows):
        colour, marker = _STYLES[row.exactness]
        estimate = 100 * np.array(row.won_back, float)  # its value, and the ends of its interval
        value, low, high = np.clip(estimate, *limits)
        panel.plot([low, high], [height, height], color=colour, linewidth=2.2, alpha=0.6, solid_capstyle="butt")
        (handle_of_class[row.exactness],) = panel.plot([], [], marker, color=colour, label=row.exactness)
        if limits[0] <= estimate[0] <= limits[1]:  # not for NaN
            panel.plot(value, height, marker, color=colour, markersize=7)
        for arrow, edge, is_beyond in (
            ("<", limits[0], (estimate < limits[0]).any()),
            (">", limits[1], (estimate > limits[1]).any()),
        ):
            if is_beyond:
                panel.plot(edge, height, arrow, color=colour, markersize=7)
    return handle_of_class


def _label_axes(panel: Axes, rows: Sequence[SchemeAdvice], limits: tuple[float, float], num_rows: int) -> None:
    """Names the schemes on the left and their numbers on the right, and marks BSP and everybody at the median.

    The panel has the room of `num_rows` schemes.
    """
    panel.set_xlim(limits[0] - _MARGIN, limits[1] + _MARGIN)
    panel.set_ylim(num_rows - 0.4, -0.6)
    heights, font_size = range(len(rows)), 9
    panel.set_yticks(heights, labels=[_name_text(row) for row in rows], fontsize=font_size)
    for row, label in zip(rows, panel.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if row.is_best else "normal")
    numbers_axis = panel.secondary_yaxis("right")
    numbers_axis.set_yticks(heights, labels=[share_text(row.won_back) for row in rows], fontsize=font_size)
    for axis in (panel, numbers_axis):
        axis.tick_params(axis="y", length=0)
    panel.tick_params(axis="x", labelsize=font_size)
    for percent, text in ((0, "BSP"), (100, "all at the median")):
        panel.axvline(percent, color="#555555", linewidth=1, linestyle=(0, (4, 2)), zorder=0)
        panel.annotate(
            text, (percent, 1), (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", va="bottom", fontsize=font_size, color="#555555",
        )  # fmt: skip
    interval_name = f"{100 * LEVEL:g} % interval"
    panel.set_xlabel(f"won back of what stragglers cost BSP, in percent; line: {interval_name}", fontsize=font_size)
    panel.grid(axis="y", color="#EEEEEE", zorder=-1)
    panel.set_axisbelow(True)


def _name_text(row: SchemeAdvice) -> str:
    """The name of a scheme with its setting, on one line, cut if it is long."""
    name = " ".join(row.scheme.label.split())
    is_long = len(name) > _MAX_CHARACTERS_OF_NAME
    return files.figure_text(f"{name[: _MAX_CHARACTERS_OF_NAME - 1]}…" if is_long else name)
