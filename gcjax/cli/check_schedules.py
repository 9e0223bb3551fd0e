"""What `gcjax check --schedule CONFIG` does: the schedules of a config, held against what the protocols promise."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
from rich.text import Text

from gcjax import config
from gcjax.config import errors, experiment_parts
from gcjax.progress import console
from gcjax.protocols import Conformance, Protocol, Schedule, check
from gcjax.specifications import Specification
from gcjax.stragglers import Absences, Network, RandomAbsences, StragglerModel, sample_durations
from gcjax.study.inputs import absence_key
from gcjax.tables import RichTable


class DrawnCondition(NamedTuple):
    """What the schedules of all protocols are made of.

    Attributes:
      durations: float[T, W] seconds.
      network: between workers and server.
      absences: of the workers; None if nobody leaves.
    """

    durations: jax.Array
    network: Network
    absences: Absences | None


class ScheduleCheck(NamedTuple):
    """What was found about the schedule of one scheme in one condition.

    Attributes:
      scheme: its name in the config.
      condition: the names of the straggler model, the network and the absences, where there are several.
      conformance: whether it keeps to its specification; None if it has none.
    """

    scheme: str
    condition: str
    conformance: Conformance | None


def run(path: str | Path, bindings: Sequence[str] = ()) -> list[ScheduleCheck]:
    """Checks the schedules of an experiment's config, on durations of its seed, and prints a table.

    Protocols, straggler models, networks and absences are told by the types of the experiment's parameters, not by
    their names.

    Args:
      path: a config of an experiment that is given protocols, a straggler model and a number of workers.
      bindings: gin statements that win over the file.

    Returns:
      What was found about each schedule.

    Raises:
      ValueError: if the config cannot be read, or its experiment is not given all of these.
    """
    config.load(path, bindings)
    with errors.errors_in_words():
        experiment = experiment_parts.experiment_of_config()
        schemes: dict[str, Protocol] = experiment.values_of_types((Protocol,))
        models, networks = experiment_parts.stragglers(experiment), experiment_parts.networks(experiment)
        all_absences = experiment_parts.absences(experiment)
        num_units, num_workers = experiment_parts.durations_shape(experiment, schemes)
    seed_keys = jax.random.split(
        config.key(seed=experiment.whole_number("seed") or 0), experiment.whole_number("num_seeds") or 1
    )
    conditions = _conditions_of_seed(
        seed_keys[0], models, networks, all_absences, num_units=num_units, num_workers=num_workers
    )
    checks: list[ScheduleCheck] = []
    first_violations = []
    for scheme, protocol in schemes.items():
        conformances = _conformances(protocol, list(conditions.values()))
        checks += [ScheduleCheck(scheme, *pair) for pair in zip(conditions, conformances, strict=True)]
        violated = [conformance for conformance in conformances if conformance is not None and not conformance]
        first_violations += [f"{scheme}: {conformance}" for conformance in violated[:1]]
    title = f"Schedules of {path}, {num_units} units of {num_workers} workers"
    table_of_checks = checks_table(title, [_table_row(check) for check in checks])
    console().print(table_of_checks, "", *map(Text, first_violations), sep="\n")
    return checks


def _conditions_of_seed(
    seed_key: jax.Array,
    models: dict[str, StragglerModel],
    networks: dict[str, Network],
    all_absences: dict[str, Absences | RandomAbsences | None],
    *,
    num_units: int,
    num_workers: int,
) -> dict[str, DrawnCondition]:
    """Name -> condition, with the durations and absences that a study draws for a seed of this key.

    A condition for each model, network and absences; its name has theirs, but for those that are empty.
    """
    durations_key = jax.random.fold_in(seed_key, 0)  # the same as the first of the keys that a study splits it into
    durations_by_model = {
        name: sample_durations(model, durations_key, num_units, num_workers) for name, model in models.items()
    }
    drawn_absences = {
        name: None if absences is None else absences.sample(absence_key(seed_key), num_workers)
        for name, absences in all_absences.items()
    }
    return {
        ", ".join(filter(None, (model_name, network_name, absences_name))): DrawnCondition(durations, network, absences)
        for model_name, durations in durations_by_model.items()
        for network_name, network in networks.items()
        for absences_name, absences in drawn_absences.items()
    }


def checks_table(title: str, rows: Sequence[Sequence[str]]) -> RichTable:
    """For the terminal: a row for each schedule, of scheme, condition, number of steps and verdict."""
    return RichTable(title, ("Scheme", "Setting", "Steps", "Result"), rows, num_key_columns=2, left_heads=["Result"])


def _table_row(check: ScheduleCheck) -> list[str]:
    """The cells of a check, as `checks_table` has them; a number of steps only if the schedule keeps to its promise."""
    num_steps = f"{check.conformance.num_events:,}" if check.conformance else ""
    return [check.scheme, check.condition, num_steps, _verdict(check.conformance)]


def _conformances(protocol: Protocol, conditions: Sequence[DrawnCondition]) -> list[Conformance | None]:
    """For each condition: whether the schedule in it keeps to the protocol's specification.

    All are None if the protocol has no specification, or it says nothing of those who leave and there are absences.
    """
    if protocol.specification is None:
        return [None for _ in conditions]
    num_workers = conditions[0].durations.shape[1]
    compiled_protocol = jax.jit(protocol)
    specification = protocol.specification(num_workers)
    return [_conformance(compiled_protocol, specification, condition) for condition in conditions]


def _conformance(
    protocol: Callable[..., Schedule], specification: Specification, condition: DrawnCondition
) -> Conformance | None:
    """Whether the schedule in one condition keeps to the specification; None if that says nothing of absences."""
    durations, network, absences = condition
    says_nothing_of_absences = specification.members is None
    if absences is not None and says_nothing_of_absences:
        return None
    schedule = protocol(durations, network, absences)
    memberships = None if absences is None else absences.memberships(schedule)
    return check(schedule, specification, memberships=memberships)


def _verdict(conformance: Conformance | None) -> str:
    """Whether a schedule keeps to its specification, in words; `conformance` is None if there is none."""
    if conformance is None:
        return "promises nothing that can be checked"
    if conformance:
        return f"keeps to it: {conformance.specification.claim}"
    return f"breaks its {conformance.violated} at {conformance.time:.4g} s"
