"""What `gcjax trace fit --json` prints."""

from typing import Any

from gcjax.stragglers.traces.fitting import Fit, Fits
from gcjax.stragglers.traces.fitting.calls import Call


def fits_json(fits: Fits) -> dict[str, Any]:
    """All models, as `gcjax.stragglers.Fits` has them."""
    return {
        "verdict": fits.verdict,
        "caution": fits.caution,
        "steps": {"fitted": fits.num_fitted_steps, "held_out": fits.num_held_out_steps},
        "workers": fits.workers,
        "zeros_left_out": fits.num_zero_times,
        "missing_steps": fits.num_missing_steps,
        "departures": [{"worker": worker, "step": step} for worker, step in fits.departures],
        "is_relative": fits.is_relative,
        "draws": fits.num_draws,
        "measured": fits.measured_statistics._asdict(),
        "slow": dict(zip(("fitted", "held_out"), fits.slow_probabilities, strict=True)),
        "times": [_fit_json(fit, fits) for fit in fits.duration_fits],
        "patterns": [_fit_json(fit, fits) for fit in fits.pattern_fits],
        "others": [_fit_json(fit, fits) for fit in fits.fits_without_likelihood],
        "not_fitted": fits.not_fitted,
    }


def _fit_json(fit: Fit, fits: Fits) -> dict[str, Any]:
    """One of the fitted models: its call, its scores on held-out steps, the statistics of what it simulates, or null.

    Scores are in nats a step and worker; `behind`: by how much the first of the ranking is better; `outside`: which
    statistics were measured below or above all that was simulated.
    """
    smallest, largest = fit.simulated_range or (None, None)
    return {
        "name": fit.name,
        "model": _call_json(fit.call),
        "num_parameters": fit.num_parameters,
        "held_out": fit.held_out_score and fit.held_out_score._asdict(),
        "behind": fit.score_behind_best and fit.score_behind_best._asdict(),
        "simulated": fit.simulated_statistics and fit.simulated_statistics._asdict(),
        "smallest": smallest and smallest._asdict(),
        "largest": largest and largest._asdict(),
        "outside": list(fit.statistics_outside(fits.measured_statistics)),
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
