"""What `gcjax trace fit --json` prints."""

from typing import Any

from gcjax.stragglers.traces.fitting import Fit, Fits
from gcjax.stragglers.traces.fitting.calls import Call
from gcjax.stragglers.traces.fitting.statistics import StatisticsWithFailures


def fits_json(fits: Fits) -> dict[str, Any]:
    """All models, as `gcjax.stragglers.Fits` has them."""
    return {
        "verdict": fits.verdict,
        "steps": {"fitted": fits.num_fitted_steps, "held_out": fits.num_held_out_steps},
        "workers": fits.workers,
        "zeros_left_out": fits.num_zero_times,
        "is_relative": fits.is_relative,
        "measured": _statistics_json(fits.measured_statistics),
        "times": list(map(_fit_json, fits.duration_fits)),
        "patterns": list(map(_fit_json, fits.pattern_fits)),
        "others": list(map(_fit_json, fits.fits_without_likelihood)),
        "not_fitted": fits.not_fitted,
    }


def _fit_json(fit: Fit) -> dict[str, Any]:
    """One fitted model: its call, its scores on held-out steps and the statistics of what it simulates, or null.

    Scores are in nats a step and worker; `behind`: by how much the first of the ranking is better.
    """
    return {
        "name": fit.name,
        "model": _call_json(fit.call),
        "num_parameters": fit.num_parameters,
        "held_out": fit.held_out_score and fit.held_out_score._asdict(),
        "behind": fit.score_behind_best and fit.score_behind_best._asdict(),
        "simulated": None if fit.simulated_statistics is None else _statistics_json(fit.simulated_statistics),
        "note": fit.note,
        "gin": fit.gin,
    }


def _call_json(call: Call) -> dict[str, Any]:
    """A factory and its arguments, of which some are factories with arguments."""
    arguments = {
        name: _call_json(argument) if isinstance(argument, Call) else argument
        for name, argument in call.arguments.items()
    }
    return {"factory": call.name, "arguments": arguments}


def _statistics_json(statistics: StatisticsWithFailures) -> dict[str, float]:
    """The statistics of measured or simulated times: median in seconds, ratios to it, probabilities of slow units."""
    return {
        "median": statistics.median,
        "tail": statistics.p99_over_median,
        "slow": statistics.slow_probability,
        "slow_again": statistics.slow_again_probability,
        "slowest": statistics.slowest_over_median,
    }
