"""Synchronisation protocols: who waits for whom. Durations in, a schedule out.

What a protocol of one's own is written with is in `gcjax.protocols.simulation`.
"""

from gcjax.mixing_matrices import MixingMatrix, metropolis_weights
from gcjax.protocols import simulation
from gcjax.protocols.ad_psgd import ad_psgd
from gcjax.protocols.adacomm import adacomm
from gcjax.protocols.adaptive_coded import adaptive_coded, used_candidate
from gcjax.protocols.adsp import adsp
from gcjax.protocols.anytime import anytime_minibatch
from gcjax.protocols.async_local_sgd import async_local_sgd
from gcjax.protocols.base import LocalWork, LossFeedback, Mixing, Observed, Protocol
from gcjax.protocols.bsp import bsp
from gcjax.protocols.coded import coded
from gcjax.protocols.coded_reduce import coded_reduce
from gcjax.protocols.conformance.events import Events, events
from gcjax.protocols.conformance.trace_validation import Conformance, check
from gcjax.protocols.d_psgd import d_psgd
from gcjax.protocols.decoupled_diloco import decoupled_diloco
from gcjax.protocols.delay_adaptive import delay_adaptive
from gcjax.protocols.delayed_nesterov import delayed_nesterov
from gcjax.protocols.dssp import dssp
from gcjax.protocols.eager_sgd import eager_sgd
from gcjax.protocols.elastic import elastic_averaging
from gcjax.protocols.fedbuff import fedbuff
from gcjax.protocols.grouped import grouped
from gcjax.protocols.groups import GroupServers, contiguous_groups, groups_by_speed, random_groups
from gcjax.protocols.halos import halos
from gcjax.protocols.hop import hop
from gcjax.protocols.k_sync import backup_workers, k_async, k_batch_async, k_batch_sync, k_sync
from gcjax.protocols.local_sgd import diloco, local_sgd
from gcjax.protocols.m_sgc import m_sgc
from gcjax.protocols.observed_rounds import Estimates, least_mean_seconds
from gcjax.protocols.pipelined_coded import pipelined_coded
from gcjax.protocols.prague import prague
from gcjax.protocols.progressive import progressive_groups
from gcjax.protocols.psp import psp
from gcjax.protocols.rennala import rennala
from gcjax.protocols.ringleader import ringleader
from gcjax.protocols.ringmaster import ringmaster
from gcjax.protocols.schedule import Commits, Schedule, Timeline, commits, record, truncate
from gcjax.protocols.sgp import sgp
from gcjax.protocols.sr_sgc import sr_sgc
from gcjax.protocols.ssp import asp, ssp
from gcjax.protocols.staleness_aware import staleness_aware
from gcjax.protocols.streaming_diloco import streaming_diloco
from gcjax.protocols.stsyn import stsyn
from gcjax.protocols.worker_busy import worker_busy
from gcjax.registry import Entry

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
    "staleness_aware": Entry(staleness_aware, "Zhang et al. 2016"),
    "streaming_diloco": Entry(streaming_diloco, "Douillard et al. 2025"),
    "stsyn": Entry(stsyn, "Zhu, Zhang, Wang 2022"),
    "worker_busy": Entry(worker_busy, "Yang et al. 2024"),
}

GROUPS: dict[str, Entry] = {
    "contiguous_groups": Entry(contiguous_groups),
    "groups_by_speed": Entry(groups_by_speed),
    "random_groups": Entry(random_groups),
}

__all__ = [
    "GROUPS",
    "TABLE",
    "Commits",
    "Conformance",
    "Estimates",
    "Events",
    "GroupServers",
    "LocalWork",
    "LossFeedback",
    "Mixing",
    "MixingMatrix",
    "Observed",
    "Protocol",
    "Schedule",
    "Timeline",
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
    "commits",
    "contiguous_groups",
    "d_psgd",
    "decoupled_diloco",
    "delay_adaptive",
    "delayed_nesterov",
    "diloco",
    "dssp",
    "eager_sgd",
    "elastic_averaging",
    "events",
    "fedbuff",
    "grouped",
    "groups_by_speed",
    "halos",
    "hop",
    "k_async",
    "k_batch_async",
    "k_batch_sync",
    "k_sync",
    "least_mean_seconds",
    "local_sgd",
    "m_sgc",
    "metropolis_weights",
    "pipelined_coded",
    "prague",
    "progressive_groups",
    "psp",
    "random_groups",
    "record",
    "rennala",
    "ringleader",
    "ringmaster",
    "sgp",
    "simulation",
    "sr_sgc",
    "ssp",
    "staleness_aware",
    "streaming_diloco",
    "stsyn",
    "truncate",
    "used_candidate",
    "worker_busy",
]
