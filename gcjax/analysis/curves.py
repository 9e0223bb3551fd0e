"""The figure of metrics against virtual time."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gcjax import files
from gcjax.analysis.store import Results
from gcjax.analysis.styles import seed_curves, styles
from gcjax.analysis.summary import reach_times

_BAND = 0.13
_WIDE = 30.0


def loss_vs_time(results: Results, path: Path) -> None:
    """Draws the loss and the target's metric against virtual time: the mean over seeds, and their range as a band.

    A cross marks the moment at which a scheme had come to a halt for all seeds. Where schemes differ much, time is
    logarithmic from the first evaluation on, and linear from zero to there.
    """
    target = results.facts["target"]
    losses = [name for name in ("train_loss", "loss", "test_loss") if name in results.metrics]
    names = list(dict.fromkeys([*losses[:1], target["metric"]]))
    scheme_styles = styles(results, names[0])
    figure = files.figure(6.4 * len(names), 5.2)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        for scheme, style in scheme_styles.items():
            _draw_scheme(panel, results, scheme, name, style)
        _decorate(panel, name, _first_time(results) if _is_wide(results) else None)
    _draw_target(panels[-1], target)
    handles = [*panels[0].get_legend_handles_labels()[0], *_explanations(results)]
    lines = -(-len(handles) // (4 * len(names)))
    columns = -(-len(handles) // lines)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, handlelength=3)
    files.write_figure(path, figure)


def _is_wide(results: Results) -> bool:
    """Whether the schemes differ so much that a linear time axis would hide the fast ones."""
    ends = [seed["time"][-1] for scheme in results.schemes for seed in results.seeds(scheme)]
    times = np.concatenate([reach_times(results, scheme) for scheme in results.schemes])
    reached = times[np.isfinite(times) & (times > 0)]
    return bool(reached.size) and max(ends) > _WIDE * reached.min()


def _first_time(results: Results) -> float:
    """The first moment after zero at which anything was evaluated."""
    times = results.metrics["time"]
    return float(times[np.isfinite(times) & (times > 0)].min())


def _explanations(results: Results) -> list[Artist]:
    """What the legend says besides the names of the schemes."""
    shown: list[Artist] = []
    if any(len(results.seeds(scheme)) > 1 for scheme in results.schemes):
        shown.append(Patch(color="#888888", alpha=_BAND, linewidth=0, label="band: lowest to highest seed"))
    if any(all(results.facts["schemes"][scheme]["stalled"]) for scheme in results.schemes):
        halt: dict[str, Any] = {"marker": "X", "markersize": 9, "markeredgecolor": "white", "linestyle": ""}
        shown.append(Line2D([], [], color="#888888", label="came to a halt", **halt))
    return shown


def _draw_scheme(panel: Axes, results: Results, scheme: str, name: str, style: dict[str, Any]) -> None:
    grid, values = seed_curves(results, scheme, name)
    mean = values.mean(axis=0)
    colour = style["color"]
    panel.plot(grid, mean, label=scheme, **style)
    if len(values) > 1:
        low, high = values.min(axis=0), values.max(axis=0)
        panel.fill_between(grid, low, high, color=colour, alpha=_BAND, linewidth=0)
    if all(results.facts["schemes"][scheme]["stalled"]):
        panel.plot(grid[-1], mean[-1], marker="X", color=colour, markersize=9, markeredgecolor="white")


def _decorate(panel: Axes, name: str, linear: float | None) -> None:
    """Labels and scales; time is linear up to so many seconds, and logarithmic from there on, or linear if None."""
    panel.set_xlabel("virtual time (s)" if linear is None else f"virtual time (s), linear up to {linear:.2g}")
    panel.set_ylabel(name.replace("_", " "))
    if linear is not None:
        panel.set_xscale("symlog", linthresh=linear, linscale=0.5, subs=range(2, 10))
    panel.set_xlim(left=0)
    if name.endswith("loss"):
        panel.set_yscale("log")
    panel.grid(alpha=0.25, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_target(panel: Axes, target: dict[str, Any]) -> None:
    """Draws the target line, and leaves out most of what lies far from it."""
    value = target["value"]
    panel.axhline(value, color="#444444", linewidth=0.9, linestyle=(0, (1, 2)))
    panel.annotate(
        "target",
        (1, value),
        xycoords=("axes fraction", "data"),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color="#444444",
    )
    if target["higher_is_better"]:
        panel.set_ylim(max(0.0, 1 - max(6 * (1 - value), 0.2)), 1.0)
