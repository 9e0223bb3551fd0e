"""Gradient codes: what is computed twice, and how the sum is decoded from what has arrived."""

from gcjax.codes.approximate import expander, expander_bound, one_step, optimal_decoding
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
from gcjax.codes.batch_raptor import batch_raptor
from gcjax.codes.bernoulli import bernoulli
from gcjax.codes.block_designs import bibd, block_design
from gcjax.codes.communication_efficient import communication_efficient
from gcjax.codes.conditioning import Conditioning, condition_number, conditioning
from gcjax.codes.cyclic_mds import cyclic_mds
from gcjax.codes.fixed import fixed_code
from gcjax.codes.graph_codes import edges, graph_code, graph_error
from gcjax.codes.heterogeneous import heterogeneous, proportional
from gcjax.codes.multi_message import clustered, coded_multi_message, multi_message
from gcjax.codes.partial import partial
from gcjax.codes.processing_order.known_speeds import least_completion_time, order_by_speed
from gcjax.codes.processing_order.worst_case import (
    Ordering,
    order_chunks,
    ordering_gap,
    q_max,
    q_max_bound,
    random_order,
)
from gcjax.codes.reed_solomon import reed_solomon
from gcjax.codes.replication import cyclic_repetition, fractional_repetition
from gcjax.codes.side_by_side import side_by_side
from gcjax.codes.stopping import (
    StoppingRule,
    all_workers,
    completion_time,
    deadline,
    decodable,
    erasure_head,
    fastest,
    first_of,
)
from gcjax.codes.two_part import two_part
from gcjax.codes.uncoded import ignore_stragglers, uncoded
from gcjax.codes.whole import whole_workers
from gcjax.registry import Entry

ASSIGNMENTS: dict[str, Entry] = {
    "bernoulli": Entry(bernoulli, "Charles et al. 2017"),
    "block_design": Entry(block_design, "Kadhe et al. 2019"),
    "cyclic": Entry(cyclic, "Tandon et al. 2017"),
    "edges": Entry(edges, "Glasgow and Wootters 2021"),
    "from_graph": Entry(from_graph, "Raviv et al. 2018"),
    "from_matrix": Entry(from_matrix, ""),
    "order_by_speed": Entry(order_by_speed, ""),
    "order_chunks": Entry(order_chunks, "Ramamoorthy et al. 2024"),
    "proportional": Entry(proportional, "Wang et al. 2019"),
    "random_order": Entry(random_order, "Ramamoorthy et al. 2024"),
    "random_regular": Entry(random_regular, "Raviv et al. 2018"),
    "repetition": Entry(repetition, "Tandon et al. 2017"),
}

TABLE: dict[str, Entry] = {
    "batch_raptor": Entry(batch_raptor, "Wang et al. 2019"),
    "bibd": Entry(bibd, "Kadhe et al. 2019"),
    "clustered": Entry(clustered, "Ozfatura et al. 2019"),
    "coded_multi_message": Entry(coded_multi_message, "Ozfatura et al. 2019"),
    "communication_efficient": Entry(communication_efficient, "Ye and Abbe 2018"),
    "cyclic_mds": Entry(cyclic_mds, "Raviv et al. 2018"),
    "cyclic_repetition": Entry(cyclic_repetition, "Tandon et al. 2017"),
    "expander": Entry(expander, "Raviv et al. 2018"),
    "fractional_repetition": Entry(fractional_repetition, "Tandon et al. 2017"),
    "graph_code": Entry(graph_code, "Glasgow and Wootters 2021"),
    "heterogeneous": Entry(heterogeneous, "Wang et al. 2019"),
    "ignore_stragglers": Entry(ignore_stragglers, "Chen et al. 2016"),
    "multi_message": Entry(multi_message, "Ozfatura et al. 2020"),
    "one_step": Entry(one_step, "Charles et al. 2017"),
    "optimal_decoding": Entry(optimal_decoding, "Charles et al. 2017"),
    "partial": Entry(partial, "Ramamoorthy et al. 2024"),
    "reed_solomon": Entry(reed_solomon, "Halbawi et al. 2018"),
    "side_by_side": Entry(side_by_side, ""),
    "two_part": Entry(two_part, "Tandon et al. 2017"),
    "uncoded": Entry(uncoded, ""),
    "whole_workers": Entry(whole_workers, ""),
}

STOPPING: dict[str, Entry] = {
    "all_workers": Entry(all_workers, ""),
    "deadline": Entry(deadline, "Ramamoorthy et al. 2024"),
    "decodable": Entry(decodable, "Tandon et al. 2017"),
    "erasure_head": Entry(erasure_head, "Wang et al. 2019"),
    "fastest": Entry(fastest, "Chen et al. 2016"),
    "first_of": Entry(first_of, "Ramamoorthy et al. 2024"),
}

__all__ = [
    "ASSIGNMENTS",
    "STOPPING",
    "TABLE",
    "Assignment",
    "Coding",
    "Conditioning",
    "GradientCode",
    "Holders",
    "Ordering",
    "StoppingRule",
    "all_workers",
    "batch_raptor",
    "bernoulli",
    "bibd",
    "block_design",
    "chunk_coefficients",
    "clustered",
    "coded_multi_message",
    "communication_efficient",
    "completion_time",
    "condition_number",
    "conditioning",
    "cyclic",
    "cyclic_mds",
    "cyclic_repetition",
    "deadline",
    "decodable",
    "edges",
    "erasure_head",
    "expander",
    "expander_bound",
    "fastest",
    "first_of",
    "fixed_code",
    "fractional_repetition",
    "from_graph",
    "from_matrix",
    "graph_code",
    "graph_error",
    "heterogeneous",
    "holders",
    "ignore_stragglers",
    "least_completion_time",
    "multi_message",
    "one_step",
    "optimal_decoding",
    "order_by_speed",
    "order_chunks",
    "ordering_gap",
    "partial",
    "proportional",
    "q_max",
    "q_max_bound",
    "random_order",
    "random_regular",
    "reed_solomon",
    "repetition",
    "residual",
    "side_by_side",
    "two_part",
    "uncoded",
    "whole_workers",
]
