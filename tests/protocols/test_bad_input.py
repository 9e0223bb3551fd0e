"""What protocols and networks refuse: the rule, the value received, what to do."""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, stragglers
from gcjax import protocols as P
from gcjax.codes import assignments
from tests.protocols.table import KEY, T, W, quick, schedule, tied_durations

D = np.ones((4, 3), np.float32)
LINKS = stragglers.links


def fast(made):
    """The protocol with its schedule as one program."""
    return made.replace(schedule=jax.jit(made.schedule, compiler_options=quick()))


def waiting(ready):
    """The protocol of a rule by which each message is a commit, of workers who may begin if ready."""
    rule = P.simulation.Rule(ready=ready)
    return P.Protocol(lambda durations, network: P.simulation.event_schedule(rule, durations, network))


def regions(**options):
    """HALoS of two groups, with these parameters."""
    return P.halos(**{"groups": [[0, 1], [2]], "num_local_steps": 1, "num_contributions": 2} | options)


CALLS = {
    "K > W": (lambda: P.k_sync(num_contributions=4)(D), r"between 1 and 3; got 4\. k_sync takes one .*; k_batch_sync"),
    "K > W, async": (
        lambda: P.k_async(num_contributions=4)(D),
        r"between 1 and 3; got 4\. .*; k_batch_async takes several",
    ),
    "K < 1": (lambda: P.k_sync(num_contributions=0), "num_contributions must be a whole number at least 1; got 0"),
    "K < 1, async": (lambda: P.k_async(num_contributions=0), "at least 1; got 0"),
    "K < 1, batch": (lambda: P.k_batch_sync(num_contributions=0), "at least 1; got 0"),
    "K < 1, batch async": (lambda: P.k_batch_async(num_contributions=-1), "at least 1; got -1"),
    "K not whole": (lambda: P.k_batch_async(num_contributions=1.5), "whole number at least 1; got 1.5"),
    "K < 1, aware": (lambda: P.staleness_aware(num_contributions=0), "at least 1; got 0"),
    "B < 1, Rennala": (lambda: P.rennala(num_contributions=0), "num_contributions must be .* at least 1; got 0"),
    "R < 1": (lambda: P.ringmaster(delay_threshold=0), "delay_threshold must be a whole number at least 1; got 0"),
    "R not whole": (lambda: P.ringmaster(delay_threshold=1.5), "delay_threshold must be a whole number .*; got 1.5"),
    "threshold < 1": (lambda: P.delay_adaptive(delay_threshold=0.5), "delay_threshold must be .*1.*; got 0.5"),
    "threshold inf": (lambda: P.delay_adaptive(delay_threshold=math.inf), "delay_threshold must be .*finite; got inf"),
    "no step, FedBuff": (lambda: P.fedbuff(num_local_steps=0, num_contributions=1), "num_local_steps .*1; got 0"),
    "K < 1, FedBuff": (lambda: P.fedbuff(num_local_steps=1, num_contributions=0), "num_contributions .*1; got 0"),
    "no outer": (lambda: P.fedbuff(num_local_steps=1, num_contributions=1, outer=0.7), "outer must be .*; got 0.7"),
    "too few units, FedBuff": (
        lambda: P.fedbuff(num_local_steps=5, num_contributions=1)(D),
        "a round takes 5 units .*; got durations of 4",
    ),
    "no step, decoupled": (lambda: P.decoupled_diloco(num_local_steps=0), "num_local_steps .*1; got 0"),
    "quorum < 1": (lambda: P.decoupled_diloco(num_local_steps=1, min_quorum=0), "min_quorum must .* at least 1; got 0"),
    "quorum > W": (
        lambda: P.decoupled_diloco(num_local_steps=1, min_quorum=4)(D),
        "min_quorum must be .* between 1 and 3; got 4. No more learners",
    ),
    "grace < 0": (
        lambda: P.decoupled_diloco(num_local_steps=1, grace_seconds=-1.0),
        "grace_seconds must be at least 0.*; got -1",
    ),
    "overlap < 0": (
        lambda: P.decoupled_diloco(num_local_steps=1, overlap_steps=-1.0),
        "overlap_steps must be at least 0.*; got -1",
    ),
    "margin > 1": (lambda: P.decoupled_diloco(num_local_steps=1, margin=1.5), "margin must be .*; got 1.5"),
    "too few units, decoupled": (
        lambda: P.decoupled_diloco(num_local_steps=5)(D),
        "a round takes 5 units .*; got durations of 4",
    ),
    "P does not divide H": (
        lambda: P.streaming_diloco(num_local_steps=5, num_fragments=2),
        "num_local_steps must be a multiple of num_fragments; got 5 and 2. 6 is one",
    ),
    "no fragment": (lambda: P.streaming_diloco(num_local_steps=4, num_fragments=0), "num_fragments .*1; got 0"),
    "no step, streaming": (lambda: P.streaming_diloco(num_local_steps=0, num_fragments=1), "num_local_steps .*; got 0"),
    "overlap < 0, streaming": (
        lambda: P.streaming_diloco(num_local_steps=4, num_fragments=2, overlap_steps=-1),
        "overlap_steps must be .*; got -1",
    ),
    "overlap >= H": (
        lambda: P.streaming_diloco(num_local_steps=4, num_fragments=2, overlap_steps=4),
        "overlap_steps must be .* between 0 and 3; got 4. A fragment must be merged before",
    ),
    "local share > 1": (
        lambda: P.streaming_diloco(num_local_steps=4, num_fragments=2, local_share=1.5),
        "local_share must be .*; got 1.5",
    ),
    "no pattern": (
        lambda: P.streaming_diloco(num_local_steps=4, num_fragments=2, fragments="stride"),
        "fragments must be one of .*; got 'stride'. Did you mean 'strided'",
    ),
    "too few units, streaming": (
        lambda: P.streaming_diloco(num_local_steps=10, num_fragments=2)(D),
        "a round takes 5 units .*; got durations of 4",
    ),
    "no outer, streaming": (
        lambda: P.streaming_diloco(num_local_steps=4, num_fragments=2, outer=1),
        "outer must be .*; got 1",
    ),
    "shares of other fragments": (
        lambda: P.streaming_diloco(num_local_steps=4, num_fragments=2)(D, stragglers.Network(fragments=np.ones(3) / 3)),
        r"must be the shares of 2 fragments; got shape \(3,\)",
    ),
    "no outer, decoupled": (lambda: P.decoupled_diloco(num_local_steps=1, outer=1), "outer must be .*; got 1"),
    "no step, HALoS": (lambda: regions(num_local_steps=0), "num_local_steps must be .* at least 1; got 0"),
    "K < 1, HALoS": (lambda: regions(num_contributions=0), "num_contributions must be .* at least 1; got 0"),
    "no merge": (lambda: regions(merge_weight=0.0), "merge_weight must be above 0.*; got 0"),
    "merge > 1": (lambda: regions(merge_weight=1.5), "merge_weight must be .*1; got 1.5"),
    "no regional": (lambda: regions(regional=0.2), "regional must be an optax.GradientTrans.*; got 0.2"),
    "room < K": (lambda: regions(max_pushes=1), "max_pushes must be .* at least 2; got 1. A commit has"),
    "HALoS of other workers": (
        lambda: regions()(np.ones((4, 2), np.float32)),
        "groups of 3 workers, the durations have 2 columns",
    ),
    "too few units, HALoS": (lambda: regions(num_local_steps=5)(D), "takes 5 units .*; got durations of 4"),
    "the fastest of all on shared links": (
        lambda: regions(dynamic=True)(D, stragglers.Network(server=1.0)),
        "with dynamic=True the fastest worker of all groups .*Leave out the server's link, or dynamic",
    ),
    "no collective": (lambda: P.eager_sgd(collective="all"), "collective must be one of .*solo.*; got 'all'"),
    "no key, majority": (lambda: P.eager_sgd(collective="majority"), "rng_key must be .*; got None"),
    "needless key": (lambda: P.eager_sgd(rng_key=KEY), "solo has none. Leave it out"),
    "no step, asynchronous": (lambda: P.async_local_sgd(num_local_steps=0), "num_local_steps .*1; got 0"),
    "no weight": (lambda: P.async_local_sgd(num_local_steps=1, weight=math.nan), "weight must be .*; got nan"),
    "no inner": (lambda: P.async_local_sgd(num_local_steps=1, inner="sgd"), "inner must be .*; got 'sgd'"),
    "no rate": (lambda: P.delayed_nesterov(-1.0, num_gradients=2), "learning_rate must be at least 0.*; got -1"),
    "N < 1": (lambda: P.delayed_nesterov(0.7, num_gradients=0), "num_gradients must be .* at least 1; got 0"),
    "momentum > 1": (lambda: P.delayed_nesterov(0.7, momentum=2.0, num_gradients=2), "momentum must be .*; got 2"),
    "c > 1/N": (lambda: P.delayed_nesterov(0.7, num_gradients=2, activation=0.6), "activation must be .*; got 0.6"),
    "no graph": (lambda: P.d_psgd(mixing="rings")(D), "mixing must be one of 'bipartite', .*; got 'rings'"),
    "columns of 2": (lambda: P.d_psgd(mixing=np.full((3, 3), 2 / 3))(D), "columns of mixing must add up to 1, .*to 2"),
    "rows of 2": (
        lambda: P.d_psgd(mixing=np.eye(3)[[0, 0, 1]].T)(D),
        "rows of mixing must add up to 1, .*some add up to 2",
    ),
    "columns of 0": (lambda: P.sgp(mixing=np.eye(3)[:, [0, 0, 1]].T)(D), "columns of mixing .*, some to 0"),
    "negative mixing": (lambda: P.sgp(mixing=2 * np.eye(3) - np.roll(np.eye(3), 1, 0))(D), "mixing must be at least 0"),
    "mixing of 2": (lambda: P.d_psgd(mixing=np.eye(2))(D), r"for W=3 workers; got shape \(2, 2\)"),
    "not symmetric": (lambda: P.metropolis_weights(np.eye(3, k=1)), "undirected graph, whose .* is symmetric"),
    "not bipartite": (lambda: P.ad_psgd(graph="ring", rng_key=KEY)(D), "must be bipartite, .*got 'ring' of 3 workers"),
    "graph of 2": (
        lambda: P.ad_psgd(graph=np.eye(2)[::-1], rng_key=KEY)(D),
        "undirected graph of 3 workers.*got one of 2 workers",
    ),
    "directed graph": (lambda: P.hop(graph="one_peer_exponential")(jnp.ones((2, 4))), "undirected graph of 4"),
    "no key, neighbours": (lambda: P.ad_psgd(rng_key=3), "rng_key must be .*; got 3"),
    "b < 0, Hop": (lambda: P.hop(num_backup=-1), "num_backup must be .* at least 0; got -1"),
    "gap < 1": (lambda: P.hop(max_gap=0), "max_gap must be .* at least 1; got 0"),
    "members > W": (lambda: P.prague(group_size=4, rng_key=KEY)(D), "group_size must be .* 1 and 3; got 4. A group"),
    "members < 1": (lambda: P.prague(group_size=0, rng_key=KEY), "group_size must be .* at least 1; got 0"),
    "b = W": (lambda: P.backup_workers(num_backup=3)(D), r"num_backup must be .* between 0 and 2; got 3\. Somebody"),
    "b < 0": (lambda: P.backup_workers(num_backup=-1), "num_backup must be a whole number at least 0; got -1"),
    "staleness < 0": (lambda: P.ssp(staleness=-1), "staleness must be a whole number >= 0, or inf .*; got -1"),
    "psp staleness < 0": (lambda: P.psp(num_sampled=1, staleness=-2, rng_key=KEY), "staleness must be .*; got -2"),
    "beta = W": (lambda: P.psp(num_sampled=3, rng_key=KEY)(D), r"num_sampled must be .* between 0 and 2; got 3"),
    "lower < 0": (lambda: P.dssp(lower=-1), "lower must be a whole number at least 0; got -1"),
    "span < 0": (lambda: P.dssp(span=-1), "span must be a whole number at least 0; got -1"),
    "weight < 0": (lambda: P.dssp(weight=-1.0), "weight must be at least 0 and finite; got -1"),
    "groups overlap": (lambda: P.grouped(groups=[[0, 1], [1, 2]]), "in exactly one group; worker 1 is in several"),
    "a worker is missing": (lambda: P.grouped(groups=[[0], [2]]), "in exactly one group; worker 1 is in none"),
    "an empty group": (lambda: P.grouped(groups=[[0, 1], []]), "groups must have a worker each"),
    "no groups": (lambda: P.grouped(groups=[]), "groups must have a worker each"),
    "groups of other workers": (
        lambda: P.grouped(groups=[[0, 1]])(D),
        "groups of 2 workers, the durations have 3 columns",
    ),
    "gradients after rounds": (
        lambda: P.grouped(groups=[[0]], num_local_steps=2),
        "num_local_steps=2. Use merge='change' or",
    ),
    "an unknown merge": (
        lambda: P.grouped(groups=[[0]], merge="mean"),
        "merge must be one of 'change', 'elastic', 'gr",
    ),
    "more groups than workers": (lambda: P.contiguous_groups(3, num_groups=4), r"num_groups must be .* 1 and 3; got 4"),
    "negative speeds": (lambda: P.groups_by_speed([1.0, -1.0], num_groups=2), "seconds must be at least 0; got"),
    "moving rate > W": (lambda: P.elastic_averaging(num_local_steps=1, moving_rate=4.0)(D), "at most 3; got 4"),
    "moving rate > G": (lambda: P.grouped(groups=[[0]], merge="elastic", moving_rate=2.0), "at most 1; got 2"),
    "an order with gaps": (
        lambda: P.progressive_groups(order=[0, 1, 3])(D),
        r"workers 0, \.\.\., 2 once; got \[0, 1, 3\]",
    ),
    "an order of fewer": (lambda: P.progressive_groups(order=[0, 1])(D), r"workers 0, \.\.\., 2 once; got \[0, 1\]"),
    "factor < 1": (lambda: P.progressive_groups(factor=0.5), "factor must be at least 1; got 0.5"),
    "a trigger that is not eager": (lambda: P.worker_busy(trigger=0), "trigger is for the eager variant; .* Got 0"),
    "a trigger that is no worker": (
        lambda: P.worker_busy(eager=True, trigger=3)(D),
        r"between 0 and 2; got 3\. The trigger",
    ),
    "a rate inside": (
        lambda: P.diloco(num_local_steps=2, inner=0.1),
        "inner must be an optax.GradientTrans.*; got 0.1",
    ),
    "a rate outside": (
        lambda: P.diloco(num_local_steps=2, outer=0.7),
        "outer must be an optax.GradientTrans.*; got 0.7",
    ),
    "no steps": (lambda: P.local_sgd(num_local_steps=0), "num_local_steps must be a whole number at least 1; got 0"),
    "too few units": (
        lambda: P.local_sgd(num_local_steps=5)(D),
        "5 units of each worker; got durations of 4 units. Sample at",
    ),
    "too few units, groups": (
        lambda: P.grouped(groups=[[0, 1, 2]], num_local_steps=5, merge="change")(D),
        r"takes 5 units .*; got durations of 4 units",
    ),
    "STSyn that waits for more": (
        lambda: P.stsyn(num_local_steps=1, num_waited=4)(D),
        r"num_waited must be .* 1 and 3; got 4",
    ),
    "no time": (lambda: P.anytime_minibatch(seconds=0.0), "seconds must be above 0 and finite; got 0"),
    "negative time": (lambda: P.anytime_minibatch(seconds=-1.0), "seconds must be above 0 and finite; got -1"),
    "endless time": (lambda: P.anytime_minibatch(seconds=np.inf), "seconds must be above 0 and finite; got inf"),
    "too little time": (
        lambda: fast(P.anytime_minibatch(seconds=0.5))(D),
        "nobody ever finishes a unit .* Give the rounds more",
    ),
    "too few units for a batch": (
        lambda: fast(P.k_batch_sync(num_contributions=100))(D),
        "some commit must happen; the 4 units sampled for each worker are used up before .*Sample more units",
    ),
    "a rule that waits for ever": (
        lambda: waiting(lambda view: view.idle & (view.now > 0))(D),
        "some commit must happen; nothing fails, and still the protocol waits for ever",
    ),
    "too few units for a while": (lambda: fast(P.anytime_minibatch(seconds=100.0))(D), "the 4 units sampled for each"),
    "rows of several lengths": (lambda: P.bsp()([[1.0, 2.0], [1.0]]), "units for each worker; got rows of several"),
    "durations beyond float32": (
        lambda: P.bsp()(np.array([[1e300, 2.0]])),
        r"durations of float32 must be at most 3.4e\+38 s, or inf for a failed worker; got 1e\+300. Set jax_enable_x64",
    ),
    "whole durations": (lambda: P.bsp()([[1, 2]]), "durations must be floating point seconds; got dtype int"),
    "no number": (lambda: P.ssp(staleness=1)(D, stragglers.Network(latency=[0.1, None, 0.1])), "got .*None"),
    "no factor": (
        lambda: stragglers.scaled(stragglers.exponential(mean=1.0), factor=None),
        "factor must be .* got None",
    ),
    "a seed for a key": (lambda: P.psp(num_sampled=1, rng_key=3), r"rng_key must be one JAX .*random.key\(0\); got 3"),
    "several keys": (
        lambda: P.random_groups(4, num_groups=2, rng_key=jax.random.split(KEY)),
        r"rng_key must be one JAX random key, .*; got an array of shape \(2,\) and dtype key",
    ),
    "a seed for a key, durations": (
        lambda: stragglers.sample_durations(stragglers.exponential(mean=1.0), 3, 4, 3),
        "rng_key must be one JAX random key, .*; got 3",
    ),
    "a seed for a key, codes": (
        lambda: codes.cyclic_repetition(5, num_stragglers=1, rng_key=np.ones(2, np.float32)),
        r"rng_key must be one JAX random key, .*; got an array of shape \(2,\) and dtype float32",
    ),
    "a seed for a key, graphs": (
        lambda: assignments.random_regular(5, load=2, rng_key=None),
        "rng_key must be .*; got None",
    ),
    "no windows": (lambda: P.adsp(num_windows=0), "num_windows must be a whole number at least 1; got 0"),
    "no interval": (
        lambda: P.adacomm(num_local_steps=1, seconds=0.0, num_windows=1),
        "seconds must be above 0 .*; got 0",
    ),
    "zero bandwidth": (lambda: LINKS(upload=0.0), "upload bandwidth must be above 0; got 0"),
    "zero bandwidth of one": (
        lambda: LINKS(download=np.asarray([1.0, 0.0])),
        r"download bandwidth must be above 0; got \[",
    ),
    "negative bandwidth": (lambda: LINKS(server=-5.0), "server bandwidth must be above 0; got -5"),
    "negative latency": (lambda: LINKS(latency=-0.1), "latency must be at least 0; got -0.1"),
    "negative latency, constant": (
        lambda: stragglers.constant_network(latency=-0.1),
        "latency must be at least 0; got -0.1",
    ),
    "negative upload": (lambda: P.bsp()(D, stragglers.Network(upload=-1.0)), "upload must be at least 0; got -1"),
    "negative server": (lambda: P.bsp()(D, stragglers.Network(server=-1.0)), "server must be at least 0; got -1"),
    "a network of other workers": (
        lambda: P.ssp(staleness=1)(D, stragglers.Network(latency=np.zeros(2))),
        r"3 workers; got shape \(2,\)",
    ),
    "a server link of each": (lambda: LINKS(server=(1.0, 2.0)), "server bandwidth must be one number, since"),
    "a server link of each, constant": (
        lambda: stragglers.constant_network(server=(1.0, 2.0, 3.0)),
        "server must be one number, since all workers share",
    ),
    "true as latency": (lambda: stragglers.constant_network(latency=True), "latency must be a number .*; got True"),
    "true among latencies": (
        lambda: stragglers.constant_network(latency=(True, 0.5, 0.5)),
        "latency must be a number .*; got .True",
    ),
    "no latency": (lambda: stragglers.constant_network(latency=None), "latency must be a number, or .*; got None"),
    "text as bandwidth": (lambda: LINKS(upload="3"), "upload bandwidth must be a number, or .*; got '3'"),
    "no network": (lambda: P.bsp()(D, (1.0, 2.0)), r"network must be a Network; got \(1.0, 2.0\)\. One of bandwidths"),
    "links for durations": (
        lambda: P.bsp()(D, LINKS(upload=1.0)),
        r"network must be a Network; got Links\(.*network_for\(params",
    ),
    "groups that are a number": (lambda: P.grouped(groups=2), r"groups must name the workers of each, .*; got 2"),
    "groups that are workers": (lambda: P.grouped(groups=(0, 1)), r"groups must name the workers .*; got \(0, 1\)"),
    "a code of others": (
        lambda: P.grouped(groups=[[0, 1], [2]], code=codes.uncoded(2)),
        "as many workers as the group; group 1 has 1, its code 2",
    ),
    "too few codes": (
        lambda: P.grouped(groups=[[0, 1], [2]], code=[codes.uncoded(2)]),
        "code must be one GradientCode .*, or one for each of the 2 groups; got",
    ),
    "no code": (lambda: P.grouped(groups=[[0, 1]], code="uncoded"), "code must be one GradientCode .*; got 'uncoded'"),
    "codes of other chunks": (
        lambda: P.grouped(groups=[[0, 1], [2]], code=[codes.uncoded(2), codes.uncoded(1)]),
        r"cut the data into the same chunks, .*; got codes of \[1, 2\] chunks",
    ),
    "codes and changes": (
        lambda: P.grouped(groups=[[0, 1]], merge="change", code=codes.uncoded(2)),
        "groups with a code push gradients; got merge='change'",
    ),
    "a stop without a code": (
        lambda: P.grouped(groups=[[0, 1]], stop=codes.stopping.fastest(1)),
        "stop is for rounds of a code; got stop=.* and no code",
    ),
    "a code that cannot be exact": (
        lambda: P.grouped(
            groups=[[0, 1]], code=codes.partial(assignments.cyclic(2, load=1), num_blocks=2, rng_key=KEY)
        ),
        "L=2 blocks, and some chunk has fewer holders",
    ),
    "other workers, codes in groups": (
        lambda: P.grouped(groups=[[0, 1]], code=codes.uncoded(2))(D),
        "got 3 columns for 2 workers",
    ),
    "one speed": (lambda: P.groups_by_speed(1.0, num_groups=1), "seconds must be a sequence, one number .*; got 1.0"),
    "speeds in rows": (lambda: P.groups_by_speed(np.ones((2, 2)), num_groups=1), "seconds must be a sequence, one"),
    "an order that is a number": (lambda: P.progressive_groups(order=3)(D), r"workers 0, \.\.\., 2 once; got 3"),
    "an order of halves": (lambda: P.progressive_groups(order=[0, 1, 2.5])(D), r"2 once; got \[0, 1, 2.5\]"),
    "endless weight": (lambda: P.ssp(staleness=1, weight=np.inf), "weight must be at least 0 and finite; got inf"),
}

NUMBERS = {
    "adacomm": lambda value: P.adacomm(num_local_steps=1, seconds=value, num_windows=1),
    "adsp, interval": lambda value: P.adsp(num_windows=1, min_interval=value),
    "adsp, growth": lambda value: P.adsp(num_windows=1, max_loss_growth=value),
    "adsp, target": lambda value: P.adsp(num_windows=1, target_loss=value),
    "adsp, seconds": lambda value: P.adsp(num_windows=1, seconds=value),
    "anytime_minibatch": lambda value: P.anytime_minibatch(seconds=value),
    "dssp": lambda value: P.dssp(weight=value),
    "elastic_averaging": lambda value: P.elastic_averaging(num_local_steps=1, moving_rate=value),
    "grouped, rate": lambda value: P.grouped(groups=[[0, 1]], merge="elastic", moving_rate=value),
    "progressive_groups, factor": lambda value: P.progressive_groups(factor=value),
    "progressive_groups, no_delay": lambda value: P.progressive_groups(no_delay=value),
    "psp": lambda value: P.psp(num_sampled=1, rng_key=KEY, weight=value),
    "sr_sgc": lambda value: P.sr_sgc(4, burst=1, window=2, max_slow=1, tolerance=value),
    "ssp": lambda value: P.ssp(staleness=1, weight=value),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [(1.0, 1.0), "1", True], ids=str)
def test_what_is_one_number_is_nothing_else(name, value):
    assert NUMBERS[name](1.0)
    with pytest.raises(ValueError, match="must be one number; got"):
        NUMBERS[name](value)


STEPS = {"num_local_steps": 1}
BOOLEANS = {
    ("diloco", "dynamic"): lambda **options: P.diloco(**STEPS, **options),
    ("async_local_sgd", "dynamic"): lambda **options: P.async_local_sgd(**STEPS, **options),
    ("fedbuff", "weigh_staleness"): lambda **options: P.fedbuff(**STEPS, num_contributions=1, **options),
    ("halos", "dynamic"): regions,
    ("ringmaster", "cuts_off"): lambda **options: P.ringmaster(delay_threshold=1, **options),
    ("worker_busy", "eager"): P.worker_busy,
    ("worker_busy", "overlap"): P.worker_busy,
}


@pytest.mark.parametrize("factory_and_name", BOOLEANS, ids="_".join)
def test_what_is_true_or_false_is_nothing_else(factory_and_name):
    _, name = factory_and_name
    for value in (True, False, np.bool_(True)):
        assert BOOLEANS[factory_and_name](**{name: value})
    for value in ("a", "False", 1, 0.0, None, np.ones(2, bool)):
        with pytest.raises(ValueError, match=f"{name} must be True or False; got"):
            BOOLEANS[factory_and_name](**{name: value})


def test_all_that_is_true_or_false_is_tried():
    booleans = {
        (name, parameter.name)
        for name, entry in P.TABLE.items()
        for parameter in inspect.signature(entry.factory).parameters.values()
        if parameter.annotation in (bool, "bool")
    }
    assert booleans == set(BOOLEANS)


def test_a_tuple_gives_each_worker_its_own_messages():
    each = (0.1, 0.2, 0.3)
    for name in ("latency", "upload", "download"):
        of_tuple, of_array = (stragglers.constant_network(**{name: x}) for x in (each, np.float32(each)))
        assert np.shape(getattr(of_tuple, name)) == (3,)
        np.testing.assert_array_equal(P.bsp()(D, of_tuple).time, P.bsp()(D, of_array).time)
    of_links = LINKS(latency=each, upload=each, download=each).network_for(1)
    np.testing.assert_allclose(of_links.latency, each)
    np.testing.assert_allclose([of_links.upload, of_links.download], [1 / np.float32(each)] * 2, rtol=1e-6)
    np.testing.assert_allclose(P.bsp()(D, stragglers.Network(latency=each)).finish[0], 1 + 2 * np.float32(each))


@pytest.mark.parametrize("name", CALLS)
def test_bad_input(name):
    call, message = CALLS[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", ["bsp", "local_sgd", "ssp"])
def test_a_worker_that_fails_at_once_is_no_error_but_a_run_that_never_finishes(name, x64):
    durations = tied_durations(0, (T, W))
    durations[:, 1] = np.inf
    found = schedule(name, durations)
    assert (found.worker != 1).all() and np.isinf(found.horizon)


@pytest.mark.slow("False")
@pytest.mark.parametrize("traced", [False, True])
def test_durations_of_few_bits_become_float32(traced):
    made = P.local_sgd(num_local_steps=2)
    for dtype in (jnp.bfloat16, jnp.float16):
        given = jnp.asarray(np.tile([0.5, 3.0, 1.0], (400, 1)), dtype)
        found = (jax.jit(lambda d: made(d)) if traced else made)(given)
        assert found.time.dtype == jnp.float32 and found.time[-1] == 1200


def test_old_keys_are_keys():
    one, other = (P.random_groups(9, num_groups=2, rng_key=key(3)) for key in (jax.random.key, jax.random.PRNGKey))
    assert one == other


@pytest.mark.parametrize(
    "graph",
    [
        np.full((W, W), np.nan), np.full((W, W), np.inf), np.full((W, W), "0"), np.ones((W, W)) * 1j, jax.random.key(1),
        [["a"]],
    ],
    ids=["nan", "inf", "text", "complex", "key", "list"],
)  # fmt: skip
def test_what_is_no_graph_is_refused(graph):
    for use in (lambda: P.hop(graph=graph)(tied_durations(0)), lambda: P.metropolis_weights(graph)):
        with pytest.raises(ValueError, match=r"a graph must be a networkx.Graph, or bool\[W, W\]"):
            use()


def test_numbers_as_large_as_can_be_are_those_that_bound_nothing():
    durations, largest = tied_durations(0), 2**31 - 1
    waits_for_one = P.hop(num_backup=W)(durations)
    np.testing.assert_array_equal(P.hop(num_backup=largest)(durations).time, waits_for_one.time)
    one_trial = P.progressive_groups(num_rounds=largest, no_delay=1.0)(durations)
    np.testing.assert_array_equal(one_trial.time, P.progressive_groups(num_rounds=T, no_delay=1.0)(durations).time)
    slow_server = stragglers.constant_network(service=0.1)  # the event queue, by the rule
    assert P.progressive_groups(num_rounds=largest, no_delay=1.0)(durations, slow_server).time.shape == (T * W,)
    network = stragglers.constant_network(latency=2**63)
    with pytest.raises(ValueError, match="cannot tell times near .* Set jax_enable_x64"):
        P.bsp()(durations, network)
