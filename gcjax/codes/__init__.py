"""Gradient codes: what is computed twice, and how the sum is decoded from what has arrived.

Assignments are in `gcjax.codes.assignments`, stopping rules in `gcjax.codes.stopping`, and what can be said of a code
or an assignment in `gcjax.codes.diagnostics`.
"""

from gcjax.codes import assignments, diagnostics, stopping
from gcjax.codes.alternatives import alternatives
from gcjax.codes.approximate import expander, one_step, optimal_decoding
from gcjax.codes.base import (
    Assignment,
    Coding,
    GradientCode,
    Holders,
    check_finish,
    check_progress,
    chunk_coefficients,
    holders,
)
from gcjax.codes.batch_raptor import batch_raptor
from gcjax.codes.bit_allocation import bit_allocation, quantisation_noise
from gcjax.codes.block_coordinate import block_coordinate, block_redundancies, shifted_exponential_order_seconds
from gcjax.codes.block_designs import bibd
from gcjax.codes.communication_efficient import communication_efficient
from gcjax.codes.completion import completion_time
from gcjax.codes.cyclic_mds import cyclic_mds
from gcjax.codes.error_correcting import error_correcting
from gcjax.codes.fixed import fixed_code
from gcjax.codes.graph_codes import graph_code
from gcjax.codes.heterogeneous import heterogeneous
from gcjax.codes.independent_set import independent_set
from gcjax.codes.majority import majority
from gcjax.codes.multi_message import clustered, coded_multi_message, multi_message
from gcjax.codes.partial import partial
from gcjax.codes.reed_solomon import reed_solomon
from gcjax.codes.replication import cyclic_repetition, fractional_repetition
from gcjax.codes.side_by_side import side_by_side
from gcjax.codes.stochastic import stochastic
from gcjax.codes.tree_code import tree_code
from gcjax.codes.two_part import two_part
from gcjax.codes.unbiased import unbiased
from gcjax.codes.uncoded import ignore_stragglers, uncoded
from gcjax.codes.whole import whole_workers
from gcjax.registry import Entry

TABLE: dict[str, Entry] = {
    "alternatives": Entry(alternatives, ""),
    "batch_raptor": Entry(batch_raptor, "Wang et al. 2019"),
    "bibd": Entry(bibd, "Kadhe et al. 2019"),
    "block_coordinate": Entry(block_coordinate, "Wang et al. 2022"),
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
    "independent_set": Entry(independent_set, "Su et al. 2023"),
    "majority": Entry(majority, "Chen et al. 2018"),
    "error_correcting": Entry(error_correcting, "Chen et al. 2018"),
    "multi_message": Entry(multi_message, "Ozfatura et al. 2020"),
    "one_step": Entry(one_step, "Charles et al. 2017"),
    "optimal_decoding": Entry(optimal_decoding, "Charles et al. 2017"),
    "partial": Entry(partial, "Ramamoorthy et al. 2024"),
    "reed_solomon": Entry(reed_solomon, "Halbawi et al. 2018"),
    "side_by_side": Entry(side_by_side, ""),
    "stochastic": Entry(stochastic, "Bitar et al. 2020"),
    "tree_code": Entry(tree_code, "Reisizadeh et al. 2019"),
    "two_part": Entry(two_part, "Tandon et al. 2017"),
    "unbiased": Entry(unbiased, "Song and Choi 2025"),
    "uncoded": Entry(uncoded, ""),
    "whole_workers": Entry(whole_workers, ""),
}

__all__ = [
    "TABLE",
    "Assignment",
    "Coding",
    "GradientCode",
    "Holders",
    "alternatives",
    "assignments",
    "batch_raptor",
    "bibd",
    "bit_allocation",
    "block_coordinate",
    "block_redundancies",
    "check_finish",
    "check_progress",
    "chunk_coefficients",
    "clustered",
    "coded_multi_message",
    "communication_efficient",
    "completion_time",
    "cyclic_mds",
    "cyclic_repetition",
    "diagnostics",
    "error_correcting",
    "expander",
    "fixed_code",
    "fractional_repetition",
    "graph_code",
    "heterogeneous",
    "holders",
    "ignore_stragglers",
    "independent_set",
    "majority",
    "multi_message",
    "one_step",
    "optimal_decoding",
    "partial",
    "quantisation_noise",
    "reed_solomon",
    "shifted_exponential_order_seconds",
    "side_by_side",
    "stochastic",
    "stopping",
    "tree_code",
    "two_part",
    "unbiased",
    "uncoded",
    "whole_workers",
]
