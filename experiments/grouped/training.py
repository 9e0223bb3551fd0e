"""Training until the same amount of work is committed, for all delays and seeds of a scheme in one program.

Letters: S seeds, D settings of delayed workers, T units sampled per worker, W workers, E commits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import analysis, config
from gcjax.analysis import trials
from gcjax.protocols import Protocol, Schedule, truncate
from gcjax.stragglers import Network, StragglerModel, sample_durations, scaled
from gcjax.stragglers.heterogeneous import members
from gcjax.tasks import Task

Columns = dict[str, np.ndarray]


class Delayed(NamedTuple):
    """Which workers are delayed, and by how much.

    Attributes:
      name: of the set of workers; "none" where there is no delay.
      workers: their numbers.
      delay: percent of the time of a unit that is added; 100 takes twice as long.
    """

    name: str
    workers: tuple[int, ...]
    delay: float


class Outcome(NamedTuple):
    """What one scheme came to under one delay; arrays have an entry a seed.

    Attributes:
      rule: how groups push to the central server, by its name in the config.
      groups: the number of groups; 0 where progressive grouping chooses it.
      delayed: who is delayed.
      time: float[S] virtual seconds until all work is committed.
      accuracy: float[S] at that moment.
      waiting: float[S], the share of the workers' time.
      chosen: int[S], the groups in which workers were at the end.
    """

    rule: str
    groups: int
    delayed: Delayed
    time: np.ndarray
    accuracy: np.ndarray
    waiting: np.ndarray
    chosen: np.ndarray


def setting(
    task: Task,
    model: StragglerModel,
    delays: list[Delayed],
    *,
    num_workers: int,
    num_units: int,
    num_seeds: int,
    seed: int,
    network: Network,
    num_evals: int,
) -> trials.Setting:
    """What all schemes share: D·S runs, all seeds of the first delay first; delays change nothing but durations."""
    factors = jnp.stack([jnp.where(members(d.workers, num_workers), 1 + d.delay / 100, 1.0) for d in delays])

    def one(key: jax.Array) -> tuple[jax.Array, Any, jax.Array]:
        duration_key, init_key, batch_key = jax.random.split(key, 3)

        def durations(factor: jax.Array) -> jax.Array:
            return sample_durations(scaled(model, factor=factor), duration_key, num_units, num_workers)

        return jax.vmap(durations)(factors), task.init(init_key), batch_key

    keys = jax.random.split(config.key(seed=seed), num_seeds)
    durations, params, batch_keys = jax.jit(jax.vmap(one))(keys)
    durations = jnp.swapaxes(durations, 0, 1).reshape(-1, num_units, num_workers)
    number = len(delays)
    params = jax.tree.map(lambda x: jnp.tile(x, (number, *(1,) * (x.ndim - 1))), params)
    batch_keys = jnp.tile(batch_keys, number)
    return trials.Setting(task, durations, params, batch_keys, network, np.inf, num_evals)


def until_work(protocol: Protocol, num_units: int) -> Protocol:
    """The protocol, ending with the commit that brings the work committed by all workers to so many units."""

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        whole = protocol.schedule(durations, network)
        work = jnp.where(whole.worker >= 0, whole.work, 0).sum(axis=1)
        used = jnp.isfinite(whole.time) & (jnp.cumsum(work) - work < num_units)
        return truncate(whole, num_commits=used.sum())

    return protocol._replace(schedule=schedule)


def run(
    rule: str,
    groups: int,
    protocol: Protocol,
    optimizer: optax.GradientTransformation,
    delays: list[Delayed],
    shared: trials.Setting,
    num_units: int,
    saving: trials.Saving,
    report: Callable[[float], None],
) -> tuple[list[Outcome], Columns]:
    """Runs all delays and seeds under one protocol.

    Args:
      rule: its name.
      groups: their number; 0 where the protocol chooses it.
      protocol: who waits for whom.
      optimizer: of the run.
      delays: [D], as in the setting.
      shared: what `setting` returned.
      num_units: the work to commit, in units of all workers together.
      saving: where the runs are saved on their way.
      report: called with the share that is done.

    Returns:
      An outcome for each delay, and a row for every evaluation.

    Raises:
      ValueError: if the sampled units do not last for the work.
    """
    name = f"{rule}, {groups or 'progressive'}"
    ending = until_work(protocol, num_units)
    schedule = trials.schedules(name, ending, shared)
    _check_done(name, schedule, num_units, shared.durations.shape[1])
    done = trials.run(name, ending, optimizer, schedule, shared, saving, report)
    number = len(shared.durations) // len(delays)
    rows = analysis.metric_columns(
        name, done.trajectory, done.schedule, np.asarray(shared.durations), code=None, num_params=1
    )
    chosen = np.array([_groups_at_end(worker) for worker in schedule.worker])
    outcomes = []
    for i, delayed in enumerate(delays):
        runs = range(i * number, (i + 1) * number)
        last = [np.flatnonzero(rows["seed"] == r)[-1] for r in runs]
        time, accuracy, waiting = (rows[column][last] for column in ("time", "accuracy", "waiting"))
        outcomes.append(Outcome(rule, groups, delayed, time, accuracy, waiting, chosen[runs.start : runs.stop]))
    return outcomes, _columns(rows, rule, groups, delays, number)


def _check_done(name: str, schedule: Schedule, num_units: int, sampled: int) -> None:
    done = np.where(schedule.worker >= 0, schedule.work, 0).sum(axis=(1, 2)).min()
    if done < num_units:
        raise ValueError(
            f"num_units must last for all of the work; {sampled} units a worker give {done} of {num_units} units of "
            f"work in scheme '{name}'. Sample about {int(1.1 * sampled * num_units / max(done, 1)) + 1} units."
        )


def _groups_at_end(worker: np.ndarray) -> int:
    """The number of groups by who was in which commit last; `worker int[E, C]`."""
    commit, place = np.nonzero(worker >= 0)
    last = np.zeros(worker.max() + 1, int)
    np.maximum.at(last, worker[commit, place], commit)
    return len(np.unique(last))


def _columns(rows: Columns, rule: str, groups: int, delays: list[Delayed], num_seeds: int) -> Columns:
    """The rows of all evaluations, with what they belong to."""
    case, seed = np.divmod(rows["seed"], num_seeds)
    kept = {name: column for name, column in rows.items() if name not in ("scheme", "numbers", "seed")}
    size = len(seed)
    return {
        "rule": np.full(size, rule, object),
        "groups": np.full(size, groups),
        "delayed": np.array([d.name for d in delays], object)[case],
        "delay": np.array([d.delay for d in delays], float)[case],
        "seed": seed,
        **kept,
    }
