"""Which scheme would win how much back of the time that a job's stragglers cost."""

from gcjax.advice.advise import advise
from gcjax.advice.base import Advice, Estimate, Scheme, SchemeAdvice
from gcjax.advice.figure import write_figure
from gcjax.advice.schemes import default_schemes

__all__ = ["Advice", "Estimate", "Scheme", "SchemeAdvice", "advise", "default_schemes", "write_figure"]
