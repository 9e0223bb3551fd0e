"""Measured times: files of them, what they say, models fitted to them, and a straggler model that replays them."""

from gcjax.stragglers.traces.base import Reading, Trace
from gcjax.stragglers.traces.description import Description, describe
from gcjax.stragglers.traces.files import read_trace, write_trace
from gcjax.stragglers.traces.fitting import Fit, Fits, fit
from gcjax.stragglers.traces.replay import replay

__all__ = ["Description", "Fit", "Fits", "Reading", "Trace", "describe", "fit", "read_trace", "replay", "write_trace"]
