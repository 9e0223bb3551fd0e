"""One table of all protocols: how to make each for W workers, what is documented, and its plain-Python reference."""

import collections
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import codes, protocols
from gcjax.stragglers.network import Network
from tests.parameters import some
from tests.protocols import neighbours_reference as neighbours
from tests.protocols import rounds_reference as loops
from tests.protocols import waiting_rules as rules
from tests.protocols.event_queue import Links, Server
from tests.protocols.pipeline_reference import pipeline
from tests.protocols.regions_reference import Synchronous, regions
from tests.protocols.streaming_reference import streaming

KEY = jax.random.key(5)
T, W = 8, 3
RATES = (1, 3)
TRACES = collections.Counter()


class Case(NamedTuple):
    """A protocol in the table.

    Attributes:
      make: `W -> Protocol`.
      weight: `(W, commit, parts) -> list`, the documented factor of each part `(worker, unit, version, work)`.
      expected: `(durations, links) -> Expected`, the plain-Python reference; None where another module has one.
      controls: of an adaptive protocol, `protocol -> controls`.
      stalls: whether a run comes to a halt if one worker fails, so that `is_stalled` must say so.
      servers: the network between servers of groups, in every run of it.
    """

    make: Callable
    weight: Callable
    expected: Callable | None = None
    controls: Callable | None = None
    stalls: bool = False
    servers: Network | None = None


def in_halves(num_workers):
    """Each worker has two chunks of its own, then the two of the next worker, the last one first."""
    own = np.arange(2 * num_workers).reshape(num_workers, 2)
    return codes.Assignment(np.hstack([own, np.roll(own, -1, axis=0)[:, ::-1]]).astype(np.int32), 2 * num_workers)


def codes_of_halves(num_workers):
    """Of each group of `halves`: all have the same two chunks, every other one from the second on."""
    orders = [np.array([[0, 1], [1, 0]] * len(group), np.int32)[: len(group)] for group in halves(num_workers)]
    return [codes.partial(codes.Assignment(chunks, 2)) for chunks in orders]


def queue(rule, *parameters):
    made = rule(*parameters)
    return lambda durations, links: Server(made, durations, links).run()


def rounds(stop_of):
    return lambda durations, links: loops.rounds(stop_of, durations, links)


def each(value):
    """The same factor for all."""
    return lambda num_workers, commit, parts: [value(num_workers)] * len(parts)


def merged(expected):
    """With the pushes of one worker on one version as one contribution."""

    def run(durations, links):
        found, result = expected(durations, links), []
        for time, parts in found.commits:
            keys = sorted({(w, version) for w, _, version, _ in parts})
            of = {k: [p for p in parts if (p[0], p[2]) == k] for k in keys}
            rows = [(w, min(p[1] for p in of[w, v]), v, sum(p[3] for p in of[w, v])) for w, v in keys]
            result.append((time, rows))
        return found._replace(commits=result)

    return run


def halves(num_workers):
    """Two groups, not in the order of their numbers."""
    return tuple(tuple(range(g, num_workers, 2)) for g in (1, 0))


def grouped(**options):
    return lambda durations, links: loops.grouped(halves(durations.shape[1]), durations, links, **options)


def path(num_workers):
    """Workers in a row: the least graph in which some are no neighbours."""
    return P.metropolis_weights(np.eye(num_workers, k=1) + np.eye(num_workers, k=-1))


def arcs(num_workers):
    """Columns add up to 1, rows do not: a ring in one direction, and everybody hears worker 0."""
    weights = (np.eye(num_workers) + np.roll(np.eye(num_workers), 1, axis=0)) / 2
    weights[:, 0] = 1 / num_workers
    return weights


def streamed(*parameters):
    return lambda durations, links: streaming(*parameters, durations, links)


def heard_arcs(t, w, num_workers):
    return {0, (w - 1) % num_workers}


def hearing(heard_by, copies=None):
    return lambda durations, links: neighbours.iterations(heard_by, durations, links, copies)


def aware(count):
    return lambda num_workers, commit, parts: [1 / count / max(1, commit - version) for _, _, version, _ in parts]


def loss_feedback(threshold):
    return lambda num_workers, commit, parts: [min(1.0, threshold / max(1, commit - v)) for _, _, v, _ in parts]


def by_steps(num_workers, commit, parts):
    """The share of its worker in the steps of the commit."""
    steps = collections.Counter()
    for worker, _, _, work in parts:
        steps[worker] += work
    return [steps[worker] / sum(steps.values()) for worker, *_ in parts]


class InTable:
    """The factor in a mean of all workers' means; a round's later commits add to what its first one has put in."""

    def __call__(self, num_workers, commit, parts):
        if commit % num_workers == 0:
            self.first = {w: work for w, _, _, work in parts}
            return [1 / num_workers / work for *_, work in parts]
        return [1 / num_workers / (self.first[w] + 1) for w, *_ in parts]


def adsp_rates(protocol):
    rates = protocol.loss_feedback.initial(len(RATES))
    return rates._replace(num_commits=jnp.asarray(RATES, jnp.int32))


mean, one = each(lambda num_workers: 1 / num_workers), each(lambda num_workers: 1.0)
half, chunk_mean = each(lambda num_workers: 1 / 2), each(lambda num_workers: 1 / (2 * num_workers))
P = protocols
FAR = Network(latency=(0.25, 0.5), upload=(0.25, 1.0), download=0.25)
WAYS = {"send": (0.5, 1.5), "receive": (0.5, 0.75)}  # seconds of FAR
REGIONS = {
    "halos": regions(halves, rules.Rule, 2, **WAYS),
    "halos servers": regions(halves, functools.partial(rules.LocalSteps, 2), 1, **WAYS),
    "halos at once": regions(halves, functools.partial(rules.LocalSteps, 2), 3),
    "halos dynamic": regions(halves, functools.partial(rules.DynamicSteps, 3), 1, (0.25, 0.25), (0.25, 0.25)),
}

CASES = {
    "ad_psgd": Case(
        lambda w: P.ad_psgd(rng_key=KEY), mean, lambda d, links: neighbours.exchange(rules.OwnSteps(), d, links)
    ),
    "adacomm": Case(
        lambda w: P.adacomm(num_local_steps=3, seconds=9.0, num_windows=2),
        mean,
        rounds(loops.steps(lambda begin: 3 if begin < 9 else 1)),
        lambda protocol: jnp.asarray([3, 1], jnp.int32),
        True,
    ),
    "adaptive_coded": Case(
        lambda w: P.adaptive_coded({"own": codes.uncoded(w, load=2), "twice": codes.partial(in_halves(w))}),
        chunk_mean,
    ),
    "adsp": Case(
        lambda w: P.adsp(seconds=4.0, num_windows=2, min_interval=1.5),
        mean,
        queue(rules.Adsp, 4.0, 1.5, RATES),
        adsp_rates,
    ),
    "anytime_minibatch": Case(
        lambda w: P.anytime_minibatch(seconds=2.5),
        lambda w, e, parts: [1 / sum(p[3] for p in parts) for _ in parts],
        rounds(loops.for_seconds(2.5)),
    ),
    "asp": Case(lambda w: P.asp(), mean, queue(rules.Rule)),
    "async_local_sgd": Case(lambda w: P.async_local_sgd(num_local_steps=2), mean, queue(rules.LocalSteps, 2)),
    "async_local_sgd dynamic": Case(
        lambda w: P.async_local_sgd(num_local_steps=3, dynamic=True, weight=0.5), half, queue(rules.DynamicSteps, 3)
    ),
    "backup_workers": Case(
        lambda w: P.backup_workers(num_backup=1),
        each(lambda w: 1 / (w - 1)),
        lambda d, links: Server(rules.FirstK(d.shape[1] - 1, True, True), d, links).run(),
    ),
    "bsp": Case(lambda w: P.bsp(), mean, rounds(loops.steps(lambda begin: 1)), stalls=True),
    "coded": Case(lambda w: P.coded(codes.uncoded(w, load=2)), chunk_mean, stalls=True),
    "coded_reduce": Case(
        lambda w: P.coded_reduce(codes.cyclic_repetition(w, num_stragglers=1, rng_key=KEY), num_layers=1),
        mean,
        lambda d, links: loops.tree(d.shape[1], 1, d.shape[1] - 1, 2, d, links),
    ),
    "coded_reduce chain": Case(
        lambda w: P.coded_reduce(codes.uncoded(1), num_layers=w),
        mean,
        lambda d, links: loops.tree(1, d.shape[1], 1, 1, d, links),
        stalls=True,
    ),
    "d_psgd": Case(lambda w: P.d_psgd(mixing=path(w)), mean, hearing(neighbours.path), stalls=True),
    "d_psgd ring": Case(lambda w: P.d_psgd(), mean, hearing(neighbours.ring), stalls=True),
    "decoupled_diloco": Case(
        lambda w: P.decoupled_diloco(num_local_steps=2, min_quorum=2),
        by_steps,
        merged(queue(rules.Quorum, 2, 2, lambda quorum, step: max(0.5 * (2 * step - quorum), 0))),
    ),
    "decoupled_diloco fixed": Case(
        lambda w: P.decoupled_diloco(num_local_steps=1, grace_seconds=0.75),
        by_steps,
        merged(queue(rules.Quorum, 1, 1, lambda quorum, step: 0.75)),
    ),
    "decoupled_diloco of all": Case(
        lambda w: P.decoupled_diloco(num_local_steps=1, min_quorum=w),
        by_steps,
        lambda d, links: merged(queue(rules.Quorum, 1, d.shape[1], lambda quorum, step: 0))(d, links),
        stalls=True,
    ),
    "delay_adaptive": Case(
        lambda w: P.delay_adaptive(), lambda w, e, parts: loss_feedback(w)(w, e, parts), queue(rules.Rule)
    ),
    "delay_adaptive 1.5": Case(
        lambda w: P.delay_adaptive(delay_threshold=1.5), loss_feedback(1.5), queue(rules.Rule)
    ),
    "diloco": Case(
        lambda w: P.diloco(num_local_steps=2), mean, rounds(loops.steps(lambda begin: 2)), stalls=True
    ),
    "diloco dynamic": Case(
        lambda w: P.diloco(num_local_steps=3, dynamic=True), mean, queue(rules.DynamicRounds, 3), stalls=True
    ),
    "dssp": Case(lambda w: P.dssp(lower=1, span=2), mean, queue(rules.Dssp, 1, 2), stalls=True),
    "eager_sgd": Case(lambda w: P.eager_sgd(), mean, merged(queue(rules.Partial))),
    "eager_sgd majority": Case(
        lambda w: P.eager_sgd(collective="majority", rng_key=KEY), mean, merged(queue(rules.Partial, KEY))
    ),
    "elastic_averaging": Case(
        lambda w: P.elastic_averaging(num_local_steps=2, moving_rate=0.75),
        each(lambda w: 0.75 / w),
        queue(rules.Elastic, 2),
    ),
    "fedbuff": Case(
        lambda w: P.fedbuff(num_local_steps=2, num_contributions=2, weigh_staleness=True),
        lambda w, e, parts: [0.5 / math.sqrt(1 + e - version) for _, _, version, _ in parts],
        queue(rules.Buffered, 2, 2),
    ),
    "grouped": Case(lambda w: P.grouped(groups=halves(w)), mean, grouped()),
    "grouped change": Case(
        lambda w: P.grouped(groups=halves(w), num_local_steps=2, merge="change"),
        mean,
        grouped(local_rounds=2, send=(0.75, 0.75)),
        servers=Network(upload=0.75),
    ),
    "grouped coded": Case(
        lambda w: P.grouped(groups=halves(w), code=codes_of_halves(w)),
        lambda w, e, parts: [len(parts) / w / 2] * len(parts),
        lambda d, links: loops.coded_groups(
            halves(d.shape[1]), codes_of_halves(d.shape[1]), d, links, send=(0.5, 0.5)
        ),
        servers=Network(upload=0.5),
    ),
    "grouped elastic": Case(
        lambda w: P.grouped(groups=halves(w), num_local_steps=3, merge="elastic", moving_rate=0.5),
        lambda w, e, parts: [0.5 / 2 / len(parts)] * len(parts),
        grouped(local_rounds=3),
    ),
    "grouped servers": Case(
        lambda w: P.grouped(groups=halves(w), num_local_steps=2, merge="change"),
        mean,
        grouped(local_rounds=2, **WAYS),
        servers=FAR,
    ),
    "grouped coded servers": Case(
        lambda w: P.grouped(groups=halves(w), code=codes_of_halves(w)),
        lambda w, e, parts: [len(parts) / w / 2] * len(parts),
        lambda d, links: loops.coded_groups(halves(d.shape[1]), codes_of_halves(d.shape[1]), d, links, **WAYS),
        servers=FAR,
    ),
    "halos": Case(
        lambda w: P.halos(groups=halves(w), num_local_steps=1, num_contributions=2),
        REGIONS["halos"].weight,
        REGIONS["halos"].run,
        servers=FAR,
    ),
    "halos at once": Case(
        lambda w: P.halos(groups=halves(w), num_local_steps=2, num_contributions=3),
        REGIONS["halos at once"].weight,
        REGIONS["halos at once"].run,
    ),
    "halos dynamic": Case(
        lambda w: P.halos(groups=halves(w), num_local_steps=3, num_contributions=1, dynamic=True),
        REGIONS["halos dynamic"].weight,
        REGIONS["halos dynamic"].run,
        servers=Network(0.25),
    ),
    "halos servers": Case(
        lambda w: P.halos(groups=halves(w), num_local_steps=2, num_contributions=1),
        REGIONS["halos servers"].weight,
        REGIONS["halos servers"].run,
        servers=FAR,
    ),
    "hop": Case(
        lambda w: P.hop(),
        mean,
        lambda d, links: neighbours.with_backup(neighbours.ring, 1, 2, d, links),
        stalls=True,
    ),
    "hop gap": Case(
        lambda w: P.hop(graph=path(w) > 0, num_backup=2, max_gap=1),
        mean,
        lambda d, links: neighbours.with_backup(neighbours.path, 2, 1, d, links),
        stalls=True,
    ),
    "k_async": Case(lambda w: P.k_async(num_contributions=2), half, queue(rules.FirstK, 2, True, False)),
    "k_batch_async": Case(lambda w: P.k_batch_async(num_contributions=2), half, queue(rules.FirstK, 2, False, False)),
    "k_batch_sync": Case(lambda w: P.k_batch_sync(num_contributions=2), half, queue(rules.FirstK, 2, False, True)),
    "k_sync": Case(lambda w: P.k_sync(num_contributions=2), half, queue(rules.FirstK, 2, True, True)),
    "local_sgd": Case(
        lambda w: P.local_sgd(num_local_steps=3), mean, rounds(loops.steps(lambda begin: 3)), stalls=True
    ),
    "m_sgc": Case(lambda w: P.m_sgc(w, burst=1, window=2, max_slow=1, rng_key=KEY), None, stalls=True),
    "pipelined_coded": Case(
        lambda w: P.pipelined_coded(codes.cyclic_repetition(w, num_stragglers=1, rng_key=KEY)),
        mean,
        merged(lambda d, links: pipeline(2, lambda sent: len(sent) >= d.shape[1] - 1, d, links)),
    ),
    "pipelined_coded first": Case(
        lambda w: P.pipelined_coded(codes.one_step(codes.assignments.cyclic(w, load=min(3, w))), wait_for=1),
        mean,
        merged(lambda d, links: pipeline(min(3, d.shape[1]), len, d, links)),
    ),
    "prague": Case(
        lambda w: P.prague(group_size=2, rng_key=KEY),
        mean,
        hearing(neighbours.group(KEY, 2), neighbours.all_reduce(KEY, 2)),
        stalls=True,
    ),
    "progressive_groups": Case(
        lambda w: P.progressive_groups(num_rounds=1, factor=2.0, no_delay=1.0, order=range(w)[::-1]),
        mean,
        lambda d, links: Server(rules.Progressive(1, 2.0, list(range(d.shape[1]))[::-1]), d, links).run(),
        stalls=True,  # where the group of all has been fast enough before
    ),
    "progressive_groups servers": Case(
        lambda w: P.progressive_groups(num_rounds=1, factor=2.0, no_delay=2.0, order=range(w)[::-1]),
        mean,
        lambda d, links: Synchronous(
            rules.Progressive(1, 4.0, list(range(d.shape[1]))[::-1]), d, links, receive=0.5, send=0.75
        ).run(),
        stalls=True,  # as above
        servers=Network(latency=0.25, upload=0.5, download=0.25),
    ),
    "psp": Case(lambda w: P.psp(num_sampled=1, rng_key=KEY), mean, queue(rules.Psp, 1, 0, KEY), stalls=True),
    "psp lenient": Case(
        lambda w: P.psp(num_sampled=w - 1, staleness=1, rng_key=KEY), mean, queue(rules.Ssp, 1), stalls=True
    ),
    "rennala": Case(lambda w: P.rennala(num_contributions=2), half, queue(rules.Rennala, 2)),
    "ringleader": Case(lambda w: P.ringleader(), InTable(), merged(queue(rules.Ringleader))),
    "ringmaster": Case(lambda w: P.ringmaster(delay_threshold=3), one, queue(rules.Ringmaster, 3, False)),
    "ringmaster cuts off": Case(
        lambda w: P.ringmaster(delay_threshold=2, cuts_off=True), one, queue(rules.Ringmaster, 2, True)
    ),
    "sgp": Case(lambda w: P.sgp(), mean, hearing(neighbours.one_before), stalls=True),
    "sgp arcs": Case(lambda w: P.sgp(mixing=arcs(w)), mean, hearing(heard_arcs), stalls=True),
    "sr_sgc": Case(lambda w: P.sr_sgc(w, burst=1, window=2, max_slow=1, rng_key=KEY), None, stalls=True),
    "ssp": Case(lambda w: P.ssp(staleness=1), mean, queue(rules.Ssp, 1), stalls=True),
    "staleness_aware": Case(lambda w: P.staleness_aware(), aware(1), queue(rules.Rule)),
    "staleness_aware 2": Case(
        lambda w: P.staleness_aware(num_contributions=2), aware(2), queue(rules.FirstK, 2, False, False)
    ),
    "streaming_diloco": Case(
        lambda w: P.streaming_diloco(num_local_steps=4, num_fragments=2, overlap_steps=1),
        mean,
        streamed(4, 2, 1),
        stalls=True,
    ),
    "streaming_diloco late": Case(
        lambda w: P.streaming_diloco(num_local_steps=4, num_fragments=2, overlap_steps=3),
        mean,
        streamed(4, 2, 3),
        stalls=True,
    ),
    "streaming_diloco of steps": Case(
        lambda w: P.streaming_diloco(num_local_steps=4, num_fragments=4, overlap_steps=2),
        mean,
        streamed(4, 4, 2),
        stalls=True,
    ),
    "stsyn": Case(
        lambda w: P.stsyn(num_local_steps=2, num_waited=2),
        lambda w, e, parts: [1 / len(parts)] * len(parts),
        rounds(loops.first_to_finish(2, 2)),
    ),
    "worker_busy": Case(lambda w: P.worker_busy(), mean, merged(queue(rules.WorkerBusy)), stalls=True),
    "worker_busy eager": Case(lambda w: P.worker_busy(eager=True, trigger=1), mean, queue(rules.Eager, 1)),
    "worker_busy eager overlap": Case(
        lambda w: P.worker_busy(eager=True, overlap=True), mean, queue(rules.EagerOverlap)
    ),
    "worker_busy overlap": Case(
        lambda w: P.worker_busy(overlap=True), mean, merged(queue(rules.WorkerBusyOverlap)), stalls=True
    ),
}  # fmt: skip


def plain_first(names, step=1):
    """The names; slow are variants, as `grouped elastic` beside `grouped`, and of the others all but each `step`-th."""
    names = list(names)
    plain = [name for name in names if " " not in name or name.split()[0] not in names]
    return some(plain[::step], [name for name in names if name not in plain[::step]])


@functools.cache
def protocol(name, num_workers=W):
    return CASES[name].make(num_workers)


@functools.cache
def quick():
    """Compiler options for programs that are compiled fast, not for fast programs; None where XLA has others."""
    options = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda: 0, compiler_options=options)()
    except jax.errors.JaxRuntimeError:
        return None
    return options


def function(name, num_workers=W):
    """`(durations, network) -> Schedule`, with the controls of the table, if any; `TRACES` counts its tracings."""
    made, controls = protocol(name, num_workers), CASES[name].controls

    def run(durations, network):
        TRACES[name, durations.shape] += 1
        if controls is None:
            return made.schedule(durations, network)
        return made.loss_feedback.schedule(durations, network, controls(made))

    return run


@functools.cache
def compiled(name, num_workers=W):
    """The function as a program."""
    return jax.jit(function(name, num_workers), compiler_options=quick())


def shape_of(name):
    """[T, W]; codes of several units a round get more."""
    return T * protocol(name).round_units if protocol(name).code else T, W


def schedule(name, durations, links=None):
    """The schedule in numpy. The network is always made of arrays, so that one program serves all of a shape."""
    durations = np.asarray(durations)
    links = links or no_links(durations.shape[1])
    values = [np.asarray(x, durations.dtype) for x in links[:3]]
    server = None if links.server is None else np.asarray(links.server, durations.dtype)
    network = Network(*values, server, servers=CASES[name].servers).validated()
    return jax.tree.map(np.asarray, compiled(name, durations.shape[1])(durations, network))


def no_links(num_workers):
    return Links(*[[0.0] * num_workers] * 3)


def commits_of(found):
    """[(time, parts sorted by worker and unit)] of a schedule, and the weights in the same order."""
    result, weights = [], []
    for e in range(int(np.isfinite(found.time).sum())):
        columns = (found.worker[e], found.unit[e], found.version[e], found.work[e], found.weight[e])
        rows = sorted(row for row in zip(*(c.tolist() for c in columns), strict=True) if row[0] >= 0)
        result.append((float(found.time[e]), [row[:4] for row in rows]))
        weights.append([row[4] for row in rows])
    return result, weights


def random_durations(seed, shape=(T, W), failing=0.0):
    rng = np.random.default_rng(seed)
    values = rng.exponential(size=shape) * rng.uniform(0.5, 2.0, size=shape[1])
    return np.where(rng.random(shape) < failing, math.inf, values)


def tied_durations(seed, shape=(T, W), failing=0.0):
    """Few values, all multiples of 1/4, so that sums are exact and many of them equal."""
    rng = np.random.default_rng(seed)
    values = rng.choice([0.5, 1.0, 1.25, 2.0, 3.0], size=shape)
    return np.where(rng.random(shape) < failing, math.inf, values)


def random_links(seed, num_workers=W, server=None):
    rng = np.random.default_rng(seed)
    return Links(*(rng.choice([0.0, 0.25, 0.5, 1.0], size=num_workers).tolist() for _ in range(3)), server)
