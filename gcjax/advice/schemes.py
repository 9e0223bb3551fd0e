"""The schemes that are tried on a trace if nobody names others: all protocols and codes that need no task.

Their parameters are the least that does something (one straggler tolerated, one worker not waited for), or what the
papers use. Letters: W workers.
"""

import math
import warnings
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from gcjax import protocols, registry
from gcjax.advice.base import Scheme
from gcjax.advice.coded_schemes import SchemeInputs, SchemeRow, coded_rows
from gcjax.codes.diagnostics.rounding import InexactWarning

BASELINE = "bsp"

SAME_TIMES = {
    "ad_psgd": "asp, but for where messages go; neighbours average instead of a server",
    "backup_workers": "k_sync, with K = W - b",
    "cyclic_mds": "cyclic_repetition: any W - s workers decode",
    "delay_adaptive": "asp, which it weighs otherwise",
    "diloco": "local_sgd with as many local steps; its paper takes some hundreds",
    "error_correcting": "reed_solomon, whose rounds need fewer workers",
    "expander": "one_step, of which it is the case of a graph",
    "halos": "async_local_sgd within the groups, whose servers exchange while workers go on",
    "ignore_stragglers": "k_sync, with K = W - s",
    "independent_set": "one_step, which waits as long and adds up more",
    "majority": "fractional_repetition, whose groups need one worker and not most of them",
    "reed_solomon": "cyclic_repetition, with one chunk a worker",
    "staleness_aware": "k_batch_async with as many contributions, which it weighs otherwise",
    "stochastic": "one_step, with loads that are about equal",
    "unbiased": "one_step, which waits as long and weighs otherwise",
    "uncoded": "bsp",
    "whole_workers": "the code that it is given, where workers send whole loads; cyclic_repetition's do",
}
"""Protocols and codes whose times are those of another one."""

NEEDS_TASK = {
    "adacomm": "it looks at the loss",
    "adsp": "it looks at the loss",
}
"""Protocols that cannot be scheduled without training."""

PARTS = {
    "adaptive_coded": "it is given codes; all the codes are",
    "alternatives": "it is made of several codes, of which adaptive_coded uses one a round",
    "block_coordinate": "its units are blocks of the gradient, of which a trace of whole gradients says nothing",
    "coded": "it is given a code; all the codes are",
    "coded_reduce": "it is given a code, and a tree of workers",
    "side_by_side": "it is made of several codes; m_sgc is",
    "tree_code": "it is made of a code for each node of a tree",
}
"""What is tried as a part of others."""


def default_schemes(seconds: np.ndarray, *, names: Sequence[str] | None = None) -> tuple[list[Scheme], dict[str, str]]:
    """The schemes for a trace, and name -> why, for those that are left out.

    A code that does not exist for W workers is left out with the reason that its factory gives.

    Args:
      seconds: float64[T, W] of the trace, without gaps; some parameters are of its medians.
      names: of protocols and codes; all that need no task if None.

    Raises:
      ValueError: if a name is of no scheme.
    """
    rows = scheme_rows(seconds)
    for name in names or ():
        if name not in {row[0] for row in rows}:
            names_sentence = registry.nearest_names_sentence(name, [row[0] for row in rows])
            raise ValueError(f"names must be of schemes that are tried; got '{name}'. {names_sentence}")
    schemes, left_out = [], {name: f"has the times of {other}" for name, other in SAME_TIMES.items()}
    left_out |= {name: f"needs a task: {reason}" for name, reason in NEEDS_TASK.items()} | PARTS
    for name, setting, make_scheme in rows:
        if names is not None and name not in names:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InexactWarning)  # of decoded gradients; here only times count
                scheme = make_scheme()
        except ValueError as error:
            left_out[name] = str(error)
            continue
        schemes.append(scheme if isinstance(scheme, Scheme) else Scheme(name, setting, scheme))
    return schemes, left_out


def scheme_rows(seconds: np.ndarray) -> list[SchemeRow]:
    """Of each scheme for a trace `float64[T, W]` of seconds: name, parameters as text, and a function that makes it."""
    inputs = SchemeInputs(
        num_workers=seconds.shape[1],
        worker_seconds=np.median(seconds, axis=0),
        median_seconds=float(np.median(seconds)),
        key=jax.random.key(0),
    )
    return [*_synchronous_rows(inputs), *_asynchronous_rows(inputs), *_local_rows(inputs), *coded_rows(inputs)]


def _synchronous_rows(inputs: SchemeInputs) -> Iterator[SchemeRow]:
    """(name, setting, maker) of schemes whose rounds are from the newest parameters."""
    num_workers = inputs.num_workers
    yield BASELINE, "", protocols.bsp
    yield "k_sync", f"K={num_workers - 1}", lambda: protocols.k_sync(num_contributions=num_workers - 1)
    yield "k_batch_sync", f"K={num_workers}", lambda: protocols.k_batch_sync(num_contributions=num_workers)
    yield "rennala", f"B={num_workers}", lambda: protocols.rennala(num_contributions=num_workers)
    yield "anytime_minibatch", f"{inputs.median_seconds:.3g} s, 4 units a step", lambda: Scheme(
        "anytime_minibatch", f"{inputs.median_seconds:.3g} s, 4 units a step",
        protocols.anytime_minibatch(seconds=inputs.median_seconds), units_per_step=4,
    )  # fmt: skip


def _asynchronous_rows(inputs: SchemeInputs) -> Iterator[SchemeRow]:
    """(name, setting, maker) of schemes whose gradients can be stale.

    Warm-ups are steps of the trace before each block, so many that workers are as far apart as in the middle of a run.
    """
    num_workers = inputs.num_workers
    num_sampled, num_groups = min(3, num_workers - 1), max(2, round(math.sqrt(num_workers)))
    num_levels = math.ceil(math.log2(num_workers)) + 1  # with 1, 2, 4, ... groups
    groups = protocols.groups_by_speed(inputs.worker_seconds.tolist(), num_groups=num_groups)
    yield "asp", "", protocols.asp
    yield "ssp", "staleness=3", lambda: Scheme("ssp", "staleness=3", protocols.ssp(staleness=3), warmup_steps=32)
    yield "dssp", "3 to 15", lambda: Scheme("dssp", "3 to 15", protocols.dssp(), warmup_steps=96)
    yield "psp", f"staleness=3, {num_sampled} sampled", lambda: Scheme(
        "psp", f"staleness=3, {num_sampled} sampled",
        protocols.psp(num_sampled=num_sampled, staleness=3, rng_key=inputs.key), warmup_steps=32,
    )  # fmt: skip
    yield "k_async", f"K={num_workers - 1}", lambda: protocols.k_async(num_contributions=num_workers - 1)
    yield "k_batch_async", f"K={num_workers}", lambda: protocols.k_batch_async(num_contributions=num_workers)
    yield "ringmaster", f"R={num_workers}", lambda: protocols.ringmaster(delay_threshold=num_workers)
    yield "eager_sgd", "solo", protocols.eager_sgd
    yield "ringleader", "", protocols.ringleader
    yield "grouped", f"{num_groups} groups by speed", lambda: protocols.grouped(groups=groups)
    yield (
        "progressive_groups",
        "trials of 4 rounds",
        lambda: Scheme(
            "progressive_groups",
            "trials of 4 rounds",
            protocols.progressive_groups(num_rounds=4),
            warmup_steps=8 * num_levels,
        ),
    )


def _local_rows(inputs: SchemeInputs) -> Iterator[SchemeRow]:
    """(name, setting, maker) of schemes whose workers have parameters of their own; H local steps between exchanges."""
    num_workers = inputs.num_workers
    yield "local_sgd", "H=4", lambda: protocols.local_sgd(num_local_steps=4)
    yield "elastic_averaging", "H=4", lambda: protocols.elastic_averaging(num_local_steps=4)
    yield (
        "fedbuff",
        f"H=4, K={num_workers}",
        lambda: protocols.fedbuff(num_local_steps=4, num_contributions=num_workers),
    )
    yield "async_local_sgd", "H=4", lambda: protocols.async_local_sgd(num_local_steps=4)
    yield (
        "decoupled_diloco",
        f"H=4, K={max(1, num_workers // 2)}",
        lambda: protocols.decoupled_diloco(num_local_steps=4, min_quorum=max(1, num_workers // 2)),
    )
    yield "streaming_diloco", "H=4, P=2", lambda: protocols.streaming_diloco(num_local_steps=4, num_fragments=2)
    yield "d_psgd", "ring", protocols.d_psgd
    yield "sgp", "one peer", protocols.sgp
    yield "hop", "ring, b=1, g=2", protocols.hop
    yield "prague", "groups of 2", lambda: protocols.prague(group_size=min(2, num_workers), rng_key=jax.random.key(0))
    yield "stsyn", f"H=4, K={num_workers - 1}", lambda: protocols.stsyn(num_local_steps=4, num_waited=num_workers - 1)
    yield "worker_busy", "", protocols.worker_busy
    yield "worker_busy", "eager", lambda: protocols.worker_busy(eager=True)
