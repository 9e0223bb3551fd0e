"""Schemes in several settings at once: all settings and seeds of a scheme go through one program.

Letters: S seeds.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa

from gcjax import analysis, config, files
from gcjax.analysis import demands, trials
from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel, sample_durations
from gcjax.tasks import Task

Columns = dict[str, np.ndarray]


class Cell(NamedTuple):
    """One setting: who is slow, and what messages cost."""

    stragglers: StragglerModel
    network: Network | Links


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
    schemes: dict[str, Protocol], cells: dict[str, Cell], study: Study, out: Path, progress: Progress
) -> Columns:
    """Runs every scheme in every setting.

    Args:
      schemes: name -> protocol.
      cells: name -> setting.
      study: what they share.
      out: the folder for checkpoints; the caller drops them when everything is written.
      progress: tells a person how far it is.

    Returns:
      A row for each scheme, cell and seed: `reach` (virtual seconds to the target; inf if it was not reached), `end`
      (of the run), `stalled`, the metrics at the end, and what had been spent by then (see `analysis.Costs`).

    Raises:
      ValueError: if the metric is unknown, or a scheme has an optimizer but is none.
    """
    demands.check_schemes(schemes)
    unknown = set(study.optimizers) - set(schemes)
    if unknown:
        raise ValueError(f"optimizers must be those of schemes, {', '.join(schemes)}; got one for '{min(unknown)}'.")
    number = len(cells) * study.num_seeds
    demands.check_size(study.task, num_seeds=number, num_units=study.num_units, num_workers=study.num_workers)
    demands.check_seconds(seconds=study.seconds)
    setting, goal = _setting(cells, study)
    saving = trials.Saving(out / analysis.CHECKPOINTS, study.num_evals, 1, config.text())
    parts = []
    for i, (name, protocol) in enumerate(schemes.items()):
        report = partial(_report, progress, name, i, len(schemes))
        schedule = trials.schedules(name, protocol, setting)
        optimizer = study.optimizers.get(name, study.optimizer)
        done = trials.run(name, protocol, optimizer, schedule, setting, saving, report)
        parts.append(_rows(name, protocol, done, setting, list(cells), goal))
    return analysis.stack(parts)


def _setting(cells: dict[str, Cell], study: Study) -> tuple[trials.Setting, analysis.Target]:
    params = jax.eval_shape(study.task.init, jax.random.key(0))
    goal = analysis.target(study.metric, study.target, jax.eval_shape(study.task.metrics, params, study.task.data))
    keys = jax.random.split(config.key(seed=study.seed), study.num_seeds)

    def one(model: StragglerModel) -> Callable[[jax.Array], jax.Array]:
        return lambda key: sample_durations(model, jax.random.fold_in(key, 0), study.num_units, study.num_workers)

    durations = jnp.concatenate([jax.jit(jax.vmap(one(cell.stragglers)))(keys) for cell in cells.values()])
    first = jax.jit(jax.vmap(lambda key: study.task.init(jax.random.fold_in(key, 1))))(keys)
    batches = jax.vmap(lambda key: jax.random.fold_in(key, 2))(keys)
    number = len(cells)
    every = [cell.network.of(params) for cell in cells.values() for _ in range(study.num_seeds)]
    networks = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(v, durations.dtype) for v in x]), *every)
    setting = trials.Setting(
        task=study.task,
        durations=durations,
        params=jax.tree.map(lambda x: jnp.concatenate([x] * number), first),
        keys=jnp.concatenate([batches] * number),
        network=Network(),
        seconds=np.inf if study.seconds is None else study.seconds,
        num_evals=study.num_evals,
        networks=networks,
    )
    return setting, goal


def _rows(
    name: str, protocol: Protocol, done: trials.Trials, setting: trials.Setting, cells: Sequence[str], goal: Any
) -> Columns:
    durations = np.asarray(setting.durations)
    numbers = sum(leaf[0].size for leaf in jax.tree.leaves(setting.params))
    found = analysis.metric_columns(
        name, done.trajectory, done.schedule, durations, code=protocol.code, num_params=numbers
    )
    per_cell = len(durations) // len(cells)
    rows: list[dict[str, Any]] = []
    for i, stalled in enumerate(done.stalled):
        mine = analysis.select(found, found["seed"] == i)
        reach = analysis.time_to_target(
            mine["time"], mine[goal.metric], goal.value, higher_is_better=goal.higher_is_better
        )
        last = {key: column[-1] for key, column in mine.items() if key not in ("scheme", "seed", "time", "commit")}
        rows.append(
            {"scheme": name, "cell": cells[i // per_cell], "seed": i % per_cell, "reach": reach}
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


def _report(progress: Progress, name: str, index: int, number: int, fraction: float) -> None:
    progress.update(name, (index + fraction) / number)
