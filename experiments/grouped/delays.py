"""One or several nodes delayed, more and more groups: what they cost in time and accuracy against no delay.

gcjax run configs/grouped/delays.gin
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.grouped import figures, report, training
from experiments.grouped.claims import table
from experiments.grouped.training import Case, Outcome, Scheme
from gcjax import _validate, analysis, files, processes, register
from gcjax.analysis.store import Columns
from gcjax.progress import Progress
from gcjax.protocols import Protocol, contiguous_groups
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.study import Condition, Study, checks, plan, run
from gcjax.study.base import metric_names


@register("experiment")
def group_delays(
    rules: dict[str, Callable[..., Protocol]],
    *,
    study: Study,
    stragglers: StragglerModel,
    num_rounds: int,
    delayed: dict[str, Sequence[int]],
    delays: Sequence[float],
    num_groups: Sequence[int],
    progressive: Callable[..., Protocol] | None = None,
    network: Network | Links | None = None,
    factor: float = 1.2,
    points: float = 2.5,
    out: Path,
    progress: Progress,
) -> list[Outcome]:
    """Trains until the same work is committed under every number of groups and every delay, and writes a folder.

    All is relative to the case without delay in which everybody waits for everybody: one group and the first rule, on
    the same seed. All delays and seeds of a number of groups run in one XLA program. The folder: `results.parquet` (a
    row for every evaluation of every run), `summary.md`, `groups.png`, `run.json`, `operative.gin`; and `checkpoints`
    until all of these are written.

    Args:
      rules: name -> function that makes a protocol of `groups`, for example `@grouped`; how groups push.
      study: what all runs share; its task must have the metric accuracy. Fast workers do more than `num_rounds` of its
        `num_units`.
      stragglers: who is slow when nobody is delayed.
      num_rounds: a run ends when so many times W units of work have been committed.
      delayed: name -> the workers that are delayed together.
      delays: percent of the time of a unit that is added; the case without delay is always there.
      num_groups: the numbers of groups of consecutive workers; 1 among them.
      progressive: function that makes a protocol of `no_delay`, for example `@progressive_groups`; None leaves it out.
        `no_delay` is the mean time of a synchronous round without delay.
      network: the time of messages, or links whose messages are as large as the parameters; instantaneous if None.
      factor: how much longer than without delay is allowed.
      points: the loss of accuracy in percentage points that is allowed.
      out: the folder to write; empty, or with the checkpoints of this study.
      progress: tells a person how far it is.

    Returns:
      An outcome for each scheme and case, the one that all is relative to first.

    Raises:
      ValueError: if a number is out of its range, nobody is delayed, the case of one group is missing, the task has no
        accuracy, the study ends its runs at a time, the server takes time for messages, or the sampled units do not
        last for the work.
    """
    start_time = time.perf_counter()
    _check(rules, study, num_rounds, delayed, delays, num_groups, network)
    _validate.number("factor", factor, minimum=1.0)
    _validate.number("points", points)
    cases = [Case("none", 0.0, ())]
    cases += [
        Case(name, float(delay), tuple(workers)) for delay in delays if delay for name, workers in delayed.items()
    ]
    protocols = _fixed_groups(rules, study.num_workers, num_groups)
    # 0 groups: progressive grouping chooses how many. It is named after the first rule.
    schemes = [*protocols] if progressive is None else [*protocols, Scheme(next(iter(rules)), 0)]
    checks.check_schemes(study, [scheme.name for scheme in schemes])
    conditions, num_units = training.conditions(cases, stragglers, network), study.num_workers * num_rounds
    train = partial(_train, study=study, conditions=conditions, cases=cases, num_units=num_units, out=out)
    fixed_share = len(protocols) / len(schemes)
    outcomes, evaluations = train(protocols, progress=progress.portion(0, fixed_share))
    if progressive is not None:
        progressive_protocol = {schemes[-1]: progressive(no_delay=float(outcomes[0].time.mean()) / num_rounds)}
        more_outcomes, more_evaluations = train(progressive_protocol, progress=progress.portion(fixed_share, 1))
        outcomes, evaluations = outcomes + more_outcomes, analysis.concatenate_tables([evaluations, more_evaluations])
    run_facts: dict[str, Any] = {**study.facts(), "num_rounds": num_rounds, "factor": factor, "points": points}
    run_facts["seconds"] = round(time.perf_counter() - start_time, 3)
    if processes.is_first():
        _write(outcomes, evaluations, run_facts, out, progress)
        analysis.drop_checkpoints(out)
    return outcomes


def _fixed_groups(
    rules: dict[str, Callable[..., Protocol]], num_workers: int, num_groups: Sequence[int]
) -> dict[Scheme, Protocol]:
    """Every rule (name -> factory) with every number of groups, of neighbouring workers."""
    groups_of_number = {number: contiguous_groups(num_workers, num_groups=number) for number in sorted(num_groups)}
    return {
        Scheme(rule, number): make_protocol(groups=groups)
        for rule, make_protocol in rules.items()
        for number, groups in groups_of_number.items()
    }


def _train(
    protocols: dict[Scheme, Protocol], study: Study, conditions: dict[str, Condition], cases: Sequence[Case],
    num_units: int, out: Path, progress: Progress,
) -> tuple[list[Outcome], Columns]:  # fmt: skip
    """Trains until `num_units` of work, of all workers together, are committed.

    Returns:
      An outcome for each scheme and case, and a row for every evaluation.
    """
    truncated_protocols = {
        scheme.name: training.until_work(protocol, num_units) for scheme, protocol in protocols.items()
    }
    study_plan = plan(study.of_schemes(truncated_protocols), truncated_protocols, conditions)
    for name, schedule in study_plan.schedules.items():
        training.check_work(name, schedule, num_units, num_sampled=study.num_units)
    results = run(study_plan, out=out, progress=progress)
    return training.outcomes(results, protocols, cases), training.evaluations(results, protocols, cases)


def _check(
    rules: dict[str, Any], study: Study, num_rounds: int, delayed: dict[str, Sequence[int]], delays: Sequence[float],
    num_groups: Sequence[int], network: Network | Links | None,
) -> None:  # fmt: skip
    """Raises a `ValueError` for counts, delays, rules, nodes or a network that the experiment cannot run."""
    _validate.integer("num_rounds", num_rounds, minimum=1)
    _validate.number("delays", delays, finite=True)
    for name, entries in {"rules": rules, "delayed": delayed, "delays": delays}.items():
        if not len(entries):
            raise ValueError(f"{name} must not be empty; got {entries!r}.")
    if 1 not in num_groups:
        raise ValueError(f"num_groups must have 1 in it, what all is relative to; got {list(num_groups)}.")
    if study.seconds is not None:
        raise ValueError(
            f"study.seconds must be None, since runs end with the work; got {study.seconds:g}. Take it out."
        )
    if network is not None and network.service is not None:  # it is simulated by the rule, which knows no such end
        raise ValueError(
            "network must have no time of service, since runs end with the work; got one with service. Take it out."
        )
    _validate.choice("accuracy", "accuracy", metric_names(study.task))


def _write(
    outcomes: list[Outcome], evaluations: Columns, run_facts: dict[str, Any], out: Path, progress: Progress
) -> None:
    """Writes the evaluations, the page of claims and the figure to the folder `out`, and shows the claims.

    `run_facts` has the limits of the claims, `factor` and `points`, besides what `run.json` says.
    """
    relative_outcomes = report.relative(outcomes)
    claims = report.claims(relative_outcomes, run_facts["factor"], run_facts["points"])
    files.write_table(out / "results.parquet", evaluations)
    summary = [{"claim": c.text, "ours": c.ours, "spread": c.spread, "holds": c.holds} for c in claims]
    analysis.write_page(out, report.markdown(relative_outcomes, claims, run_facts), {**run_facts, "summary": summary})
    figures.groups(relative_outcomes, run_facts["factor"], run_facts["points"], out / "groups.png")
    progress.show(table(claims))
