"""Runs a scheme on several seeds, as one XLA program, or one seed after the other on a mesh.

Letters: S seeds, T units sampled per worker, W workers.
"""

import time
import urllib.parse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from gcjax import engine
from gcjax.analysis.metrics import is_stalled
from gcjax.protocols import Protocol, Schedule
from gcjax.stragglers import Network
from gcjax.tasks import Task

_COMPILING = 0.7  # roughly the share of a short run that compilation takes; for the progress bar only


Outcome = tuple[engine.Trajectory, Schedule]


class Setting(NamedTuple):
    """What all schemes share.

    Attributes:
      task: what is trained.
      durations: float[S, T, W] seconds.
      params: the initial parameters, every leaf [S, ...]; made once, since that takes long to compile.
      keys: [S] JAX keys, of the batches.
      network: the time of messages.
      seconds: virtual time at which a run ends; inf for the end of the sampled units.
      num_evals: evaluations of a run.
      mesh: the devices to run on; one if None.
      axis: of the mesh, along which the workers lie.
    """

    task: Task
    durations: jax.Array
    params: Any
    keys: jax.Array
    network: Network
    seconds: float
    num_evals: int
    mesh: Mesh | None = None
    axis: str = "workers"


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
        return engine.Checkpoints(self.folder.joinpath(*map(_file_name, names)), every=self.every, keep=self.keep)


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


def schedules(name: str, protocol: Protocol, setting: Setting) -> Schedule:
    """The schedules of all seeds, on the host.

    Raises:
      ValueError: if the sampled units do not last for the time asked for.
    """
    found = jax.jit(jax.vmap(lambda d: protocol(d, setting.network)))(setting.durations)
    schedule: Schedule = jax.tree.map(np.asarray, found)
    last = np.where(np.isfinite(schedule.time), schedule.time, 0).max(axis=1)
    short = last[(last < setting.seconds) & ~np.array(_stalled(schedule))]
    if np.isfinite(setting.seconds) and short.size:
        num_units, end = setting.durations.shape[1], float(short.min())
        enough = int(1.1 * num_units * setting.seconds / max(end, 1e-9)) + 1
        raise ValueError(
            f"num_units must last for all of the {setting.seconds:g} seconds; {num_units} units a worker are "
            f"used up after {end:.4g} seconds in scheme '{name}'. Sample about {enough} units, or run for "
            "fewer seconds."
        )
    return schedule


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
    ending = protocol._replace(schedule=lambda *given: _until(protocol.schedule(*given), setting.seconds))
    in_time = np.isfinite(schedule.time) & (schedule.time <= setting.seconds)
    num_commits = max(1, int(in_time.sum(axis=1).max()))
    train = partial(
        engine.run,
        protocol=ending,
        optimizer=optimizer,
        network=setting.network,
        num_commits=num_commits,
        eval_every=-(-num_commits // setting.num_evals),
    )
    runs = _together if setting.mesh is None else _one_by_one
    (trajectory, cut), compile_seconds, run_seconds = runs(train, name, setting, saving, report)
    return Trials(trajectory, cut, _stalled(schedule), compile_seconds, run_seconds)


def _together(
    train: Callable[..., engine.Run], name: str, setting: Setting, saving: Saving, report: Callable[[float], None]
) -> tuple[Outcome, float, float]:
    """All seeds in one program."""

    def progress(done: int, total: int) -> None:
        report(_COMPILING + (1 - _COMPILING) * int(done) / max(int(total), 1))

    def start(data: Any, durations: jax.Array, params: Any, key: jax.Array) -> engine.Run:
        task = setting.task._replace(data=data)
        return train(task, durations=durations, rng_key=key, params=params, progress=progress, num_evals=0)

    def go_on(data: Any, durations: jax.Array, key: jax.Array, so_far: engine.Training, *rest: Any) -> engine.Training:
        schedule, num_evals = rest
        task, run = setting.task._replace(data=data), engine.Run.of(so_far, schedule)
        more = train(task, durations=durations, rng_key=key, progress=progress, start=run, num_evals=num_evals)
        return more.training

    data, durations, keys = setting.task.data, setting.durations, setting.keys
    begin = time.perf_counter()
    first = jax.jit(jax.vmap(start, in_axes=(None, 0, 0, 0)))(data, durations, setting.params, keys)
    program = jax.jit(jax.vmap(go_on, in_axes=(None, 0, 0, 0, 0, None)), donate_argnums=3)
    schedule, given = first.schedule, (data, durations, setting.params, keys, first.schedule)
    compiled = program.lower(data, durations, keys, first.training, schedule, jnp.int32(0)).compile()
    middle = time.perf_counter()

    def advance(training: engine.Training, num_evals: int) -> engine.Training:
        return compiled(data, durations, keys, training, schedule, jnp.int32(num_evals))

    identity = engine.identity(saving.config, scheme=name, given=given)
    with saving.checkpoints(name) as checkpoints:
        training = engine.in_pieces(advance, first.training, first.trajectory.time.shape[1] - 1, checkpoints, identity)
    result = jax.block_until_ready(engine.Run.of(training, schedule))
    end = time.perf_counter()
    engine.check(result)
    return (result.trajectory, result.schedule), middle - begin, end - middle


def _one_by_one(
    train: Callable[..., engine.Run], name: str, setting: Setting, saving: Saving, report: Callable[[float], None]
) -> tuple[Outcome, float, float]:
    """Each seed on all devices of the mesh."""
    runs, ends = [], [time.perf_counter()]
    for i, key in enumerate(setting.keys):
        durations, params = jax.tree.map(lambda x, i=i: x[i], (setting.durations, setting.params))
        with saving.checkpoints(name, str(i)) as checkpoints:
            run = train(
                setting.task,
                durations=durations,
                rng_key=key,
                params=params,
                num_commits=None,  # each seed has its own number
                mesh=setting.mesh,
                axis=setting.axis,
                checkpoints=checkpoints,
                identity=f"{saving.config}\nscheme = {name}, seed {i}",
            )
        runs.append(jax.device_get((run.trajectory, run.schedule)))
        ends.append(time.perf_counter())
        report((i + 1) / len(setting.keys))
    return jax.tree.map(lambda *x: np.stack(x), *runs), ends[1] - ends[0], ends[-1] - ends[1]


def _file_name(name: str) -> str:
    """A name for a folder: letters and digits stay, and different names stay different."""
    return urllib.parse.quote(name, safe=" ()=,") if name.strip(".") else name.replace(".", "%2E")


def _until(schedule: Schedule, seconds: float) -> Schedule:
    """The schedule without the commits that are later than `seconds`."""
    used = schedule.time <= seconds
    contributions = {
        name: jnp.where(used[:, None], getattr(schedule, name), -1) for name in ("worker", "unit", "version", "work")
    }
    return schedule._replace(
        time=jnp.where(used, schedule.time, jnp.inf),
        weight=jnp.where(used[:, None], schedule.weight, 0),
        **contributions,
    )


def _stalled(schedule: Schedule) -> list[bool]:
    seeds = range(len(schedule.time))
    return [is_stalled(jax.tree.map(lambda x, s=s: x[s], schedule)) for s in seeds]
