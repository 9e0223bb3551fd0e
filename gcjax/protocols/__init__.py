"""Synchronisation protocols: who waits for whom. Durations in, a schedule out.

What a protocol of one's own is written with is in `gcjax.protocols.simulation`.
"""

from gcjax import specifications
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
from gcjax.protocols.observed_losses import mean_loss, window_of
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

TABLE: dict[str, Entry] = {  # each has the specification of its name, of the same paper
    protocol.__name__: Entry(protocol, specifications.TABLE[protocol.__name__].paper)
    for protocol in (
        ad_psgd,
        adacomm,
        adaptive_coded,
        adsp,
        anytime_minibatch,
        asp,
        async_local_sgd,
        backup_workers,
        bsp,
        coded,
        coded_reduce,
        d_psgd,
        decoupled_diloco,
        delay_adaptive,
        diloco,
        dssp,
        eager_sgd,
        elastic_averaging,
        fedbuff,
        grouped,
        halos,
        hop,
        k_async,
        k_batch_async,
        k_batch_sync,
        k_sync,
        local_sgd,
        m_sgc,
        pipelined_coded,
        prague,
        progressive_groups,
        psp,
        rennala,
        ringleader,
        ringmaster,
        sgp,
        sr_sgc,
        ssp,
        staleness_aware,
        streaming_diloco,
        stsyn,
        worker_busy,
    )
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
    "mean_loss",
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
    "window_of",
    "worker_busy",
]
