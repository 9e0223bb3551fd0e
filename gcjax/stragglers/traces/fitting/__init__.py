"""Straggler models fitted to measured times."""

from gcjax.stragglers.traces.fitting.fit import fit
from gcjax.stragglers.traces.fitting.results import Fit, Fits

__all__ = ["Fit", "Fits", "fit"]
