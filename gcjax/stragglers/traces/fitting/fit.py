"""All straggler models fitted to a trace by maximum likelihood, and ranked on steps that they were not fitted to.

Letters: T steps, W workers.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from gcjax import _validate
from gcjax.stragglers.traces.base import Trace, check_single_precision
from gcjax.stragglers.traces.departures import departures
from gcjax.stragglers.traces.files import as_trace
from gcjax.stragglers.traces.fitting import (
    bursts,
    failed,
    hidden,
    independent,
    patterns,
    point_masses,
    scores,
    simulations,
)
from gcjax.stragglers.traces.fitting.candidates import Candidate
from gcjax.stragglers.traces.fitting.results import Fit, Fits
from gcjax.stragglers.traces.fitting.statistics import statistics_with_failures

if TYPE_CHECKING:
    from gcjax.progress import Progress

_MIN_STEPS = 8  # in each part
_MAX_MODELS = 20  # of one sort


def fit(
    trace: str | Path | Trace | np.ndarray,
    *,
    held_out: float = 0.3,
    num_simulated_models: int = 5,
    seed: int = 0,
    progress: "Progress | None" = None,
) -> Fits:
    """Fits all straggler models to the first steps of a trace, and ranks them on the last ones.

    Each model is fitted by maximum likelihood. `markov` has hidden states, with fast units of each of the five families
    (exponential, shifted exponential, log-normal, Pareto, Weibull); its likelihood is that of the forward algorithm on
    each worker, found by expectation maximisation on the last fitted steps, up to 40,000 times (or 100 steps). It is
    fitted a second time with independent states: what is between the two is what persistence explains. `scaled` gives
    each worker a factor, `delayed` each a delay. Where workers fail (inf), the likeliest model of failures is around
    each model of times. A slow unit of the other models takes one time, so that they have no density; `bimodal`,
    `bursty`, and `markov` with such times, are fitted to who is slow when, and ranked among themselves.

    A score is the mean log-likelihood of a held-out time, given all steps before it. So that no single time that a
    model holds to be impossible decides, each gives 1 / (n + 1) of its probability to a background with heavy tails,
    where n is the number of fitted times. Intervals of 90 % are of resampled blocks of consecutive steps.

    Args:
      trace: a `Trace`, of which the seconds of computing count; or float[T, W] seconds, NaN where not measured, inf
        for a failed worker; or a file for `read_trace`.
      held_out: the share of the steps that models are ranked on, between 0 and 1.
      num_simulated_models: how many models are simulated, for their statistics: the best ones of each ranking, and as
        many of those that have no likelihood. Each takes a second or so to compile, and is simulated 20 times; 10 at
        least for more than 100,000 times, and fewer steps for more than 200,000.
      seed: of what is random: resampled blocks, simulated times.
      progress: tells a person how far it is.

    Raises:
      ValueError: if the trace is not of this form, or one of the two parts has fewer than 8 steps or no finite time, or
        times are too long or short for single precision.

    Example:
      >>> model = gcjax.stragglers.exponential(mean=2.0)
      >>> seconds = gcjax.stragglers.sample_durations(model, jax.random.key(0), num_units=200, num_workers=4)
      >>> fits = gcjax.stragglers.fit(np.asarray(seconds))
      >>> {fit.name: fit for fit in fits.duration_fits}["exponential"].gin.splitlines()[0]
      'compare.stragglers = @exponential()'
    """
    from gcjax.progress import silent  # here, since it draws and `import gcjax` is to be quick

    progress = progress or silent()
    trace = as_trace(trace)
    check_single_precision(trace.compute)
    seconds = np.where(trace.compute == 0, np.nan, trace.compute)
    num_fitted_steps = _num_fitted_steps(
        len(seconds), _validate.single_number("held_out", held_out, above=True, maximum=1.0)
    )
    fitted_seconds = _valid_part(seconds[:num_fitted_steps], "fitted")
    held_out_seconds = _valid_part(seconds[num_fitted_steps:], "held-out")
    finite_or_nan = np.where(np.isinf(fitted_seconds), np.nan, fitted_seconds)
    ranking = _Ranking(
        seconds,
        num_fitted_steps,
        _validate.integer("num_simulated_models", num_simulated_models),
        _validate.integer("seed", seed, maximum=2**32 - 1),
    )
    independent_candidates = _candidates_with_progress(
        independent.candidates(finite_or_nan), "independent times", progress.portion(0.0, 0.05)
    )
    hidden_candidates = _candidates_with_progress(
        hidden.candidates(finite_or_nan), "hidden states", progress.portion(0.05, 0.6)
    )
    pattern_candidates = _candidates_with_progress(
        patterns.candidates(finite_or_nan), "patterns", progress.portion(0.6, 0.62)
    )
    burst_candidates = _candidates_with_progress(
        bursts.candidates(finite_or_nan), "bursts", progress.portion(0.62, 0.65)
    )
    progress.update("likelihoods, simulated times", 0.65)
    return Fits(
        duration_fits=ranking.ranked_fits(
            _candidates_with_failures(fitted_seconds, independent_candidates + hidden_candidates)
        ),
        pattern_fits=ranking.ranked_fits(pattern_candidates + burst_candidates, background_density=0.5),
        fits_without_likelihood=ranking.fits_without_likelihood(list(point_masses.candidates(finite_or_nan))),
        not_fitted=_reasons_not_fitted(fitted_seconds, held_out_seconds),
        measured_statistics=statistics_with_failures(seconds),
        workers=trace.workers,
        num_fitted_steps=num_fitted_steps,
        num_held_out_steps=len(seconds) - num_fitted_steps,
        num_zero_times=int((trace.compute == 0).sum()),
        is_relative=trace.is_relative,
        num_draws=simulations.num_draws(*seconds.shape),
        departures=departures(trace.compute, trace.steps, trace.workers),
        slow_probabilities=(
            statistics_with_failures(fitted_seconds).slow_probability,
            statistics_with_failures(held_out_seconds).slow_probability,
        ),
        num_missing_steps=trace.reading.num_missing_steps,
    )


def _num_fitted_steps(num_steps: int, held_out_share: float) -> int:
    """How many of the steps are fitted to: all but the last `held_out_share` of them.

    Raises `ValueError` if there are too few of either.
    """
    num_fitted_steps = num_steps - math.ceil(held_out_share * num_steps)
    if min(num_fitted_steps, num_steps - num_fitted_steps) < _MIN_STEPS:
        raise ValueError(
            f"models must be fitted to at least {_MIN_STEPS} steps and ranked on as many; got {num_fitted_steps} and "
            f"{num_steps - num_fitted_steps} of {num_steps} steps. Measure more steps, or change "
            f"held_out={held_out_share:g}."
        )
    return num_fitted_steps


def _valid_part(seconds: np.ndarray, name: str) -> np.ndarray:
    """The part `seconds float64[T, W]` of a trace; a `ValueError` if it has nothing to fit to or to rank on."""
    if not np.isfinite(seconds).any():
        raise ValueError(f"the {name} steps of a trace must have a time above 0 that is finite; they have none.")
    return seconds


def _candidates_with_progress(candidates: Iterable[Candidate], label: str, progress: "Progress") -> list[Candidate]:
    """The models, each of which is fitted when its turn comes; `progress` hears of each under the `label`.

    The share that is done is a guess: how many there will be is not known, `_MAX_MODELS` or so.
    """
    progress.update(label, 0.0)
    candidates_so_far = []
    for candidate in candidates:
        candidates_so_far.append(candidate)
        progress.update(label, min(1.0, len(candidates_so_far) / _MAX_MODELS), candidate.name)
    return candidates_so_far


def _candidates_with_failures(fitted_seconds: np.ndarray, candidates: list[Candidate]) -> list[Candidate]:
    """The models of times, with the likeliest model of failures around each; as they are if nobody failed.

    After them the likeliest model of times comes again, with each of the other models of failures around it.
    `fitted_seconds` are float64[T, W], inf for a failed worker, NaN where not measured.
    """
    failure_models = failed.failure_models(fitted_seconds)
    if not failure_models:
        return candidates
    finite_or_nan = np.where(np.isinf(fitted_seconds), np.nan, fitted_seconds)
    mean_log_likelihoods = [
        float(np.nanmean(candidate.log_likelihood(finite_or_nan)))
        for candidate in candidates
        if candidate.log_likelihood
    ]
    likeliest_candidate = candidates[int(np.argmax(mean_log_likelihoods))]
    likeliest_failures, *other_failures = failure_models
    with_likeliest_failures = [likeliest_failures.candidate_around(candidate) for candidate in candidates]
    return with_likeliest_failures + [failures.candidate_around(likeliest_candidate) for failures in other_failures]


class _Ranking:
    """Scores of models on the steps of a trace that they were not fitted to."""

    def __init__(self, seconds: np.ndarray, num_fitted_steps: int, num_simulated_models: int, seed: int) -> None:
        """Ranks models of `seconds float64[T, W]` on the rows after the first `num_fitted_steps`, which were fitted.

        The best `num_simulated_models` are simulated; `seed` draws these simulations and the bootstraps.
        """
        self._seconds, self._num_fitted_steps = seconds, num_fitted_steps
        self._num_simulated_models = num_simulated_models
        fitted_seconds, held_out_seconds = seconds[:num_fitted_steps], seconds[num_fitted_steps:]
        num_fitted_times = int((~np.isnan(fitted_seconds)).sum())
        self._background_share = 1 / (1 + num_fitted_times)
        self._block_key, self._sample_key = jax.random.split(jax.random.key(seed))
        fitted_median = float(np.median(fitted_seconds[np.isfinite(fitted_seconds)]))
        self._background_density = scores.background_density(held_out_seconds, fitted_median)

    def fits_without_likelihood(self, candidates: Sequence[Candidate]) -> tuple[Fit, ...]:
        """Models without a likelihood."""
        return tuple(self._fit_without_scores(candidate, index) for index, candidate in enumerate(candidates))

    def ranked_fits(self, candidates: Sequence[Candidate], background_density: float | None = None) -> tuple[Fit, ...]:
        """The fits of the candidates, the one with the largest mean log-density of held-out times first.

        `background_density`: 0.5 for models of who is slow when, as a unit is slow or fast; that of the times if None.
        """
        density = self._background_density if background_density is None else np.asarray(background_density)
        log_densities = [self._log_densities(candidate, density) for candidate in candidates]
        ranking = sorted(range(len(log_densities)), key=lambda index: -float(np.nanmean(log_densities[index])))
        best_log_densities = log_densities[ranking[0]]
        return tuple(
            self._fit_without_scores(candidates[index], rank)._replace(
                held_out_score=scores.score(log_densities[index], self._block_key),
                score_behind_best=scores.score(best_log_densities - log_densities[index], self._block_key),
            )
            for rank, index in enumerate(ranking)
        )

    def _log_densities(self, candidate: Candidate, background_density: np.ndarray) -> np.ndarray:
        """float64[held-out steps, W]: the logarithm of the density of each time, given all before; NaN without a time.

        A share of the density is `background_density`, which is float64[held-out steps, W] or a number.
        """
        assert candidate.log_likelihood is not None
        log_likelihoods = candidate.log_likelihood(self._seconds)[self._num_fitted_steps :]
        return scores.with_background(log_likelihoods, background_density, self._background_share)

    def _fit_without_scores(self, candidate: Candidate, rank: int) -> Fit:
        """The candidate as a `Fit` without scores; with statistics of simulations if its rank (0: best) is low."""
        simulated = None
        if rank < self._num_simulated_models:
            simulated = simulations.simulated(candidate.call.model, self._sample_key, self._seconds)
        return Fit(
            name=candidate.name,
            call=candidate.call,
            num_parameters=candidate.num_parameters,
            held_out_score=None,
            score_behind_best=None,
            simulated_statistics=simulated and simulated.median,
            note=candidate.note,
            simulated_range=simulated and (simulated.smallest, simulated.largest),
        )


def _reasons_not_fitted(fitted_seconds: np.ndarray, held_out_seconds: np.ndarray) -> dict[str, str]:
    """Name of a model -> why it is not fitted to these seconds, float64[steps, W] (inf: failed, NaN: not measured)."""
    reasons = {"replay": "it is the trace itself"}
    if not np.isinf(fitted_seconds).any():
        fails_later = np.isinf(held_out_seconds).any()
        reason = "nobody failed" if not fails_later else "nobody failed in the fitted steps, but in those held out"
        reasons |= dict.fromkeys(("failed_count", "failed_probability", "failed_workers"), reason)
    else:
        if np.isnan(fitted_seconds).any():
            reasons["failed_count"] = "not every worker was measured in every step"
        if failed.anybody_comes_back(fitted_seconds):
            reasons["failed_workers"] = "a worker that had failed came back"
    finite_seconds = fitted_seconds[np.isfinite(fitted_seconds)]
    shortest, longest = finite_seconds.min(), finite_seconds.max()
    if shortest == longest or (shortest > 0 and np.isinf(patterns.slow_threshold(finite_seconds))):
        reasons["bursty"] = "all times are equal, so that nobody is slow"
    if fitted_seconds.shape[1] == 1:
        reasons |= dict.fromkeys(("scaled", "delayed", "worker_speeds"), "there is one worker")
    return reasons
