"""Schemes in several settings at once: all settings and seeds of a scheme go through one program.

Letters: S seeds.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optax
import pyarrow as pa

from gcjax import analysis, config, files
from gcjax.analysis import demands, trials
from gcjax.analysis.settings import Setting, setting
from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.tasks import Task

Columns = dict[str, np.ndarray]


class Study(NamedTuple):
    """What all settings share.

    Attributes:
      task: what is trained.
      optimizer: of the steps on gradients.
      optimizers: scheme -> its own optimizer.
      num_workers: W.
      num_units: T, sampled for each worker.
      num_seeds: S.
      seed: of all randomness; seed s has the same initial parameters and batches in all settings.
      target: the value of the metric to reach.
      metric: one of the task's.
      num_evals: evaluations of a run.
      seconds: virtual time at which a run ends; at the end of the sampled units if None.
    """

    task: Task
    optimizer: optax.GradientTransformation
    optimizers: dict[str, optax.GradientTransformation]
    num_workers: int
    num_units: int
    num_seeds: int
    seed: int
    target: float
    metric: str
    num_evals: int = 100
    seconds: float | None = None


def measured(
    schemes: dict[str, Protocol],
    cells: dict[str, tuple[StragglerModel, Network | Links]],
    study: Study,
    out: Path,
    progress: Progress,
) -> Columns:
    """Runs every scheme in every setting.

    Args:
      schemes: name -> protocol.
      cells: name -> who is slow, and what messages cost.
      study: what they share.
      out: the folder for checkpoints; the caller drops them when everything is written.
      progress: tells a person how far it is.

    Returns:
      A row for each scheme, cell and seed: `reach` (virtual seconds to the target; inf if it was not reached), `end`
      (of the run), `stalled`, the metrics at the end, and what had been spent by then (see `analysis.Costs`).

    Raises:
      ValueError: if the metric is unknown, or a scheme has an optimizer but is none.
    """
    demands.check_schemes(schemes, study.optimizers)
    number = len(cells) * study.num_seeds
    demands.check_size(study.task, num_seeds=number, num_units=study.num_units, num_workers=study.num_workers)
    demands.check_seconds(seconds=study.seconds)
    goal = analysis.target(study.metric, study.target, demands.metrics(study.task))
    models, networks = zip(*cells.values(), strict=True)
    shared = setting(
        study.task, models, networks, num_workers=study.num_workers, num_units=study.num_units,
        num_seeds=study.num_seeds, rng_key=config.key(seed=study.seed), labels={"cell": list(cells)},
        seconds=study.seconds, num_evals=study.num_evals,
    )  # fmt: skip
    saving = trials.Saving(out / analysis.CHECKPOINTS, study.num_evals, 1, config.text())
    parts = []
    for i, (name, protocol) in enumerate(schemes.items()):
        schedule = trials.schedules(name, protocol, shared)
        optimizer, report = study.optimizers.get(name, study.optimizer), progress.part(name, i, len(schemes))
        done = trials.run(name, protocol, optimizer, schedule, shared, saving, report)
        parts.append(_rows(name, protocol, done, shared, goal))
    return analysis.stack(parts)


def _rows(name: str, protocol: Protocol, done: trials.Trials, setting: Setting, goal: analysis.Target) -> Columns:
    found = trials.columns(name, protocol, done, setting)
    rows: list[dict[str, Any]] = []
    for i, stalled in enumerate(done.stalled):
        mine = analysis.select(found, found["seed"] == i)
        reach = analysis.time_to_target(
            mine["time"], mine[goal.metric], goal.value, higher_is_better=goal.higher_is_better
        )
        last = {key: column[-1] for key, column in mine.items() if key not in ("scheme", "seed", "time", "commit")}
        labels = {key: column[i] for key, column in setting.labels.items()}
        rows.append(
            {"scheme": name, **labels, "reach": reach}
            | {"end": mine["time"][-1], "stalled": stalled, "commits": mine["commit"][-1], **last}
        )
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def pick(found: Columns, scheme: str, cell: str, column: str) -> np.ndarray:
    """float[S]: a column of one scheme in one cell."""
    values: np.ndarray = found[column][(found["scheme"] == scheme) & (found["cell"] == cell)]
    return values


def save(found: Columns, study: Study, out: Path) -> None:
    """Writes the rows to `results.parquet`, and what was run to `operative.gin` and `run.json`."""
    files.write_table(out / "results.parquet", {key: pa.array(column.tolist()) for key, column in found.items()})
    files.write_text(out / "operative.gin", config.operative())
    names = ("seed", "num_seeds", "num_workers", "num_units", "target", "metric")
    facts = {**{name: getattr(study, name) for name in names}, **analysis.environment()}
    files.write_text(out / "run.json", json.dumps(facts, indent=1) + "\n")
