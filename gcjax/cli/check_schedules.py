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
from gcjax.stragglers import Absences, Network, sample_durations
from gcjax.study.inputs import absence_key
from gcjax.tables import RichTable, rich_table


class ScheduleCheck(NamedTuple):
    """What was found about the schedule of one scheme in one setting.

    Attributes:
      scheme: its name in the config.
      setting: the names of the straggler model, the network and the absences, where there are several.
      conformance: whether it keeps to its specification; None if it has none.
    """

    scheme: str
    setting: str
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
    with errors.readable():
        experiment = experiment_parts.of_config()
        schemes: dict[str, Protocol] = experiment.all_of((Protocol,))
        models, networks = experiment_parts.stragglers(experiment), experiment_parts.networks(experiment)
        all_absences = experiment_parts.absences(experiment)
        num_units, num_workers = experiment_parts.shape(experiment, schemes)
    seed_keys = jax.random.split(config.key(seed=experiment.number("seed") or 0), experiment.number("num_seeds") or 1)
    key = jax.random.fold_in(seed_keys[0], 0)  # with this key a study draws the durations of its first seed
    durations_by_model = {name: sample_durations(model, key, num_units, num_workers) for name, model in models.items()}
    drawn_absences = {  # as a study draws them for its first seed
        name: None if absences is None else absences.sample(absence_key(seed_keys[0]), num_workers)
        for name, absences in all_absences.items()
    }
    settings = {
        ", ".join(filter(None, (model_name, network_name, absences_name))): (durations, network, absences)
        for model_name, durations in durations_by_model.items()
        for network_name, network in networks.items()
        for absences_name, absences in drawn_absences.items()
    }
    checks: list[ScheduleCheck] = []
    rows, violations = [], []
    for name, protocol in schemes.items():
        conformances = _conformances(protocol, list(settings.values()))
        for setting, conformance in zip(settings, conformances, strict=True):
            checks.append(ScheduleCheck(name, setting, conformance))
            num_events = f"{conformance.events:,}" if conformance else ""
            rows.append([name, setting, num_events, _verdict(conformance)])
        broken = [conformance for conformance in conformances if conformance is not None and not conformance]
        violations += [f"{name}: {conformance}" for conformance in broken[:1]]
    title = f"Schedules of {path}, {num_units} units of {num_workers} workers"
    console().print(table(title, rows), "", *(Text(line) for line in violations), sep="\n")
    return checks


def table(title: str, rows: Sequence[Sequence[str]]) -> RichTable:
    """For the terminal: a row for each schedule, of scheme, setting, number of steps and verdict."""
    return rich_table(title, ("Scheme", "Setting", "Steps", "Result"), rows, keys=2, left=["Result"])


def _conformances(
    protocol: Protocol, settings: Sequence[tuple[jax.Array, Network, Absences | None]]
) -> list[Conformance | None]:
    """For each (durations [T, W], network, absences): whether the schedule keeps to the protocol's specification.

    All are None if the protocol has no specification, or it says nothing of those who leave and there are absences.
    """
    if protocol.specification is None:
        return [None for _ in settings]
    durations_of_first_setting, _, _ = settings[0]
    num_workers = durations_of_first_setting.shape[1]
    compiled_protocol = jax.jit(lambda *inputs: protocol(*inputs))
    specification = protocol.specification(num_workers)
    return [_conformance(compiled_protocol, specification, *setting) for setting in settings]


def _conformance(
    protocol: Callable[..., Schedule],
    specification: Specification,
    durations: jax.Array,
    network: Network,
    absences: Absences | None,
) -> Conformance | None:
    """Whether the schedule in one setting keeps to the specification; None if that says nothing of absences."""
    if absences is not None and specification.members is None:
        return None
    schedule = protocol(durations, network, absences)
    memberships = None if absences is None else absences.memberships(schedule)
    return check(schedule, specification, memberships=memberships)


def _verdict(conformance: Conformance | None) -> str:
    """Whether a schedule keeps to its specification, in words; None where there is no specification."""
    if conformance is None:
        return "promises nothing that can be checked"
    if conformance:
        return f"keeps to it: {conformance.specification.claim}"
    return f"breaks its {conformance.violated} at {conformance.time:.4g} s"
