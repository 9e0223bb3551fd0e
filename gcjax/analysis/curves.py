"""The figure of metrics against virtual time."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from gcjax import files
from gcjax.analysis.store import Results
from gcjax.analysis.summary import reach_times

# Okabe and Ito's colours, which colour-blind readers can tell apart, and a brown.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
_DASHES = ("-", "--", ":", "-.")
_WIDE = 30.0


def loss_vs_time(results: Results, path: Path) -> None:
    """Draws the loss and the target's metric against virtual time: the mean over seeds, and their range.

    A cross marks the moment at which a scheme had come to a halt for all seeds.
    """
    target = results.facts["target"]
    losses = [name for name in ("train_loss", "loss", "test_loss") if name in results.metrics]
    names = list(dict.fromkeys([*losses[:1], target["metric"]]))
    figure = Figure(figsize=(6.4 * len(names), 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        for i, scheme in enumerate(results.schemes):
            dashes = _DASHES[i // len(_COLOURS) % len(_DASHES)]
            _draw_scheme(panel, results, scheme, name, _COLOURS[i % len(_COLOURS)], dashes)
        _decorate(panel, name, _is_wide(results))
    _draw_target(panels[-1], target)
    handles, labels = panels[0].get_legend_handles_labels()
    columns = min(len(labels), 4 * len(names))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    files.write_figure(path, figure)


def _is_wide(results: Results) -> bool:
    """Whether the schemes differ so much that a linear time axis would hide the fast ones."""
    ends = [seed["time"][-1] for scheme in results.schemes for seed in results.seeds(scheme)]
    times = np.concatenate([reach_times(results, scheme) for scheme in results.schemes])
    reached = times[np.isfinite(times) & (times > 0)]
    return bool(reached.size) and max(ends) > _WIDE * reached.min()


def _draw_scheme(panel: Axes, results: Results, scheme: str, name: str, colour: str, dashes: str) -> None:
    """Draws one curve; a seed that ended before the others keeps its last value."""
    seeds = results.seeds(scheme)
    grid = np.unique(np.concatenate([seed["time"] for seed in seeds]))
    values = np.stack([np.interp(grid, seed["time"], seed[name]) for seed in seeds])
    mean = values.mean(axis=0)
    panel.plot(grid, mean, color=colour, linestyle=dashes, linewidth=1.6, label=scheme)
    if len(seeds) > 1:
        low, high = values.min(axis=0), values.max(axis=0)
        panel.fill_between(grid, low, high, color=colour, alpha=0.13, linewidth=0)
    if all(results.facts["schemes"][scheme]["stalled"]):
        panel.plot(grid[-1], mean[-1], marker="X", color=colour, markersize=9, markeredgecolor="white")


def _decorate(panel: Axes, name: str, wide: bool) -> None:
    panel.set_xlabel("virtual time (s)")
    panel.set_ylabel(name.replace("_", " "))
    if wide:
        panel.set_xscale("log")
    else:
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
