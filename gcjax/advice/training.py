"""Trains the schemes that an advice is about, on the times of the trace, until they reach a target."""

import dataclasses
import tempfile
from pathlib import Path

import numpy as np

from gcjax.advice import batches
from gcjax.advice.base import Advice, Scheme, SchemeAdvice
from gcjax.progress import Progress
from gcjax.protocols import bsp
from gcjax.stragglers import replay
from gcjax.study.base import Study
from gcjax.study.inputs import Condition
from gcjax.study.results import final_rows
from gcjax.study.runner import plan, run


def check_study(study: Study, num_workers: int) -> None:
    """Raises `ValueError` if a study has no target, or other workers than the trace."""
    study.goal  # noqa: B018  (raises if there is none)
    if study.num_workers != num_workers:
        raise ValueError(
            f"the study must have the workers of the trace, {num_workers}; got {study.num_workers}. "
            f"Set study.num_workers = {num_workers}."
        )


def with_seconds_to_target(advice: Advice, trace_seconds: np.ndarray, study: Study, progress: Progress) -> Advice:
    """The advice with the time to the study's target: of BSP, and of the fastest scheme of each class.

    The trace is replayed as it was recorded, from its first step on, with the same times for each seed; seeds have
    parameters and batches of their own. What cannot be trained on this task is said in `left_out`.

    Args:
      advice: of the schedules.
      trace_seconds: float64[T, W] of the trace.
      study: the task, its optimizer and the target; as many workers as the trace has.
      progress: tells a person how far it is.
    """
    target = study.goal
    left_out, scheme_rows = dict(advice.left_out), list(advice.schemes)
    indices = [i for i, row in enumerate(scheme_rows) if row.is_fastest_of_class or row.scheme.protocol == bsp()]
    for num_before, index in enumerate(indices):
        row, portion = scheme_rows[index], progress.portion(num_before / len(indices), (num_before + 1) / len(indices))
        try:
            seconds_to_target = _seconds_to_target(row, trace_seconds, study, portion)
            scheme_rows[index] = row._replace(seconds_to_target=seconds_to_target)
        except ValueError as error:
            left_out[f"{row.scheme.label}, trained"] = str(error)  # and it stays without a time
    sign = ">=" if target.higher_is_better else "<="
    return advice._replace(
        schemes=tuple(scheme_rows), left_out=left_out, target=f"{target.metric} {sign} {target.value:g}"
    )


def _seconds_to_target(
    row: SchemeAdvice, trace_seconds: np.ndarray, study: Study, progress: Progress
) -> tuple[float, ...]:
    """Seconds to the target for each seed, inf where it was not reached, on the trace `trace_seconds float64[T, W]`.

    The scheme cuts a measured step into `units_per_step` units, each of which takes `unit_share` of its seconds.
    """
    scheme: Scheme = row.scheme
    label = f"training {scheme.label}"
    progress.update(label, 0)  # its schedule is compiled and simulated first
    units_per_step, unit_share = batches.units_of_measured_step(scheme, study.num_workers)
    replayed_trace = replay(trace=np.repeat(trace_seconds * unit_share, units_per_step, axis=0), start="recorded")
    single_scheme_study = dataclasses.replace(
        study.of_schemes([scheme.name]), num_units=study.num_units * units_per_step
    )
    single_scheme_plan = plan(single_scheme_study, {scheme.name: scheme.protocol}, {"trace": Condition(replayed_trace)})
    with tempfile.TemporaryDirectory() as folder:
        training_progress = progress._replace(
            update=lambda _, fraction, detail="": progress.update(label, fraction, detail)
        )
        results = run(single_scheme_plan, out=Path(folder), progress=training_progress)
    return tuple(float(seconds) for seconds in final_rows(results)["reach"])
