"""Learning rates chosen by trials: all trials of a scheme go through one program, as runs beside each other.

Letters: B trials.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate, memory
from gcjax.analysis.store import Columns
from gcjax.study.base import Study
from gcjax.study.results import Plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """How the hyperparameters of schemes are chosen: every scheme by as many trials, on seeds of their own.

    Attributes:
      num_trials: of each scheme: of every variant of it (another number of local steps, for example) with so many
        learning rates that there are `num_trials` in all; the variants must divide it.
      rates: the lowest and the highest learning rate; those between are each the same multiple of the one before. A
        variant with a single trial has the one in the middle.
      own_rates: scheme -> its own lowest and highest rate, where another optimizer or another weight wants others.
      num_seeds: of each trial.
      seed: of all randomness of the trials; another one than that of the study.

    Raises:
      ValueError: if a number is out of its range, or a lowest rate is not below the highest, or the own rates are no
        mapping.
    """

    num_trials: int
    rates: tuple[float, float]
    own_rates: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    num_seeds: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        """Checks the numbers; see the class for what is raised."""
        for name in ("num_trials", "num_seeds"):
            _validate.integer(name, getattr(self, name), minimum=1)
        _validate.integer("seed", self.seed, maximum=None)
        if not isinstance(self.own_rates, Mapping):
            raise ValueError(
                "own_rates must be a lowest and a highest learning rate for each scheme that has its own, as in "
                f"{{'SSP': (0.01, 1.0)}}; got {self.own_rates!r}."
            )
        for name, rates in {"rates": self.rates, **self.own_rates}.items():
            if not isinstance(rates, Sequence) or len(rates) != 2:
                raise ValueError(f"rates must be a lowest and a highest learning rate; got {rates!r} for '{name}'.")
            rate_grid(*rates, num_rates=1)

    def grid(self, scheme: str, num_variants: int) -> np.ndarray:
        """float64[num_trials / num_variants]: the learning rates that each variant of a scheme is tried with.

        Raises:
          ValueError: if the variants do not divide the trials.
        """
        if self.num_trials % num_variants:
            raise ValueError(
                f"num_trials must be a multiple of the {num_variants} variants of '{scheme}'; got {self.num_trials}. "
                f"Try {self.num_trials // num_variants * num_variants or num_variants}, or other variants."
            )
        return rate_grid(*self.own_rates.get(scheme, self.rates), self.num_trials // num_variants)

    def study(self, study: Study) -> Study:
        """The study with the seeds of the trials in the place of its own.

        Raises:
          ValueError: if these would be seeds of the study itself.
        """
        if self.seed == study.seed:
            raise ValueError(f"the trials must have another seed than the study; both have {self.seed}.")
        return dataclasses.replace(study, seed=self.seed, num_seeds=self.num_seeds)


class Trial(NamedTuple):
    """What one trial was made with.

    Attributes:
      scheme: its name in the plan.
      rate: the learning rate.
    """

    scheme: str
    rate: float


def rate_grid(lowest: float, highest: float, num_rates: int) -> np.ndarray:
    """float64[num_rates]: learning rates from the lowest to the highest, each the same multiple of the one before.

    A single one is that in the middle: the square root of the product of both, since neither end speaks for all.

    Raises:
      ValueError: if there is no rate, or the lowest is not above 0 and below the highest.
    """
    num_rates = _validate.integer("num_rates", num_rates, minimum=1)
    for name, value in {"lowest": lowest, "highest": highest}.items():
        _validate.single_number(name, value, above=True, finite=True)
    if lowest >= highest:
        raise ValueError(f"the lowest rate must be below the highest; got {lowest:g} and {highest:g}.")
    if num_rates == 1:
        return np.geomspace(lowest, highest, 3)[1:2]
    return np.geomspace(lowest, highest, num_rates)


def trial_plan(plan: Plan, rates: Sequence[float]) -> Plan:
    """The plan of trials: the runs of a plan once for each learning rate; its `labels` say the `rate` of each run.

    Args:
      plan: without rates.
      rates: of the optimizers of the study, whose own learning rate is to be 1; numbers above 0.

    Raises:
      ValueError: if the plan has rates already, or there is no rate, or one is not above 0 and finite, or what is
        repeated does not fit into memory.
    """
    if plan.rates is not None:
        raise ValueError(
            "trials must be of a plan without rates; this one has them. Take the plan that it was made of."
        )
    rates = _validate.sequence("rates", rates)
    for rate in rates:
        _validate.single_number("a rate of trials", rate, above=True, finite=True)
    if not len(rates):
        raise ValueError("rates must have a learning rate at least, as in (0.1, 0.3); got none.")
    num_trials, num_runs = len(rates), len(plan.inputs.durations)
    memory.check_fits(
        f"the durations and schedules of {num_trials} trials",
        num_trials * (memory.bytes_of_arrays(plan.inputs.durations) + memory.bytes_of_arrays(plan.schedules)),
        "Take fewer trials, units or seeds.",
    )
    which_runs = np.tile(np.arange(num_runs), num_trials)  # int[trials * runs]: all runs of a trial, then of the next
    repeated = select_runs(plan, which_runs)
    rate_of_run = np.repeat(np.asarray(rates, np.float64), num_runs)
    return repeated._replace(labels={**repeated.labels, "rate": rate_of_run}, rates=rate_of_run)


def select_runs(plan: Plan, which_runs: np.ndarray) -> Plan:
    """The plan of the runs `which_runs int[runs]` of a plan, in their order; a run may be there several times."""

    def field_of_runs(array: jax.Array) -> jax.Array:
        """These runs of an array whose first axis is that of runs."""
        return jnp.asarray(array)[which_runs]

    return plan._replace(
        inputs=jax.tree.map(field_of_runs, plan.inputs),
        labels={name: labels[which_runs] for name, labels in plan.labels.items()},
        schedules={
            name: jax.tree.map(lambda field: field[which_runs], schedule) for name, schedule in plan.schedules.items()
        },
        rates=None if plan.rates is None else plan.rates[which_runs],
    )


def best_trial(rows: Columns) -> Trial:
    """The trial that reached the target in most runs, and of those the one with the least mean seconds in them.

    The first in `rows` of several that are as good.

    Args:
      rows: `scheme`, `rate` and `reach` (seconds, inf if the target was not reached) of each run of each trial.

    Raises:
      ValueError: if there is no row.
    """
    if not len(rows["reach"]):
        raise ValueError("there must be a row for each run of each trial; got none.")
    trials_in_order = dict.fromkeys(zip(rows["scheme"].tolist(), rows["rate"].tolist(), strict=True))

    def badness(trial: tuple[str, float]) -> tuple[int, float]:
        """How many runs did not reach the target, and the mean seconds of those that did, inf if none did."""
        is_of_trial = (rows["scheme"] == trial[0]) & (rows["rate"] == trial[1])
        seconds = rows["reach"][is_of_trial]
        is_reached = np.isfinite(seconds)
        return int((~is_reached).sum()), float(seconds[is_reached].mean()) if is_reached.any() else np.inf

    return Trial(*min(trials_in_order, key=badness))
