"""Markov models by maximum likelihood, with states that are hidden.

A slow unit takes `slowdown` times as long as a fast one, whose time is of one of the families. Of a large trace the
last steps are fitted, 40,000 times or 100 steps.

Letters: T steps, W workers.
"""

from collections.abc import Iterator

import numpy as np

from gcjax.stragglers.traces.fitting.calls import call
from gcjax.stragglers.traces.fitting.candidates import Candidate
from gcjax.stragglers.traces.fitting.chains import Chain, mixture_log_density, slow_given_past
from gcjax.stragglers.traces.fitting.expectation import ModelKind, Parameters, fitted_parameters, log_densities
from gcjax.stragglers.traces.fitting.families import FAMILIES

_MAX_TIMES, _MIN_STEPS = 40_000, 100  # that are fitted


def candidates(seconds: np.ndarray) -> Iterator[Candidate]:
    """All Markov models, fitted to float64[T, W] finite seconds above 0, NaN where not measured."""
    has_several_workers = seconds.shape[1] > 1
    for family in FAMILIES.values():
        for is_scaled in (False, True) if has_several_workers else (False,):
            for has_memory in (True, False):
                yield hidden_candidate(ModelKind(family, is_scaled, has_memory), seconds)


def hidden_candidate(kind: ModelKind, seconds: np.ndarray) -> Candidate:
    """The Markov model of one kind, fitted to float64[T, W] seconds, NaN where not measured."""
    parameters = _with_slow_states(fitted_parameters(kind, _last_steps(seconds)))
    probability, persistence = parameters.chain

    def log_likelihood(times: np.ndarray) -> np.ndarray:
        """float64[T, W]: the log-likelihood of each time, given those of its worker before it; NaN where not measured.

        Without memory these say nothing: every unit is slow with the same `probability`.
        """
        log_density_fast, log_density_slow = log_densities(kind, parameters, times)
        slow_probability = (
            slow_given_past(log_density_fast, log_density_slow, parameters.chain) if kind.has_memory else probability
        )
        return mixture_log_density(log_density_fast, log_density_slow, slow_probability)

    median_scale = np.median(parameters.scale)
    base = kind.family.call(median_scale, parameters.shape)
    model = call("markov", probability=probability, persistence=persistence, slowdown=parameters.slowdown, base=base)
    if kind.is_scaled:
        model = call("scaled", model=model, factor=parameters.scale / median_scale)
    num_scales = len(parameters.scale) if kind.is_scaled else 1
    num_of_chain = 1 + kind.has_memory
    num_parameters = num_of_chain + 1 + kind.family.num_shapes + num_scales  # one is the slowdown
    return Candidate(model, num_parameters, log_likelihood, suffix="" if kind.has_memory else ", no memory")


def _last_steps(seconds: np.ndarray) -> np.ndarray:
    """The last steps of float64[T, W] that EM takes; all of them if nothing was measured in those."""
    last_steps = seconds[-max(_MIN_STEPS, _MAX_TIMES // seconds.shape[1]) :]
    return seconds if np.isnan(last_steps).all() else last_steps


def _with_slow_states(parameters: Parameters) -> Parameters:
    """The same model, with states renamed if the slow one is the faster: the slowdown is then 1 or more."""
    is_slow_slower = parameters.slowdown >= 1
    if is_slow_slower:
        return parameters
    # The slow state is now what was the fast one, which stays with 1 - P(slow | fast before).
    chain = Chain(probability=1 - parameters.chain.probability, persistence=1 - parameters.chain.enter_probability)
    scale = parameters.scale * parameters.slowdown  # of units that are now the fast ones
    return parameters._replace(chain=chain, scale=scale, slowdown=1 / parameters.slowdown)
