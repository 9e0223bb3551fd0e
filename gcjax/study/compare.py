"""Compares any set of schemes on the same durations: who reaches a target first, and what it costs."""

import contextlib
import hashlib
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import numpy as np

from gcjax import _validate, analysis, config, files, locks, processes
from gcjax.analysis import gantt
from gcjax.analysis.store import CONFIG_DIGEST, Columns, check_not_finished, os_errors_as_value_error
from gcjax.progress import Progress, silent
from gcjax.protocols import Protocol, Schedule
from gcjax.stragglers import Absences, Links, Network, RandomAbsences, StragglerModel
from gcjax.study import runner
from gcjax.study.base import Study
from gcjax.study.inputs import Condition, Inputs
from gcjax.study.results import Plan, StudyResults

_MEDIAN_UNITS_SHOWN = 12  # by default, in the timeline


def compare(
    schemes: dict[str, Protocol],
    *,
    study: Study,
    stragglers: StragglerModel,
    network: Network | Links | None = None,
    absences: Absences | RandomAbsences | None = None,
    timeline_seconds: float | None = None,
    out: Path | str,
    progress: Progress | None = None,
) -> analysis.Results:
    """Trains under every scheme on the same durations and initial parameters, and writes a folder of results.

    The folder: `operative.gin`, `run.json`, `metrics.parquet`, `timeline.parquet`, `commits.parquet`, `summary.md`,
    `loss_vs_time.png`, `timeline.png`; and `checkpoints` until all of these are written. The timeline is drawn before
    anything is trained, and once more in the end, since a protocol may look at the loss. If there are checkpoints in it
    already, the comparison goes on from them and ends with the same bits.

    Args:
      schemes: name -> protocol.
      study: what all schemes share: the task, the optimizer, the sizes, the target.
      stragglers: who is slow.
      network: the time of messages, or links whose messages are as large as the parameters; instantaneous if None.
      absences: when workers are away, or how it is drawn for each seed; never if None.
      timeline_seconds: how far the timeline goes, above 0; 12 median units of work if None.
      out: the folder to write; new, or with the checkpoints of this comparison. It is locked while they are trained.
      progress: tells a person how far it is; nobody if None.

    Raises:
      ValueError: if there is no scheme, or no target, or a number is out of its range, or what is asked for does not
        fit into memory, or the sampled units are used up before `study.seconds`, or the run in the folder is finished
        or its checkpoints are of another comparison, or another process writes there.
    """
    if timeline_seconds is not None:
        _validate.single_number("timeline_seconds", timeline_seconds, above=True, finite=True)
    out, progress = Path(out), progress or silent()
    check_not_finished(out)
    goal = study.goal  # raises if there is no target, before anything is computed
    plan = runner.plan(study, schemes, {"all": Condition(stragglers, network or Network(), absences)})
    timeline_seconds = _default_timeline_seconds(plan.inputs) if timeline_seconds is None else timeline_seconds
    with _locked(out):
        study_results = runner.run(
            plan,
            out=out,
            progress=progress,
            while_compiling=partial(_draw_planned_timeline, plan, timeline_seconds, out, progress),
        )
        facts = _run_json_facts(study_results, timeline_seconds) | {"target": goal._asdict()}
        results = _comparison_results(study_results, facts)
        if processes.is_first():
            _write(results, out, progress)
    return results


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Holds the lock on the folder in this block; one that is made for it goes in the end if nothing was written there.

    Not where the command has locked it already, or only process 0 of several writes. Raises `ValueError` if another
    process writes there, or has finished a run there meanwhile.
    """
    if locks.is_held_by_this_thread(out) or not processes.is_first():
        yield
        return
    is_new = not out.exists()
    with os_errors_as_value_error(out):
        out.mkdir(parents=True, exist_ok=True)
    try:
        with locks.lock(out):
            check_not_finished(out)
            yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # it holds something
                out.rmdir()


def _write(results: analysis.Results, out: Path, progress: Progress) -> None:
    """Writes all files of the folder, shows the table, and deletes the checkpoints at last."""
    files.write_text(out / "operative.gin", config.operative())
    analysis.save(results, out)
    analysis.write_report(results, out)
    progress.show(analysis.table(results))
    reach_times = [analysis.reach_times(results, scheme) for scheme in results.schemes]
    if not np.isfinite(reach_times).any():
        progress.show(_not_reached_line(results))
    analysis.drop_checkpoints(out)


def _default_timeline_seconds(inputs: Inputs) -> float:
    """How far the timeline goes if nobody says it, in seconds: so many times the median duration of a unit.

    Units that never end, whose duration is inf, do not count; if no unit ends, the median is taken for 1 s.
    """
    durations = np.asarray(inputs.durations)  # float[S, T, W]
    finite_durations = durations[np.isfinite(durations)]
    median_seconds = float(np.median(finite_durations)) if finite_durations.size else 1.0
    return _MEDIAN_UNITS_SHOWN * median_seconds


def _draw_planned_timeline(plan: Plan, timeline_seconds: float, out: Path, progress: Progress) -> None:
    """Draws `timeline.png` from the schedules, so that there is something to look at while the schemes are trained.

    A comparison that is stopped from now on can be gone on with, though it has no checkpoint yet.
    """
    if processes.is_first():
        (out / analysis.CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        facts = {"num_workers": plan.study.num_workers, "timeline_seconds": timeline_seconds, "schemes": plan.schemes}
        timeline = _timeline(plan.inputs, plan.schedules, timeline_seconds)
        gantt.timeline(analysis.Results(metrics={}, timeline=timeline, facts=facts), out / "timeline.png")
        progress.show(f"{out / 'timeline.png'} shows the first rounds; now the schemes are trained")


def _run_json_facts(study_results: StudyResults, timeline_seconds: float) -> dict[str, Any]:
    """What the `run.json` of a comparison, which has one condition, says, but for the target."""
    durations = np.asarray(study_results.plan.inputs.durations)  # float[S, T, W]
    facts_of_schemes = {
        name: {
            "stalled": runs.stalled,
            "unused_workers": _num_unused_workers(study_results.plan.inputs, runs.schedule),
            "compile_seconds": round(runs.compile_seconds, 3),
            "run_seconds": round(runs.run_seconds, 3),
        }
        for name, runs in study_results.runs.items()
    }
    return {
        **study_results.plan.study.facts(),
        "distinct_durations": len({seed_durations.tobytes() for seed_durations in durations}),
        CONFIG_DIGEST: config.digest(),
        "delays_sha256": _delays_sha256(study_results.plan.inputs),
        "timeline_seconds": float(timeline_seconds),
        "schemes": facts_of_schemes,
        **analysis.environment(),
    }


def _num_unused_workers(inputs: Inputs, schedule: Schedule) -> list[int] | None:
    """For each seed, how many workers are in no commit though they compute; None where workers may be away."""
    if inputs.absences is not None:
        return None
    return [
        analysis.num_unused_workers(jax.tree.map(itemgetter(seed), schedule), seed_durations)
        for seed, seed_durations in enumerate(np.asarray(inputs.durations))
    ]


def _delays_sha256(inputs: Inputs) -> str:
    """The SHA-256 of the delays and random keys of all seeds: comparisons with the same one have pairs of seeds."""
    keys = jax.random.key_data(inputs.rng_key)
    leaves, structure = jax.tree.flatten((inputs.durations, inputs.network, inputs.absences, keys))
    digest = hashlib.sha256(repr(structure).encode())
    for array in map(np.asarray, leaves):
        digest.update(repr((array.shape, array.dtype.str)).encode() + array.tobytes())
    return digest.hexdigest()


def _comparison_results(study_results: StudyResults, run_facts: dict[str, Any]) -> analysis.Results:
    """The evaluations of all schemes, timelines and commits of the first seed, and `run_facts`, of `run.json`."""
    metric_tables = []
    for scheme in study_results.runs:
        columns = study_results.columns(scheme)
        del columns["condition"]  # a comparison has one
        metric_tables.append(columns)
    schedules = {scheme: runs.schedule for scheme, runs in study_results.runs.items()}
    seconds = run_facts["timeline_seconds"]
    commits = [
        analysis.commit_columns(scheme, first_schedule, seconds)
        for scheme, first_schedule in _first_schedules(schedules)
    ]
    return analysis.Results(
        metrics=analysis.concatenate_tables(metric_tables),
        timeline=_timeline(study_results.plan.inputs, schedules, seconds),
        facts=run_facts,
        commits=analysis.concatenate_tables(commits),
    )


def _timeline(inputs: Inputs, schedules: dict[str, Schedule], seconds: float) -> Columns:
    """The units of the first seed within the first seconds, of all schemes; arguments as of `_first_schedules`."""
    first_durations = np.asarray(inputs.durations[0])  # float[T, W]
    return analysis.concatenate_tables(
        [
            analysis.timeline_columns(scheme, first_schedule, first_durations, seconds)
            for scheme, first_schedule in _first_schedules(schedules)
        ]
    )


def _first_schedules(schedules: dict[str, Schedule]) -> list[tuple[str, Schedule]]:
    """Each scheme, and its schedule of the first seed; `schedules` by scheme, every field [runs, ...]."""
    return [(scheme, jax.tree.map(itemgetter(0), schedule)) for scheme, schedule in schedules.items()]


def _not_reached_line(results: analysis.Results) -> str:
    """What a person is told if no scheme reached the target: the best value of all, and what to change."""
    goal = results.facts["target"]
    best_value, scheme = analysis.best_value(results)
    is_nan = np.isnan(results.metrics[goal["metric"]])
    nan_schemes = [name for name in results.schemes if is_nan[results.metrics["scheme"] == name].any()]
    line = (
        f"No scheme reached the target {goal['metric']} {goal['value']:g}; the best value was {best_value:.4g}, by "
        f"'{scheme}'. Set an easier target, or let it run longer (num_units, seconds), or change the optimizer."
    )
    if nan_schemes:
        line += f" It became NaN under {', '.join(nan_schemes)}: lower the learning rate."
    idle_schemes = [name for name in results.schemes if not any(seed["commit"].any() for seed in results.seeds(name))]
    if idle_schemes:
        line += f" There was no commit under {', '.join(idle_schemes)}: what it waits for never came."
    return line
