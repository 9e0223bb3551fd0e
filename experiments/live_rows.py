"""What a live run took and reached, and what is predicted for it: the rows of `experiments.live_protocols`."""

import math
import os
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.live_members import Case
from gcjax import analysis, engine, parameter_server, protocols, stragglers
from gcjax.parameter_server import LiveRun

EVAL_EVERY = 2
"""Commits between two looks at the metrics."""


class Options(NamedTuple):
    """What all runs share: the arguments of `live_protocols` of these names."""

    target: analysis.Target
    seconds: float
    lease: float
    patience: float
    num_commits: int
    calibrated_by: str
    pace: float
    check: bool = False


class Measured(NamedTuple):
    """Attributes: calibration: of a run; absences: of its workers, None if there were none."""

    calibration: parameter_server.Calibration
    absences: stragglers.Absences | None


def is_complete(run: LiveRun) -> bool:
    """Whether nobody has left."""
    return not any(change.change == "left" for change in run.memberships)


def measured_row(case: Case, run: LiveRun, options: Options) -> dict[str, Any]:
    """What a run took and reached, by column.

    `reach`: seconds to the target (inf: not reached), by a replay of the record; `promise`: whether that keeps to its
    specification ("-" where this says nothing of who leaves); `service_seconds`: the median for a push; `load`:
    processes that wanted a core in the last minute.
    """
    setup, protocol = case.setup, case.setup.protocol
    replay = engine.replay(
        setup.task,
        protocol,
        setup.optimizer,
        run.schedule,
        rng_key=setup.rng_key,
        memberships=run.memberships,
        eval_every=EVAL_EVERY,
    )
    assert protocol.specification is not None
    specification = protocol.specification(setup.num_workers)
    memberships = None if is_complete(run) else run.memberships
    can_be_checked = memberships is None or specification.members is not None
    conformance = protocols.check(run.schedule, specification, memberships=memberships) if can_be_checked else None
    commit_times = np.asarray(run.schedule.time)
    return {
        "scheme": case.scheme_name,
        "scenario": case.scenario_name,
        "num_commits": len(run.loss),
        "seconds": float(commit_times[-1]),
        "reach": _seconds_to_target(replay, options.target),
        "promise": "-" if conformance is None else "kept" if conformance else "broken",
        "conformance": "" if conformance is None else str(conformance),
        "replay_difference": _relative_difference(run.params, replay.params),
        "num_left": sum(change.change == "left" for change in run.memberships),
        "service_seconds": float(np.median(run.service_seconds)),
        "load": os.getloadavg()[0],
    }


def predicted_row(case: Case, run: LiveRun, measured: Measured | None, options: Options) -> dict[str, Any]:
    """Seconds to the target by the simulator, from what was measured (inf: not reached), and errors of commit times.

    An error is predicted over measured time, less 1; mean and standard deviation over commits. NaN if unknown.
    """
    if measured is None or not is_predicted(case, run, measured):
        return {"predicted": math.nan, "error_mean": math.nan, "error_std": math.nan}
    # Units of a worker: some more than the run has, so that they last for it.
    simulated = _simulated_run(case.setup, measured, int(1.2 * len(run.schedule.start)) + 10)
    times = np.asarray(simulated.schedule.time)
    errors = parameter_server.time_errors(np.asarray(run.schedule.time), times[np.isfinite(times)])
    return {
        "predicted": _seconds_to_target(simulated, options.target),
        "error_mean": float(errors.mean()) if errors.size else math.nan,
        "error_std": float(errors.std()) if errors.size else math.nan,
    }


def _simulated_run(setup: parameter_server.Setup, measured: Measured, num_units: int) -> engine.Run:
    """The run of a setup in which things take as long as was measured; `num_units`: of each worker."""
    calibration, absences = measured.calibration, measured.absences
    arguments = setup.task, setup.protocol, setup.optimizer
    if setup.protocol.loss_feedback is not None:  # what it does depends on the loss
        durations = parameter_server.sampled_durations(calibration, setup.rng_key, num_units)
        return engine.run(
            *arguments, durations, rng_key=setup.rng_key, network=calibration.network, eval_every=EVAL_EVERY
        )
    schedule = parameter_server.predicted_schedule(setup.protocol, calibration, setup.rng_key, num_units, absences)
    memberships = () if absences is None else absences.memberships(schedule)
    return engine.replay(*arguments, schedule, rng_key=setup.rng_key, memberships=memberships, eval_every=EVAL_EVERY)


def is_predicted(case: Case, run: LiveRun, measured: Measured) -> bool:
    """Whether workers have left as in the measured run (or not), and the simulator can say what follows.

    If they have left, it cannot where workers compute while they send, where a protocol looks at the loss, and where
    turns are stopped and there is no code.
    """
    has_left = not is_complete(run)
    rule, protocol = case.setup.rule(), case.setup.protocol
    is_stopped_without_code = rule.stop is not None and protocol.code is None
    is_simulated = not rule.overlaps and protocol.loss_feedback is None and not is_stopped_without_code
    return has_left == (measured.absences is not None) and (is_simulated or not has_left)


def _seconds_to_target(run: engine.Run, target: analysis.Target) -> float:
    """Seconds to the target; inf if it was not reached."""
    times, metric_values = np.asarray(run.trajectory.time), np.asarray(run.trajectory.metrics[target.metric])
    return analysis.time_to_target(times, metric_values, target.value, higher_is_better=target.higher_is_better)


def _relative_difference(params: Any, reference: Any) -> float:
    """The largest difference of two parameters, over the largest parameter of the reference, both absolute."""
    leaf_pairs = zip(jax.tree.leaves(params), jax.tree.leaves(reference), strict=True)
    arrays = [(np.asarray(leaf, np.float64), np.asarray(of_reference, np.float64)) for leaf, of_reference in leaf_pairs]
    largest_difference = max(np.abs(array - of_reference).max() for array, of_reference in arrays)
    largest_parameter = max(np.abs(of_reference).max() for _, of_reference in arrays)
    return float(largest_difference / largest_parameter)
