"""Local work: the engine against its definition, against identities between protocols, and against itself."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from gcjax import codes, compression, engine, protocols, stragglers, tasks
from gcjax.codes import stopping
from gcjax.protocols import Schedule
from tests.devices import mesh
from tests.engine.by_definition import AdamW, DelayedNesterov, Regions, Rule, Sgd, trained, units
from tests.engine.test_run import assert_close
from tests.parameters import one_in, some

KEY = jax.random.key(3)
W, T = 4, 12
SPEEDS = (1.0, 3.1, 1.3, 2.0)
GROUPS = ((2, 0, 1), (3,))
GROUP_OF = (0, 0, 0, 1)
OPTIMIZERS = {
    "sgd": (optax.sgd(0.1, momentum=0.5), Sgd(0.1, 0.5)),
    "adamw": (optax.adamw(0.05, weight_decay=0.1), AdamW(0.05, 0.1)),
}
SGD = OPTIMIZERS["sgd"][0]
INNER = optax.adamw(0.02, weight_decay=0.3)

ARCS = ((0.5, 0.0, 0.25, 0.0), (0.5, 0.4, 0.0, 0.3), (0.0, 0.6, 0.5, 0.0), (0.0, 0.0, 0.25, 0.7))


def ring(schedule, e, rows):
    """The mean with both neighbours."""
    return range(W), [[1 / 3 if (v - w) % W in (0, 1, W - 1) else 0.0 for v in range(W)] for w in range(W)]


def arcs(schedule, e, rows):
    """Columns add up to 1, and rows do not."""
    return range(W), ARCS


def pair(schedule, e, rows):
    """The mean with one of the workers that are odd, or even."""
    ((worker, unit, *_),) = rows
    key = jax.random.fold_in(jax.random.fold_in(KEY, worker), unit)
    others = [v for v in range(W) if (v - worker) % 2]
    return (worker, others[int(jax.random.randint(key, (), 0, len(others), jnp.int32))]), [[0.5, 0.5], [0.5, 0.5]]


def pairs(schedule, e, rows):
    """The means of random pairs."""
    place = np.asarray(jax.random.permutation(jax.random.fold_in(KEY, e), W)).tolist()
    return range(W), [[0.5 if place[w] // 2 == place[v] // 2 else 0.0 for v in range(W)] for w in range(W)]


def there_in_time(schedule, e, rows):
    """The mean with those neighbours whose parameters have come when a worker goes on."""
    goes_on = schedule.start[e + 1] if e + 1 < T else [schedule.horizon] * W
    come = [[v for v in range(W) if w == v or ((w - v) % 2 and schedule.finish[e][v] <= goes_on[w])] for w in range(W)]
    return range(W), [[1 / len(come[w]) if v in come[w] else 0.0 for v in range(W)] for w in range(W)]


# name -> (protocol, what its contributions are)
PROTOCOLS = {
    "local_sgd": (protocols.local_sgd(num_local_steps=2), Rule()),
    "diloco": (
        protocols.diloco(num_local_steps=3, inner=INNER),
        Rule(inner=AdamW(0.02, 0.3), outer=Sgd(0.7, 0.9, nesterov=True)),
    ),
    "diloco dynamic": (
        protocols.diloco(num_local_steps=3, dynamic=True, inner=INNER),
        Rule(inner=AdamW(0.02, 0.3), outer=Sgd(0.7, 0.9, nesterov=True)),
    ),
    "stsyn": (protocols.stsyn(num_local_steps=2, num_waited=2), Rule()),
    "anytime": (protocols.anytime_minibatch(seconds=2.6), Rule(outer="run", summed=True)),
    "elastic": (protocols.elastic_averaging(num_local_steps=2), Rule(elastic=True)),
    "worker_busy": (protocols.worker_busy(), Rule()),
    "worker_busy eager": (protocols.worker_busy(eager=True), Rule()),
    "worker_busy overlap": (protocols.worker_busy(overlap=True), Rule(in_flight=True)),
    "worker_busy eager overlap": (protocols.worker_busy(eager=True, overlap=True), Rule(in_flight=True)),
    "grouped change": (protocols.grouped(groups=GROUPS, num_local_steps=2, merge="change"), Rule(owner=GROUP_OF)),
    "grouped elastic": (
        protocols.grouped(groups=GROUPS, num_local_steps=2, merge="elastic"),
        Rule(owner=GROUP_OF, elastic=True),
    ),
    "fedbuff": (  # as many contributions as workers, who can have several of them
        protocols.fedbuff(num_local_steps=2, num_contributions=W, weigh_staleness=True),
        Rule(begins_anew=True),
    ),
    "decoupled_diloco": (
        protocols.decoupled_diloco(num_local_steps=2, min_quorum=3, grace_seconds=0.5),
        Rule(outer=Sgd(0.7, 0.9, nesterov=True)),
    ),
    "streaming_diloco": (
        protocols.streaming_diloco(num_local_steps=4, num_fragments=2, overlap_steps=3, fragments="sequential"),
        Rule(outer=Sgd(0.7, 0.9, nesterov=True), stream=(4, 3, 0.5, ([0, 1], [2, 3]))),
    ),
    "streaming_diloco of steps": (
        protocols.streaming_diloco(num_local_steps=4, num_fragments=4, overlap_steps=2, local_share=0.25),
        Rule(outer=Sgd(0.7, 0.9, nesterov=True), stream=(4, 2, 0.25, ([0], [1], [2], [3]))),
    ),
    "streaming_diloco labels": (  # an outer optimizer that counts its steps, fragment by fragment
        protocols.streaming_diloco(
            num_local_steps=4,
            num_fragments=2,
            overlap_steps=1,
            local_share=0.0,
            inner=INNER,
            fragments=np.array([1, 0, 1, 1]),
            outer=optax.adamw(0.05, weight_decay=0.1),
        ),
        Rule(inner=AdamW(0.02, 0.3), outer=AdamW(0.05, 0.1), stream=(4, 1, 0.0, ([1], [0, 2, 3]))),
    ),
    "async_local_sgd": (
        protocols.async_local_sgd(
            num_local_steps=2, dynamic=True, weight=1.0, outer=protocols.delayed_nesterov(0.7, num_gradients=3)
        ),
        Rule(outer=DelayedNesterov(0.7, 0.9, 3)),
    ),
    "eager_sgd": (protocols.eager_sgd(), Rule(outer="run", summed=True)),
    "ringleader": (protocols.ringleader(), Rule(table=True)),
    "halos": (
        protocols.halos(
            groups=GROUPS,
            num_local_steps=2,
            num_contributions=2,
            merge_weight=0.375,
            regional=protocols.delayed_nesterov(1.5, num_gradients=2),
            outer=optax.sgd(0.5, momentum=0.5),
        ),
        Rule(
            outer=Sgd(0.5, 0.5),
            send=(0.75, 2.25),
            regions=Regions(GROUP_OF, DelayedNesterov(1.5, 0.9, 2), 2, 0.375, (2.0, 2.25)),
        ),
    ),
    "halos at once": (
        protocols.halos(
            groups=GROUPS,
            num_local_steps=1,
            num_contributions=3,
            merge_weight=0.25,
            regional=optax.sgd(0.75, momentum=0.5),
            outer=optax.sgd(0.5),
        ),
        Rule(outer=Sgd(0.5), send=(0.0, 0.0), regions=Regions(GROUP_OF, Sgd(0.75, 0.5), 3, 0.25, (0.0, 0.0))),
    ),
    "adacomm": (protocols.adacomm(num_local_steps=3, seconds=11.0, num_windows=4), Rule()),
    "adsp": (protocols.adsp(seconds=4.0, num_windows=3, min_interval=0.5), Rule()),
    "d_psgd": (protocols.d_psgd(), Rule(mix=ring)),
    "sgp": (protocols.sgp(mixing=ARCS), Rule(mix=arcs)),
    "ad_psgd": (protocols.ad_psgd(rng_key=KEY), Rule(mix=pair, meanwhile=True)),
    "prague": (protocols.prague(group_size=2, rng_key=KEY), Rule(mix=pairs)),
    "hop": (protocols.hop(), Rule(mix=there_in_time)),
}
NETWORK = stragglers.constant_network(latency=0.05, upload=0.2, download=0.3)
SERVERS = {"halos": stragglers.constant_network(latency=(0.5, 2.0), upload=0.25, download=(1.5, 0.25))}


@functools.cache
def _regression(x64):
    return tasks.linear_regression(num_chunks=W, num_examples=60, num_features=4, batch_size=8)


def regression():
    """One task for each setting of 64 bits, so that its functions are the same in every test."""
    return _regression(jax.config.jax_enable_x64)


def durations(key=KEY, num_units=T, speeds=SPEEDS):
    noise = jax.random.uniform(key, (num_units, len(speeds)), minval=0.7, maxval=1.3)
    return noise * jnp.asarray([speeds], noise.dtype)


def run(name, optimizer=SGD, **changes):
    network = NETWORK._replace(servers=SERVERS.get(name))
    arguments = {"durations": durations(), "network": network, "rng_key": KEY, "eval_every": 2} | changes
    return engine.run(regression(), PROTOCOLS[name][0], optimizer, arguments.pop("durations"), **arguments)


@functools.cache
def result(name):
    """With SGD, on one device, one contribution after the other; in 64 bits."""
    return run(name)


@functools.cache
def batches():
    return units(regression(), KEY, W, T)


FIRST = (
    "stsyn",
    "anytime",
    "worker_busy",
    "worker_busy eager overlap",
    "grouped elastic",
    "adacomm",
    "decoupled_diloco",
    "eager_sgd",
    "fedbuff",
    "halos",
    "halos at once",
    "ringleader",
    "streaming_diloco",
    "streaming_diloco labels",
    "sgp",
    "ad_psgd",
    "hop",
)


@pytest.mark.slow(
    "ad_psgd-sgd",
    "adacomm-sgd",
    "anytime-sgd",
    "decoupled_diloco-sgd",
    "diloco-adamw",
    "eager_sgd-sgd",
    "grouped elastic-sgd",
    "halos at once-sgd",
    "halos-sgd",
    "hop-sgd",
    "ringleader-sgd",
    "sgp-sgd",
    "streaming_diloco labels-sgd",
    "stsyn-sgd",
    "worker_busy-sgd",
)
@pytest.mark.promotes  # optax.adamw does
@pytest.mark.parametrize(
    ("name", "optimizer"),
    some(
        [*((name, "sgd") for name in FIRST), ("diloco", "adamw")],
        [(name, "sgd") for name in PROTOCOLS if name not in FIRST]
        + [(name, "adamw") for name in PROTOCOLS if name != "diloco"],
    ),
)
def test_a_run_is_local_work_by_its_definition(name, optimizer, x64):
    """Parameters, losses, and what the workers have at the end."""
    found = result(name) if optimizer == "sgd" else run(name, OPTIMIZERS[optimizer][0])
    start = np.zeros(regression().data.train.inputs.shape[-1])
    wanted = trained(found.schedule, PROTOCOLS[name][1], OPTIMIZERS[optimizer][1], batches(), start)
    assert len(wanted.losses) == found.info.num_commits >= 3
    assert_close(found.params, wanted.params)
    assert_close(found.info.loss[: len(wanted.losses)], np.array(wanted.losses))
    for owner, params in wanted.local.items():
        if found.state.local.params is not None:  # otherwise each contribution begins with reading
            assert_close(found.state.local.params[owner], params)


def equal(num_units=T):
    """Everybody takes a second for each unit."""
    return jnp.ones((num_units, W))


PLAIN = optax.sgd(0.1)
ROUNDS_OF_TWO = PROTOCOLS["local_sgd"][0]
IDENTITIES = {
    "one local step is BSP": (protocols.local_sgd(num_local_steps=1), protocols.bsp(), SGD, durations),
    "the mean of all is BSP": (protocols.d_psgd(mixing="complete"), protocols.bsp(), SGD, durations),
    "one group is BSP": (protocols.prague(group_size=W, rng_key=KEY), protocols.bsp(), SGD, durations),
    "Hop without backup workers is D-PSGD": (
        protocols.hop(num_backup=0),
        protocols.d_psgd(),
        SGD,
        durations,
    ),
    "SGP on a graph that takes as much as it gives is D-PSGD": (
        protocols.sgp(mixing="one_peer_exponential"),
        protocols.d_psgd(mixing="one_peer_exponential"),
        SGD,
        durations,
    ),
    "nobody is faster: WBSP is BSP": (PROTOCOLS["worker_busy"][0], protocols.bsp(), SGD, equal),
    "FedBuff of the changes of single steps": (
        protocols.fedbuff(num_local_steps=1, num_contributions=3),
        protocols.k_batch_async(num_contributions=3),
        PLAIN,
        durations,
    ),
    "DiLoCo adding the changes": (
        protocols.diloco(num_local_steps=2, outer=optax.sgd(1.0)),
        ROUNDS_OF_TWO,
        SGD,
        durations,
    ),
    "STSyn waiting for all": (protocols.stsyn(num_local_steps=2, num_waited=W), ROUNDS_OF_TWO, SGD, equal),
    "Streaming DiLoCo of one fragment, without overlap": (
        protocols.streaming_diloco(num_local_steps=3, num_fragments=1, overlap_steps=0, local_share=0.0),
        protocols.diloco(num_local_steps=3),
        SGD,
        durations,
    ),
    "the change of one step": (
        protocols.grouped(groups=GROUPS, merge="change"),
        protocols.grouped(groups=GROUPS, merge="gradient"),
        PLAIN,
        durations,
    ),
}


FAST_IDENTITIES = ["one local step is BSP", "the mean of all is BSP", "nobody is faster: WBSP is BSP"]


@pytest.mark.slow
@pytest.mark.parametrize("name", some(FAST_IDENTITIES, [n for n in IDENTITIES if n not in FAST_IDENTITIES]))
def test_identities(name, x64):
    one, other, optimizer, make = IDENTITIES[name]
    runs = [engine.run(regression(), p, optimizer, make(), rng_key=KEY, eval_every=2) for p in (one, other)]
    assert runs[0].info.num_commits >= 4
    assert_close(runs[0].params, runs[1].params)
    made = int(runs[0].info.num_commits)
    for there in (lambda r: r.info.loss[:made], lambda r: r.schedule.time[:made], lambda r: r.state.commit):
        assert_close(there(runs[0]), there(runs[1]))


@pytest.mark.slow
def test_small_gradients_of_a_deadline_are_not_lost():
    """Beside parameters of a million, gradients of a thousandth: their sum is taken before they meet."""
    task = regression()
    small = task._replace(
        init=lambda key: jnp.full(task.data.train.inputs.shape[-1], 1e6),
        loss=lambda p, batch, key: 1e-3 * jnp.sum(p) + 0.0 * jnp.sum(batch.targets),
    )
    optimizer = optax.sgd(1e9)
    found = engine.run(small, PROTOCOLS["anytime"][0], optimizer, durations(), rng_key=KEY, num_commits=1)
    np.testing.assert_allclose(found.params, 1e6 - 1e6, atol=1.0)


SPREADS = {"side by side": {"wavefront_width": 8}, "mesh of 2": {"mesh": 2}, "mesh of 8": {"mesh": 8}}
FAST_SPREADS = [("stsyn", "side by side"), ("worker_busy", "mesh of 2"), ("stsyn", "mesh of 8")]


@pytest.mark.slow("stsyn-mesh of 8", "stsyn-side by side", "worker_busy-mesh of 2")
@pytest.mark.parametrize(
    ("name", "spread"),
    some(FAST_SPREADS, [(n, s) for n in PROTOCOLS for s in SPREADS if (n, s) not in FAST_SPREADS]),
)
@pytest.mark.promotes  # optax.adamw does
def test_it_does_not_matter_where_the_workers_are(name, spread, x64):
    """One after the other, side by side, on devices that divide the four workers and on devices that do not."""
    how = dict(SPREADS[spread])
    size = how.get("mesh")
    if size:
        how["mesh"] = mesh(size)
    found, alone = run(name, **how), result(name)
    assert_close(found.params, alone.params)
    assert_close(found.trajectory, alone.trajectory)
    assert_close(found.info, alone.info)
    assert_close(found.state.local, alone.state.local)
    of_owners = found.state.local._replace(table_mean=None)  # which is of nobody
    for x in jax.tree.leaves(of_owners) if size else []:
        divided = x.shape[0] % size == 0
        assert x.sharding.spec == (P("workers") if divided else P())
        assert x.addressable_shards[0].data.shape[0] == (x.shape[0] // size if divided else x.shape[0])
        assert len(x.sharding.device_set) == size


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local_sgd", "worker_busy", "worker_busy overlap"])
def test_twelve_workers_on_eight_devices(name, x64):
    """Their batches are those of twelve workers; the last devices have fewer of them."""
    speeds = SPEEDS * 3
    on = [run(name, durations=durations(speeds=speeds), mesh=where) for where in (None, mesh(8), mesh(4))]
    for other in on[1:]:
        assert_close(other.params, on[0].params)
        assert_close(other.state.local, on[0].state.local)
    assert jax.tree.leaves(on[2].state.local)[0].sharding.spec == P("workers")


def compiled_during(function):
    """How many programs are compiled meanwhile."""
    found = []

    def listen(event, duration_secs, **kwargs):
        found.extend([event] if "backend_compile" in event else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        return function(), len(found)
    finally:
        forget = getattr(jax.monitoring, "unregister_event_duration_listener", None)  # JAX 0.8.0 has none
        if forget is not None:
            forget(listen)


BATCHED = ["stsyn"]


@pytest.mark.slow("stsyn")
@pytest.mark.parametrize("name", some(BATCHED, [n for n in PROTOCOLS if n not in BATCHED]))
@pytest.mark.promotes  # optax.adamw does
def test_a_batch_is_the_loop_and_a_second_run_compiles_nothing(name, x64):
    """Other durations, so other numbers of local steps, in the same program."""
    keys = jax.random.split(jax.random.key(8), 2)

    def one(key):
        return run(name, durations=durations(key), rng_key=key)

    draws = [jax.block_until_ready(durations(key)) for key in keys]
    run(name, durations=draws[0], rng_key=keys[0])
    batch = jax.jit(jax.vmap(one))(keys)
    engine.check(batch)
    for i, key in enumerate(keys):
        single, compiled = compiled_during(lambda i=i, key=key: run(name, durations=draws[i], rng_key=key))
        assert compiled == 0
        mine = jax.tree.map(lambda x, i=i: x[i], batch)
        assert_close((mine.params, mine.trajectory, mine.info), (single.params, single.trajectory, single.info))
        assert_close(mine.state.local, single.state.local)
        assert_close(mine.state.controls, single.state.controls)
        assert_close(mine.schedule.time, single.schedule.time)
    if name in ("worker_busy", "adsp", "anytime", "stsyn"):
        assert (batch.schedule.work[0] != batch.schedule.work[1]).any()


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


CUT = ["worker_busy", "adacomm"]


@pytest.mark.slow("adacomm")
@pytest.mark.parametrize("name", some(CUT, [n for n in PROTOCOLS if n not in CUT]))
@pytest.mark.promotes  # optax.adamw does
def test_a_run_cut_anywhere_and_resumed_gives_the_same_bits(name, x64):
    """The states of the workers included; and twice the same run has the same bits."""
    whole = run(name)
    assert bits(whole) == bits(run(name))
    for cuts in ([0, 1, 2, 3], [2]):
        found = None
        for num_evals in [*cuts, None]:
            found = run(name, resume=engine.Resume(found, num_evals))
            assert num_evals is None or found.state.commit <= 2 * num_evals
        assert bits(found) == bits(whole)
    assert bits(run(name, rng_key=jax.random.key(1))) != bits(whole)


@pytest.mark.parametrize("name", one_in(2, CUT))
@pytest.mark.promotes
def test_a_killed_run_goes_on_from_its_checkpoint(name, tmp_path, x64):
    with engine.Checkpoints(tmp_path, every=1) as checkpoints:
        part = run(name, resume=engine.Resume(num_evals=1, checkpoints=checkpoints))
    assert 0 < part.state.commit < run(name).state.commit
    with engine.Checkpoints(tmp_path, every=1) as reopened:
        again = run(name, resume=reopened)
    assert bits(again) == bits(run(name))


@pytest.mark.promotes  # parameters in one type, data in another
@pytest.mark.parametrize(
    ("name", "dtype"),
    some(
        [("worker_busy", "bfloat16")],
        [(name, dtype) for name in PROTOCOLS for dtype in ("float32", "float64")]
        + [(name, "bfloat16") for name in PROTOCOLS if name != "worker_busy"],
    ),
)
def test_parameters_keep_their_dtype(name, dtype):
    with jax.enable_x64(dtype != "float32"):
        params = regression().init(KEY).astype(dtype)
        found = run(name, params=params)
        state = found.params, found.state.local.params, found.state.local.opt_state
        assert {x.dtype for x in jax.tree.leaves(state) if x.dtype != jnp.int32} == {jnp.dtype(dtype)}
        assert all(np.isfinite(x.astype(np.float32)).all() for x in jax.tree.leaves(state))
        assert (found.params != params).all()


@pytest.mark.promotes
def test_links_take_the_size_of_the_parameters():
    """Four numbers of four bytes; at 80 bytes a second a fifth of a second. Half of that for numbers of two bytes."""
    links = stragglers.links(upload=80.0, download=160.0, latency=0.25)
    d = durations()
    for params, seconds in ((None, 0.2), (jnp.zeros(4, jnp.float16), 0.1)):
        arguments = {"rng_key": KEY, "network": links, "resume": engine.Resume(num_evals=0), "params": params}
        found = engine.run(regression(), protocols.bsp(), SGD, d, **arguments)
        round_trip = 2 * 0.25 + seconds + seconds / 2
        np.testing.assert_allclose(found.schedule.time, np.cumsum(np.max(d, axis=1) + round_trip), rtol=1e-5)


def test_a_deadline_before_anything_is_done_is_an_error(x64):
    wanted = "some commit must have work in it; of the 12 .* none has"
    late = protocols.anytime_minibatch(seconds=0.01)
    late = late.replace(schedule=jax.jit(late.schedule))
    with pytest.raises(ValueError, match=wanted):
        late(durations())
    coded = protocols.coded(codes.uncoded(W), stop=stopping.deadline(0.01))
    with pytest.raises(ValueError, match=wanted):
        engine.run(regression(), coded, SGD, durations(), rng_key=KEY)
    good = result("stsyn")
    work = jnp.where(jnp.arange(T)[:, None] > 0, 0, good.schedule.work)
    engine.check(good._replace(schedule=good.schedule._replace(work=work)))  # one commit has some
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), good)
    batch = batch._replace(schedule=batch.schedule._replace(work=jnp.stack([work, 0 * work])))
    with pytest.raises(ValueError, match="some commit must have work in it"):
        engine.check(batch)
    jax.eval_shape(lambda d: late(d), durations())  # nothing can be raised there


def test_waiting_for_a_worker_that_never_returns_is_an_error(x64):
    lost = durations().at[5, 2].set(jnp.inf)
    bsp = IDENTITIES["one local step is BSP"][1]
    waits = engine.run(regression(), bsp, SGD, lost, rng_key=KEY, eval_every=2)
    with pytest.raises(
        ValueError, match="only 5 commits: the run never finishes, .* worker 2, .* not return from unit 5"
    ):
        engine.check(waits, num_commits=8)
    with pytest.raises(ValueError, match="only 5 commits: the run never finishes"):
        engine.check(jax.tree.map(lambda *x: jnp.stack(x), waits, waits), num_commits=6)
    engine.check(waits, num_commits=5)
    busy = run("worker_busy", durations=lost)
    with pytest.raises(
        ValueError, match="only [0-9] commits: the run never finishes, .* worker 2, .* not return from unit 5"
    ):
        engine.check(busy, num_commits=8)
    made = int(result("stsyn").info.num_commits)
    with pytest.raises(
        ValueError, match=f"only {made} commits: a worker runs out of sampled units. Sample 24 units or mor"
    ):
        engine.check(result("stsyn"), num_commits=2 * made)
    with pytest.raises(ValueError, match="only 5 commits: the run never finishes"):
        engine.run(regression(), bsp, SGD, lost, rng_key=KEY, num_commits=8, resume=engine.Resume(num_evals=0))


@pytest.mark.slow
def test_padding_may_stand_before_the_contributions(x64):
    """Of workers who take their steps together, too."""
    protocol = PROTOCOLS["grouped change"][0]
    schedule = protocol(durations(), NETWORK)
    order = np.argsort(np.asarray(schedule.worker) >= 0, axis=1, kind="stable")
    fields = {n: np.take_along_axis(np.asarray(getattr(schedule, n)), order, 1) for n in Schedule._fields[1:5]}
    moved = schedule._replace(**{n: jnp.asarray(x) for n, x in fields.items()})
    assert (moved.worker[:, 0] < 0).any()
    other = protocol.replace(schedule=lambda d, n: moved)
    assert_close(
        engine.run(regression(), other, SGD, durations(), rng_key=KEY, eval_every=2).params,
        result("grouped change").params,
    )


@pytest.mark.slow("messages")
@pytest.mark.parametrize(
    "protocol",
    [protocols.local_sgd(num_local_steps=1), protocols.anytime_minibatch(seconds=1.0), protocols.bsp()],
    ids=["changes", "gradients", "messages"],
)
def test_sums_over_many_workers_are_not_formed_in_a_short_type(protocol):
    """All gradients are 1: summed up in bfloat16, 512 of them would give a half."""
    num_workers = 512
    task = tasks.task_of(
        lambda key: jnp.zeros(1, jnp.bfloat16),
        lambda params, example: example[0] @ params.astype(jnp.float32),
        (np.ones((num_workers, 1)), np.zeros(num_workers)),
        num_chunks=num_workers,
        batch_size=1,
    )
    compressed = compression.top_k(share=1.0) if protocol == protocols.bsp() else None
    run = engine.run(
        task, protocol, optax.sgd(1.0), jnp.ones((1, num_workers)), rng_key=jax.random.key(0), compression=compressed
    )
    assert run.params.tolist() == [-1.0]
