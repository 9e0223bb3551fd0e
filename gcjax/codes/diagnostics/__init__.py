"""What can be said of a code or an assignment: rounding, errors in closed form, how good a processing order is."""

from gcjax.codes.base import residual
from gcjax.codes.diagnostics.graphs import expander_bound, graph_error
from gcjax.codes.diagnostics.rounding import Conditioning, condition_number, conditioning
from gcjax.codes.ordering.known_speeds import min_completion_time
from gcjax.codes.ordering.worst_case import Ordering, ordering_gap, q_max, q_max_bound

__all__ = [
    "Conditioning",
    "Ordering",
    "condition_number",
    "conditioning",
    "expander_bound",
    "graph_error",
    "min_completion_time",
    "ordering_gap",
    "q_max",
    "q_max_bound",
    "residual",
]
