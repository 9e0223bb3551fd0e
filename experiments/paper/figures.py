"""The figures of the manuscript, as PDF. Letters: T units, W workers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from experiments.paper.coded import STRAGGLER_MODELS, code_rows, reproduction_rows
from gcjax import analysis, codes, files, protocols, stragglers
from gcjax.analysis.gantt import draw_bars
from gcjax.analysis.styles import COLOURS, seed_curves, styles
from gcjax.protocols import Protocol

WIDTH = 6.5
"""Inches, of the text."""

_WORKERS, _SECONDS = 6, 12.0
_SMALL, _TINY = 8, 7  # sizes of letters, in points
_STATES = {"computing": "#4477AA", "cut off": "#EE6677", "sending, receiving": "#228833", "waiting": "#E6E6E6"}

TIMELINES: dict[str, Callable[[], Protocol]] = {
    "BSP": protocols.bsp,
    "SSP, s = 2": lambda: protocols.ssp(staleness=2),
    "ASP": protocols.asp,
    "K-sync, K = 4": lambda: protocols.k_sync(num_contributions=4),
    "local SGD, H = 3": lambda: protocols.local_sgd(num_local_steps=3),
    "WBSP": protocols.worker_busy,
    "two groups": lambda: protocols.grouped(groups=protocols.contiguous_groups(_WORKERS, num_groups=2)),
    "coded, partial work": lambda: protocols.coded(codes.partial(codes.assignments.cyclic(_WORKERS, load=2))),
}
"""Title of a panel -> its protocol, of six workers."""


def write(path: Path, figure: Any) -> None:
    """Writes a PDF without the moment at which it was made, so that the same content has the same bytes."""
    with files.atomic_write(path) as part:
        figure.savefig(part, metadata={"CreationDate": None})


def timelines(path: Path) -> None:
    """Draws several protocols on the same durations: a panel each, a row a worker, a line at each commit."""
    model = stragglers.markov(base=1.0, slowdown=3.0, probability=0.25, persistence=0.8)
    durations = stragglers.sample_durations(model, jax.random.key(5), 40, _WORKERS)
    network = stragglers.constant_network(latency=0.05, upload=0.1, download=0.1)
    figure = files.figure(WIDTH, 4.8)
    panels = figure.subplots(4, 2, sharex=True, sharey=True).ravel()
    for panel, (title, make_protocol) in zip(panels, TIMELINES.items(), strict=True):
        protocol = make_protocol()
        schedule = jax.tree.map(np.asarray, protocol(durations, network))
        unit_columns = analysis.timeline_columns(title, schedule, np.asarray(durations), _SECONDS)
        _draw_timeline(panel, unit_columns, schedule.time)
        panel.set_title(title, loc="left", fontsize=_SMALL)
    bottom_panels, left_panels = panels[-2:], panels[::2]
    for panel in bottom_panels:
        panel.set_xlabel("virtual time (s)", fontsize=_SMALL)
    for panel in left_panels:
        panel.set_ylabel("worker", fontsize=_SMALL)
    handles = [Patch(color=colour, label=state) for state, colour in _STATES.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=_SMALL)
    write(path, figure)


def _draw_timeline(panel: Axes, units: analysis.store.Columns, commit_times: np.ndarray) -> None:
    """Draws bars of the units, and ticks at the top for the commits, within `_SECONDS`.

    `units`: a row each, with the times of its parts in seconds; a unit without an end (inf) was cut off.
    """
    panel.set_facecolor(_STATES["waiting"])
    panel.set_xlim(0, _SECONDS)
    panel.set_ylim(_WORKERS - 0.5, -1.1)  # worker 0 on top, and a strip for the commits above it
    panel.set_yticks(range(_WORKERS))
    panel.tick_params(labelsize=_TINY)
    panel.spines[["top", "right", "left"]].set_visible(False)
    is_cut_off = ~np.isfinite(units["finish"])
    compute_end = np.minimum(units["compute_end"], _SECONDS)
    # NaN draws no bar.
    end_if_finished, end_if_cut_off = (
        np.where(is_cut_off, np.nan, compute_end),
        np.where(is_cut_off, compute_end, np.nan),
    )
    for begin, end, state in (
        ("compute_start", end_if_finished, "computing"),
        ("compute_start", end_if_cut_off, "cut off"),
        ("start", units["compute_start"], "sending, receiving"),
        ("send_start", units["finish"], "sending, receiving"),
    ):
        draw_bars(panel, units["worker"], units[begin], end, _STATES[state], height=0.8)
    shown_commit_times = commit_times[commit_times < _SECONDS]
    panel.axhspan(-1.1, -0.55, color="white")
    panel.vlines(shown_commit_times, -1.05, -0.6, color="black", linewidth=0.8)


def loss(folder: Path, path: Path) -> None:
    """Draws loss and accuracy of the demo's schemes against virtual time: the mean over seeds."""
    results = analysis.load(folder)
    figure = files.figure(WIDTH, 2.7)
    loss_panel, accuracy_panel = figure.subplots(1, 2)
    for panel, metric in ((loss_panel, "train_loss"), (accuracy_panel, "accuracy")):
        for scheme, style in styles(results, "train_loss").items():
            times, values_of_seeds = seed_curves(results, scheme, metric)  # [times], [seeds, times]
            panel.plot(times, values_of_seeds.mean(axis=0), label=scheme, **style | {"linewidth": 1.3})
        panel.set_xlabel("virtual time (s)", fontsize=_SMALL)
        panel.set_ylabel(metric.replace("_", " "), fontsize=_SMALL)
        panel.set_xlim(0, 200)
        _style_panel(panel)
    loss_panel.set_yscale("log")
    target = results.facts["target"]["value"]
    accuracy_panel.axhline(target, color="#444444", linewidth=0.8, linestyle=":")
    accuracy_panel.set_ylim(0.6, 1.0)
    handles, _ = loss_panel.get_legend_handles_labels()
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=_SMALL)
    write(path, figure)


def _style_panel(panel: Axes) -> None:
    """Small letters, a light grid, no box."""
    panel.tick_params(labelsize=_TINY)
    panel.grid(alpha=0.25, linewidth=0.5)
    panel.spines[["top", "right"]].set_visible(False)


def code_comparison(folder: Path, path: Path) -> None:
    """Draws mean times to an exact sum (NaN: never, no mark) and errors of every code, from the folder of their run."""
    rows = code_rows(folder)
    code_positions = np.arange(len(rows))
    figure = files.figure(WIDTH, 3.9)
    time_panel, error_panel = figure.subplots(1, 2, sharey=True)
    for model, marker, colour in zip(STRAGGLER_MODELS, "osD", COLOURS[: len(STRAGGLER_MODELS)], strict=True):
        times = [row[f"{model} time"] for row in rows]
        time_panel.plot(times, code_positions, marker, color=colour, markersize=3.5, label=model)
    time_panel.set_xscale("log")
    time_panel.set_xticks([1, 2, 5, 10, 15], ["1", "2", "5", "10", "15"])
    time_panel.minorticks_off()
    time_panel.set_xlabel("time to an exact sum (none: never)", fontsize=_SMALL)
    mean_errors, largest_errors = [row["mean_error"] for row in rows], [row["worst_error"] for row in rows]
    error_panel.hlines(code_positions, mean_errors, largest_errors, color="#888888", linewidth=1)
    error_panel.plot(mean_errors, code_positions, "o", color=COLOURS[0], markersize=3.5, label="mean error")
    error_panel.plot(
        largest_errors, code_positions, "o", color=COLOURS[1], markersize=5, fillstyle="none", label="largest error"
    )
    error_panel.set_xlabel("relative error, s workers gone", fontsize=_SMALL)
    time_panel.set_yticks(code_positions, [row["code"] for row in rows])
    time_panel.invert_yaxis()
    for panel in (time_panel, error_panel):
        _style_panel(panel)
    figure.legend(loc="outside upper center", ncols=5, frameon=False, fontsize=_TINY, handletextpad=0.1)
    write(path, figure)


def errors_against_deadline(folder: Path, path: Path) -> None:
    """Draws the mean errors of the partial-straggler paper: ours as curves, the published ones as crosses."""
    rows = reproduction_rows(folder)
    figure = files.figure(WIDTH * 0.8, 2.6)
    panel = figure.subplots()
    blocks_and_schemes = dict.fromkeys((row["num_blocks"], row["scheme"]) for row in rows)
    for i, (num_blocks, scheme) in enumerate(blocks_and_schemes):
        colour = COLOURS[i]
        rows_of_curve = [row for row in rows if (row["num_blocks"], row["scheme"]) == (num_blocks, scheme)]
        deadline, ours, published = (
            np.array([row[name] for row in rows_of_curve], float) for name in ("deadline", "ours", "published")
        )
        is_visible, is_published_visible = ours > 1e-9, published > 0  # on a logarithmic axis
        label = f"L = {num_blocks}, {scheme}"
        panel.plot(deadline[is_visible], ours[is_visible], "o-", color=colour, markersize=3, linewidth=1.2, label=label)
        panel.plot(deadline[is_published_visible], published[is_published_visible], "x", color=colour, markersize=7)
    panel.plot([], [], "x", color="#444444", markersize=7, label="published")
    panel.set_yscale("log")
    panel.set_xlabel("deadline (mean times of a chunk)", fontsize=_SMALL)
    panel.set_ylabel("mean error", fontsize=_SMALL)
    _style_panel(panel)
    panel.legend(frameon=False, fontsize=_TINY)
    write(path, figure)
