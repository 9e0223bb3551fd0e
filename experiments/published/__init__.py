"""Comparisons that papers publish, repeated where their settings are public.

gcjax run configs/published/ringmaster.gin
gcjax run configs/published/dylu.gin
gcjax run configs/published/ringleader.gin
"""

from experiments.published.comparison import published
from experiments.published.heterogeneous import digits_of_clients, ia2sgd, malenia
from experiments.published.mixture import gaussian_mixture
from experiments.published.quadratic import half_normal_delays, tridiagonal_quadratic

__all__ = [
    "digits_of_clients",
    "gaussian_mixture",
    "half_normal_delays",
    "ia2sgd",
    "malenia",
    "published",
    "tridiagonal_quadratic",
]
