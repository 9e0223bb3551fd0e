"""Training until the same amount of work is committed, for all delays and seeds of a scheme in one program.

Letters: S seeds, D cases of delayed workers, T units sampled per worker, W workers, E commits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax.analysis import settings, trials
from gcjax.analysis.store import Columns
from gcjax.protocols import Protocol, Schedule, truncate
from gcjax.stragglers import Links, Network, StragglerModel, scaled
from gcjax.tasks import Task

Cases = dict[tuple[str, float], tuple[int, ...]]
"""(Name of a set of workers, percent of the time of a unit that is added to theirs) -> these workers."""


class Outcome(NamedTuple):
    """What one scheme came to under one delay; arrays have an entry a seed.

    Attributes:
      rule: how groups push to the central server, by its name in the config.
      groups: the number of groups; 0 where progressive grouping chooses it.
      delayed: who is, by the name in the config; "none" where there is no delay.
      delay: percent of the time of a unit that is added; 100 takes twice as long.
      stragglers: how many are delayed.
      time: float[S] virtual seconds until all work is committed.
      accuracy: float[S] at that moment.
      waiting: float[S], the share of the workers' time.
      chosen: int[S], the groups in which workers were at the end.
    """

    rule: str
    groups: int
    delayed: str
    delay: float
    stragglers: int
    time: np.ndarray
    accuracy: np.ndarray
    waiting: np.ndarray
    chosen: np.ndarray

    @property
    def case(self) -> tuple[str, float]:
        """Who is delayed, and by how much."""
        return self.delayed, self.delay


def setting(
    task: Task, model: StragglerModel, cases: Cases, *, network: Network | Links, **sizes: Any
) -> settings.Setting:
    """D conditions that differ in nothing but how long the units of delayed workers take; `sizes` as elsewhere."""
    models = [scaled(model, factor=1 + delay / 100, workers=workers) for (_, delay), workers in cases.items()]
    names, delays = zip(*cases, strict=True)
    return settings.setting(task, models, [network] * len(cases), labels={"delayed": names, "delay": delays}, **sizes)


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
    cases: Cases,
    shared: settings.Setting,
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
      cases: D of them, as in the setting.
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
    number = len(shared.durations) // len(cases)
    rows = trials.columns(name, ending, done, shared)
    chosen = np.array([_groups_at_end(worker) for worker in schedule.worker])
    outcomes = []
    for i, (case, workers) in enumerate(cases.items()):
        runs = range(i * number, (i + 1) * number)
        last = [np.flatnonzero(rows["seed"] == r)[-1] for r in runs]
        time, accuracy, waiting = (rows[column][last] for column in ("time", "accuracy", "waiting"))
        last_groups = chosen[runs.start : runs.stop]
        outcomes.append(Outcome(rule, groups, *case, len(workers), time, accuracy, waiting, last_groups))
    labels = {name: column[rows["seed"]] for name, column in shared.labels.items()}
    size = len(labels["seed"])
    kept = {name: column for name, column in rows.items() if name not in ("scheme", "numbers", "seed")}
    return outcomes, {"rule": np.full(size, rule, object), "groups": np.full(size, groups), **labels, **kept}


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
