"""Gradient codes: what is computed twice, and how the sum is decoded from what has arrived."""

from gcjax.codes.assignments import cyclic, from_graph, from_matrix, random_regular, repetition
from gcjax.codes.base import (
    Assignment,
    Coding,
    GradientCode,
    Holders,
    chunk_coefficients,
    holders,
    residual,
)
from gcjax.codes.fixed import fixed_code
from gcjax.codes.ordering import order_chunks, q_max, q_max_bound, random_order
from gcjax.codes.partial import partial
from gcjax.codes.replication import cyclic_repetition, fractional_repetition
from gcjax.codes.stopping import (
    StoppingRule,
    all_workers,
    completion_time,
    deadline,
    decodable,
    fastest,
    first_of,
)
from gcjax.codes.uncoded import ignore_stragglers, uncoded
from gcjax.registry import Entry

ASSIGNMENTS: dict[str, Entry] = {
    "cyclic": Entry(cyclic, "Tandon et al. 2017"),
    "from_graph": Entry(from_graph, "Raviv et al. 2018"),
    "from_matrix": Entry(from_matrix, ""),
    "order_chunks": Entry(order_chunks, "Ramamoorthy et al. 2024"),
    "random_order": Entry(random_order, "Ramamoorthy et al. 2024"),
    "random_regular": Entry(random_regular, "Raviv et al. 2018"),
    "repetition": Entry(repetition, "Tandon et al. 2017"),
}

TABLE: dict[str, Entry] = {
    "cyclic_repetition": Entry(cyclic_repetition, "Tandon et al. 2017"),
    "fractional_repetition": Entry(fractional_repetition, "Tandon et al. 2017"),
    "ignore_stragglers": Entry(ignore_stragglers, "Chen et al. 2016"),
    "partial": Entry(partial, "Ramamoorthy et al. 2024"),
    "uncoded": Entry(uncoded, ""),
}

STOPPING: dict[str, Entry] = {
    "all_workers": Entry(all_workers, ""),
    "deadline": Entry(deadline, "Ramamoorthy et al. 2024"),
    "decodable": Entry(decodable, "Tandon et al. 2017"),
    "fastest": Entry(fastest, "Chen et al. 2016"),
    "first_of": Entry(first_of, "Ramamoorthy et al. 2024"),
}

__all__ = [
    "ASSIGNMENTS",
    "STOPPING",
    "TABLE",
    "Assignment",
    "Coding",
    "GradientCode",
    "Holders",
    "StoppingRule",
    "all_workers",
    "chunk_coefficients",
    "completion_time",
    "cyclic",
    "cyclic_repetition",
    "deadline",
    "decodable",
    "fastest",
    "first_of",
    "fixed_code",
    "fractional_repetition",
    "from_graph",
    "from_matrix",
    "holders",
    "ignore_stragglers",
    "order_chunks",
    "partial",
    "q_max",
    "q_max_bound",
    "random_order",
    "random_regular",
    "repetition",
    "residual",
    "uncoded",
]
