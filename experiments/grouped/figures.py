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

    A star is what progressive grouping chose, and came to. The dashed lines are the limits: `factor`, of the time over
    that without delay, and `points`, percentage points of accuracy lost.
    """
    fixed = [r for r in results if not r.is_progressive]
    rules = dict.fromkeys(r.outcome.scheme.rule for r in fixed)
    delayed_names = dict.fromkeys(r.outcome.case.delayed for r in fixed if r.outcome.case.delay)
    rules_and_delayed = [(rule, delayed) for rule in rules for delayed in delayed_names]
    figure = files.figure(10, 3.6 * len(rules_and_delayed))
    panels = figure.subplots(len(rules_and_delayed), 2, squeeze=False)
    for (rule, delayed), (time_panel, loss_panel) in zip(rules_and_delayed, panels, strict=True):
        of_rule = [r for r in results if r.outcome.scheme.rule == rule]
        shown_results = [r for r in of_rule if r.outcome.case.delayed in (delayed, "none")]
        _draw_line_of_each_delay(time_panel, shown_results, "relative_time")
        _draw_line_of_each_delay(loss_panel, shown_results, "points_lost")
        time_panel.set(title=f"{rule}, {delayed}", ylabel="time / time without delay")
        loss_panel.set(ylabel="accuracy lost (points)")
        time_panel.axhline(factor, color="grey", linestyle="--", linewidth=0.8)
        loss_panel.axhline(points, color="grey", linestyle="--", linewidth=0.8)
        time_panel.legend(fontsize="small", title="delay")
    star = Line2D(
        [], [], color="black", marker="*", linestyle="", markersize=13, label="chosen by progressive grouping"
    )
    dashed = Line2D([], [], color="grey", linestyle="--", linewidth=0.8, label="limit")
    has_stars = any(r.is_progressive for r in results)
    figure.legend(handles=[*([star] if has_stars else []), dashed], loc="outside upper center", ncols=2, frameon=False)
    files.write_figure(path, figure)


def _draw_line_of_each_delay(panel: Axes, results: Sequence[Relative], field: str) -> None:
    """Draws a field of the results, float[S] each, against the number of groups: a line with error bars a delay.

    The bars are the standard deviation over seeds; a star is what progressive grouping has chosen in the mean.
    """
    delays = sorted({r.outcome.case.delay for r in results})
    for i, delay in enumerate(delays):
        colour = f"C{i}"
        of_delay = [r for r in results if r.outcome.case.delay == delay]
        fixed = [r for r in of_delay if not r.is_progressive]
        values = np.array([getattr(r, field) for r in fixed])  # [results, seeds]
        error = values.std(axis=1, ddof=1) if values.shape[1] > 1 else None
        num_groups = [r.num_groups for r in fixed]
        means = values.mean(axis=1)
        panel.errorbar(num_groups, means, error, color=colour, marker="o", capsize=2, label=f"{delay:g} %")
        for progressive in (r for r in of_delay if r.is_progressive):
            mean_chosen, mean = progressive.outcome.chosen.mean(), getattr(progressive, field).mean()
            panel.plot(mean_chosen, mean, "*", color=colour, markersize=13)
    panel.set_xscale("log", base=2)
    tick_numbers = sorted({r.num_groups for r in results if not r.is_progressive})
    panel.set_xticks(tick_numbers, list(map(str, tick_numbers)))
    panel.set_xlabel("groups")
    panel.grid(alpha=0.25, linewidth=0.6)
