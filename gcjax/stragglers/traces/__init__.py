"""Measured times: files of them, what they say, and a straggler model that replays them."""

from gcjax.stragglers.traces.base import Reading, Trace
from gcjax.stragglers.traces.description import Description, describe
from gcjax.stragglers.traces.files import read_trace, write_trace
from gcjax.stragglers.traces.replay import replay

__all__ = ["Description", "Reading", "Trace", "describe", "read_trace", "replay", "write_trace"]
