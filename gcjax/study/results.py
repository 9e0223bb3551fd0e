"""What came out of a study, as tables. Letters: S seeds."""

from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax import analysis
from gcjax.analysis.store import Columns
from gcjax.engine.compressed_messages import compressed_size
from gcjax.protocols import Protocol, Schedule
from gcjax.study.base import Study
from gcjax.study.inputs import Inputs
from gcjax.study.training import SchemeRuns


class Plan(NamedTuple):
    """A study that has been drawn and scheduled, and not trained yet.

    Attributes:
      study: what all schemes and conditions share.
      schemes: name -> protocol.
      inputs: what every scheme is given.
      labels: the `condition` and the `seed` of each run, [runs].
      schedules: scheme -> its schedules in all runs, every field [runs, ...]; on the host.
      rates: float[runs], what the updates of the run's optimizer are multiplied by; as it makes them if None.
    """

    study: Study
    schemes: dict[str, Protocol]
    inputs: Inputs
    labels: Columns
    schedules: dict[str, Schedule]
    rates: np.ndarray | None = None


class StudyResults(NamedTuple):
    """What came out of a study.

    Attributes:
      plan: what was run.
      runs: scheme -> its runs.
    """

    plan: Plan
    runs: dict[str, SchemeRuns]

    def columns(self, scheme: str) -> Columns:
        """What every run of a scheme had reached and spent: a row for each evaluation of each run.

        The columns `condition` and `seed` say which run.
        """
        runs, inputs = self.runs[scheme], self.plan.inputs
        protocol = self.plan.schemes[scheme]
        fragments = protocol.local and protocol.local.fragments
        params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), inputs.params)  # of one run
        num_params = sum(leaf.size for leaf in jax.tree.leaves(params))
        compression = self.plan.study.compression_of(scheme)
        return analysis.metric_columns(
            scheme, runs.trajectory, runs.schedule, np.asarray(inputs.durations), labels=self.plan.labels,
            code=protocol.code, num_params=num_params, mixing=protocol.local and protocol.local.mixing,
            num_fragments=1 if fragments is None else fragments.num_fragments,
            has_group_servers=protocol.has_group_servers,
            message_size=1.0 if compression is None else np.asarray(compressed_size(compression, params, protocol)),
        )  # fmt: skip


def final_rows(results: StudyResults) -> Columns:
    """A row for each scheme, condition and seed: what it had reached and spent in the end.

    Returns:
      `scheme`, `condition`, `seed`; `reach` (virtual seconds to the target, inf if it was not reached; not there if the
      study has no target), `end` (of the run), `stalled`, `commits`, the metrics at the end, and what had been spent by
      then (see `analysis.Costs`).
    """
    study, labels_of_runs = results.plan.study, results.plan.labels
    goal = None if study.target is None else study.goal
    rows: list[dict[str, Any]] = []
    for scheme, runs in results.runs.items():
        columns = results.columns(scheme)
        for run, stalled in enumerate(runs.stalled):
            labels = {name: label_of_run[run] for name, label_of_run in labels_of_runs.items()}  # condition, seed, ...
            # bool[evaluations of all runs]
            is_of_run = np.logical_and.reduce([columns[name] == label for name, label in labels.items()])
            evaluations = analysis.select_rows(columns, is_of_run)
            rows.append(_final_row({"scheme": scheme, **labels}, evaluations, goal, stalled))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _final_row(
    labels: dict[str, Any], evaluations: Columns, goal: analysis.Target | None, stalled: bool
) -> dict[str, Any]:
    """The final row of one run: its `labels` (scheme, condition, seed), and what its last evaluation says.

    `evaluations`: columns with a row for each; `goal`: the metric and value to reach; `stalled`: whether it halted.
    """
    row = dict(labels)
    if goal is not None:
        row["reach"] = analysis.time_to_target(
            evaluations["time"], evaluations[goal.metric], goal.value, higher_is_better=goal.higher_is_better
        )
    last_values = {name: column[-1] for name, column in evaluations.items()}
    row |= {"end": last_values.pop("time"), "stalled": stalled, "commits": last_values.pop("commit")}
    return row | {name: value for name, value in last_values.items() if name not in row}


def seed_values(rows: Columns, scheme: str, condition: str, column: str) -> np.ndarray:
    """A column [S] of the final rows of one scheme under one condition."""
    values: np.ndarray = rows[column][(rows["scheme"] == scheme) & (rows["condition"] == condition)]
    return values
