"""Runs a study: every scheme under every condition with every seed."""

from collections.abc import Mapping
from pathlib import Path

from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.study import checks, training
from gcjax.study.base import Study
from gcjax.study.inputs import Condition, Inputs, draw, labels
from gcjax.study.results import Plan, StudyResults


def plan(
    study: Study, schemes: dict[str, Protocol], conditions: Mapping[str, Condition], *, inputs: Inputs | None = None
) -> Plan:
    """Draws what every scheme is given, and computes all schedules; trains nothing.

    Args:
      study: what all schemes and conditions share.
      schemes: name -> protocol.
      conditions: name -> who is slow, and what messages cost.
      inputs: of another plan of the same study and conditions, so that they are not drawn again.

    Raises:
      ValueError: if there is no scheme, or an optimizer is of none, or a code is for another number of workers, or
        something does not fit into memory, or the sampled units are used up before the time asked for.
    """
    checks.check_schemes(study, schemes)
    checks.check_workers(study, schemes)
    checks.check_size(study, len(conditions))
    inputs = draw(study, conditions) if inputs is None else inputs
    schedules = {}
    for name, protocol in schemes.items():
        with checks.scheme_name_in_errors(name):
            schedules[name] = training.schedules(name, protocol, study, inputs)
    return Plan(study=study, schemes=schemes, inputs=inputs, labels=labels(study, conditions), schedules=schedules)


def run(plan: Plan, *, out: Path, progress: Progress) -> StudyResults:
    """Trains under every scheme; all runs of one go through one program, or on a mesh one after the other.

    If there are checkpoints of the same study, it goes on from them and ends with the same bits.

    Args:
      plan: of the study.
      out: the folder for checkpoints; the caller drops them when everything is written.
      progress: tells a person how far it is.

    Raises:
      ValueError: if a run is not to be trusted (see `gcjax.engine.check`), or the checkpoints are of another study.
    """
    runs = {}
    for index, (name, protocol) in enumerate(plan.schemes.items()):
        report = progress.part_reporter(name, index, len(plan.schemes))  # `(share done) -> None`
        with checks.scheme_name_in_errors(name):
            runs[name] = training.train(
                name, protocol, plan.schedules[name], plan.study, plan.inputs, out, report, plan.rates
            )
    return StudyResults(plan, runs)
