"""What a trace says: who is slow, since when, and what it costs."""

from gcjax.stragglers.traces.description.base import Description, describe

__all__ = ["Description", "describe"]
