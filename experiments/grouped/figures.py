"""The figure of the study of delays."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from experiments.grouped.report import Relative
from gcjax import files


def groups(results: Sequence[Relative], factor: float, points: float, path: Path) -> None:
    """Draws time and loss of accuracy against the number of groups, a row for each rule and set of delayed workers.

    A star is what progressive grouping chose, and came to. The dashed line is the limit.
    """
    fixed = [r for r in results if r.outcome.scheme.groups]
    named = dict.fromkeys(r.outcome.case.delayed for r in fixed if r.outcome.case.delay)
    rows = [(rule, name) for rule in dict.fromkeys(r.outcome.scheme.rule for r in fixed) for name in named]
    figure = files.figure(10, 3.6 * len(rows))
    panels = figure.subplots(len(rows), 2, squeeze=False)
    for (rule, name), (left, right) in zip(rows, panels, strict=True):
        in_panel = [r for r in results if r.outcome.scheme.rule == rule and r.outcome.case.delayed in (name, "none")]
        _lines(left, in_panel, "time")
        _lines(right, in_panel, "lost")
        left.set(title=f"{rule}, {name}", ylabel="time / time without delay")
        right.set(ylabel="accuracy lost (points)")
        left.axhline(factor, color="grey", linestyle="--", linewidth=0.8)
        right.axhline(points, color="grey", linestyle="--", linewidth=0.8)
        left.legend(fontsize="small", title="delay")
    star = Line2D(
        [], [], color="black", marker="*", linestyle="", markersize=13, label="chosen by progressive grouping"
    )
    dashed = Line2D([], [], color="grey", linestyle="--", linewidth=0.8, label="limit")
    figure.legend(handles=[star, dashed], loc="outside upper center", ncols=2, frameon=False)
    files.write_figure(path, figure)


def _lines(panel: Axes, results: Sequence[Relative], value: str) -> None:
    """Draws a value of the outcomes against the number of groups: a line with error bars for each delay."""
    delays = sorted({r.outcome.case.delay for r in results})
    for i, delay in enumerate(delays):
        colour = f"C{i}"
        of_delay = [r for r in results if r.outcome.case.delay == delay]
        fixed = [r for r in of_delay if r.outcome.scheme.groups]
        values = np.array([getattr(r, value) for r in fixed])
        error = values.std(axis=1, ddof=1) if values.shape[1] > 1 else None
        at = [r.outcome.scheme.groups for r in fixed]
        panel.errorbar(at, values.mean(axis=1), error, color=colour, marker="o", capsize=2, label=f"{delay:g} %")
        for r in of_delay:
            if not r.outcome.scheme.groups:
                panel.plot(r.outcome.chosen.mean(), getattr(r, value).mean(), "*", color=colour, markersize=13)
    panel.set_xscale("log", base=2)
    counts = sorted({r.outcome.scheme.groups for r in results if r.outcome.scheme.groups})
    panel.set_xticks(counts, list(map(str, counts)))
    panel.set_xlabel("groups")
    panel.grid(alpha=0.25, linewidth=0.6)
