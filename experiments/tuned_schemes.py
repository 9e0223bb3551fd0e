"""Schemes with the hyperparameters that did best in trials: the procedure, which keeps what is done.

The text before the first comma of a name is the scheme, the rest one variant of it: 'SSP, s=3' and 'SSP, s=10' are two
variants of SSP, of which the trials choose one.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import finished_rows
from gcjax import analysis, comparable, config, study
from gcjax.analysis.store import Columns
from gcjax.engine.identity import run_identity
from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network
from gcjax.study import Condition, Inputs, Plan, Study, Trial, Tuning
from gcjax.study.checks import check_schemes


class TunedSchemes(NamedTuple):
    """What came out.

    Attributes:
      rows: a row for each scheme, condition and seed of the study, as `final_rows` makes them, with the `variant` and
        the `rate` that were chosen.
      trials: a row for each scheme, `variant`, `rate`, condition and seed of the trials.
    """

    rows: Columns
    trials: Columns


class Setting(NamedTuple):
    """What all schemes share.

    Attributes:
      study: of the runs that are reported.
      tuning: how hyperparameters are chosen.
      conditions: name -> who is slow, and what messages cost.
      groups: the conditions that have one choice of hyperparameters each; every condition is in one of them.
      networks: scheme -> the time of its messages under all conditions, where it has its own.
    """

    study: Study
    tuning: Tuning
    conditions: Mapping[str, Condition]
    groups: Sequence[Sequence[str]]
    networks: Mapping[str, Network | Links] = {}


class _Inputs(NamedTuple):
    """What the trials and the reported runs of all schemes are given; drawn once."""

    trials: Inputs
    reported: Inputs


def scheme_of(name: str) -> str:
    """The scheme of which a name says a variant."""
    return name.partition(",")[0]


def variants_of(schemes: Mapping[str, Protocol]) -> dict[str, dict[str, Protocol]]:
    """The protocols of each scheme by their names, from name -> protocol."""
    variants: dict[str, dict[str, Protocol]] = {}
    for name, protocol in schemes.items():
        variants.setdefault(scheme_of(name), {})[name] = protocol
    return variants


def tuned_schemes(schemes: Mapping[str, Protocol], setting: Setting, *, out: Path, progress: Progress) -> TunedSchemes:
    """Tries all variants and rates of each scheme on the seeds of the trials, and runs the best on those of the study.

    The best trial of a group of conditions is that which reaches the target in most of its runs, and of those the one
    with the least mean seconds. What is done of a scheme is kept in `out`, so that a run that was cut off goes on.

    Args:
      schemes: name -> protocol.
      setting: what they share.
      out: the folder of the experiment.
      progress: tells a person how far it is.

    Raises:
      ValueError: if there is no scheme, or an optimizer or learning rates are of none, or a condition is not in one
        group, or the trials have the seed of the study, or the number of trials cannot be that of all schemes.
    """
    check_setting(setting, schemes)
    task, metric = setting.study.task, setting.study.metric
    quick_task = task._replace(metrics=one_metric(task.metrics, metric))
    setting = setting._replace(study=dataclasses.replace(setting.study, task=quick_task))
    variants_of_schemes = variants_of(schemes)
    for scheme, variants in variants_of_schemes.items():
        setting.tuning.grid(scheme, len(variants))  # raises before anything is run
    shared_inputs, parts = _draw(setting), []
    for i, (scheme, variants) in enumerate(variants_of_schemes.items()):
        own_setting, inputs = setting, shared_inputs
        if scheme in setting.networks:  # which its inputs depend on
            in_own_network = {
                name: condition._replace(network=setting.networks[scheme])
                for name, condition in setting.conditions.items()
            }
            own_setting = setting._replace(conditions=in_own_network)
            inputs = _draw(own_setting)
        portion = progress.portion(i / len(variants_of_schemes), (i + 1) / len(variants_of_schemes))
        parts.append(_stored_or_run(scheme, variants, own_setting, inputs, out, portion))
    return TunedSchemes(*map(analysis.concatenate_tables, zip(*parts, strict=True)))


def _draw(setting: Setting) -> _Inputs:
    """What the trials and the reported runs are given under the conditions of a setting."""
    study_of_trials = setting.tuning.study(setting.study)
    return _Inputs(*(study.draw(each, setting.conditions) for each in (study_of_trials, setting.study)))


def check_setting(setting: Setting, schemes: Iterable[str]) -> None:
    """Checks that what is of some schemes (their names, with variants) is of these, and that groups part conditions.

    Raises:
      ValueError: if there is no scheme, or an optimizer or learning rates are of none, or a condition is in no group or
        in several, or a group names one that is not there.
    """
    names = list(schemes)
    check_schemes(setting.study, names)
    schemes_of_names = dict.fromkeys(map(scheme_of, names))
    for name in setting.tuning.own_rates:
        if name not in schemes_of_names:
            raise ValueError(
                f"own_rates must be those of schemes, {', '.join(schemes_of_names)}; got some for '{name}'."
            )
    group_counts = Counter(name for group in setting.groups for name in group)
    for name in {**setting.conditions, **group_counts}:
        if name not in setting.conditions:
            raise ValueError(f"groups must be of conditions, {', '.join(setting.conditions)}; got '{name}' in one.")
        if group_counts[name] != 1:
            raise ValueError(f"each condition must be in one group; '{name}' is in {group_counts[name]}. Mend groups.")


@comparable
def one_metric(metrics: Callable[..., dict[str, jax.Array]], name: str) -> Callable[..., dict[str, jax.Array]]:
    """The metrics of a task without all but one: evaluations are a good part of the time of short runs."""

    def single_metric(params: Any, data: Any) -> dict[str, jax.Array]:
        """That metric."""
        return {name: metrics(params, data)[name]}

    return single_metric


def _stored_or_run(
    scheme: str, variants: dict[str, Protocol], setting: Setting, inputs: _Inputs, out: Path, progress: Progress
) -> TunedSchemes:
    """The rows of a scheme: those that are kept for the same config, data and inputs, or else of new runs.

    `variants`: name -> protocol, of this scheme.
    """
    file = out / analysis.CHECKPOINTS / f"{analysis.file_name(scheme)}.json"
    identity = run_identity(config.text(), scheme=scheme, given=(setting.study.task.data, inputs))
    stored_lists = finished_rows.stored_row(file, identity)
    if stored_lists is not None:
        return _from_lists(stored_lists)
    trial_rows = _trial_rows(scheme, variants, setting, inputs.trials, out, progress)
    choices = {group: choice(trial_rows, group) for group in map(tuple, setting.groups)}
    rows = _reported_rows(scheme, variants, choices, setting, inputs.reported, out, progress)
    new_rows = TunedSchemes(rows, trial_rows)
    columns_as_lists = {
        key: {name: column.tolist() for name, column in columns.items()} for key, columns in new_rows._asdict().items()
    }
    finished_rows.write_row(file, columns_as_lists, identity)
    return _from_lists(columns_as_lists)  # as a run gets them that goes on after this scheme


def _from_lists(columns_as_lists: Mapping[str, Mapping[str, Sequence[Any]]]) -> TunedSchemes:
    """The rows from their columns as lists, as they are kept: integers and floats have 64 bits."""
    tables_of_fields = {
        field: {name: np.array(column) for name, column in columns.items()}
        for field, columns in columns_as_lists.items()
    }
    return TunedSchemes(**tables_of_fields)


def choice(trials: Columns, conditions: Sequence[str]) -> Trial:
    """The best trial of one scheme under these conditions; its `scheme` is the name of the variant.

    Args:
      trials: rows with `variant`, `rate`, `condition` and `reach`.
      conditions: the names of the conditions.
    """
    rows = analysis.select_rows(trials, np.isin(trials["condition"], list(conditions)))
    return study.best_trial({**rows, "scheme": rows["variant"]})


def _trial_rows(
    scheme: str, variants: dict[str, Protocol], setting: Setting, inputs: Inputs, out: Path, progress: Progress
) -> Columns:
    """The rows of all trials of a scheme: a run of each variant, learning rate, condition and seed.

    They count for 0.7 of the progress of the scheme.
    """
    rates = setting.tuning.grid(scheme, len(variants))
    study_of_trials, tables = setting.tuning.study(setting.study), []
    for i, (name, protocol) in enumerate(variants.items()):
        plan = _plan(study_of_trials, name, protocol, setting, inputs)
        progress_of_variant = progress.portion(0.7 * i / len(variants), 0.7 * (i + 1) / len(variants))
        tables.append(
            _variant_rows(
                scheme,
                study.trial_plan(plan, rates.tolist()),
                out / analysis.CHECKPOINTS / "trials",
                progress_of_variant,
            )
        )
    return analysis.concatenate_tables(tables)


def _reported_rows(
    scheme: str, variants: dict[str, Protocol], choices: Mapping[tuple[str, ...], Trial], setting: Setting,
    inputs: Inputs, out: Path, progress: Progress,
) -> Columns:  # fmt: skip
    """The rows of a scheme with the hyperparameters chosen for each group of conditions.

    `choices`: group -> the best trial, whose `scheme` is a variant; each variant is run under its conditions only.
    """
    tables = []
    # (variant, condition) -> rate, of the variant that was chosen for the condition.
    chosen_rate = {(trial.scheme, name): trial.rate for group, trial in choices.items() for name in group}
    chosen_variants = list(dict.fromkeys(trial.scheme for trial in choices.values()))
    portions = np.linspace(0.7, 1.0, len(chosen_variants) + 1).tolist()  # of the scheme, from one variant to the next
    for name, portion_bounds in zip(chosen_variants, pairwise(portions), strict=True):
        plan = _plan(setting.study, name, variants[name], setting, inputs)
        runs = np.array([run for run, label in enumerate(plan.labels["condition"]) if (name, label) in chosen_rate])
        plan = study.select_runs(plan, runs)
        rates = np.array([chosen_rate[name, label] for label in plan.labels["condition"]])
        plan = plan._replace(labels={**plan.labels, "rate": rates}, rates=rates)
        progress_of_variant = progress.portion(*portion_bounds)
        tables.append(_variant_rows(scheme, plan, out / analysis.CHECKPOINTS / "reported", progress_of_variant))
    return analysis.concatenate_tables(tables)


def _plan(study_of_runs: Study, name: str, protocol: Protocol, setting: Setting, inputs: Inputs) -> Plan:
    """The plan of one variant, with its own optimizer and compression if it has them."""
    return study.plan(study_of_runs.of_schemes([name]), {name: protocol}, setting.conditions, inputs=inputs)


def _variant_rows(scheme: str, plan: Plan, out: Path, progress: Progress) -> Columns:
    """The final rows of a plan of one variant, which get the name of the scheme, and the variant beside it."""
    rows = study.final_rows(study.run(plan, out=out, progress=progress))
    return {**rows, "variant": rows["scheme"], "scheme": np.full(len(rows["scheme"]), scheme)}
