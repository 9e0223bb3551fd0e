"""The tables and the figure of the map of protocols."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm

from experiments.protocol_claims import indistinguishable
from experiments.tuned_schemes import TunedSchemes, scheme_of
from gcjax import analysis, files
from gcjax.analysis import table_cells
from gcjax.analysis.store import Columns
from gcjax.study import Study, Tuning, seed_values

NOTES = """\
- Mean virtual time to {metric} {target:g} in seconds, over {seeds} seeds that all schemes share; ± is their standard
  deviation. The fastest in each column is bold; * marks those that cannot be told from it.
- A dash: at least one seed did not get there {end}; "never": it came to a halt, because somebody waits for a worker
  that has failed.
- Hyperparameters: {trials} trials a scheme, on {trial_seeds} other seeds; see the table of what was chosen.
"""

TUNING_NOTES = """\
For each cost of messages the trial that reached the target in most runs of all regimes, and of those in the least mean
seconds. "edge": the lowest or the highest rate of all trials of the variant.
"""

COST_HEADS = (
    "Scheme", "Computing", "Communicating", "Waiting", "Staleness", "Numbers sent a worker and second",
    "By servers of groups, a worker and second",
)  # fmt: skip

FACTOR = 10.0
"""Times above so many times the best one are drawn as that."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Words:
    """What the tables are about: the names in their order, the target, and how was tuned."""

    regimes: list[str]
    networks: list[str]
    goal: analysis.Target
    study: Study
    tuning: Tuning

    @property
    def conditions(self) -> list[str]:
        """The names of the conditions, those of a regime beside each other."""
        return [f"{regime}, {network}" for regime in self.regimes for network in self.networks]

    def facts(self) -> dict[str, Any]:
        """What `run.json` says."""
        tuning = {"num_trials": self.tuning.num_trials, "num_seeds": self.tuning.num_seeds, "seed": self.tuning.seed}
        return {**self.study.facts(), "tuning": tuning}

    def notes(self) -> str:
        """What the cells of the table of times mean."""
        seconds = self.study.seconds
        end = f"within {seconds:g} s" if seconds else f"before a worker had used up its {self.study.num_units} units"
        return NOTES.format(
            metric=self.goal.metric, target=self.goal.value, seeds=self.study.num_seeds, end=end,
            trials=self.tuning.num_trials, trial_seeds=self.tuning.num_seeds,
        )  # fmt: skip


def page(tuned: TunedSchemes, words: Words, claims: str) -> str:
    """The summary: claims, times, what was chosen, and what schemes cost, in Markdown."""
    rows = tuned.rows
    schemes = list(dict.fromkeys(rows["scheme"].tolist()))
    times = analysis.markdown_table(("Scheme", *words.conditions), list(_times_table(rows, schemes, words.conditions)))
    choices = analysis.markdown_table(("Scheme", *words.networks), list(chosen_table(tuned, words.networks)))
    costs = analysis.markdown_table(COST_HEADS, list(_costs_table(rows, schemes)))
    page_lines = ["# Which scheme wins where", "", claims, "## Seconds to the target", "", times, "", words.notes()]
    page_lines += ["## What was chosen", "", choices, "", TUNING_NOTES, "## What they cost", "", costs, ""]
    return "\n".join(page_lines)


def mean_times(rows: Columns, schemes: Sequence[str], conditions: Sequence[str]) -> np.ndarray:
    """float[schemes, conditions]: mean time to the target; inf if a seed did not get there."""
    return np.array([[seed_values(rows, s, condition, "reach").mean() for condition in conditions] for s in schemes])


def chosen_table(tuned: TunedSchemes, networks: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A line for each scheme: its variant and learning rate for each cost of messages."""
    for scheme in dict.fromkeys(tuned.rows["scheme"].tolist()):
        rows = analysis.select_rows(tuned.rows, tuned.rows["scheme"] == scheme)
        trials = analysis.select_rows(tuned.trials, tuned.trials["scheme"] == scheme)
        yield (scheme, *(_chosen_text(rows, trials, network) for network in networks))


def _chosen_text(rows: Columns, trials: Columns, network: str) -> str:
    """The variant and the rate of one scheme for one cost of messages; "edge" if it is the lowest or highest tried.

    `rows` and `trials` are those of the scheme; all conditions "regime, network" of a network have the same choice.
    """
    row = next(i for i, condition in enumerate(rows["condition"]) if condition.endswith(f", {network}"))
    variant, rate = str(rows["variant"][row]), float(rows["rate"][row])
    rates = trials["rate"][trials["variant"] == variant]
    variant_number = variant.removeprefix(scheme_of(variant)).removeprefix(",").strip()
    edge_mark = "edge" if rates.min() < rates.max() and rate in (rates.min(), rates.max()) else ""
    return ", ".join(filter(None, (variant_number, f"{rate:.2g}", edge_mark)))


def _times_table(rows: Columns, schemes: Sequence[str], conditions: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A line for each scheme: the time to the target in each condition, with the fastest scheme of it marked."""
    times = mean_times(rows, schemes, conditions)  # [schemes, conditions], inf if a seed did not get there
    fastest_scheme = {condition: schemes[i] for condition, i in zip(conditions, times.argmin(axis=0), strict=True)}
    for scheme in schemes:
        yield (scheme, *(_time_text(rows, scheme, c, fastest_scheme[c]) for c in conditions))


def _time_text(rows: Columns, scheme: str, condition: str, fastest: str) -> str:
    """The mean seconds and their spread; bold if it is the least, with a * if it cannot be told from that.

    If a seed did not get there, "never" where all came to a halt, else "-". `fastest`: the scheme with the least mean.
    """
    times, fastest_times = (seed_values(rows, name, condition, "reach") for name in (scheme, fastest))
    if not np.isfinite(times).all():
        return "never" if seed_values(rows, scheme, condition, "stalled").all() else "-"
    mean_text = table_cells.mean_spread_cell(times, 1)
    if scheme == fastest:
        return f"**{mean_text}**"
    return mean_text + (" *" if indistinguishable(fastest_times, times) else "")


def _costs_table(rows: Columns, schemes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A line for each scheme over all conditions: shares of time, staleness, numbers sent a worker and second.

    The last two: by workers, and by servers of groups.
    """
    for scheme in schemes:
        rows_of_scheme = analysis.select_rows(rows, rows["scheme"] == scheme)
        shares = (table_cells.percent_cell(rows_of_scheme[name]) for name in ("computing", "communicating", "waiting"))
        staleness = table_cells.staleness_cell(rows_of_scheme["mean_staleness"], rows_of_scheme["max_staleness"])
        numbers_cells = (
            table_cells.three_digits_cell(float(np.mean(rows_of_scheme[numbers] / rows_of_scheme["end"])))
            for numbers in ("numbers", "server_numbers")
        )
        yield (scheme, *shares, staleness, *numbers_cells)


def figure(rows: Columns, regimes: Sequence[str], networks: Sequence[str], path: Path) -> None:
    """A panel for each regime: schemes against the cost of messages, coloured by time over the best; the best named."""
    schemes = list(dict.fromkeys(rows["scheme"].tolist()))
    drawing = files.figure(2.4 + 2.6 * len(regimes), max(3.8, 1.6 + 0.27 * len(schemes)))
    panels = drawing.subplots(1, len(regimes), squeeze=False, sharey=True)[0]
    for panel, regime in zip(panels, regimes, strict=True):
        times = mean_times(rows, schemes, [f"{regime}, {network}" for network in networks])  # [schemes, networks]
        fastest_times = times.min(axis=0)  # inf where nobody got there with every seed
        times_over_best = times / np.where(np.isfinite(fastest_times), fastest_times, 1.0)  # [schemes, networks]
        shown_times = np.where(np.isfinite(times_over_best), times_over_best.clip(1, FACTOR), np.nan)
        image = panel.imshow(shown_times, cmap="viridis_r", aspect="auto", norm=LogNorm(1, FACTOR))
        panel.set_facecolor("#DDDDDD")  # shows where there is no time (NaN)
        for (scheme_row, network_column), time_over_best in np.ndenumerate(times_over_best):
            is_best, is_on_dark = time_over_best == 1, np.isfinite(time_over_best) and time_over_best > 3
            label = f"{time_over_best:.1f}" if np.isfinite(time_over_best) else "-"
            panel.text(
                network_column, scheme_row, "best" if is_best else label, ha="center", va="center", fontsize=7,
                color="white" if is_on_dark else "black", weight="bold" if is_best else "normal",
            )  # fmt: skip
        panel.set_xticks(range(len(networks)), networks, rotation=20, fontsize=8)
        panel.set_yticks(range(len(schemes)), map(files.figure_text, schemes), fontsize=8)
        panel.set_title(f"{files.figure_text(regime)} stragglers", fontsize=10)
    drawing.colorbar(image, ax=panels, label="time to the target over the best one's", fraction=0.03)
    files.write_figure(path, drawing)
