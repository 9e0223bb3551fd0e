"""The figures of the paper, redrawn: error against deadline, and completion times."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.partial_stragglers.report import ZERO, Samples
from experiments.partial_stragglers.simulate import SCHEMES
from gcjax import files

_COLOURS = dict(zip(SCHEMES, ("#D55E00", "#0072B2", "#009E73"), strict=True))
_MARKERS = dict(zip(SCHEMES, "os^", strict=True))


def error_against_deadline(samples: Samples, estimates: Samples, deadlines: Sequence[float], path: Path) -> None:
    """Draws the mean error on a logarithmic axis, a panel for each assignment and L.

    Dashed: the estimate sqrt(sum over chunks of max(0, L - finished holders)) of the partial schemes. A curve ends
    where the sum is exact in all trials.
    """
    settings, block_counts = _settings_and_block_counts(samples)
    figure = files.figure(4.2 * len(block_counts), 3.4 * len(settings) + 0.5)
    panels = figure.subplots(len(settings), len(block_counts), squeeze=False)
    for (setting, num_blocks, scheme), errors in samples.items():
        panel = panels[settings.index(setting), block_counts.index(num_blocks)]
        style = {"color": _COLOURS[scheme], "marker": _MARKERS[scheme]}
        panel.plot(deadlines, _means_above_zero(errors), label=scheme, markersize=4, linewidth=1.4, **style)
        if (setting, num_blocks, scheme) in estimates:
            mean_estimates = _means_above_zero(estimates[setting, num_blocks, scheme])
            panel.plot(
                deadlines, mean_estimates, label=f"{scheme}, estimate", linestyle="--", linewidth=2.6, alpha=0.45,
                color=_COLOURS[scheme],
            )  # fmt: skip
        panel.set(
            title=f"{files.figure_text(setting)}, L = {num_blocks}",
            xlabel="deadline (time of a chunk: 1)",
            ylabel="mean error",
        )
        panel.set_yscale("log")
        panel.grid(alpha=0.25, linewidth=0.6)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    files.write_figure(path, figure)


def completion_times(samples: Samples, path: Path) -> None:
    """Draws the mean completion time over the trials that end, with its standard error, a panel for each assignment."""
    settings, block_counts = _settings_and_block_counts(samples)
    figure = files.figure(4.6 * len(settings), 4.0)
    panels = figure.subplots(1, len(settings), squeeze=False)[0]
    for (setting, num_blocks, scheme), times in samples.items():
        finite_times = times[np.isfinite(times)]
        if finite_times.size:
            offset_of_scheme = 0.27 * (SCHEMES.index(scheme) - 1)  # the three bars of an L beside each other
            position = block_counts.index(num_blocks) + offset_of_scheme
            mean_time = finite_times.mean()
            standard_error = finite_times.std(ddof=1) / np.sqrt(finite_times.size) if finite_times.size > 1 else np.nan
            label = scheme if num_blocks == block_counts[0] else None
            panel = panels[settings.index(setting)]
            panel.bar(position, mean_time, 0.25, yerr=standard_error, color=_COLOURS[scheme], label=label, capsize=2)
    for setting, panel in zip(settings, panels, strict=True):
        panel.set(title=files.figure_text(setting), xlabel="L", ylabel="mean completion time (time of a chunk: 1)")
        panel.set_xticks(range(len(block_counts)), [str(num_blocks) for num_blocks in block_counts])
        panel.grid(axis="y", alpha=0.25, linewidth=0.6)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    files.write_figure(path, figure)


def _settings_and_block_counts(samples: Samples) -> tuple[list[str], list[int]]:
    return list(dict.fromkeys(key[0] for key in samples)), list(dict.fromkeys(sorted(key[1] for key in samples)))


def _means_above_zero(values: np.ndarray) -> np.ndarray:
    mean = values.mean(axis=0)
    return np.where(mean > ZERO, mean, np.nan)
