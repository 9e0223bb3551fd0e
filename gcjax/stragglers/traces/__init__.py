"""Measured times: files of them, a straggler model that replays them, and models fitted to them."""

from gcjax.stragglers.traces.base import Reading, Trace
from gcjax.stragglers.traces.files import read_trace, write_trace
from gcjax.stragglers.traces.fitting import Fit, Fits, fit
from gcjax.stragglers.traces.replay import replay

__all__ = ["Fit", "Fits", "Reading", "Trace", "fit", "read_trace", "replay", "write_trace"]
