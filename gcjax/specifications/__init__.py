"""Protocols as specifications: what their components do and guarantee, and what holds; checked on small instances.

A check explores all states of an instance, with a shortest counterexample if something does not hold:

    result = check(ssp(4, staleness=3))
    assert result.holds

A number that is out of its range is a `ValueError` in each of them.
"""

from gcjax.registry import Entry
from gcjax.specifications.alternative_codes import adaptive_coded
from gcjax.specifications.base import Action, Role, Specification
from gcjax.specifications.clocks import bsp, ssp, ssp_cached
from gcjax.specifications.decodable_rounds import Decodable, coded, coded_reduce
from gcjax.specifications.eager_sgd import eager_sgd
from gcjax.specifications.elastic import elastic_averaging
from gcjax.specifications.first_arrivals import backup_workers, k_batch_sync, k_sync
from gcjax.specifications.first_pushes import (
    decoupled_diloco,
    delay_adaptive,
    fedbuff,
    k_async,
    k_batch_async,
    staleness_aware,
)
from gcjax.specifications.groups import ad_psgd, adsp, asp, async_local_sgd, grouped, progressive_groups
from gcjax.specifications.halos import halos
from gcjax.specifications.ignored_gradients import rennala, ringmaster
from gcjax.specifications.m_sgc import m_sgc
from gcjax.specifications.members import with_members
from gcjax.specifications.model_checking import Finding, Result, check, states_per_second
from gcjax.specifications.neighbours import d_psgd, hop, prague, sgp
from gcjax.specifications.pipelined_coded import pipelined_coded
from gcjax.specifications.reachability import Exploration, Step, explore, shown
from gcjax.specifications.ringleader import ringleader
from gcjax.specifications.rounds import adacomm, diloco, local_sgd, specification_of_rounds
from gcjax.specifications.sr_sgc import sr_sgc
from gcjax.specifications.stopped_rounds import anytime_minibatch, stsyn
from gcjax.specifications.streaming_diloco import streaming_diloco
from gcjax.specifications.thresholds import dssp, psp
from gcjax.specifications.worker_busy import worker_busy, worker_busy_eager
from gcjax.specifications.worker_busy_pushes import worker_busy_pushes

TABLE: dict[str, Entry] = {
    "ad_psgd": Entry(ad_psgd, "Lian et al. 2018"),
    "adacomm": Entry(adacomm, "Wang, Joshi 2019"),
    "adaptive_coded": Entry(adaptive_coded, "Ramamoorthy et al. 2024"),
    "adsp": Entry(adsp, "Hu et al. 2020"),
    "anytime_minibatch": Entry(anytime_minibatch, "Ferdinand et al. 2019"),
    "asp": Entry(asp, "Dean et al. 2012"),
    "async_local_sgd": Entry(async_local_sgd, "Liu et al. 2024"),
    "backup_workers": Entry(backup_workers, "Chen et al. 2016"),
    "bsp": Entry(bsp, "Valiant 1990"),
    "coded": Entry(coded, "Tandon et al. 2017"),
    "coded_reduce": Entry(coded_reduce, "Reisizadeh et al. 2019"),
    "d_psgd": Entry(d_psgd, "Lian et al. 2017"),
    "decoupled_diloco": Entry(decoupled_diloco, "Douillard et al. 2026"),
    "delay_adaptive": Entry(delay_adaptive, "Koloskova et al. 2022"),
    "diloco": Entry(diloco, "Douillard et al. 2023"),
    "dssp": Entry(dssp, "Zhao et al. 2019"),
    "eager_sgd": Entry(eager_sgd, "Li et al. 2020"),
    "elastic_averaging": Entry(elastic_averaging, "Zhang et al. 2015"),
    "fedbuff": Entry(fedbuff, "Nguyen et al. 2022"),
    "grouped": Entry(grouped, "Basu et al. 2018"),
    "halos": Entry(halos, "Kim et al. 2025"),
    "hop": Entry(hop, "Luo et al. 2019"),
    "k_async": Entry(k_async, "Dutta et al. 2018"),
    "k_batch_async": Entry(k_batch_async, "Dutta et al. 2018"),
    "k_batch_sync": Entry(k_batch_sync, "Dutta et al. 2018"),
    "k_sync": Entry(k_sync, "Dutta et al. 2018"),
    "local_sgd": Entry(local_sgd, "Stich 2019"),
    "m_sgc": Entry(m_sgc, "Krishnan et al. 2023"),
    "pipelined_coded": Entry(pipelined_coded, "Su, Li 2026"),
    "prague": Entry(prague, "Luo et al. 2020"),
    "progressive_groups": Entry(progressive_groups, "Basu et al. 2018"),
    "psp": Entry(psp, "Wang et al. 2017"),
    "rennala": Entry(rennala, "Tyurin, Richtárik 2023"),
    "ringleader": Entry(ringleader, "Maranjyan, Richtárik 2026"),
    "ringmaster": Entry(ringmaster, "Maranjyan, Tyurin, Richtárik 2025"),
    "sgp": Entry(sgp, "Assran et al. 2019"),
    "sr_sgc": Entry(sr_sgc, "Krishnan et al. 2023"),
    "ssp": Entry(ssp, "Ho et al. 2013"),
    "ssp_cached": Entry(ssp_cached, "Ho et al. 2013"),
    "staleness_aware": Entry(staleness_aware, "Zhang et al. 2016"),
    "streaming_diloco": Entry(streaming_diloco, "Douillard et al. 2025"),
    "stsyn": Entry(stsyn, "Zhu, Zhang, Wang 2022"),
    "worker_busy": Entry(worker_busy, "Yang et al. 2024"),
    "worker_busy_eager": Entry(worker_busy_eager, "Yang et al. 2024, code"),
    "worker_busy_pushes": Entry(worker_busy_pushes, "Yang et al. 2024, code"),
}

__all__ = [
    "TABLE",
    "Action",
    "Decodable",
    "Exploration",
    "Finding",
    "Result",
    "Role",
    "Specification",
    "Step",
    "ad_psgd",
    "adacomm",
    "adaptive_coded",
    "adsp",
    "anytime_minibatch",
    "asp",
    "async_local_sgd",
    "backup_workers",
    "bsp",
    "check",
    "coded",
    "coded_reduce",
    "d_psgd",
    "decoupled_diloco",
    "delay_adaptive",
    "diloco",
    "dssp",
    "eager_sgd",
    "elastic_averaging",
    "explore",
    "fedbuff",
    "grouped",
    "halos",
    "hop",
    "k_async",
    "k_batch_async",
    "k_batch_sync",
    "k_sync",
    "local_sgd",
    "m_sgc",
    "pipelined_coded",
    "prague",
    "progressive_groups",
    "psp",
    "rennala",
    "ringleader",
    "ringmaster",
    "sgp",
    "shown",
    "specification_of_rounds",
    "sr_sgc",
    "ssp",
    "ssp_cached",
    "staleness_aware",
    "states_per_second",
    "streaming_diloco",
    "stsyn",
    "with_members",
    "worker_busy",
    "worker_busy_eager",
    "worker_busy_pushes",
]
