"""Runs a scheme on several seeds, as one XLA program, or one seed after the other on a mesh.

Letters: S runs, E commits, T units sampled per worker, W workers.
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

from gcjax import engine, memory
from gcjax.analysis.collect import metric_columns
from gcjax.analysis.metrics import is_stalled
from gcjax.analysis.settings import Setting
from gcjax.analysis.store import Columns, file_name
from gcjax.engine.identity import run_identity
from gcjax.engine.pieces import advance_in_pieces
from gcjax.equality import comparable
from gcjax.protocols import Protocol, Schedule, truncate
from gcjax.stragglers import Network
from gcjax.tasks import Task

_COMPILING = 0.7  # roughly the share of a short run that compilation takes; for the progress bar only


Outcome = tuple[engine.Trajectory, Schedule]


class Saving(NamedTuple):
    """Where the runs are saved on their way.

    Attributes:
      folder: gets one folder for each run.
      every: evaluations from one checkpoint to the next.
      keep: the checkpoints kept of a run.
      config: what the bits depend on besides the setting, as text.
    """

    folder: Path
    every: int
    keep: int
    config: str

    def checkpoints(self, *names: str) -> engine.Checkpoints:
        """Those of one run."""
        folder = self.folder.joinpath(*map(file_name, names))
        return engine.Checkpoints(folder, every=self.every, keep=self.keep, label=", seed ".join(names))


class _Given(NamedTuple):
    """What each seed has of its own, by the names of `run`; every field [S, ...]."""

    durations: jax.Array
    network: Network
    rng_key: jax.Array


class Trials(NamedTuple):
    """What one scheme did; every array has a leading axis S.

    Attributes:
      trajectory: the evaluations.
      schedule: what happened when.
      stalled: for each seed, whether the run came to a halt.
      compile_seconds: wall time of tracing and compiling; on a mesh, of the whole first seed.
      run_seconds: wall time of the runs of all seeds together, or of the others on a mesh, with their checkpoints.
    """

    trajectory: engine.Trajectory
    schedule: Schedule
    stalled: list[bool]
    compile_seconds: float
    run_seconds: float


def columns(name: str, protocol: Protocol, trials: Trials, setting: Setting) -> Columns:
    """What every run of a scheme had reached and spent at each evaluation; its number is in the column `seed`."""
    num_params = sum(leaf[0].size for leaf in jax.tree.leaves(setting.params))
    durations = np.asarray(setting.durations)
    return metric_columns(
        name, trials.trajectory, trials.schedule, durations, code=protocol.code, num_params=num_params
    )


def schedules(name: str, protocol: Protocol, setting: Setting) -> Schedule:
    """The schedules of all seeds, on the host.

    Raises:
      ValueError: if they do not fit into memory, or the sampled units do not last for the time asked for.
    """
    shapes = jax.eval_shape(partial(_schedules, protocol), setting.durations, setting.network)
    memory.check(f"schedules of '{name}'", memory.size(shapes), "Lower num_units, num_workers or num_seeds.")
    schedule: Schedule = jax.tree.map(np.asarray, _schedules(protocol, setting.durations, setting.network))
    _check_lasting(name, schedule, setting)
    return schedule


@partial(jax.jit, static_argnums=0)
def _schedules(schedule: Callable[..., Schedule], *given: Any) -> Schedule:
    return jax.vmap(schedule)(*given)


def _check_lasting(name: str, schedule: Schedule, setting: Setting) -> None:
    """Checks that the sampled units last for the time asked for."""
    end = float(np.min(schedule.horizon))
    if np.isfinite(setting.seconds) and end < setting.seconds:
        num_units = setting.durations.shape[1]
        enough = int(1.1 * num_units * setting.seconds / max(end, 1e-9)) + 1
        raise ValueError(
            f"num_units must last for all of the {setting.seconds:g} seconds; {num_units} units a worker are "
            f"used up after {end:.4g} seconds in scheme '{name}'. Sample about {enough} units, or run for "
            "fewer seconds."
        )


def run(
    name: str,
    protocol: Protocol,
    optimizer: optax.GradientTransformation,
    schedule: Schedule,
    setting: Setting,
    saving: Saving,
    report: Callable[[float], None],
) -> Trials:
    """Runs all seeds of a scheme, or what is left of them.

    Args:
      name: of the scheme.
      protocol: who waits for whom.
      optimizer: on the server.
      schedule: what `schedules` returned for this protocol.
      setting: what all schemes share.
      saving: where the runs are saved on their way, and gone on from.
      report: called with the share that is done.

    Raises:
      ValueError: if a run is not to be trusted (see `gcjax.engine.check`), or the checkpoints are of another run.
    """
    report(0.0)
    in_time = np.isfinite(schedule.time) & (schedule.time <= setting.seconds)
    num_commits = max(1, int(in_time.sum(axis=1).max()))
    eval_every = -(-num_commits // setting.num_evals)
    # Time ends the runs; the number only gives room for evaluations, the same for seeds that differ a little. A
    # protocol that looks at the loss may come to make more commits.
    room = None if protocol.adaptive is not None else eval_every * setting.num_evals
    training = _Training(_ending(protocol, setting.seconds), optimizer, room, eval_every)
    runs = _together if setting.mesh is None else _one_by_one
    (trajectory, cut), compile_seconds, run_seconds = runs(training, name, setting, saving, report)
    return Trials(trajectory, cut, _stalled(schedule), compile_seconds, run_seconds)


class _Training(NamedTuple):
    """How a scheme is trained, by the names of `engine.run`: static, so that equal ones are compiled once."""

    protocol: Protocol
    optimizer: optax.GradientTransformation
    num_commits: int | None
    eval_every: int


@partial(jax.jit, static_argnums=(0, 1))
def _begin(training: _Training, task: Task, data: Any, own: _Given, params: Any) -> engine.Run:
    """The runs of all seeds before their first commit."""

    def one(own: _Given, params: Any) -> engine.Run:
        whole = task._replace(data=data)
        return engine.run(
            whole, **training._asdict(), **own._asdict(), params=params, resume=engine.Resume(num_evals=0)
        )

    return jax.vmap(one)(own, params)


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=4)
def _advance(training: _Training, task: Task, data: Any, own: _Given, so_far: engine.Run, *rest: Any) -> engine.Run:
    """Goes on with the runs of all seeds; the rest are their schedules, and how many evaluations there are to be."""
    schedules, num_evals = rest

    def one(own: _Given, so_far: engine.Run, schedule: Schedule) -> engine.Run:
        start, whole = so_far._replace(schedule=schedule), task._replace(data=data)
        resume = engine.Resume(start, num_evals)
        return engine.run(whole, **training._asdict(), **own._asdict(), resume=resume).unscheduled

    return jax.vmap(one)(own, so_far, schedules)


def _together(
    training: _Training, name: str, setting: Setting, saving: Saving, report: Callable[[float], None]
) -> tuple[Outcome, float, float]:
    """All seeds in one program."""
    task, data = setting.task._replace(data=None), setting.task.data
    own = _Given(setting.durations, setting.network, setting.keys)

    def advance(so_far: engine.Run, num_evals: int) -> engine.Run:
        return _advance(training, task, data, own, so_far, schedule, jnp.int32(num_evals))

    def progress(so_far: engine.Run) -> None:
        share = so_far.state.commit.sum() / jnp.maximum(so_far.info.num_commits.sum(), 1)
        report(_COMPILING + (1 - _COMPILING) * float(share))

    begin = time.perf_counter()
    first = _begin(training, task, data, own, setting.params)
    schedule = first.schedule
    so_far = jax.block_until_ready(advance(first.unscheduled, 0))
    middle = time.perf_counter()
    identity = run_identity(saving.config, scheme=name, given=(data, own, setting.params, schedule))
    with saving.checkpoints(name) as checkpoints:
        so_far = advance_in_pieces(
            advance, so_far, first.trajectory.time.shape[1] - 1,
            checkpoints=checkpoints, identity=identity, report=progress,
        )  # fmt: skip
    adaptive = training.protocol.adaptive
    if adaptive is not None:  # what it was in the end
        schedule = _schedules(adaptive.schedule, own.durations, own.network, so_far.state.controls)
        _check_lasting(name, schedule, setting)
    result = jax.block_until_ready(so_far._replace(schedule=schedule))
    end = time.perf_counter()
    engine.check(result, training.protocol)
    return (result.trajectory, result.schedule), middle - begin, end - middle


def _one_by_one(
    training: _Training, name: str, setting: Setting, saving: Saving, report: Callable[[float], None]
) -> tuple[Outcome, float, float]:
    """Each seed on all devices of the mesh."""
    runs, ends = [], [time.perf_counter()]
    for i, key in enumerate(setting.keys):
        whole = setting.durations, setting.params, setting.network
        durations, params, network = jax.tree.map(lambda x, i=i: x[i], whole)
        with saving.checkpoints(name, str(i)) as checkpoints:
            run = engine.run(
                setting.task,
                **training._replace(num_commits=None)._asdict(),  # each seed has its own number
                durations=durations,
                rng_key=key,
                params=params,
                network=network,
                mesh=setting.mesh and engine.MeshOptions(setting.mesh, setting.axis),
                resume=engine.Resume(checkpoints=checkpoints, identity=f"{saving.config}\nscheme = {name}, seed {i}"),
            )
        runs.append(jax.device_get((run.trajectory, run.schedule)))
        ends.append(time.perf_counter())
        report((i + 1) / len(setting.keys))
    return jax.tree.map(lambda *x: np.stack(x), *runs), ends[1] - ends[0], ends[-1] - ends[1]


@comparable
def _ending(protocol: Protocol, seconds: float) -> Protocol:
    """The protocol, ending after so many seconds."""

    def ends(schedule: Callable[..., Schedule]) -> Callable[..., Schedule]:
        return lambda *given: truncate(schedule(*given), seconds)

    adaptive = protocol.adaptive
    if adaptive is not None:
        adaptive = adaptive._replace(schedule=ends(adaptive.schedule))
    return protocol._replace(schedule=ends(protocol.schedule), adaptive=adaptive)


def _stalled(schedule: Schedule) -> list[bool]:
    seeds = range(len(schedule.time))
    return [is_stalled(jax.tree.map(lambda x, s=s: x[s], schedule)) for s in seeds]
