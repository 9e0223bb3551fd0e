"""One or several nodes delayed, more and more groups: what they cost in time and accuracy against no delay.

gcjax run configs/grouped/delays.gin
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optax

from experiments.grouped import figures, report
from experiments.grouped.training import Cases, Outcome, run, setting
from gcjax import _validate, analysis, config, files
from gcjax.analysis import demands, trials
from gcjax.analysis.store import Columns
from gcjax.progress import Progress
from gcjax.protocols import Protocol, contiguous_groups
from gcjax.stragglers import Links, Network, StragglerModel
from gcjax.tasks import Task


@config.experiment
def group_delays(
    rules: dict[str, Callable[..., Protocol]],
    *,
    task: Task,
    stragglers: StragglerModel,
    optimizer: optax.GradientTransformation,
    num_workers: int,
    num_rounds: int,
    num_units: int,
    delayed: dict[str, Sequence[int]],
    delays: Sequence[float],
    num_groups: Sequence[int],
    progressive: Callable[..., Protocol] | None = None,
    network: Network | Links | None = None,
    factor: float = 1.2,
    points: float = 2.5,
    num_seeds: int = 5,
    seed: int = 0,
    num_evals: int = 20,
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
      task: what is trained; it must have the metric accuracy.
      stragglers: who is slow when nobody is delayed.
      optimizer: of all runs.
      num_workers: W.
      num_rounds: a run ends when so many times W units of work have been committed.
      num_units: T, the units of work sampled for each worker. Fast workers do more than `num_rounds`.
      delayed: name -> the workers that are delayed together.
      delays: percent of the time of a unit that is added; the case without delay is always there.
      num_groups: the numbers of groups of consecutive workers; 1 among them.
      progressive: function that makes a protocol of `no_delay`, for example `@progressive_groups`; None leaves it out.
        `no_delay` is the mean time of a synchronous round without delay.
      network: the time of messages, or links whose messages are as large as the parameters; instantaneous if None.
      factor: how much longer than without delay is allowed.
      points: the loss of accuracy in percentage points that is allowed.
      num_seeds: S; each has its own durations, initial parameters and batches.
      seed: of all randomness.
      num_evals: evaluations of a run.
      out: the folder to write; empty, or with the checkpoints of this study.
      progress: tells a person how far it is.

    Raises:
      ValueError: if a number is out of its range, nobody is delayed, the case of one group is missing, the task has no
        accuracy, or the sampled units do not last for the work.
    """
    began = time.perf_counter()
    _check(rules, task, num_rounds, num_seeds, num_evals, delayed, delays, num_groups)
    _validate.number("factor", factor, minimum=1.0)
    _validate.number("points", points)
    cases: Cases = {("none", 0.0): ()}
    cases |= {(name, float(delay)): tuple(who) for delay in delays if delay for name, who in delayed.items()}
    shared = setting(
        task, stragglers, cases, num_workers=num_workers, num_units=num_units, num_seeds=num_seeds,
        rng_key=config.key(seed=seed), network=network or Network(), num_evals=num_evals,
    )  # fmt: skip
    saving = trials.Saving(out / analysis.CHECKPOINTS, 5, 2, config.text())
    total = len(rules) * len(num_groups) + (progressive is not None)
    outcomes: list[Outcome] = []
    raw: list[Columns] = []

    def add(rule: str, groups: int, protocol: Protocol) -> None:
        done = progress.part(f"{rule}, {groups or 'progressive'}", len(raw), total)
        found, rows = run(rule, groups, protocol, optimizer, cases, shared, num_workers * num_rounds, saving, done)
        outcomes.extend(found)
        raw.append(rows)

    for rule, make in rules.items():
        for groups in sorted(num_groups):
            add(rule, groups, make(groups=contiguous_groups(num_workers, num_groups=groups)))
    if progressive is not None:
        no_delay = float(outcomes[0].time.mean()) / num_rounds
        add(next(iter(rules)), 0, progressive(no_delay=no_delay))
    facts: dict[str, Any] = {"seed": seed, "num_seeds": num_seeds, "num_workers": num_workers, "num_rounds": num_rounds}
    facts |= {"factor": factor, "points": points, "seconds": round(time.perf_counter() - began, 3)}
    _write(outcomes, analysis.stack(raw), facts, out, progress)
    analysis.drop_checkpoints(out)
    return outcomes


def _check(
    rules: dict[str, Any], task: Task, num_rounds: int, num_seeds: int, num_evals: int,
    delayed: dict[str, Sequence[int]], delays: Sequence[float], num_groups: Sequence[int],
) -> None:  # fmt: skip
    for name, value in {"num_rounds": num_rounds, "num_seeds": num_seeds, "num_evals": num_evals}.items():
        _validate.integer(name, value, minimum=1)
    _validate.number("delays", delays, finite=True)
    for what, given in {"rules": rules, "delayed": delayed, "delays": delays}.items():
        if not len(given):
            raise ValueError(f"{what} must not be empty; got {given!r}.")
    if 1 not in num_groups:
        raise ValueError(f"num_groups must have 1 in it, what all is relative to; got {list(num_groups)}.")
    _validate.choice("accuracy", "accuracy", demands.metrics(task))


def _write(outcomes: list[Outcome], raw: Columns, facts: dict[str, Any], out: Path, progress: Progress) -> None:
    relative = report.relative(outcomes)
    claims = report.claims(relative, facts["factor"], facts["points"])
    files.write_table(out / "results.parquet", raw)
    files.write_text(out / "summary.md", report.markdown(relative, claims, facts))
    summary = [{"claim": c.text, "ours": c.ours, "spread": c.spread, "holds": c.holds} for c in claims]
    text = json.dumps({**facts, "summary": summary, **analysis.environment()}, indent=2)
    files.write_text(out / "run.json", text + "\n")
    files.write_text(out / "operative.gin", config.operative())
    figures.groups(relative, facts["factor"], facts["points"], out / "groups.png")
    progress.show(report.table(claims))
