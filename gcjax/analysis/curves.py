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
from gcjax.analysis.target import is_share

_BAND_ALPHA = 0.13
_MAX_LEGEND_COLUMNS_OF_PANEL = 4
_MAX_LINEAR_RATIO = 30.0  # of the latest end of a run to the earliest time to the target, on a linear axis


def loss_vs_time(results: Results, path: Path) -> None:
    """Draws the loss and the target's metric against virtual time: the mean over seeds, and their range as a band.

    A cross marks the moment at which a scheme had come to a halt for all seeds: the parameters change no more, as
    somebody is waited for for ever. Where schemes differ much, time is logarithmic from the first evaluation on, and
    linear from zero to there.
    """
    metrics = drawn_metrics(results)
    scheme_styles = styles(results, metrics[0])
    figure = files.figure(6.4 * len(metrics), 5.2)
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    linear_until = linear_axis_seconds(results)
    for panel, metric in zip(panels, metrics, strict=True):
        for scheme, style in scheme_styles.items():
            _draw_scheme(panel, results, scheme, metric, style)
        _set_labels_and_scales(panel, metric, linear_until)
    _draw_target(panels[-1], results.facts["target"])
    scheme_handles, _ = panels[0].get_legend_handles_labels()
    handles = [*scheme_handles, *_extra_legend_handles(results)]
    max_columns = _MAX_LEGEND_COLUMNS_OF_PANEL * len(metrics)
    files.add_legend(figure, handles, loc="outside lower center", max_columns=max_columns, handlelength=3)
    files.write_figure(path, figure)


def drawn_metrics(results: Results) -> list[str]:
    """The loss, if there is one, and the target's metric; one name if that is the loss."""
    losses = [name for name in ("train_loss", "loss", "test_loss") if name in results.metrics]
    return list(dict.fromkeys([*losses[:1], results.facts["target"]["metric"]]))


def linear_axis_seconds(results: Results) -> float | None:
    """Seconds up to which a time axis is linear, and logarithmic from there on; None if it is linear everywhere.

    That is the time of the first evaluation after zero, of any scheme.
    """
    if not _needs_logarithmic_time(results):
        return None
    times = results.metrics["time"]
    return float(times[np.isfinite(times) & (times > 0)].min())


def _needs_logarithmic_time(results: Results) -> bool:
    """Whether a run is so much longer than the shortest time to the target that a linear axis would hide that."""
    end_times = [seed["time"][-1] for scheme in results.schemes for seed in results.seeds(scheme)]
    times_to_target = np.concatenate([reach_times(results, scheme) for scheme in results.schemes])
    positive_times = times_to_target[np.isfinite(times_to_target) & (times_to_target > 0)]
    return bool(positive_times.size) and max(end_times) > _MAX_LINEAR_RATIO * positive_times.min()


def _extra_legend_handles(results: Results) -> list[Artist]:
    """The entries of the legend besides the names of the schemes: the band of seeds, the cross of a halt."""
    handles: list[Artist] = []
    if any(len(results.seeds(scheme)) > 1 for scheme in results.schemes):
        handles.append(
            Patch(color="#888888", alpha=_BAND_ALPHA, linewidth=0, label="line: mean of seeds; band: lowest to highest")
        )
    if any(all(results.facts["schemes"][scheme]["stalled"]) for scheme in results.schemes):
        halt_style: dict[str, Any] = {"marker": "X", "markersize": 9, "markeredgecolor": "white", "linestyle": ""}
        handles.append(Line2D([], [], color="#888888", label="came to a halt", **halt_style))
    return handles


def _draw_scheme(panel: Axes, results: Results, scheme: str, metric: str, style: dict[str, Any]) -> None:
    """Draws a metric of a scheme against time: the mean over seeds, their range, and a cross where all came to a halt.

    `style`: colour, width and dashes of the curve.
    """
    times, values_of_seeds = seed_curves(results, scheme, metric)  # [V], [S, V]
    mean = values_of_seeds.mean(axis=0)
    colour, num_seeds = style["color"], len(values_of_seeds)
    panel.plot(times, mean, label=files.figure_text(scheme), **style)
    if num_seeds > 1:
        lowest, highest = values_of_seeds.min(axis=0), values_of_seeds.max(axis=0)
        panel.fill_between(times, lowest, highest, color=colour, alpha=_BAND_ALPHA, linewidth=0)
    has_stalled_for_all_seeds = all(results.facts["schemes"][scheme]["stalled"])
    if has_stalled_for_all_seeds:
        panel.plot(times[-1], mean[-1], marker="X", color=colour, markersize=9, markeredgecolor="white")


def _set_labels_and_scales(panel: Axes, metric: str, linear_until: float | None) -> None:
    """Labels and scales of a panel that shows a metric; a loss has a logarithmic scale.

    Time is linear up to `linear_until` seconds, and logarithmic from there on; linear everywhere if None.
    """
    label = "virtual time (s)" if linear_until is None else f"virtual time (s), linear up to {linear_until:.2g}"
    panel.set_xlabel(label)
    panel.set_ylabel(metric.replace("_", " "))
    if linear_until is not None:
        panel.set_xscale("symlog", linthresh=linear_until, linscale=0.5, subs=range(2, 10))
    panel.set_xlim(left=0)
    if metric.endswith("loss"):
        panel.set_yscale("log")
    panel.grid(alpha=0.25, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_target(panel: Axes, target: dict[str, Any]) -> None:
    """Draws the target as a line, if the axis has it; of a share that is to rise, shows only values near the target."""
    target_value = target["value"]
    if panel.get_yscale() == "log" and target_value <= 0:
        return  # it is nowhere on the axis
    panel.axhline(target_value, color="#444444", linewidth=0.9, linestyle=(0, (1, 2)))
    panel.annotate(
        "target",
        xy=(1, target_value),
        xycoords=("axes fraction", "data"),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color="#444444",
    )
    lowest_value = lowest_value_shown(target)
    if lowest_value is not None:
        panel.set_ylim(lowest_value, 1.0)


def lowest_value_shown(target: dict[str, Any]) -> float | None:
    """Where the axis begins of a share that is to rise, so that its target is in the upper part and not at the edge.

    None for other metrics, whose axis shows all values.
    """
    if not (target["higher_is_better"] and is_share(target["metric"])):
        return None
    distance_to_best = 1 - target["value"]
    return max(0.0, 1 - max(6 * distance_to_best, 0.2))
