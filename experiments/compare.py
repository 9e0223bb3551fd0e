"""Compares any set of schemes on the same durations: who reaches a target first, and what it costs."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh

from gcjax import _validate, analysis, config, files, processes
from gcjax.analysis import demands, trials
from gcjax.analysis.settings import Setting, setting
from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.tasks import Task


@config.experiment
def compare(
    schemes: dict[str, Protocol],
    *,
    task: Task,
    stragglers: StragglerModel,
    optimizer: optax.GradientTransformation,
    num_workers: int,
    num_units: int,
    target: float,
    metric: str = "accuracy",
    higher_is_better: bool | None = None,
    num_seeds: int = 5,
    seed: int = 0,
    seconds: float | None = None,
    network: Network | Links | None = None,
    optimizers: dict[str, optax.GradientTransformation] | None = None,
    num_evals: int = 100,
    timeline_seconds: float | None = None,
    mesh: Mesh | None = None,
    axis: str = "workers",
    checkpoint_every: int = 25,
    checkpoints_kept: int = 2,
    out: Path,
    progress: Progress,
) -> analysis.Results:
    """Trains under every scheme on the same durations and initial parameters, and writes a folder of results.

    All seeds of a scheme run in one XLA program, or on a mesh one after the other. The folder: `operative.gin`,
    `run.json`, `metrics.parquet`, `timeline.parquet`, `summary.md`, `loss_vs_time.png`, `timeline.png`; and
    `checkpoints` until all of these are written. If there are checkpoints in it already, the comparison goes on from
    them and ends with the same bits.

    Args:
      schemes: name -> protocol.
      task: what is trained.
      stragglers: who is slow.
      optimizer: on the server, the same for all schemes.
      num_workers: W.
      num_units: T, the units of work sampled for each worker. A scheme ends when a worker has used them up.
      target: the value of the metric to reach.
      metric: one of the task's metrics.
      higher_is_better: whether the metric is to rise to the target; by default that of accuracies is, by their name.
      num_seeds: S; each has its own durations, initial parameters and batches.
      seed: of all randomness.
      seconds: virtual time at which all schemes end, above 0; each at the end of its sampled units if None.
      network: the time of messages, or links whose messages are as large as the parameters; instantaneous if None.
      optimizers: scheme -> its own optimizer, instead of `optimizer`.
      num_evals: evaluations of a run.
      timeline_seconds: how far the timeline goes, above 0; 12 median units of work if None.
      mesh: the devices that every run is spread over, for example `@mesh()`; one device if None. With several processes
        there must be one.
      axis: of the mesh, along which the workers lie.
      checkpoint_every: evaluations from one checkpoint to the next.
      checkpoints_kept: the checkpoints kept of a run.
      out: the folder to write; empty, or with the checkpoints of this comparison.
      progress: tells a person how far it is.

    Raises:
      ValueError: if there is no scheme, or a number is out of its range, or what is asked for does not fit into memory,
        or the target cannot be reached, or no scheme reached it (after everything is written), or the sampled units are
        used up before `seconds`, or the checkpoints are of another comparison.
    """
    demands.check_schemes(schemes, optimizers or {})
    demands.check_size(task, num_seeds=num_seeds, num_units=num_units, num_workers=num_workers)
    demands.check_seconds(seconds=seconds, timeline_seconds=timeline_seconds)
    _validate.integer("num_evals", num_evals, minimum=1)
    _check_mesh(mesh)
    goal = analysis.target(metric, target, demands.metrics(task), higher_is_better=higher_is_better)
    shared = setting(
        task, [stragglers], [network or Network()], num_workers=num_workers, num_units=num_units, num_seeds=num_seeds,
        rng_key=config.key(seed=seed), seconds=seconds, num_evals=num_evals, mesh=mesh, axis=axis,
    )  # fmt: skip
    saving = trials.Saving(out / analysis.CHECKPOINTS, checkpoint_every, checkpoints_kept, config.text())
    schedules = {name: trials.schedules(name, protocol, shared) for name, protocol in schemes.items()}
    done = {}
    for i, (name, protocol) in enumerate(schemes.items()):
        own, report = (optimizers or {}).get(name, optimizer), progress.part(name, i, len(schemes))
        done[name] = trials.run(name, protocol, own, schedules[name], shared, saving, report)
    facts = {"seed": seed, "target": goal._asdict(), **_facts(done, shared, timeline_seconds)}
    results = _results(schemes, done, shared, facts)
    if processes.is_first():
        _write(results, out, progress)
        analysis.drop_checkpoints(out)
    _check_reached(results)
    return results


def _check_mesh(mesh: Mesh | None) -> None:
    if mesh is None and jax.process_count() > 1:
        raise ValueError(
            f"With several processes a comparison needs a mesh of all their devices; there are {jax.process_count()} "
            "processes and no mesh. Bind compare.mesh = @mesh()."
        )


def _facts(done: dict[str, trials.Trials], setting: Setting, timeline_seconds: float | None) -> dict[str, Any]:
    durations = np.asarray(setting.durations)
    num_seeds, num_units, num_workers = durations.shape
    median = np.median(durations[np.isfinite(durations)])
    horizon = 12 * median if timeline_seconds is None else timeline_seconds
    schemes = {
        name: {
            "stalled": each.stalled,
            "compile_seconds": round(each.compile_seconds, 3),
            "run_seconds": round(each.run_seconds, 3),
        }
        for name, each in done.items()
    }
    counts = {"num_seeds": num_seeds, "num_workers": num_workers, "num_units": num_units}
    counts["distinct_durations"] = len({each.tobytes() for each in durations})
    return {**counts, "timeline_seconds": float(horizon), "schemes": schemes, **analysis.environment()}


def _results(
    schemes: dict[str, Protocol],
    done: dict[str, trials.Trials],
    setting: Setting,
    facts: dict[str, Any],
) -> analysis.Results:
    durations = np.asarray(setting.durations)
    metrics, timeline = [], []
    for name, each in done.items():
        first = jax.tree.map(lambda x: x[0], each.schedule)
        metrics.append(trials.columns(name, schemes[name], each, setting))
        timeline.append(analysis.timeline_columns(name, first, durations[0], facts["timeline_seconds"]))
    return analysis.Results(analysis.stack(metrics), analysis.stack(timeline), facts)


def _write(results: analysis.Results, out: Path, progress: Progress) -> None:
    files.write_text(out / "operative.gin", config.operative())
    analysis.save(results, out)
    analysis.write_report(results, out)
    progress.show(analysis.table(results))


def _check_reached(results: analysis.Results) -> None:
    if any(np.isfinite(analysis.reach_times(results, scheme)).any() for scheme in results.schemes):
        return
    goal = results.facts["target"]
    best, scheme = analysis.best_value(results)
    raise ValueError(
        f"No scheme reached the target {goal['metric']} {goal['value']:g}; the best value was {best:.4g}, by "
        f"'{scheme}'. Set an easier target, or let it run longer (num_units, seconds), or change the "
        "optimizer. Everything that was found has been written."
    )
