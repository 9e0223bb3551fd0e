"""What fitting gives: models in the order of how well they foretell what they have not seen."""

import math
from typing import NamedTuple

from gcjax.stragglers.base import StragglerModel
from gcjax.stragglers.traces.fitting.calls import Call
from gcjax.stragglers.traces.fitting.scores import Score
from gcjax.stragglers.traces.fitting.statistics import StatisticsWithFailures

_MAX_RIVALS = 3  # that are named in the verdict
_NO_DIFFERENCE = 1e-6
"""Nats for each time, below which a lead may be rounding."""
_NO_RATIO = 1e-2
"""Statistics that differ by less than this share of them count as equal: tables show three digits."""
_MIN_SLOW_UNITS, _FEW_SLOW_UNITS = 3, 0.2
"""Where so many slow units are to be expected, and fewer than this share of them are there, they are too few."""


class Fit(NamedTuple):
    """A fitted model.

    Attributes:
      name: the factories, as in `scaled(markov(weibull))`, and what else tells two models apart.
      call: the factory with its parameters.
      num_parameters: numbers that were fitted.
      held_out_score: log-likelihood of the held-out steps, in nats a step and worker; None if the model has none.
      score_behind_best: by how much the first of the ranking is better, and the interval of this difference; None as
        above.
      simulated_statistics: of times that the model makes, to hold against those of the trace: the median over several
        draws; None if none were made.
      note: what a reader must know; often empty.
      simulated_range: the smallest and the largest of these statistics over the draws; None as above.
    """

    name: str
    call: Call
    num_parameters: int
    held_out_score: Score | None
    score_behind_best: Score | None
    simulated_statistics: StatisticsWithFailures | None
    note: str
    simulated_range: tuple[StatisticsWithFailures, StatisticsWithFailures] | None = None

    @property
    def model(self) -> StragglerModel:
        """The model, for `sample_durations`."""
        return self.call.model

    @property
    def gin(self) -> str:
        """Lines of a config file with which `compare` draws its durations from the model."""
        return "\n".join([f"compare.stragglers = @{self.call.gin_name}()", *self.call.gin_lines()])

    @property
    def is_surely_behind(self) -> bool:
        """Whether it is worse than the first of the ranking beyond doubt: the interval of the difference is above 0.

        Beyond rounding, that is, also for models that say the same in other words.
        """
        return self.score_behind_best is not None and self.score_behind_best.low > _NO_DIFFERENCE

    def statistics_outside(self, measured: StatisticsWithFailures) -> tuple[str, ...]:
        """Names of the statistics that were measured below or above all that the model made, beyond rounding.

        No names if nothing was simulated; not that of a number that no draw has, or the trace has not (NaN).
        """
        if self.simulated_range is None:
            return ()
        smallest, largest = self.simulated_range
        return tuple(
            name
            for name, low, value, high in zip(measured._fields, smallest, measured, largest, strict=True)
            if value < low * (1 - _NO_RATIO) or value > high * (1 + _NO_RATIO)
        )


class Fits(NamedTuple):
    """All models fitted to a trace.

    Attributes:
      duration_fits: models of the durations with a density, the best first, by the likelihood of the held-out times.
      pattern_fits: models whose times are one of two, the best first, by that of who is slow when in the held-out
        steps.
      fits_without_likelihood: models that have no likelihood, with the values that come nearest.
      not_fitted: model -> why it is none of these.
      measured_statistics: numbers of the trace.
      workers: the names of the workers, in the order of numbers that are one a worker.
      num_fitted_steps: steps that the models were fitted to: the first ones.
      num_held_out_steps: steps by which they are ranked: the last ones.
      num_zero_times: times of 0 seconds, which are left out.
      is_relative: whether a second is not one, but the median time, as in `Trace`.
      num_draws: how often each model that has simulated statistics was simulated.
      departures: (name of the worker, first step without a time) of each that has none from there on to the end.
      slow_probabilities: P(slow) in the fitted steps, and in those held out.
      num_missing_steps: numbers between the first and the last step that no row has; steps count as consecutive.
    """

    duration_fits: tuple[Fit, ...]
    pattern_fits: tuple[Fit, ...]
    fits_without_likelihood: tuple[Fit, ...]
    not_fitted: dict[str, str]
    measured_statistics: StatisticsWithFailures
    workers: tuple[str, ...]
    num_fitted_steps: int
    num_held_out_steps: int
    num_zero_times: int
    is_relative: bool
    num_draws: int = 0
    departures: tuple[tuple[str, int], ...] = ()
    slow_probabilities: tuple[float, float] = (math.nan, math.nan)
    num_missing_steps: int = 0

    @property
    def best(self) -> Fit:
        """The model that foretells the held-out times best."""
        return self.duration_fits[0]

    @property
    def verdict(self) -> str:
        """One sentence: the best model, and which cannot be told from it."""
        rivals = [fit.name for fit in self.duration_fits[1:] if not fit.is_surely_behind]
        if not rivals:
            lead = "the intervals of its lead over all others are above 0"
            return f"Best on the held-out steps: {self.best.name}, and {lead}."
        shown_rivals, num_more = ", ".join(rivals[:_MAX_RIVALS]), len(rivals) - _MAX_RIVALS
        and_more = f" and {num_more} more" if num_more > 0 else ""
        return f"Best on the held-out steps: {self.best.name}; {shown_rivals}{and_more} cannot be told from it."

    @property
    def caution(self) -> str:
        """Why not to trust the ranking, or a study on the best model, in sentences; empty if nothing speaks against it.

        That is S measured outside of the range of S simulated, and held-out steps with hardly any slow units.
        """
        return " ".join(filter(None, [self._caution_on_slowdown(), self._caution_on_held_out_steps()]))

    def _caution_on_slowdown(self) -> str:
        """That the best model makes stragglers cost more or less than they did; empty if not, or not known."""
        if "slowdown" not in self.best.statistics_outside(self.measured_statistics):
            return ""
        assert self.best.simulated_range is not None
        low, high = (statistics.slowdown for statistics in self.best.simulated_range)
        measured = self.measured_statistics.slowdown
        return (
            f"S, the slowest over the median, is {measured:.3g} in the trace, and {low:.3g} to {high:.3g} in "
            f"{self.num_draws} simulations of {self.best.name}: a study on this fit seems to "
            f"{'understate' if measured > high else 'overstate'} what stragglers cost."
        )

    def _caution_on_held_out_steps(self) -> str:
        """That the held-out steps have far fewer slow units than those that were fitted; empty if not."""
        fitted, held_out = self.slow_probabilities
        expected_slow_units = fitted * self.num_held_out_steps * len(self.workers)
        if not (expected_slow_units >= _MIN_SLOW_UNITS and held_out < fitted * _FEW_SLOW_UNITS):
            return ""
        return (
            f"Of the held-out times {100 * held_out:.2g} % are slow, of the fitted ones {100 * fitted:.2g} %: the "
            "ranking says little of who is slow, how long, and when."
        )

    @property
    def gin(self) -> str:
        """A config file to include: the best model, and all others as comments."""
        unit = "the median time of the file" if self.is_relative else "a second"
        header_lines = [
            f"# Straggler models fitted to {self.num_fitted_steps} steps, "
            f"ranked on the {self.num_held_out_steps} steps after."
        ]
        header_lines.append(f"# The unit of time is {unit}. Numbers in brackets are one a worker, in this order:")
        header_lines.append(" ".join(f"# {', '.join(self.workers)}".splitlines()))  # a name cannot end the comment
        sections = [f"# {_title(self.best)}\n{self.best.gin}"]
        for fit in (*self.duration_fits[1:], *self.pattern_fits, *self.fits_without_likelihood):
            sections.append("\n".join(f"# {line}" for line in [_title(fit), *fit.gin.splitlines()]))
        return "\n\n".join(["\n".join(header_lines), *sections]) + "\n"


def _title(fit: Fit) -> str:
    """The name of a model, and its score on the held-out steps if it has one."""
    likelihood = "" if fit.held_out_score is None else f", {fit.held_out_score.mean:.4g} nats a step and worker"
    return f"{fit.name}{likelihood}"
