"""The schedules of one scheme in all runs of a study."""

import functools
from functools import partial
from typing import Any

import jax
import numpy as np

from gcjax import compiler_options, memory
from gcjax.engine.compressed_messages import sized_network
from gcjax.engine.validation import check_versions
from gcjax.protocols import Protocol, Schedule
from gcjax.protocols.base import with_absences
from gcjax.protocols.compiled_schedules import on_cpu
from gcjax.protocols.conformance.runnable import check_commits_happen, check_work
from gcjax.protocols.conformance.structure import check_structure
from gcjax.stragglers import Network
from gcjax.study.base import Study
from gcjax.study.inputs import Inputs


def lowered_program(scheme: str, protocol: Protocol, study: Study, inputs: Inputs) -> jax.stages.Lowered:
    """The program that `schedules` calls, traced; once somebody has compiled it, `schedules` does not do so again.

    Raises:
      ValueError: if the schedules do not fit into memory.
    """
    arguments = _arguments(scheme, protocol, study, inputs)
    shapes = jax.eval_shape(partial(_schedules_of_runs, protocol), *arguments)
    memory.check_fits(
        f"schedules of '{scheme}'", memory.bytes_of_arrays(shapes), "Lower num_units, num_workers or num_seeds."
    )
    return schedule_program().lower(protocol, *arguments)


def schedules(scheme: str, protocol: Protocol, study: Study, inputs: Inputs) -> Schedule:
    """The schedules of all runs, on the host.

    Raises:
      ValueError: if the sampled units do not last for the time asked for, or this does not last for a commit, or a
        schedule breaks a rule that all keep to, or has other versions than the protocol says.
    """
    durations, network, absences = _arguments(scheme, protocol, study, inputs)
    schedule: Schedule = jax.device_get(schedule_program()(protocol, durations, network, absences))
    check_enough_units(scheme, schedule, study, inputs.durations)
    check_structure(schedule, protocol)
    check_versions(with_absences(protocol, inputs.absences).one_version, schedule)
    check_work(schedule)
    if absences is None:
        check_commits_happen(schedule, durations, network)
    _check_first_commits(scheme, schedule, study)
    return schedule


def _arguments(scheme: str, protocol: Protocol, study: Study, inputs: Inputs) -> tuple[Any, ...]:
    """Of the simulation, on a CPU, with a leading axis of runs each: durations, networks, absences."""
    return on_cpu((inputs.durations, network_of(scheme, protocol, study, inputs), inputs.absences))


@functools.cache
def schedule_program() -> Any:
    """`_schedules_of_runs`, to be compiled for each protocol and each shape of the arguments."""
    options = compiler_options.small_operations()
    return jax.jit(_schedules_of_runs, static_argnums=0, compiler_options=options)


def _schedules_of_runs(schedule_of_run: Any, *arguments: Any) -> Schedule:
    """The schedules of all runs, from a function of one run and its arguments with a leading axis of runs each."""
    return jax.vmap(schedule_of_run)(*arguments)


def network_of(scheme: str, protocol: Protocol, study: Study, inputs: Inputs) -> Network:
    """The networks of all runs, every field [runs, ...], for messages as large as those of the scheme."""
    params = jax.eval_shape(study.task.init, jax.random.key(0))
    return jax.vmap(lambda network: sized_network(network, study.compression_of(scheme), params, protocol))(
        inputs.network
    )


def _check_first_commits(scheme: str, schedule: Schedule, study: Study) -> None:
    """Raises `ValueError` if `study.seconds` are over before the first commit of any run that does not come to a halt.

    Every run of the schedule, which has a leading axis of them, has a commit unless it comes to a halt.
    """
    if study.seconds is None:
        return
    comes_to_halt = np.isinf(schedule.horizon)  # bool[runs]
    first_commits = np.where(comes_to_halt, 0.0, schedule.time.min(axis=1))  # seconds
    if first_commits.max() > study.seconds:
        raise ValueError(
            f"seconds must last for a commit in every run; got {study.seconds:g}, and the first commit of scheme "
            f"'{scheme}' takes up to {first_commits.max():.4g} seconds. Run for longer."
        )


def check_enough_units(scheme: str, schedule: Schedule, study: Study, durations: jax.Array) -> None:
    """Raises `ValueError` if in any run the sampled units of work are used up before `study.seconds`.

    `durations`: float[runs, T, W] seconds, from which follows how many could be enough.
    """
    earliest_horizon = float(np.min(schedule.horizon))
    if study.seconds is not None and earliest_horizon < study.seconds:
        units_and_a_tenth = 1.1 * study.num_units  # to spare
        # The horizon, at which the first worker has used its units up, can be 0 s; with turns of many units it jumps.
        in_proportion = units_and_a_tenth * study.seconds / max(earliest_horizon, 1e-9)
        seconds_of_fastest = np.mean(durations, axis=1).min()  # of a unit, in the mean; inf if nobody ever ends one
        twice_without_pause = 2 * study.seconds / max(float(seconds_of_fastest), 1e-9)
        enough_units = int(min(in_proportion, max(twice_without_pause, units_and_a_tenth))) + 1
        raise ValueError(
            f"num_units must last for all of the {study.seconds:g} seconds; {study.num_units} units a worker are "
            f"used up after {earliest_horizon:.4g} seconds in scheme '{scheme}'. Sample about {enough_units} units, or "
            "run for fewer seconds."
        )
