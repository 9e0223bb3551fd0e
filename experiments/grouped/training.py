"""Training until the same amount of work is committed, for all delays and seeds of a scheme in one program.

Letters: S seeds, R runs (cases of delayed workers times seeds), W workers, E commits, C contributions to a commit.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import analysis, study
from gcjax.analysis.store import Columns
from gcjax.protocols import Protocol, Schedule, truncate
from gcjax.stragglers import Links, Network, StragglerModel, scaled


class Case(NamedTuple):
    """Who is delayed, and by how much.

    Attributes:
      delayed: a name of the workers; "none" where there is no delay.
      delay: percent of the time of a unit that is added; 100 takes twice as long.
      workers: who they are.
    """

    delayed: str
    delay: float
    workers: tuple[int, ...]

    @property
    def name(self) -> str:
        """Of the condition that has this delay."""
        return f"{self.delayed}, {self.delay} %"


class Scheme(NamedTuple):
    """How many groups, and how they push.

    Attributes:
      rule: how groups push to the central server, by its name in the config.
      groups: the number of groups; 0 where progressive grouping chooses it.
    """

    rule: str
    groups: int

    @property
    def name(self) -> str:
        """Of the scheme in the study."""
        return f"{self.rule}, {self.groups or 'progressive'}"


class Outcome(NamedTuple):
    """What one scheme came to in one case; arrays have an entry a seed.

    Attributes:
      scheme: the groups.
      case: the delay.
      time: float[S] virtual seconds until all work is committed.
      accuracy: float[S] at that moment.
      waiting: float[S], the share of the workers' time.
      chosen: int[S], the groups in which workers were at the end.
    """

    scheme: Scheme
    case: Case
    time: np.ndarray
    accuracy: np.ndarray
    waiting: np.ndarray
    chosen: np.ndarray


def conditions(
    cases: Iterable[Case], stragglers: StragglerModel, network: Network | Links | None
) -> dict[str, study.Condition]:
    """Conditions that differ in nothing but how long the units of delayed workers take."""
    models = {case.name: scaled(stragglers, factor=1 + case.delay / 100, workers=case.workers) for case in cases}
    return {name: study.Condition(model, network or Network()) for name, model in models.items()}


def until_work(protocol: Protocol, num_units: int) -> Protocol:
    """The protocol, ending with the commit that brings the work committed by all workers to so many units."""

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        whole = protocol.schedule(durations, network)
        work = jnp.where(whole.worker >= 0, whole.work, 0).sum(axis=1)
        used = jnp.isfinite(whole.time) & (jnp.cumsum(work) - work < num_units)
        return truncate(whole, num_commits=used.sum())

    return protocol._replace(schedule=schedule)


def check_work(name: str, schedule: Schedule, num_units: int, sampled: int) -> None:
    """Checks that all of the work is done in every run of a scheme.

    Args:
      name: of the scheme.
      schedule: of all runs.
      num_units: the work to commit, in units of all workers together.
      sampled: units of each worker.

    Raises:
      ValueError: if the sampled units do not last for the work.
    """
    done = np.where(schedule.worker >= 0, schedule.work, 0).sum(axis=(1, 2)).min()
    if done < num_units:
        raise ValueError(
            f"num_units must last for all of the work; {sampled} units a worker give {done} of {num_units} units of "
            f"work in scheme '{name}'. Sample about {int(1.1 * sampled * num_units / max(done, 1)) + 1} units."
        )


def outcomes(results: study.StudyResults, schemes: Iterable[Scheme], cases: Sequence[Case]) -> list[Outcome]:
    """An outcome for each scheme and case."""
    rows, outcomes = study.final_rows(results), []
    for scheme in schemes:
        final_groups = np.array([num_final_groups(worker) for worker in results.runs[scheme.name].schedule.worker])
        of_scheme = analysis.select(rows, rows["scheme"] == scheme.name)
        for case in cases:
            in_case = of_scheme["condition"] == case.name
            time, accuracy, waiting = (of_scheme[column][in_case] for column in ("end", "accuracy", "waiting"))
            chosen = final_groups[in_case]
            outcomes.append(Outcome(scheme, case, time=time, accuracy=accuracy, waiting=waiting, chosen=chosen))
    return outcomes


def evaluations(results: study.StudyResults, schemes: Iterable[Scheme], cases: Sequence[Case]) -> Columns:
    """A row for every evaluation of every run, with its rule, groups and delay."""
    tables, by_name = [], {case.name: case for case in cases}
    for scheme in schemes:
        columns = results.columns(scheme.name)
        row_cases = [by_name[condition] for condition in columns["condition"]]
        labels = {
            "rule": np.full(len(row_cases), scheme.rule, object),
            "groups": np.full(len(row_cases), scheme.groups),
            "delayed": np.array([case.delayed for case in row_cases], object),
            "delay": np.array([case.delay for case in row_cases], object),
        }
        rest = {key: column for key, column in columns.items() if key not in ("scheme", "condition", "numbers")}
        tables.append({**labels, **rest})
    return analysis.stack(tables)


def num_final_groups(worker: np.ndarray) -> int:
    """The number of groups by who was in which commit last; `worker int[E, C]`."""
    commit, contribution = np.nonzero(worker >= 0)
    last = np.zeros(worker.max() + 1, int)
    np.maximum.at(last, worker[commit, contribution], commit)
    return len(np.unique(last))
