"""Runs a scheme on several seeds, as one XLA program.

Letters: S seeds, T units sampled per worker, W workers.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import engine
from gcjax.analysis.metrics import is_stalled
from gcjax.protocols import Protocol, Schedule
from gcjax.stragglers import Network
from gcjax.tasks import Task

_COMPILING = 0.7  # roughly the share of a short run that compilation takes; for the progress bar only


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
    """

    task: Task
    durations: jax.Array
    params: Any
    keys: jax.Array
    network: Network
    seconds: float
    num_evals: int


class Trials(NamedTuple):
    """What one scheme did; every array of the run has a leading axis S.

    Attributes:
      run: the runs.
      stalled: for each seed, whether the run came to a halt.
      compile_seconds: wall time of tracing and compiling.
      run_seconds: wall time of the runs of all seeds together.
    """

    run: engine.Run
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
    short = last[(last < setting.seconds) & ~np.array(_stalled(schedule, protocol))]
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
    protocol: Protocol,
    optimizer: optax.GradientTransformation,
    schedule: Schedule,
    setting: Setting,
    report: Callable[[float], None],
) -> Trials:
    """Compiles one program for all seeds, and runs it.

    Args:
      protocol: who waits for whom.
      optimizer: on the server.
      schedule: what `schedules` returned for this protocol.
      setting: what all schemes share.
      report: called with the share that is done.

    Raises:
      ValueError: if a run is not to be trusted (see `gcjax.engine.check`).
    """
    program = _program(protocol, optimizer, schedule, setting, report)
    arguments = setting.task.data, setting.durations, setting.params, setting.keys
    report(0.0)
    begin = time.perf_counter()
    compiled = jax.jit(jax.vmap(program, in_axes=(None, 0, 0, 0))).lower(*arguments).compile()
    middle = time.perf_counter()
    result = jax.block_until_ready(compiled(*arguments))
    end = time.perf_counter()
    engine.check(result)
    return Trials(result, _stalled(schedule, protocol), middle - begin, end - middle)


def _program(
    protocol: Protocol, optimizer: Any, schedule: Schedule, setting: Setting, report: Callable[[float], None]
) -> Callable[[Any, jax.Array, Any, jax.Array], engine.Run]:
    """The run of one seed, `(data, durations, params, key) -> Run`, with everything static filled in."""
    in_time = np.isfinite(schedule.time) & (schedule.time <= setting.seconds)
    num_commits = max(1, int(in_time.sum(axis=1).max()))
    ending = protocol._replace(schedule=lambda *given: _until(protocol.schedule(*given), setting.seconds))

    def progress(done: int, total: int) -> None:
        report(_COMPILING + (1 - _COMPILING) * int(done) / max(int(total), 1))

    def one_seed(data: Any, durations: jax.Array, params: Any, key: jax.Array) -> engine.Run:
        return engine.run(
            setting.task._replace(data=data, init=lambda rng_key: params),
            ending,
            optimizer,
            durations,
            rng_key=key,
            network=setting.network,
            num_commits=num_commits,
            eval_every=-(-num_commits // setting.num_evals),
            progress=progress,
        )

    return one_seed


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


def _stalled(schedule: Schedule, protocol: Protocol) -> list[bool]:
    seeds = range(len(schedule.time))
    return [is_stalled(jax.tree.map(lambda x, s=s: x[s], schedule), protocol.code) for s in seeds]
