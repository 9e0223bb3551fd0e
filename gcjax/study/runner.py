"""Runs a study: every scheme under every condition with every seed."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path

from gcjax.progress import Progress, silent
from gcjax.protocols import Protocol, Schedule
from gcjax.study import checks, scheduling, training
from gcjax.study.base import Study
from gcjax.study.compiled_ahead import compiling_threads, one_ahead
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
    checks.check_is_dict(schemes)
    checks.check_schemes(study, schemes)
    checks.check_workers(study, schemes)
    checks.check_conditions(conditions)
    checks.check_size(study, len(conditions))
    inputs = draw(study, conditions) if inputs is None else inputs
    schedules = _schedules(study, schemes, inputs)
    return Plan(study=study, schemes=schemes, inputs=inputs, labels=labels(study, conditions), schedules=schedules)


def _schedules(study: Study, schemes: dict[str, Protocol], inputs: Inputs) -> dict[str, Schedule]:
    """The schedules of each scheme in all runs, by its name; their programs are compiled by other threads.

    All are handed to these before the first one is run.
    """
    programs, schedules = {}, {}
    with compiling_threads("gcjax-study") as threads:
        for name, protocol in schemes.items():
            with checks.scheme_name_in_errors(name):
                lowered = scheduling.lowered_program(name, protocol, study, inputs)
                programs[name] = threads.submit(lowered.compile)
        for name, protocol in schemes.items():
            with checks.scheme_name_in_errors(name):
                programs[name].result()  # of a future: waits for it
                schedules[name] = scheduling.schedules(name, protocol, study, inputs)
    return schedules


def run(
    plan: Plan,
    *,
    out: Path | str,
    progress: Progress | None = None,
    while_compiling: Callable[[], None] | None = None,
) -> StudyResults:
    """Trains under every scheme; all runs of one go through one program, or on a mesh one after the other.

    The programs of a scheme are compiled while the one before it runs.

    If there are checkpoints of the same study, it goes on from them and ends with the same bits.

    Args:
      plan: of the study.
      out: the folder for checkpoints; the caller drops them when everything is written.
      progress: tells a person how far it is; nobody if None.
      while_compiling: called once, while other threads compile the programs of the first schemes; nothing if None.

    Raises:
      ValueError: if a run is not to be trusted (see `gcjax.engine.check`), or the checkpoints are of another study.
    """
    runs, out, progress = {}, Path(out), progress or silent()
    with compiling_threads("gcjax-study") as threads:
        prepared_schemes = one_ahead(_prepared_schemes(plan, threads))
        for index, name in enumerate(plan.schemes):
            report = progress.part_reporter(name, index, len(plan.schemes))  # `(share done) -> None`
            report(0.0)
            prepared = next(prepared_schemes)
            if index == 0 and while_compiling is not None:  # nothing is refused any more before the first one runs
                while_compiling()
            with checks.scheme_name_in_errors(name):
                runs[name] = training.train(
                    name, prepared, plan.schedules[name], plan.study, plan.inputs, out, report, plan.rates
                )
    return StudyResults(plan, runs)


def _prepared_schemes(plan: Plan, threads: Executor) -> Iterator[training.PreparedTraining]:
    """The schemes of a plan, in order, the programs of each given to the threads when it is asked for."""
    for name, protocol in plan.schemes.items():
        with checks.scheme_name_in_errors(name):
            prepared = training.prepare(
                name, protocol, plan.schedules[name], plan.study, plan.inputs, threads, plan.rates
            )
        yield prepared
