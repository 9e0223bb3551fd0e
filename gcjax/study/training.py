"""Trains one scheme in all runs of a study, as one XLA program, or one run after the other on a mesh.

Letters: R runs, E commits, T units sampled per worker, W workers.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import config, engine, memory
from gcjax.analysis import is_stalled
from gcjax.engine.identity import run_identity
from gcjax.engine.pieces import advance_in_pieces
from gcjax.equality import comparable
from gcjax.protocols import Protocol, Schedule, truncate
from gcjax.study.base import Study
from gcjax.study.inputs import Inputs
from gcjax.tasks import Task

_COMPILING = 0.7  # roughly the share of a short run that compilation takes; for the progress bar only


class SchemeRuns(NamedTuple):
    """The R runs of one scheme, on the host; every array has a leading axis R.

    Attributes:
      trajectory: the evaluations.
      schedule: what happened when.
      stalled: for each run, whether it came to a halt.
      compile_seconds: wall time of tracing and compiling; on a mesh, of the whole first run.
      run_seconds: wall time of all runs together, or of the others on a mesh, with their checkpoints.
    """

    trajectory: engine.Trajectory
    schedule: Schedule
    stalled: list[bool]
    compile_seconds: float
    run_seconds: float


def schedules(scheme: str, protocol: Protocol, study: Study, inputs: Inputs) -> Schedule:
    """The schedules of all runs, on the host.

    Raises:
      ValueError: if they do not fit into memory, or the sampled units do not last for the time asked for.
    """
    shapes = jax.eval_shape(partial(_schedules, protocol), inputs.durations, inputs.network)
    memory.check(f"schedules of '{scheme}'", memory.size(shapes), "Lower num_units, num_workers or num_seeds.")
    schedule: Schedule = jax.device_get(_schedules(protocol, inputs.durations, inputs.network))
    _check_units_last(scheme, schedule, study)
    return schedule


@partial(jax.jit, static_argnums=0)
def _schedules(schedule: Callable[..., Schedule], *arguments: Any) -> Schedule:
    return jax.vmap(schedule)(*arguments)


def _check_units_last(scheme: str, schedule: Schedule, study: Study) -> None:
    """Checks that the sampled units last for the time asked for."""
    end = float(np.min(schedule.horizon))
    if study.seconds is not None and end < study.seconds:
        enough = int(1.1 * study.num_units * study.seconds / max(end, 1e-9)) + 1
        raise ValueError(
            f"num_units must last for all of the {study.seconds:g} seconds; {study.num_units} units a worker are "
            f"used up after {end:.4g} seconds in scheme '{scheme}'. Sample about {enough} units, or run for "
            "fewer seconds."
        )


def train(
    scheme: str,
    protocol: Protocol,
    schedule: Schedule,
    study: Study,
    inputs: Inputs,
    out: Path,
    report: Callable[[float], None],
) -> SchemeRuns:
    """Trains a scheme in all runs, or goes on with what is left of them.

    Args:
      scheme: its name.
      protocol: who waits for whom.
      schedule: what `schedules` returned for this protocol.
      study: what all schemes share.
      inputs: what the runs are given.
      out: the folder that the study writes, where the runs are saved on their way, and gone on from.
      report: called with the share that is done.

    Raises:
      ValueError: if a run is not to be trusted (see `gcjax.engine.check`), or the checkpoints are of another run.
    """
    report(0.0)
    seconds = np.inf if study.seconds is None else study.seconds
    in_time = np.isfinite(schedule.time) & (schedule.time <= seconds)
    eval_every = -(-max(1, int(in_time.sum(axis=1).max())) // study.num_evals)
    # Time ends the runs; the number only gives room for evaluations, the same for seeds that differ a little. A
    # protocol that looks at the loss may come to make more commits.
    max_commits = None if protocol.adaptive is not None else eval_every * study.num_evals
    training = _Training(_truncated(protocol, seconds), study.optimizer_of(scheme), max_commits, eval_every)
    train_all = _train_together if study.mesh is None else _train_on_mesh
    trajectory, cut, start, compiled, end = train_all(training, scheme, study, inputs, out, report)
    stalled = [is_stalled(_run_of(schedule, run)) for run in range(len(schedule.time))]
    return SchemeRuns(
        trajectory=jax.device_get(trajectory), schedule=jax.device_get(cut), stalled=stalled,
        compile_seconds=compiled - start, run_seconds=end - compiled,
    )  # fmt: skip


_Timed = tuple[engine.Trajectory, Schedule, float, float, float]
"""What came out, and the moments of the start, of the end of compiling, and of the end."""


class _Training(NamedTuple):
    """How a scheme is trained, by the names of `engine.run`: static, so that equal ones are compiled once."""

    protocol: Protocol
    optimizer: optax.GradientTransformation
    num_commits: int | None
    eval_every: int


@partial(jax.jit, static_argnums=(0, 1))
def _initial_runs(training: _Training, task: Task, data: Any, inputs: Inputs) -> engine.Run:
    """All runs before their first commit."""

    def initial_run(inputs: Inputs) -> engine.Run:
        return engine.run(
            task._replace(data=data), **training._asdict(), **inputs._asdict(), resume=engine.Resume(num_evals=0)
        )

    return jax.vmap(initial_run)(inputs)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _advance(
    training: _Training, task: Task, data: Any, inputs: Inputs, runs: engine.Run, schedule: Schedule, num_evals: Any
) -> engine.Run:
    """Goes on with all runs until there are so many evaluations; their parameters are those of the runs."""

    def advance_one(inputs: Inputs, run: engine.Run, schedule: Schedule) -> engine.Run:
        whole, start = task._replace(data=data), run._replace(schedule=schedule)
        arguments = {**training._asdict(), **inputs._asdict()}
        return engine.run(whole, **arguments, resume=engine.Resume(start, num_evals)).unscheduled

    return jax.vmap(advance_one)(inputs, runs, schedule)


def _train_together(
    training: _Training, scheme: str, study: Study, inputs: Inputs, out: Path, report: Callable[[float], None]
) -> _Timed:
    """All runs in one program."""
    task, data = study.task._replace(data=None), study.task.data

    def advance(runs: engine.Run, num_evals: int) -> engine.Run:
        return _advance(training, task, data, inputs._replace(params=None), runs, schedule, jnp.int32(num_evals))

    def report_commits(runs: engine.Run) -> None:
        share = runs.state.commit.sum() / jnp.maximum(runs.info.num_commits.sum(), 1)
        report(_COMPILING + (1 - _COMPILING) * float(share))

    start = time.perf_counter()
    initial = _initial_runs(training, task, data, inputs)
    schedule = initial.schedule
    runs = jax.block_until_ready(advance(initial.unscheduled, 0))
    compiled = time.perf_counter()
    identity = run_identity(config.text(), scheme=scheme, given=(data, inputs, schedule))
    with study.checkpoints(out, scheme) as checkpoints:
        num_evals = initial.trajectory.time.shape[1] - 1
        runs = advance_in_pieces(
            advance, runs, num_evals, checkpoints=checkpoints, identity=identity, report=report_commits
        )
    adaptive = training.protocol.adaptive
    if adaptive is not None:  # what it was in the end
        schedule = _schedules(adaptive.schedule, inputs.durations, inputs.network, runs.state.controls)
        _check_units_last(scheme, schedule, study)
    runs = jax.block_until_ready(runs._replace(schedule=schedule))
    end = time.perf_counter()
    engine.check(runs, training.protocol)
    return runs.trajectory, runs.schedule, start, compiled, end


def _train_on_mesh(
    training: _Training, scheme: str, study: Study, inputs: Inputs, out: Path, report: Callable[[float], None]
) -> _Timed:
    """Each run on all devices of the mesh."""
    outcomes, moments = [], [time.perf_counter()]
    training = training._replace(num_commits=None)  # each run has its own number
    num_runs = len(inputs.durations)
    for i in range(num_runs):
        arguments = {**training._asdict(), **_run_of(inputs, i)._asdict()}
        identity = f"{config.text()}\nscheme = {scheme}, seed {i}"
        with study.checkpoints(out, scheme, str(i)) as checkpoints:
            run = engine.run(
                study.task,
                **arguments,
                mesh=study.mesh and engine.MeshOptions(study.mesh, study.axis),
                resume=engine.Resume(checkpoints=checkpoints, identity=identity),
            )
        outcomes.append(jax.device_get((run.trajectory, run.schedule)))
        moments.append(time.perf_counter())
        report((i + 1) / num_runs)
    trajectory, schedule = jax.tree.map(lambda *x: np.stack(x), *outcomes)
    return trajectory, schedule, moments[0], moments[1], moments[-1]


@comparable
def _truncated(protocol: Protocol, seconds: float) -> Protocol:
    """The protocol, ending after so many seconds."""

    def until(schedule: Callable[..., Schedule]) -> Callable[..., Schedule]:
        return lambda *arguments: truncate(schedule(*arguments), seconds)

    adaptive = protocol.adaptive
    if adaptive is not None:
        adaptive = adaptive._replace(schedule=until(adaptive.schedule))
    return protocol._replace(schedule=until(protocol.schedule), adaptive=adaptive)


def _run_of(tree: Any, run: int) -> Any:
    """The arrays of one run, from arrays with a leading axis R."""
    return jax.tree.map(lambda x: x[run], tree)
