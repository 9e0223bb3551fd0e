"""Trains one scheme in all runs of a study, as one XLA program, or one run after the other on a mesh.

Letters: E commits, T units sampled per worker, W workers.
"""

import functools
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import compiler_options, config, engine, memory
from gcjax.analysis import is_stalled
from gcjax.compression import Compression
from gcjax.engine.identity import run_identity
from gcjax.engine.pieces import advance_in_pieces
from gcjax.engine.program_digest import digest_of_program
from gcjax.engine.wrong_messages import WrongSenders
from gcjax.equality import comparable
from gcjax.protocols import Protocol, Schedule, truncate
from gcjax.protocols.base import with_absences, with_known_schedule
from gcjax.study.base import Study
from gcjax.study.inputs import Inputs
from gcjax.study.rates import set_rates, with_rate
from gcjax.study.scheduling import check_enough_units, network_of, schedule_program
from gcjax.tasks import Task

_COMPILING_SHARE = 0.7  # roughly the share of a short run that compilation takes; for the progress bar only


class SchemeRuns(NamedTuple):
    """The runs of one scheme, conditions times seeds, on the host; every array has a leading axis of runs.

    Attributes:
      trajectory: the evaluations.
      schedule: what happened when.
      stalled: for each run, whether it came to a halt.
      compile_seconds: wall time that was waited for compiling, without tracing, and without what was compiled while
        other schemes ran or were traced; on a mesh, of the whole first run.
      run_seconds: wall time of all runs together, or of the others on a mesh, with their checkpoints.
    """

    trajectory: engine.Trajectory
    schedule: Schedule
    stalled: list[bool]
    compile_seconds: float
    run_seconds: float


class PreparedTraining(NamedTuple):
    """How a scheme is trained, and its programs.

    Attributes:
      training: arguments of `engine.run`, the same for all runs.
      seconds: when the runs end; inf if they last as long as the durations.
      programs: those of one device; None on a mesh, where each is compiled when it is first called.
    """

    training: "_Training"
    seconds: float
    programs: "_Programs | None"


class _Programs(NamedTuple):
    """The programs of all runs of a scheme, from other threads.

    Attributes:
      compiled: each of them, once it is compiled.
      digest: of what is computed, see `digest_of_program`.
    """

    compiled: tuple[Future[Any], ...]
    digest: Future[str]


def prepare(
    scheme: str,
    protocol: Protocol,
    schedule: Schedule,
    study: Study,
    inputs: Inputs,
    threads: Executor,
    rates: np.ndarray | None = None,
) -> PreparedTraining:
    """Traces the programs that train a scheme, and has threads compile them; those of a mesh are left to its runs.

    Arguments are those of `train`, and `threads`.

    Raises:
      ValueError: if the states of all runs do not fit into memory, or there are rates and a mesh, or the scheme cannot
        be trained.
    """
    if rates is not None and study.mesh is not None:
        raise ValueError("Rates are for runs in one program; the study has a mesh. Leave study.mesh out.")
    seconds = np.inf if study.seconds is None else study.seconds
    is_in_time = np.isfinite(schedule.time) & (schedule.time <= seconds)  # bool[runs, E]
    most_commits = max(1, int(is_in_time.sum(axis=1).max()))  # of any run
    eval_every = -(-most_commits // study.num_evals)  # rounded up
    # The runs end by time. This number only sizes the arrays of evaluations, alike for seeds that differ a little. A
    # protocol that looks at the loss may come to make more commits.
    max_commits = None if protocol.loss_feedback is not None else eval_every * study.num_evals
    truncated_protocol = with_absences(_truncated_protocol(protocol, seconds), inputs.absences)
    optimizer = study.optimizer_of(scheme)
    training = _Training(
        protocol=truncated_protocol, optimizer=optimizer if rates is None else with_rate(optimizer),
        compression=study.compression_of(scheme), wrong_senders=study.wrong_senders_of(scheme), num_commits=max_commits,
        eval_every=eval_every,
    )  # fmt: skip
    programs = (
        None if study.mesh is not None else _programs_by(threads, training, scheme, study, inputs, schedule, seconds)
    )
    return PreparedTraining(training, seconds, programs)


def _programs_by(
    threads: Executor,
    training: "_Training",
    scheme: str,
    study: Study,
    inputs: Inputs,
    schedule: Schedule,
    seconds: float,
) -> _Programs:
    """The programs of `_train_in_one_program`, traced here and compiled by threads; arguments are those of it.

    Raises:
      ValueError: if the states of all runs do not fit into memory.
    """
    task, data = study.task._replace(data=None), study.task.data
    arguments = training, task, data, inputs, schedule, seconds
    shapes = _begin_program().eval_shape(*arguments)  # of the runs, with their schedules
    memory.check_fits(  # `engine.run` checks one run only: it does not know of the others, which are there at once
        f"the states and evaluations of {len(inputs.durations)} runs of '{scheme}', conditions and trials times seeds",
        memory.bytes_of_arrays(shapes),
        "Take fewer of these, fewer workers or evaluations, or a smaller model.",
    )
    # The runs have the parameters. Of the number of evaluations only the type counts here.
    traced_advance = _advance_runs.trace(
        training, task, data, inputs._replace(params=None), shapes.unscheduled, shapes.schedule, jnp.int32(0)
    )
    lowered_programs = _begin_program().lower(*arguments), traced_advance.lower()
    return _Programs(
        compiled=tuple(threads.submit(program.compile) for program in lowered_programs),
        digest=threads.submit(digest_of_program, traced_advance.jaxpr),
    )


def train(
    scheme: str,
    prepared: PreparedTraining,
    schedule: Schedule,
    study: Study,
    inputs: Inputs,
    out: Path,
    report: Callable[[float], None],
    rates: np.ndarray | None = None,
) -> SchemeRuns:
    """Trains a scheme in all runs, or goes on from their checkpoints.

    Args:
      scheme: its name.
      prepared: what `prepare` returned for this scheme.
      schedule: what `schedules` returned for its protocol.
      study: what all schemes share.
      inputs: what the runs are given.
      out: the folder that the study writes, with the checkpoints.
      report: called with the share that is done, in [0, 1].
      rates: float[runs], what the updates of the scheme's optimizer are multiplied by; as it makes them if None.

    Raises:
      ValueError: if a run is not to be trusted (see `gcjax.engine.check`), or the checkpoints are of another run.
    """
    training, seconds, programs = prepared
    if programs is not None:
        runs = _train_in_one_program(training, programs, scheme, study, inputs, schedule, seconds, out, report, rates)
    else:
        runs = _train_on_mesh(training, scheme, study, inputs, schedule, seconds, out, report)
    memory.forget_programs()  # of the schemes until now; what is compiled ahead of the next one is then compiled again
    return runs


def _ended_runs(
    trajectory: engine.Trajectory,
    schedule: Schedule,
    full_schedule: Schedule,
    seconds: float,
    begin_time: float,
    compile_end_time: float,
) -> SchemeRuns:
    """All runs of a scheme, which end now; compiling, or the first run on a mesh, began and ended at these times.

    `schedule` is until the runs ended, after so many seconds; `full_schedule`, as long as the durations last,
    tells whether a run had come to a halt by then.
    """
    run_seconds = time.perf_counter() - compile_end_time
    return SchemeRuns(
        trajectory=jax.device_get(trajectory), schedule=jax.device_get(schedule),
        stalled=[is_stalled(_run_slice(full_schedule, run), seconds) for run in range(len(full_schedule.time))],
        compile_seconds=compile_end_time - begin_time, run_seconds=run_seconds,
    )  # fmt: skip


class _Training(NamedTuple):
    """How a scheme is trained, arguments of `engine.run`: static under `jit`, so that equal ones are compiled once."""

    protocol: Protocol
    optimizer: optax.GradientTransformation
    compression: Compression | None
    wrong_senders: WrongSenders | None
    num_commits: int | None
    eval_every: int


@functools.cache
def _begin_program() -> Any:
    """`_begin_runs`, to be compiled for each training and each shape of the arguments."""
    return jax.jit(_begin_runs, static_argnums=(0, 1), compiler_options=compiler_options.small_operations())


def _begin_runs(
    training: _Training, task: Task, data: Any, inputs: Inputs, schedule: Schedule, seconds: Any
) -> engine.Run:
    """All runs before their first commit.

    Args:
      training: arguments of `engine.run`, the same for all runs.
      task: without its data, which `jit` could not take as a static argument.
      data: of the task.
      inputs: arguments of `engine.run`, with a leading axis of runs.
      schedule: of all runs (leading axis), as long as the durations last.
      seconds: float[], where the schedules of the runs end.
    """

    def initial_run(inputs: Inputs, schedule: Schedule) -> engine.Run:
        """One run, stopped at its first evaluation."""
        protocol = with_known_schedule(training.protocol, truncate(schedule, seconds))
        # Without absences, which are in the schedule already.
        arguments = training._replace(protocol=protocol)._asdict() | inputs._replace(absences=None)._asdict()
        return engine.run(task._replace(data=data), **arguments, resume=engine.Resume(num_evals=0))

    return jax.vmap(initial_run)(inputs, schedule)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _advance_runs(
    training: _Training, task: Task, data: Any, inputs: Inputs, runs: engine.Run, schedule: Schedule, num_evals: Any
) -> engine.Run:
    """Goes on with all runs until `num_evals` evaluations have been made since their beginning; returns the runs.

    Arguments are as of `_begin_runs`, but `inputs.params` is None, since the runs have theirs. The runs, here and as
    they are returned, have no schedules, and are donated; `num_evals int32[]` does not count that of the initial
    parameters.
    """

    def advance_one(inputs: Inputs, run: engine.Run, schedule: Schedule) -> engine.Run:
        """One run, advanced as far as `_advance_runs` says, without its schedule."""
        task_with_data, run_so_far = task._replace(data=data), run._replace(schedule=schedule)
        arguments = {**training._asdict(), **inputs._asdict()}
        return engine.run(task_with_data, **arguments, resume=engine.Resume(run_so_far, num_evals)).unscheduled

    return jax.vmap(advance_one)(inputs, runs, schedule)


def _train_in_one_program(
    training: _Training, programs: _Programs, scheme: str, study: Study, inputs: Inputs, schedule: Schedule,
    seconds: float, out: Path, report: Callable[[float], None], rates: np.ndarray | None,
) -> SchemeRuns:  # fmt: skip
    """Trains all runs of a scheme in one program, from their newest checkpoint if there is one.

    Arguments are those of `train`, with `training` for the protocol; the runs end at `seconds`, the schedule goes on as
    long as the durations last. With `rates` the optimizer is made by `with_rate`. The checkpoints must have the digest
    of the `programs`.
    """
    begin_time = time.perf_counter()
    for program in programs.compiled:
        program.result()  # of a future: waits for it
    computation = programs.digest.result()
    task, data = study.task._replace(data=None), study.task.data

    def advance(runs: engine.Run, num_evals: int) -> engine.Run:
        """The runs, gone on with until there are so many evaluations."""
        return _advance_runs(
            training, task, data, inputs._replace(params=None), runs, schedule_in_time, jnp.int32(num_evals)
        )

    def report_commits(runs: engine.Run) -> None:
        """Reports the share of all commits that the runs have made, after what compiling takes."""
        share = runs.state.commit.sum() / jnp.maximum(runs.info.num_commits.sum(), 1)
        report(_COMPILING_SHARE + (1 - _COMPILING_SHARE) * float(share))

    arguments = training, task, data, inputs, schedule, seconds
    initial = _begin_program()(*arguments)
    if rates is not None:
        initial = initial._replace(state=set_rates(initial.state, rates))
    schedule_in_time = initial.schedule
    runs = jax.block_until_ready(advance(initial.unscheduled, 0))  # 0 evaluations: this compiles, and trains nothing
    compile_end_time = time.perf_counter()
    identity = run_identity(
        config.text(), scheme=scheme, given=(data, inputs, schedule_in_time, rates), computation=f"<{computation}>"
    )
    with study.checkpoints(out, scheme) as checkpoints:
        num_evals = initial.trajectory.time.shape[1] - 1  # [runs, evaluations]; the first is before all training
        runs = advance_in_pieces(
            advance, runs, num_evals, checkpoints=checkpoints, identity=identity, report=report_commits
        )
    loss_feedback = training.protocol.loss_feedback
    if loss_feedback is not None:  # the schedule that the losses led to
        network = network_of(scheme, training.protocol, study, inputs)
        schedule_in_time = schedule_program()(loss_feedback.schedule, inputs.durations, network, runs.state.controls)
        check_enough_units(scheme, schedule_in_time, study, inputs.durations)
    runs = jax.block_until_ready(runs._replace(schedule=schedule_in_time))
    ended_runs = _ended_runs(runs.trajectory, runs.schedule, schedule, seconds, begin_time, compile_end_time)
    engine.check(runs, training.protocol)
    return ended_runs


def _train_on_mesh(
    training: _Training, scheme: str, study: Study, inputs: Inputs, schedule: Schedule, seconds: float, out: Path,
    report: Callable[[float], None],
) -> SchemeRuns:  # fmt: skip
    """Trains all runs of a scheme, one after the other, each on all devices of the study's mesh.

    Arguments are those of `_train_in_one_program`.
    """
    begin_time, runs = time.perf_counter(), []
    training_to_end_of_schedule = training._replace(num_commits=None)
    num_runs = len(inputs.durations)
    is_simulated_to_the_end = inputs.absences is not None or inputs.network.service is not None
    for run_number in range(num_runs):
        arguments = {**training_to_end_of_schedule._asdict(), **_run_slice(inputs, run_number)._asdict()}
        # Simulated by the event queue, and not to `seconds`; a known schedule is compiled for each run.
        if is_simulated_to_the_end:
            known_schedule = truncate(_run_slice(schedule, run_number), seconds)
            arguments |= {"protocol": with_known_schedule(training.protocol, known_schedule), "absences": None}
        identity = f"{config.text()}\nscheme = {scheme}, seed {run_number}"
        with study.checkpoints(out, scheme, str(run_number)) as checkpoints:
            run = engine.run(
                study.task,
                **arguments,
                mesh=study.mesh,
                resume=engine.Resume(checkpoints=checkpoints, identity=identity),
            )
        runs.append(jax.device_get((run.trajectory, run.schedule)))
        if run_number == 0:
            compile_end_time = time.perf_counter()
        report((run_number + 1) / num_runs)
    trajectory, schedule_in_time = jax.tree.map(lambda *fields_of_runs: np.stack(fields_of_runs), *runs)
    if training.protocol.loss_feedback is not None:  # the schedules that the losses led to
        check_enough_units(scheme, schedule_in_time, study, inputs.durations)
    return _ended_runs(trajectory, schedule_in_time, schedule, seconds, begin_time, compile_end_time)


@comparable
def _truncated_protocol(protocol: Protocol, seconds: float) -> Protocol:
    """The protocol, whose schedules end after so many virtual seconds."""

    def truncated_schedule(schedule: Callable[..., Schedule]) -> Callable[..., Schedule]:
        """A function that makes the schedules of another one, ending after so many seconds."""
        return lambda *arguments: truncate(schedule(*arguments), seconds)

    loss_feedback = protocol.loss_feedback
    if loss_feedback is not None:
        loss_feedback = loss_feedback._replace(schedule=truncated_schedule(loss_feedback.schedule))
    return protocol.replace(schedule=truncated_schedule(protocol.schedule), loss_feedback=loss_feedback)


def _run_slice(tree: Any, run: int) -> Any:
    """The arrays of one run, from arrays with a leading axis of runs."""
    return jax.tree.map(lambda array: array[run], tree)
