"""Runs in which each worker compresses with levels of its own: by definition, the network, and what the bits buy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, protocols, stragglers, tasks
from gcjax import compression as C
from gcjax.codes import assignments
from gcjax.compression.base import stateless
from tests import devices
from tests.engine.test_compressed_messages import (
    KEY,
    PROTOCOLS,
    SGD,
    W,
    batch_key_of,
    durations,
    messages_of_commit,
    regression,
    run,
)
from tests.engine.test_run import assert_close

LEVELS = (31, 1, 7, 3)
BY_WORKER = C.qsgd(levels=LEVELS, bucket_size=4)
_KEY_OF_MESSAGES = 0x6D657373


@pytest.mark.slow("multi_message", "partial L=2")
@pytest.mark.parametrize("name", ["asp", "multi_message", "partial L=2"])
def test_each_message_is_compressed_with_the_levels_of_its_worker(name, x64):
    """Parameters by a loop over the schedule, each message by the compression with one number for all."""
    found = run(name, BY_WORKER)
    code, schedule = PROTOCOLS[name].code, found.schedule
    num_messages = 1 if code is None else code.num_messages
    params = regression().init(jax.random.split(KEY)[0])
    versions, opt_state = [params], SGD.init(params)
    key = jax.random.fold_in(batch_key_of(KEY), _KEY_OF_MESSAGES)
    for e in range(int(found.info.num_commits)):
        total = 0.0
        units = dict(zip(np.asarray(schedule.worker[e]).tolist(), np.asarray(schedule.unit[e]).tolist(), strict=True))
        for sender, message, weight in messages_of_commit(schedule, e, versions, code):
            unit = e if code is not None else units[int(sender)]
            own = C.qsgd(levels=LEVELS[sender // num_messages], bucket_size=4)
            key_of_message = jax.random.fold_in(jax.random.fold_in(key, sender), unit)
            total = total + np.outer(weight, own.compress(jnp.asarray(message), (), key_of_message)[0])
        gradient = np.zeros_like(params) + total.ravel()[: params.size]
        updates, opt_state = SGD.update(jnp.asarray(gradient), opt_state, params)
        params = optax.apply_updates(params, updates)
        versions.append(params)
    assert found.info.num_commits >= 2
    assert_close(found.params, params)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bsp", "crc", "local_sgd", "streaming_diloco", "elastic", "adacomm"])
def test_the_same_levels_for_all_are_one_number(name, x64):
    """To within rounding: a number and a vector of the same number are two programs."""
    for wrapped in (lambda compression: compression, C.error_feedback):
        network = stragglers.Network(0.1, 2.0, 1.0)
        found, wanted = (
            run(name, wrapped(C.qsgd(levels=levels, bucket_size=4)), network=network) for levels in ((3,) * W, 3)
        )
        assert_close(found.params, wanted.params)
        np.testing.assert_allclose(found.schedule.time, wanted.schedule.time, rtol=1e-6)


@pytest.mark.slow
def test_fragments_and_error_feedback_keep_the_workers_apart(x64):
    """Gradients that are the same on all workers: who has more levels has lost less."""
    data = np.ones((40, 5)) * np.array([1.0, 0.4, 0.3, 0.25, 0.2]), np.zeros(40)
    task = tasks.task_of(lambda key: jnp.zeros(5), lambda params, x: x[0].mean(axis=0) @ params, data, num_chunks=W)
    compression = C.error_feedback(C.qsgd(levels=(3, 4095, 3, 4095), bucket_size=4))
    for name in ("streaming_diloco", "bsp"):
        found = engine.run(task, PROTOCOLS[name], SGD, jnp.ones((6, W)), rng_key=KEY, compression=compression)
        states = found.state.compression
        if name != "bsp":
            states = found.state.local.compression.states[0]
        lost = np.abs(np.asarray(jax.tree.leaves(states.residual)[0])).sum(axis=1)
        assert max(lost[[1, 3]]) < 0.01 * min(lost[[0, 2]])


NETWORKS = [
    stragglers.Network(0.1, 2.0, 1.0),
    stragglers.Network(0.1, (2.0, 1.0, 3.0, 0.5), 1.0),
    stragglers.Network(0.1, 0.5, 0.3, server=2.0),
    stragglers.Network(0.1, 0.5, 0.3, service=0.2),
]


@pytest.mark.slow(
    "0-coded groups",
    "0-local_sgd",
    "0-ssp",
    "1-coded groups",
    "1-local_sgd",
    "1-ssp",
    "2-coded groups",
    "2-crc",
    "2-local_sgd",
    "2-ssp",
    "3-coded groups",
    "3-crc",
    "3-local_sgd",
    "3-ssp",
)
@pytest.mark.parametrize("name", ["ssp", "crc", "local_sgd", "coded groups"])
@pytest.mark.parametrize("number", range(len(NETWORKS)))
def test_the_message_of_a_worker_with_few_bits_is_shorter(number, name):
    """Of five numbers of 4 bytes in buckets of four: two norms, and 6, 2, 4 and 3 bits a number."""
    table = {**PROTOCOLS, "ssp": protocols.ssp(staleness=1)}
    table["coded groups"] = protocols.grouped(groups=((2, 0), (3, 1)))
    protocol, network = table[name], NETWORKS[number].validated(W)
    share = np.array([8 + 4, 8 + 2, 8 + 3, 8 + 2]) / 20
    arguments = {"rng_key": KEY, "compression": BY_WORKER, "network": NETWORKS[number]}
    found = engine.run(regression(), protocol, SGD, durations(), **arguments).schedule
    smaller = network._replace(upload=jnp.asarray(network.upload * share, jnp.float32))
    if network.server is not None:
        smaller = smaller._replace(server_upload=jnp.asarray(network.server * share, jnp.float32))
    wanted = protocol(durations(), smaller)
    np.testing.assert_allclose(found.time, wanted.time, rtol=1e-6)
    equal = protocol(durations(), network.with_smaller_messages(float(share.max())))
    assert not np.allclose(found.time, equal.time)


@pytest.mark.slow("protocol1", "protocol2")
@pytest.mark.parametrize("protocol", [protocols.bsp(), protocols.ssp(staleness=1), protocols.grouped(groups=((1, 0),))])
def test_a_shared_link_with_messages_of_two_sizes_by_hand(protocol):
    """Two workers pull 1 s each at once, so 2 s; compute 1 s; push 0.5 and 1 s: until 4 both, then the second alone."""
    network = stragglers.Network(server=1.0, server_upload=(0.5, 1.0)).validated(2)
    np.testing.assert_allclose(protocol(jnp.ones((2, 2)), network).finish[0], [4.0, 4.5])
    smaller = stragglers.Network(server=1.0).with_smaller_messages(np.array([0.5, 1.0]))
    np.testing.assert_allclose(protocol(jnp.ones((2, 2)), smaller).finish[0], [4.0, 4.5])


def test_a_message_without_a_size_arrives_at_once_however_slow_the_link():
    network = stragglers.constant_network(upload=(1.0, np.inf)).validated(2).with_smaller_messages(np.array([1.0, 0.0]))
    np.testing.assert_array_equal(network.arrivals_at_server(jnp.zeros(2)), [1.0, 0.0])


@pytest.mark.slow
def test_who_has_no_bits_is_not_charged_and_does_not_hold_anybody_up():
    """The code leaves it out; the round ends with the messages of the others."""
    noise = codes.quantisation_noise(3, scale=2.0)
    bits = np.array([3, 3, 2, 0])
    code = codes.unbiased(
        assignments.cyclic(W, load=3), straggler_probabilities=0.1, message_noise=noise[bits], aligned=True
    )
    protocol = protocols.coded(code, stop=codes.stopping.deadline(9.0))
    network = stragglers.Network(upload=1.0)
    compression = C.qsgd(levels=2**bits - 1, bucket_size=8)
    d = jnp.ones((6, W))
    found = engine.run(regression(), protocol, SGD, d, rng_key=KEY, compression=compression, network=network)
    np.testing.assert_allclose(found.schedule.time[0], 3.0 + (4 + 3) / 20)  # a norm, and 4 bits for each of 5 numbers
    slow = engine.run(
        regression(), protocol, SGD, d.at[:, 3].set(100.0), rng_key=KEY, compression=compression, network=network
    )
    assert_close(slow.params, found.params)


def counting(num_calls, num_workers):
    """A compression by worker that counts how often its function is traced."""

    def compress(flat, rng_key, factor):
        num_calls.append(1)
        return factor * flat

    return stateless(compress, lambda d, size, factor: d * size, worker_values=np.linspace(0.5, 1, num_workers))


@pytest.mark.slow
def test_one_program_whatever_the_number_of_workers():
    traces = []
    for num_workers in (2, 8):
        num_calls = []
        engine.run(
            tasks.linear_regression(num_chunks=num_workers), protocols.bsp(), SGD, jnp.ones((3, num_workers)),
            rng_key=KEY, compression=counting(num_calls, num_workers),
        )  # fmt: skip
        traces.append(len(num_calls))
    assert traces[0] == traces[1] < 4


@pytest.mark.slow
def test_a_second_run_compiles_nothing():
    def once():
        return run("bsp", C.qsgd(levels=np.array(LEVELS), bucket_size=4), durations=durations() * 2)

    once()
    advance = engine.run.__globals__["_advance"]
    size = advance._cache_size()
    once()
    assert advance._cache_size() == size


@pytest.mark.slow
def test_vmap_over_seeds_is_the_loop_and_a_replay_is_the_run(x64):
    task = regression()

    def one(key):
        return engine.run(task, PROTOCOLS["crc"], SGD, durations(key), rng_key=key, compression=BY_WORKER, eval_every=3)

    keys = jax.random.split(KEY, 2)
    batch = jax.jit(jax.vmap(one))(keys)
    for i in range(2):
        single = one(keys[i])
        assert_close(single.params, batch.params[i])
    arguments = {"rng_key": keys[1], "compression": BY_WORKER, "eval_every": 3}
    assert_close(engine.replay(task, PROTOCOLS["crc"], SGD, single.schedule, **arguments).params, single.params)


@pytest.mark.slow("asp", "local_sgd")
@pytest.mark.parametrize("name", ["asp", "local_sgd"])
def test_a_run_that_is_cut_goes_on_with_the_same_bits(name):
    compression = C.error_feedback(C.qsgd(levels=(31, 2, 7, 3), bucket_size=3)) if name == "asp" else BY_WORKER
    whole = run(name, compression)
    half = run(name, compression, resume=engine.Resume(num_evals=1))
    jax.tree.map(np.testing.assert_array_equal, run(name, compression, resume=half).unscheduled, whole.unscheduled)


@pytest.mark.slow("2", "4")
@pytest.mark.parametrize("num_devices", [2, 4])
def test_meshes_agree(num_devices, x64):
    mesh = devices.mesh(num_devices)
    assert_close(run("asp", BY_WORKER, mesh=mesh).params, run("asp", BY_WORKER).params)


LATE = np.array([0.05, 0.1, 0.3, 0.7])
FEATURES, BUDGET = 8, 8
NOISE = codes.quantisation_noise(6, scale=FEATURES / 4)


def least_squares():
    """Each worker has chunks of its own, of which it takes all."""
    return tasks.linear_regression(
        num_chunks=W, num_examples=512, num_features=FEATURES, batch_size=None, local_data=True
    )


def code_of(bits):
    assignment = assignments.cyclic(W, load=3)
    return codes.unbiased(assignment, straggler_probabilities=LATE, message_noise=NOISE[bits], aligned=True)


def quantised(bits):
    return C.qsgd(levels=2**bits - 1, bucket_size=FEATURES)


def allocated():
    return codes.bit_allocation(BUDGET, straggler_probabilities=LATE, noise=NOISE)


EQUAL = np.full(W, BUDGET // W)


def lateness(key, num_units):
    """float[num_units, W] seconds: a third of a second, or never in a round in which the worker is late."""
    shape = num_units // 3, W
    is_late = jax.random.bernoulli(key, jnp.broadcast_to(jnp.asarray(LATE), shape))
    return jnp.repeat(jnp.where(is_late, 9.0, 1 / 3), 3, axis=0)


def mean_and_variance(bits, params):
    """float[d], and the mean squared distance: of what the server makes of the gradient, over all masks.

    A rounded number between two levels is one or the other, so its variance is (norm / s)^2 f (1 - f), where f is how
    far it is from the lower one.
    """
    task, code = least_squares(), code_of(bits)
    keys = jax.random.split(KEY, W)
    chunks = [jax.grad(task.loss)(params, task.chunk_batch(task.data, keys[0], n, 0), keys[n]) for n in range(W)]
    gradients = np.asarray(jnp.stack(chunks))
    encode = np.asarray(code.plan(code.assignment.loads).encode)[:, 0, :, 0]
    messages = np.stack([encode[w] @ gradients[code.assignment.chunks[w]] for w in range(W)])
    noise = np.zeros(W)
    for w in np.flatnonzero(bits):
        step = np.linalg.norm(messages[w]) / (2 ** bits[w] - 1)
        above = np.abs(messages[w]) / step % 1
        noise[w] = step**2 * (above * (1 - above)).sum()
    mean, square, truth = 0.0, 0.0, gradients.sum(axis=0)
    for mask in itertools.product([0, 1], repeat=W):
        chance = np.prod(np.where(mask, 1 - LATE, LATE))
        estimate = np.array(mask) @ np.where(bits[:, None] > 0, messages, 0)
        mean = mean + chance * estimate
        square += chance * (((estimate - truth) ** 2).sum() + np.array(mask) @ noise)
    np.testing.assert_allclose(mean, truth, atol=1e-9)
    return truth / W, square / W**2


@pytest.mark.slow
@pytest.mark.parametrize("is_equal", [False, True])
def test_the_variance_of_a_commit_is_the_expected_one(is_equal, x64):
    """Over many seeds, up to six standard errors; exactly it is the sum over all masks."""
    bits = EQUAL if is_equal else allocated()
    params = jnp.linspace(1.0, 2.0, FEATURES)
    mean, variance = mean_and_variance(bits, params)
    protocol = protocols.coded(code_of(bits), stop=codes.stopping.deadline(2.0))
    task = least_squares()

    def gradient(key):
        arguments = {"rng_key": key, "params": params, "num_commits": 1, "compression": quantised(bits)}
        return params - engine.run(task, protocol, optax.sgd(1.0), lateness(key, 3), **arguments).params

    found = np.asarray(jax.jit(jax.vmap(gradient))(jax.random.split(KEY, 4000)))
    assert (np.abs(found.mean(axis=0) - mean) < 6 * found.std(axis=0) / np.sqrt(len(found)) + 1e-12).all()
    squares = ((found - mean) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares.mean(), variance, atol=6 * squares.std() / np.sqrt(len(squares)))


@pytest.mark.slow
def test_allocated_bits_vary_less_than_equal_ones(x64):
    """With as many bits in all; and so training comes nearer to the optimum."""
    bits, params = allocated(), jnp.linspace(1.0, 2.0, FEATURES)
    assert bits.sum() == EQUAL.sum() and bits.min() == 0
    message = jax.ShapeDtypeStruct((FEATURES,), jnp.float32)
    assert quantised(bits).num_bytes(message).sum() <= quantised(EQUAL).num_bytes(message).sum()
    assert mean_and_variance(bits, params)[1] < 0.6 * mean_and_variance(EQUAL, params)[1]

    def loss(key, bits):
        protocol = protocols.coded(code_of(bits), stop=codes.stopping.deadline(2.0))
        arguments = {"rng_key": key, "compression": quantised(bits), "eval_every": 5}
        found = engine.run(least_squares(), protocol, optax.sgd(0.6), lateness(key, 90), **arguments)
        return found.trajectory.metrics["suboptimality"][2:].mean()

    keys = jax.random.split(KEY, 20)
    own, equal = (float(jax.jit(jax.vmap(lambda key, b=b: loss(key, b)))(keys).mean()) for b in (bits, EQUAL))
    assert own < 0.7 * equal


def run_with(protocol, levels):
    return engine.run(regression(), protocol, SGD, durations(), rng_key=KEY, compression=C.qsgd(levels=levels))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: run_with(protocols.bsp(), (1, 3)), "those of the run, 4.*got one for 2"),
        (lambda: run_with(protocols.bsp(), (1, 3, 0, 1)), "message of zeros; got worker 2 without any levels"),
        (lambda: run_with(PROTOCOLS["crc"], (1, 3, 0, 1)), "message of zeros; got worker 2"),
        (lambda: run_with(PROTOCOLS["grouped"], LEVELS), "what their group has changed together"),
        (lambda: run("bsp", BY_WORKER, resume=run("bsp", C.qsgd(levels=3))), "optimizer and compression; its state"),
        (lambda: jax.jit(lambda levels: C.qsgd(levels=levels))(jnp.ones(3)), "known before anything is compiled"),
        (
            lambda: engine.replay(
                regression(), PROTOCOLS["bsp"], SGD, run("bsp", None).schedule, rng_key=KEY,
                compression=C.qsgd(levels=(1, 2, 3)),
            ),
            "those of the run, 4.*got one for 3",
        ),
        (lambda: stragglers.Network(server=1.0, server_upload=(1.0, 2.0)).validated(3), "server_upload must be a"),
    ],
)  # fmt: skip
def test_bad_input(call, match):
    with pytest.raises(ValueError, match=match):
        call()
