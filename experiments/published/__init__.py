"""Comparisons that papers publish, repeated where their settings are public.

gcjax run configs/published/ringmaster.gin
gcjax run configs/published/dylu.gin
"""

from experiments.published.comparison import published
from experiments.published.mixture import gaussian_mixture
from experiments.published.quadratic import half_normal_delays, tridiagonal_quadratic

__all__ = ["gaussian_mixture", "half_normal_delays", "published", "tridiagonal_quadratic"]
