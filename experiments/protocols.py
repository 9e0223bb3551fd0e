"""All protocols and some codes on the same durations: who wins under which stragglers, and at what cost of messages.

gcjax run configs/protocols.gin
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import optax
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from experiments import cells
from gcjax import _validate, analysis, config, files
from gcjax.analysis import cells as text
from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.tasks import Task

NOTES = """\
- Mean virtual time to {metric} {target:g} in seconds, over {seeds} seeds that all schemes share; ± is their standard
  deviation. The fastest in each column is bold; others whose mean is within its standard deviation are marked with *.
- A dash: at least one seed did not get there before a worker had used up its {units} units; "never": it came to a halt,
  because somebody waits for a worker that has failed.
- One set of hyperparameters a scheme, the same in all columns, not tuned: the order of neighbours says little.
"""

FACTOR = 10.0
"""Times above so many times the best one are drawn as that."""


@config.experiment
def protocol_map(
    schemes: dict[str, Protocol],
    *,
    regimes: dict[str, StragglerModel],
    networks: dict[str, Network | Links],
    task: Task,
    optimizer: optax.GradientTransformation,
    optimizers: dict[str, optax.GradientTransformation] | None = None,
    num_workers: int,
    num_units: int,
    target: float,
    metric: str = "accuracy",
    num_seeds: int = 3,
    num_evals: int = 100,
    seed: int = 0,
    out: Path,
    progress: Progress,
) -> cells.Columns:
    """Runs every scheme under every regime of stragglers at every cost of messages.

    All regimes, costs and seeds of a scheme go through one program. The folder: `results.parquet` (a row for each
    scheme, cell and seed, with time, staleness, waiting and communication), `summary.md`, `map.png`, `run.json`,
    `operative.gin`.

    Args:
      schemes: name -> protocol.
      regimes: name -> who is slow.
      networks: name -> the time of messages.
      task: what is trained.
      optimizer: of the steps on gradients.
      optimizers: scheme -> its own optimizer.
      num_workers: W.
      num_units: T, sampled for each worker.
      target: value of the metric to reach.
      metric: of the task.
      num_seeds: S, 2 or more.
      num_evals: evaluations of a run.
      seed: of all randomness.
      out: the folder to write.
      progress: tells a person how far it is.

    Raises:
      ValueError: if nothing is named, or a number is out of its range.
    """
    _validate.integer("num_seeds", num_seeds, minimum=2)
    for name, given in {"schemes": schemes, "regimes": regimes, "networks": networks}.items():
        if not given:
            raise ValueError(f"{name} must name one at least; got {given!r}.")
    study = cells.Study(
        task, optimizer, optimizers or {}, num_workers, num_units, num_seeds, seed, target, metric, num_evals
    )
    places = {f"{r}, {n}": (model, net) for r, model in regimes.items() for n, net in networks.items()}
    found = cells.measured(schemes, places, study, out, progress)
    cells.save(found, study, out)
    rows = _rows(found, list(schemes), list(places))
    heads = ("Scheme", *places)
    notes = NOTES.format(metric=metric, target=target, seeds=num_seeds, units=num_units)
    tables = [analysis.markdown_table(heads, rows), "", notes, "", "## What they cost", ""]
    costs = _costs(found, list(schemes), list(places))
    cost_heads = ("Scheme", "Computing", "Communicating", "Waiting", "Staleness", "Numbers sent a worker and second")
    tables.append(analysis.markdown_table(cost_heads, costs))
    files.write_text(out / "summary.md", "\n".join(["# Which scheme wins where", "", *tables, ""]))
    _figure(found, list(schemes), list(regimes), list(networks), out / "map.png")
    analysis.drop_checkpoints(out)
    progress.show(analysis.rich_table("Virtual time to the target (s)", heads, rows))
    return found


def _times(found: cells.Columns, schemes: Sequence[str], places: Sequence[str]) -> np.ndarray:
    """float[schemes, cells]: mean time to the target; inf if a seed did not get there."""
    return np.array([[cells.pick(found, scheme, cell, "reach").mean() for cell in places] for scheme in schemes])


def _rows(found: cells.Columns, schemes: Sequence[str], places: Sequence[str]) -> list[tuple[str, ...]]:
    times = _times(found, schemes, places)
    best = [schemes[i] for i in times.argmin(axis=0)]
    return [
        (scheme, *(_cell(found, scheme, cell, winner) for cell, winner in zip(places, best, strict=True)))
        for scheme in schemes
    ]


def _cell(found: cells.Columns, scheme: str, cell: str, winner: str) -> str:
    reach, least = cells.pick(found, scheme, cell, "reach"), cells.pick(found, winner, cell, "reach")
    if not np.isfinite(reach).all():
        return "never" if cells.pick(found, scheme, cell, "stalled").all() else "-"
    words = text.mean_spread(reach, 1)
    if scheme == winner:
        return f"**{words}**"
    return words + (" *" if reach.mean() <= least.mean() + least.std(ddof=1) else "")


def _costs(found: cells.Columns, schemes: Sequence[str], places: Sequence[str]) -> list[tuple[str, ...]]:
    """Shares over all cells, and what is sent."""
    rows = []
    for scheme in schemes:
        mine = {key: column[found["scheme"] == scheme] for key, column in found.items()}
        shares = (text.percent(mine[key]) for key in ("computing", "communicating", "waiting"))
        stale = text.staleness(mine["mean_staleness"], mine["max_staleness"])
        rows.append((scheme, *shares, stale, text.short(float(np.mean(mine["numbers"] / mine["end"])))))
    return rows


def _figure(
    found: cells.Columns, schemes: Sequence[str], regimes: Sequence[str], networks: Sequence[str], path: Path
) -> None:
    """A panel for each regime: schemes against the cost of messages, coloured by time over the best; the best named."""
    figure = Figure(figsize=(2.4 + 2.6 * len(regimes), max(3.8, 1.6 + 0.27 * len(schemes))), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(regimes), squeeze=False, sharey=True)[0]
    for panel, regime in zip(panels, regimes, strict=True):
        times = _times(found, schemes, [f"{regime}, {network}" for network in networks])
        relative = times / times.min(axis=0)
        image = panel.imshow(
            np.where(np.isfinite(relative), relative.clip(1, FACTOR), np.nan), cmap="viridis_r", aspect="auto",
            norm=LogNorm(1, FACTOR),
        )  # fmt: skip
        panel.set_facecolor("#DDDDDD")
        for (row, column), value in np.ndenumerate(relative):
            label = f"{value:.1f}" if np.isfinite(value) else "-"
            best = value == 1
            panel.text(
                column, row, "best" if best else label, ha="center", va="center", fontsize=7,
                color="white" if np.isfinite(value) and value > 3 else "black", weight="bold" if best else "normal",
            )  # fmt: skip
        panel.set_xticks(range(len(networks)), networks, rotation=20, fontsize=8)
        panel.set_yticks(range(len(schemes)), schemes, fontsize=8)
        panel.set_title(f"{regime} stragglers", fontsize=10)
    figure.colorbar(image, ax=panels, label="time to the target over the best one's", fraction=0.03)
    files.write_figure(path, figure)
