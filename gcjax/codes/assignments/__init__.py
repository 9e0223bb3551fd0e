"""Assignments: which worker holds which chunks, and in which order it processes them."""

from gcjax.codes.assignments.bernoulli import bernoulli
from gcjax.codes.assignments.block_designs import block_design
from gcjax.codes.assignments.conversions import edges, from_graph, from_matrix
from gcjax.codes.assignments.pairwise_balanced import pairwise_balanced
from gcjax.codes.assignments.proportional import proportional
from gcjax.codes.assignments.regular import cyclic, random_regular, repetition
from gcjax.codes.ordering.known_speeds import order_by_speed
from gcjax.codes.ordering.worst_case import order_chunks, random_order
from gcjax.registry import Entry

TABLE: dict[str, Entry] = {
    "bernoulli": Entry(bernoulli, "Charles et al. 2017"),
    "block_design": Entry(block_design, "Kadhe et al. 2019"),
    "cyclic": Entry(cyclic, "Tandon et al. 2017"),
    "edges": Entry(edges, "Glasgow and Wootters 2021"),
    "from_graph": Entry(from_graph, "Raviv et al. 2018"),
    "from_matrix": Entry(from_matrix, ""),
    "order_by_speed": Entry(order_by_speed, ""),
    "order_chunks": Entry(order_chunks, "Ramamoorthy et al. 2024"),
    "pairwise_balanced": Entry(pairwise_balanced, "Bitar et al. 2020"),
    "proportional": Entry(proportional, "Wang et al. 2019"),
    "random_order": Entry(random_order, "Ramamoorthy et al. 2024"),
    "random_regular": Entry(random_regular, "Raviv et al. 2018"),
    "repetition": Entry(repetition, "Tandon et al. 2017"),
}

__all__ = [
    "TABLE",
    "bernoulli",
    "block_design",
    "cyclic",
    "edges",
    "from_graph",
    "from_matrix",
    "order_by_speed",
    "order_chunks",
    "pairwise_balanced",
    "proportional",
    "random_order",
    "random_regular",
    "repetition",
]
