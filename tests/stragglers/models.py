"""One model of every kind, for the tests that hold for all of them."""

import jax.numpy as jnp

from gcjax import stragglers

NUM_WORKERS = 5

# name -> factory of a model from one parameter, which may be traced.
MODELS = {
    "bimodal": lambda x: stragglers.bimodal(fast=1.0, slow=x + 1, probability=0.3),
    "bursty": lambda x: stragglers.bursty(base=0.1, slowdown=x + 1, burst=2, window=4, max_slow=3, probability=0.5),
    "constant": lambda x: stragglers.constant(seconds=x * jnp.arange(1.0, 1.0 + NUM_WORKERS)),
    "delayed": lambda x: stragglers.delayed(stragglers.exponential(), seconds=x, workers=(0, 2)),
    "exponential": lambda x: stragglers.exponential(mean=x),
    "failed_count": lambda x: stragglers.failed_count(stragglers.exponential(mean=x), count=2, period=3),
    "failed_probability": lambda x: stragglers.failed_probability(
        stragglers.exponential(), probability=x / 4, forever=True
    ),
    "failed_workers": lambda x: stragglers.failed_workers(
        stragglers.exponential(mean=x), workers=(1, 3), latest_onset=6
    ),
    "lognormal": lambda x: stragglers.lognormal(median=1.5, sigma=x),
    "markov": lambda x: stragglers.markov(
        probability=x / 4, persistence=0.9, slowdown=3.0, base=stragglers.exponential()
    ),
    "pareto": lambda x: stragglers.pareto(minimum=x, shape=2.5),
    "replay": lambda x: stragglers.replay(trace=x * jnp.arange(1.0, 1.0 + 3 * NUM_WORKERS).reshape(3, NUM_WORKERS)),
    "scaled": lambda x: stragglers.scaled(stragglers.exponential(), factor=x, workers=(0, 2)),
    "shifted_exponential": lambda x: stragglers.shifted_exponential(shift=0.5, mean=x),
    "weibull": lambda x: stragglers.weibull(scale=1.5, shape=x),
    "worker_speeds": lambda x: stragglers.worker_speeds(stragglers.exponential(mean=x)),
}
