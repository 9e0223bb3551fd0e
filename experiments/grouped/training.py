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
    """Conditions that differ in nothing but how long the units of delayed workers take, a delay being in percent of it.

    Without a network messages take no time.
    """
    delayed_models = {
        case.name: scaled(stragglers, factor=1 + case.delay / 100, workers=case.workers) for case in cases
    }
    return {name: study.Condition(model, network or Network()) for name, model in delayed_models.items()}


def until_work(protocol: Protocol, num_units: int) -> Protocol:
    """The protocol, ending with the commit that brings the work committed by all workers to so many units."""

    def schedule(durations: jax.Array, network: Network) -> Schedule:
        """The schedule of the protocol up to that commit."""
        whole_schedule = protocol.schedule(durations, network)
        # int[E]: units of work, over the contributions of a commit; worker -1 pads.
        work_of_commits = jnp.where(whole_schedule.worker >= 0, whole_schedule.work, 0).sum(axis=1)
        is_commit = jnp.isfinite(whole_schedule.time)
        work_before_commits = jnp.cumsum(work_of_commits) - work_of_commits
        is_used = is_commit & (work_before_commits < num_units)  # true up to the last one, false after it
        return truncate(whole_schedule, num_commits=is_used.sum())

    return protocol.replace(schedule=schedule)


def check_work(name: str, schedule: Schedule, num_units: int, num_sampled: int) -> None:
    """Checks that all of the work is done in every run of a scheme.

    Args:
      name: of the scheme.
      schedule: of all runs, every field with a leading axis R.
      num_units: the work to commit, in units of all workers together.
      num_sampled: units of each worker.

    Raises:
      ValueError: if the sampled units do not last for the work.
    """
    work_of_runs = np.where(schedule.worker >= 0, schedule.work, 0).sum(axis=(1, 2))  # int[R], from [R, E, C]; -1 pads
    least_work = work_of_runs.min()
    if least_work < num_units:
        sampled_and_spare = 1.1 * num_sampled  # a tenth more than is needed in proportion
        enough_units = int(sampled_and_spare * num_units / max(least_work, 1)) + 1
        raise ValueError(
            f"num_units must last for all of the work; {num_sampled} units a worker give {least_work} of {num_units} "
            f"units of work in scheme '{name}'. Sample about {enough_units} units."
        )


def outcomes(results: study.StudyResults, schemes: Iterable[Scheme], cases: Sequence[Case]) -> list[Outcome]:
    """An outcome for each scheme and case."""
    final_rows, outcomes = study.final_rows(results), []
    for scheme in schemes:
        worker_of_contribution = results.runs[scheme.name].schedule.worker  # int[runs, E, C]
        final_groups = np.array([num_final_groups(worker) for worker in worker_of_contribution])  # int[R], as the rows
        rows_of_scheme = analysis.select_rows(final_rows, final_rows["scheme"] == scheme.name)
        for case in cases:
            is_of_case = rows_of_scheme["condition"] == case.name
            rows = analysis.select_rows(rows_of_scheme, is_of_case)
            outcome = Outcome(
                scheme, case, time=rows["end"], accuracy=rows["accuracy"], waiting=rows["waiting"],
                chosen=final_groups[is_of_case],
            )  # fmt: skip
            outcomes.append(outcome)
    return outcomes


def evaluations(results: study.StudyResults, schemes: Iterable[Scheme], cases: Sequence[Case]) -> Columns:
    """A row for every evaluation of every run, with its rule, groups (0: progressive), delayed workers and delay."""
    tables, case_of_condition = [], {case.name: case for case in cases}
    for scheme in schemes:
        columns = results.columns(scheme.name)
        case_of_row = [case_of_condition[condition] for condition in columns["condition"]]
        setting_columns = {
            "rule": np.full(len(case_of_row), scheme.rule, object),
            "groups": np.full(len(case_of_row), scheme.groups),
            "delayed": np.array([case.delayed for case in case_of_row], object),
            "delay": np.array([case.delay for case in case_of_row], object),
        }
        left_out_columns = ("scheme", "condition", "numbers", "server_numbers")
        evaluation_columns = {name: column for name, column in columns.items() if name not in left_out_columns}
        tables.append({**setting_columns, **evaluation_columns})
    return analysis.concatenate_tables(tables)


def num_final_groups(worker: np.ndarray) -> int:
    """How many groups there are at the end: workers are in one if their last commit is the same.

    `worker`: int[E, C], who has contributed to each commit; -1 pads.
    """
    commit, contribution = np.nonzero(worker >= 0)
    last_commit_of_worker = np.zeros(worker.max() + 1, int)  # [W]
    np.maximum.at(last_commit_of_worker, worker[commit, contribution], commit)
    return len(np.unique(last_commit_of_worker))
