"""What is checked of what protocols promise: specifications, laws, runs held against them, and damaged records."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from gcjax import protocols, stragglers
from gcjax.algebra import laws
from gcjax.cli.check_specification import specification_of_arguments
from gcjax.protocols import Schedule
from gcjax.specifications import TABLE, check
from gcjax.stragglers import Network

CHECKED: dict[str, tuple[str, ...]] = dict.fromkeys(TABLE, ()) | {
    "ssp": ("--num-workers", "4", "--staleness", "3"),
    "bsp": ("--staleness", "2"),
}
"""Specification -> the parameters of its instance, where they are not the default ones."""

LARGE = {"eight workers": ("ssp", ("--num-workers", "8", "--staleness", "1"))}


def specifications() -> dict[str, Any]:
    """Each specification on a small instance: states of a worker alone and of all together, verdict, counterexample."""
    rows = [_specification_row(name, arguments) for name, arguments in CHECKED.items()]
    large = {label: _specification_row(name, arguments) for label, (name, arguments) in LARGE.items()}
    return {"rows": rows, "large": large}


def _specification_row(name: str, arguments: tuple[str, ...]) -> dict[str, Any]:
    """What came out for one specification; `arguments`: its parameters as on the command line.

    `alone` is the most states of a component, `product` the states of all together, `steps` those of the
    counterexample (0: there is none).
    """
    specification = specification_of_arguments(name, arguments)
    result = check(specification)
    return {
        "name": name,
        "instance": specification.name,
        "claim": specification.claim,
        "workers": specification.num_workers,
        "alone": max(component.states for component in result.components),
        "product": result.product.states,
        "holds": bool(result),
        "by_composition": result.by_composition,
        "steps": len(result.product.counterexample),
    }


def tried_laws(*, num_states: int, max_steps: int, num_instances: int) -> dict[str, Any]:
    """All laws of the algebra on random commands: how many came out as the table says.

    Args:
      num_states: S.
      max_steps: of the longest trace.
      num_instances: random instances.
    """
    results = laws.check_all(num_states=num_states, max_steps=max_steps, num_instances=num_instances)
    kinds = [result.law.kind for result in results]
    return {
        "states": num_states,
        "steps": max_steps,
        "instances": num_instances,
        "tried": sum(kind != "out of reach" for kind in kinds),
        "hold": sum(result.outcome == "holds" for result in results),
        "refuted": sum(result.outcome == "refuted" for result in results),
        "out_of_reach": kinds.count("out of reach"),
        "unexpected": sum(not result.is_expected for result in results),
    }


RULES: dict[str, Callable[[], protocols.Protocol]] = {
    "BSP": protocols.bsp,
    "ASP": protocols.asp,
    "SSP(3)": lambda: protocols.ssp(staleness=3),
    "K-sync": lambda: protocols.k_sync(num_contributions=4),
    "K-async": lambda: protocols.k_async(num_contributions=4),
    "groups": lambda: protocols.grouped(groups=protocols.contiguous_groups(8, num_groups=4)),
    "local SGD": lambda: protocols.local_sgd(num_local_steps=4),
    "WBSP": protocols.worker_busy,
}
"""Name -> the protocol of eight workers whose runs are held against its promise."""


def validated(*, num_units: int, num_damaged: int) -> dict[str, Any]:
    """Runs of protocols against their promises, as recorded and damaged in four ways.

    Args:
      num_units: T, for eight workers.
      num_damaged: records of each protocol and each sort of damage.

    Returns:
      In `rows` for each protocol: `keeps`, of the record as it is; sort of damage -> [caught, damaged].
    """
    durations = stragglers.sample_durations(stragglers.exponential(mean=1.0), jax.random.key(1), num_units, 8)
    rows = []
    for name, make_protocol in RULES.items():
        protocol = make_protocol()
        schedule = jax.tree.map(np.asarray, jax.jit(protocol.schedule)(durations, Network()))
        assert protocol.specification is not None
        promise = protocol.specification(8)
        conformance = protocols.check(schedule, promise)
        rng = np.random.default_rng(0)
        row = {"name": name, "events": conformance.num_events, "keeps": bool(conformance)}
        for sort, damage in DAMAGE.items():
            commits = _some_commits(schedule, rng, num_damaged)
            num_caught = sum(not protocols.check(damage(schedule, commit), promise) for commit in commits)
            row[sort] = [num_caught, num_damaged]
        rows.append(row)
    return {"workers": 8, "units": num_units, "rows": rows}


def _some_commits(schedule: Schedule, rng: np.random.Generator, count: int) -> list[int]:
    """`count` random commits of the first half, but for the first one: some damage needs the one before."""
    num_commits = int(np.isfinite(schedule.time).sum())
    first_half_without_first = np.arange(1, max(num_commits // 2, 2))
    return [int(commit) for commit in rng.choice(first_half_without_first, size=count)]


def _first_contribution(schedule: Schedule, commit: int) -> int:
    """The position of the first contribution to a commit; `worker` is int[commits, contributions], -1 pads."""
    return int(np.argmax(schedule.worker[commit] >= 0))


def _with_newer_version(schedule: Schedule, commit: int) -> Schedule:
    """The schedule, damaged: the first contribution of a commit claims to have read a version one newer than it did."""
    contribution = _first_contribution(schedule, commit)
    first_unit, worker = schedule.unit[commit, contribution], schedule.worker[commit, contribution]
    num_units = max(int(schedule.work[commit, contribution]), 1)
    version_read = schedule.read.copy()  # int[units, workers]
    version_read[first_unit : first_unit + num_units, worker] += 1
    return schedule._replace(read=version_read)


def _without_first_contribution(schedule: Schedule, commit: int) -> Schedule:
    """The schedule, damaged: a commit has lost its first contribution, in whose place is padding, worker -1."""
    contribution = _first_contribution(schedule, commit)
    worker, work = schedule.worker.copy(), schedule.work.copy()
    worker[commit, contribution], work[commit, contribution] = -1, 0
    return schedule._replace(worker=worker, work=work)


def _with_earlier_time(schedule: Schedule, commit: int) -> Schedule:
    """The schedule, damaged: a commit is dated halfway back to the one before it."""
    times = schedule.time.copy()
    times[commit] = (times[commit] + times[commit - 1]) / 2
    return schedule._replace(time=times)


def _with_swapped_contributions(schedule: Schedule, commit: int) -> Schedule:
    """The schedule, damaged: a commit and the one before it have each other's contributions."""
    neighbours, swapped_neighbours = [commit - 1, commit], [commit, commit - 1]
    contribution_fields = {name: getattr(schedule, name).copy() for name in ("worker", "unit", "work")}
    for field in contribution_fields.values():
        field[neighbours] = field[swapped_neighbours]
    return schedule._replace(**contribution_fields)


DAMAGE = {
    "newer version": _with_newer_version,
    "missing": _without_first_contribution,
    "early": _with_earlier_time,
    "swapped": _with_swapped_contributions,
}
"""Sort of damage -> a function that damages a record at a commit."""
