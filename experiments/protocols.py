"""All protocols and some codes on the same durations: who wins under which stragglers, and at what cost of messages.

gcjax run configs/protocols.gin
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import LogNorm

from gcjax import _validate, analysis, config, files, processes
from gcjax.analysis import table_cells
from gcjax.analysis.store import Columns
from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.study import Condition, Study, final_rows, plan, run, seed_values

NOTES = """\
- Mean virtual time to {metric} {target:g} in seconds, over {seeds} seeds that all schemes share; ± is their standard
  deviation. The fastest in each column is bold; others whose mean is within its standard deviation are marked with *.
- A dash: at least one seed did not get there before a worker had used up its {units} units; "never": it came to a halt,
  because somebody waits for a worker that has failed.
- One set of hyperparameters a scheme, the same in all columns, not tuned: the order of neighbours says little.
"""

COST_HEADS = ("Scheme", "Computing", "Communicating", "Waiting", "Staleness", "Numbers sent a worker and second")

FACTOR = 10.0
"""Times above so many times the best one are drawn as that."""


@config.experiment
def protocol_map(
    schemes: dict[str, Protocol],
    *,
    study: Study,
    regimes: dict[str, StragglerModel],
    networks: dict[str, Network | Links],
    out: Path,
    progress: Progress,
) -> Columns:
    """Runs every scheme under every regime of stragglers at every cost of messages.

    All regimes, costs and seeds of a scheme go through one program. The folder: `results.parquet` (a row for each
    scheme, condition and seed, with time, staleness, waiting and communication), `summary.md`, `map.png`, `run.json`,
    `operative.gin`.

    Args:
      schemes: name -> protocol.
      study: what all schemes share, with a target and 2 seeds or more.
      regimes: name -> who is slow.
      networks: name -> the time of messages.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if nothing is named, or there is no target or only one seed.
    """
    _validate.integer("num_seeds", study.num_seeds, minimum=2)
    for name, given in {"schemes": schemes, "regimes": regimes, "networks": networks}.items():
        if not given:
            raise ValueError(f"{name} must name one at least; got {given!r}.")
    goal = study.goal
    conditions = {
        f"{regime}, {network}": Condition(regimes[regime], networks[network])
        for regime in regimes
        for network in networks
    }
    rows = final_rows(run(plan(study, schemes, conditions), out=out, progress=progress))
    if processes.is_first():
        notes = NOTES.format(metric=goal.metric, target=goal.value, seeds=study.num_seeds, units=study.num_units)
        times = list(_times_table(rows, list(schemes), list(conditions)))
        costs = list(_costs_table(rows, list(schemes)))
        tables = [analysis.markdown_table(("Scheme", *conditions), times), "", notes, "", "## What they cost", ""]
        tables.append(analysis.markdown_table(COST_HEADS, costs))
        analysis.write_page(out, "\n".join(["# Which scheme wins where", "", *tables, ""]), study.facts())
        files.write_table(out / "results.parquet", rows)
        _figure(rows, list(schemes), list(regimes), list(networks), out / "map.png")
        analysis.drop_checkpoints(out)
        progress.show(analysis.rich_table("Virtual time to the target (s)", ("Scheme", *conditions), times))
    return rows


def _mean_times(rows: Columns, schemes: Sequence[str], conditions: Sequence[str]) -> np.ndarray:
    """float[schemes, conditions]: mean time to the target; inf if a seed did not get there."""
    return np.array([[seed_values(rows, s, condition, "reach").mean() for condition in conditions] for s in schemes])


def _times_table(rows: Columns, schemes: Sequence[str], conditions: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """A line for each scheme, a column for each condition."""
    mean_times = _mean_times(rows, schemes, conditions)
    fastest_scheme = {condition: schemes[i] for condition, i in zip(conditions, mean_times.argmin(axis=0), strict=True)}
    for scheme in schemes:
        yield (scheme, *(_time_text(rows, scheme, c, fastest_scheme[c]) for c in conditions))


def _time_text(rows: Columns, scheme: str, condition: str, fastest: str) -> str:
    times, fastest_times = (seed_values(rows, name, condition, "reach") for name in (scheme, fastest))
    if not np.isfinite(times).all():
        return "never" if seed_values(rows, scheme, condition, "stalled").all() else "-"
    text = table_cells.mean_spread_cell(times, 1)
    if scheme == fastest:
        return f"**{text}**"
    is_within_spread_of_fastest = times.mean() <= fastest_times.mean() + fastest_times.std(ddof=1)
    return text + (" *" if is_within_spread_of_fastest else "")


def _costs_table(rows: Columns, schemes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Shares over all conditions, and what is sent."""
    for scheme in schemes:
        of_scheme = analysis.select_rows(rows, rows["scheme"] == scheme)
        shares = (table_cells.percent_cell(of_scheme[name]) for name in ("computing", "communicating", "waiting"))
        staleness = table_cells.staleness_cell(of_scheme["mean_staleness"], of_scheme["max_staleness"])
        numbers_per_second = of_scheme["numbers"] / of_scheme["end"]
        sent = table_cells.three_digits_cell(float(np.mean(numbers_per_second)))
        yield (scheme, *shares, staleness, sent)


def _figure(rows: Columns, schemes: Sequence[str], regimes: Sequence[str], networks: Sequence[str], path: Path) -> None:
    """A panel for each regime: schemes against the cost of messages, coloured by time over the best; the best named."""
    figure = files.figure(2.4 + 2.6 * len(regimes), max(3.8, 1.6 + 0.27 * len(schemes)))
    panels = figure.subplots(1, len(regimes), squeeze=False, sharey=True)[0]
    for panel, regime in zip(panels, regimes, strict=True):
        times = _mean_times(rows, schemes, [f"{regime}, {network}" for network in networks])
        times_over_best = times / times.min(axis=0)  # [schemes, networks]
        shown_times = np.where(np.isfinite(times_over_best), times_over_best.clip(1, FACTOR), np.nan)
        image = panel.imshow(shown_times, cmap="viridis_r", aspect="auto", norm=LogNorm(1, FACTOR))
        panel.set_facecolor("#DDDDDD")
        for (scheme_row, network_column), time_over_best in np.ndenumerate(times_over_best):
            is_best, is_on_dark = time_over_best == 1, np.isfinite(time_over_best) and time_over_best > 3
            label = f"{time_over_best:.1f}" if np.isfinite(time_over_best) else "-"
            panel.text(
                network_column, scheme_row, "best" if is_best else label, ha="center", va="center", fontsize=7,
                color="white" if is_on_dark else "black", weight="bold" if is_best else "normal",
            )  # fmt: skip
        panel.set_xticks(range(len(networks)), networks, rotation=20, fontsize=8)
        panel.set_yticks(range(len(schemes)), schemes, fontsize=8)
        panel.set_title(f"{regime} stragglers", fontsize=10)
    figure.colorbar(image, ax=panels, label="time to the target over the best one's", fraction=0.03)
    files.write_figure(path, figure)
