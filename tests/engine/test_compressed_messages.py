"""Runs with compressed messages: by their definition, exact codes, wavefronts, meshes, resuming, and the network."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, protocols, stragglers, tasks
from gcjax import compression as C
from gcjax.codes import assignments
from tests import devices
from tests.engine.test_run import assert_close
from tests.parameters import some

KEY, W, T = jax.random.key(4), 4, 6
SGD = optax.sgd(0.1, momentum=0.5)
TOP_K = C.error_feedback(C.top_k(share=0.4))
SHARED, OWN = C.random_k(share=0.5), C.random_k(share=0.5, shared=False)

PROTOCOLS = {
    "bsp": protocols.bsp(),
    "asp": protocols.asp(),
    "k_batch_async": protocols.k_batch_async(num_contributions=2),
    "frc": protocols.coded(codes.fractional_repetition(W, num_stragglers=1)),
    "crc": protocols.coded(codes.cyclic_repetition(W, num_stragglers=1, rng_key=KEY)),
    "uncoded": protocols.coded(codes.uncoded(W)),
    "partial L=2": protocols.coded(codes.partial(assignments.cyclic(W, load=3), num_blocks=2, rng_key=KEY)),
    "multi_message": protocols.coded(codes.multi_message(assignments.cyclic(W, load=2))),
    "two codes": protocols.adaptive_coded(
        {
            "L=1": codes.partial(assignments.cyclic(W, load=2)),
            "L=2": codes.partial(assignments.cyclic(W, load=3), num_blocks=2, rng_key=KEY),
        },
        choose=lambda estimates: 1 - estimates.last_candidate,
    ),
    "codes in groups": protocols.grouped(
        groups=((2, 0), (3, 1)), code=codes.partial(assignments.from_matrix([[1, 0], [1, 0], [0, 1], [0, 1]]))
    ),
    "local_sgd": protocols.local_sgd(num_local_steps=2),
    "streaming_diloco": protocols.streaming_diloco(
        num_local_steps=2, num_fragments=2, overlap_steps=1, local_share=0.5, outer=SGD
    ),
    "elastic": protocols.elastic_averaging(num_local_steps=2),
    "grouped": protocols.grouped(groups=((2, 0, 1), (3,)), merge="change"),
    "progressive": protocols.progressive_groups(num_rounds=1),  # commits of fewer contributions than there is room for
    "adacomm": protocols.adacomm(num_local_steps=2, seconds=3.0, num_windows=3),
}


@functools.cache
def _regression(x64):
    return tasks.linear_regression(num_chunks=W, num_examples=40, num_features=5, batch_size=8)


def regression():
    return _regression(jax.config.jax_enable_x64)


def durations(key=KEY, num_units=T):
    return stragglers.sample_durations(stragglers.exponential(mean=1.0), key, num_units, W)


def run(name, compression, **changes):
    arguments = {"rng_key": KEY, "eval_every": 2} | changes
    d = arguments.pop("durations", None)
    d = durations() if d is None else d
    return engine.run(regression(), PROTOCOLS[name], SGD, d, compression=compression, **arguments)


@functools.cache
def result(name, compression):
    """On one device, in 64 bits."""
    return run(name, compression)


def top_k(vector, share=0.4):
    kept = np.argsort(-np.abs(vector))[: max(1, round(share * vector.size))]
    found = np.zeros_like(vector)
    found[kept] = vector[kept]
    return found


def batch_key_of(key):
    return jax.random.split(key)[1]


@functools.cache
def _gradient(batch_function, x64):
    task, batch_key = _regression(x64), batch_key_of(KEY)

    @jax.jit
    def gradient(params, a, b):
        key = jax.random.fold_in(jax.random.fold_in(batch_key, a), b)
        return jax.grad(task.loss)(params, getattr(task, batch_function)(task.data, batch_key, a, b), key)

    return gradient


def gradient(params, batch_function, a, b):
    """On the batch of unit b of worker a, or of chunk a in round b."""
    return np.asarray(_gradient(batch_function, jax.config.jax_enable_x64)(params, jnp.int32(a), jnp.int32(b)))


def messages_of_commit(schedule, e, versions, code):
    """(sender, message, weight[L]) of everything that is sent for a commit; by the definitions."""
    if code is None:
        fields = (schedule.worker[e], schedule.unit[e], schedule.version[e], schedule.weight[e])
        for w, n, v, weight in zip(*map(np.asarray, fields), strict=True):
            if w >= 0:
                yield w, gradient(versions[v], "unit_batch", w, n), np.array([weight])
        return
    work = np.maximum(schedule.work[e], 0)  # -1 in rows that are not used
    coding = code.plan(work)
    sent = np.asarray(code.sent(work))
    gradients = [gradient(versions[-1], "chunk_batch", c, e) for c in range(W)]
    blocks = [np.pad(g, (0, -g.size % code.num_blocks)).reshape(code.num_blocks, -1) for g in gradients]
    for w, m in np.argwhere(sent):
        encode, decode = np.asarray(coding.encode[w, m]), np.asarray(coding.decode[w, m])
        held = code.assignment.chunks[w]
        message = sum(encode[k] @ blocks[c] for k, c in enumerate(held) if c >= 0)
        yield w * code.num_messages + m, message, decode * float(schedule.weight[e, w])


@pytest.mark.slow("two codes")
@pytest.mark.parametrize("name", ["two codes", "codes in groups"])
def test_a_compression_that_loses_nothing_changes_nothing_where_rounds_use_several_codes(name, x64):
    d = durations(num_units=12)
    whole, compressed = (run(name, compression, durations=d) for compression in (None, C.top_k(share=1.0)))
    assert whole.info.num_commits >= 4
    assert_close(compressed.params, whole.params)
    assert_close(compressed.info.loss, whole.info.loss)


@pytest.mark.slow("crc", "partial L=2", "two codes")
@pytest.mark.parametrize(
    "name",
    some(["progressive", "crc", "partial L=2", "two codes"], ["bsp", "asp", "k_batch_async", "frc", "multi_message"]),
)
def test_a_run_is_error_feedback_by_its_definition(name, x64):
    """Parameters, and what every sender still keeps, by a loop over the schedule in NumPy."""
    found = run(name, TOP_K, durations=durations(num_units=12)) if name == "two codes" else result(name, TOP_K)
    code, schedule = PROTOCOLS[name].code, found.schedule
    params = regression().init(jax.random.split(KEY)[0])
    versions, opt_state, kept = [params], SGD.init(params), {}
    for e in range(int(found.info.num_commits)):
        total = 0.0
        for sender, message, weight in messages_of_commit(schedule, e, versions, code):
            with_residual = message + kept.get(sender, 0.0)
            received = top_k(with_residual)
            kept[sender] = with_residual - received
            total = total + np.outer(weight, received)
        gradient = np.zeros_like(params) + total.ravel()[: params.size]
        updates, opt_state = SGD.update(jnp.asarray(gradient), opt_state, params)
        params = optax.apply_updates(params, updates)
        versions.append(params)
    assert found.info.num_commits >= 2
    assert_close(found.params, params)
    for sender, residual in kept.items():
        assert_close(found.state.compression.residual[sender], residual)


def test_fragments_are_compressed_each_by_itself(x64):
    """Top-k with error feedback of every other number, by a loop over the steps in NumPy."""
    found = run("streaming_diloco", TOP_K)
    server, kept = np.asarray(regression().init(jax.random.split(KEY)[0])), {}
    parts = [np.array([0, 2, 4]), np.array([1, 3])]
    own, inner = [server.copy() for _ in range(W)], [SGD.init(server)] * W
    momentum, versions = [np.zeros(3), np.zeros(2)], []
    for e in range(int(found.info.num_commits)):
        part, total = parts[e % 2], 0.0
        for w in range(W):
            if e >= 2:  # a step after a push, what came of it is merged
                own[w][part] = 0.5 * own[w][part] + 0.5 * versions[e - 2][part]
            updates, inner[w] = SGD.update(jnp.asarray(gradient(own[w], "unit_batch", w, e)), inner[w], own[w])
            own[w] = np.array(own[w] + updates)
            change = (own[w] - server)[part] + kept.get((w, e % 2), 0.0)
            sent = top_k(change)
            kept[w, e % 2], total = change - sent, total + sent
        momentum[e % 2] = 0.5 * momentum[e % 2] - total / W
        server = server.copy()
        server[part] -= 0.1 * momentum[e % 2]
        versions.append(server)
    assert found.info.num_commits >= 4
    assert_close(found.params, server)
    residuals = found.state.local.compression.states
    for (w, fragment), residual in kept.items():
        assert_close(residuals[fragment].residual[0][w], residual)


@pytest.mark.slow
def test_messages_of_fragments_take_as_long_as_they_are_large():
    """Fragments of three and two numbers: one of each is sent, with its place; parameters of 12 and 8 bytes come."""
    network = stragglers.Network(0.1, 2.0, 1.0)
    found = run("streaming_diloco", TOP_K, network=network).schedule
    sized = network._replace(fragments=jnp.asarray([3 / 5, 2 / 5]), upload=2.0 * 16 / 20)
    wanted = PROTOCOLS["streaming_diloco"](durations(), sized)
    for name in ("time", "send_start", "finish", "compute_start"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-6)
    whole = run("streaming_diloco", None, network=network).schedule
    assert found.time[0] < whole.time[0]


@pytest.mark.slow("crc", "multi_message")
@pytest.mark.parametrize("name", some(["crc", "multi_message"], ["frc"]))
def test_exact_codes_stay_exact_with_one_mask_for_all(name, x64):
    """A coded run with random places that all workers share is the uncoded one with the same."""
    one, other = result(name, SHARED), result("uncoded", SHARED)
    assert one.info.num_commits < other.info.num_commits  # a code holds more units a round
    shortened = run("uncoded", SHARED, num_commits=int(one.info.num_commits))
    assert_close(one.params, shortened.params)
    plain = run("uncoded", None, num_commits=int(one.info.num_commits))
    assert np.abs(np.asarray(one.params - plain.params)).max() > 1e-3


@pytest.mark.slow("compression0", "compression1", "compression2", "compression3", "compression4")
@pytest.mark.parametrize("compression", [TOP_K, C.top_k(share=0.4), OWN, C.sign(), C.int8(block_size=4)])
def test_codes_with_coefficients_are_not_exact_under_others(compression, x64):
    """The decoded sum of compressed messages is none of the compressed gradients of the chunks: one commit."""
    one = run("crc", compression, num_commits=1)
    other = run("uncoded", compression, num_commits=1)
    distance = np.linalg.norm(np.asarray(one.params - other.params))
    assert distance > 1e-5
    assert one.info.residual[0] < 1e-9  # which is that of the coefficients


@pytest.mark.slow
def test_error_feedback_is_exact_until_somebody_was_late(x64):
    """What a worker keeps of a round in which its message was not sent is missing later."""
    compression = C.error_feedback(C.random_k(share=0.5, rescale=False))

    def distance(num_commits):
        one, other = (run(name, compression, num_commits=num_commits) for name in ("crc", "uncoded"))
        return np.abs(np.asarray(one.params - other.params)).max()

    assert distance(1) < 1e-9
    assert distance(3) > 1e-5


def linear_task():
    """A loss whose gradients do not depend on the parameters: then what was sent and what is kept can be compared."""
    data = np.random.default_rng(0).normal(size=(40, 5)), np.zeros(40)
    return tasks.task_of(lambda key: jnp.zeros(5), lambda params, x: x[0] @ params, data, num_chunks=W, batch_size=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["asp", "local_sgd"])
def test_what_was_sent_and_what_is_kept_is_all_there_was(name, x64):
    task, protocol = linear_task(), PROTOCOLS[name]
    found, plain = (
        engine.run(task, protocol, optax.sgd(1.0), durations(), rng_key=KEY, compression=c) for c in (TOP_K, None)
    )
    local = found.state.local is not None
    residual = (found.state.local.compression if local else found.state.compression).residual
    weight = float(found.schedule.weight[0].max())
    sent = np.asarray(found.params) * (1 if local else -1)
    total = np.asarray(plain.params) * (1 if local else -1)
    np.testing.assert_allclose(sent + weight * np.asarray(residual).sum(axis=0), total, atol=1e-12)
    assert np.abs(np.asarray(residual)).max() > 1e-3


def test_each_row_of_a_code_keeps_what_it_has_not_sent(x64):
    """There are more rows than workers. All rounds have the same gradient, so what is kept is all that is missing."""
    gradients = np.random.default_rng(0).normal(size=(6, 4))
    task = tasks.task_of(
        lambda key: jnp.zeros(4), lambda params, x: x[0] @ params, (gradients, np.zeros(6)), num_chunks=6,
        batch_size=None, local_data=True,
    )  # fmt: skip
    protocol = protocols.m_sgc(2, burst=1, window=2, max_slow=1)
    trained = engine.run(
        task, protocol, optax.sgd(1.0), jnp.ones((80 * protocol.round_units, 2)), rng_key=KEY,
        compression=C.error_feedback(C.top_k(share=0.25)),
    )  # fmt: skip
    num_rows = protocol.code.assignment.num_workers
    assert trained.state.compression.residual.shape == (num_rows, 4) and num_rows == 4
    num_commits = int(trained.info.num_commits)
    assert num_commits > 70 and np.abs(trained.params + num_commits * gradients.mean(axis=0)).max() < 3


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["asp"], ["partial L=2", "k_batch_async"]))
def test_wavefronts_agree(name, x64):
    for compression in (TOP_K, OWN):
        wide = run(name, compression, wavefront_width=3)
        assert_close(wide.params, result(name, compression).params)
        assert_close(wide.state.compression, result(name, compression).state.compression)


@pytest.mark.slow("asp-4", "partial L=2-3", "local_sgd-4")
@pytest.mark.parametrize(
    ("name", "num_devices"),
    some([("asp", 4), ("partial L=2", 3), ("local_sgd", 4)], [("bsp", 4), ("crc", 8), ("grouped", 4), ("adacomm", 2)]),
)
def test_meshes_agree(name, num_devices, x64):
    mesh = devices.mesh(num_devices)
    found, one = run(name, TOP_K, mesh=mesh), result(name, TOP_K)
    assert_close(found.params, one.params)
    assert_close(found.info, one.info)
    assert_close(found.state.compression, one.state.compression)
    assert_close(found.state.local, one.state.local)


@pytest.mark.slow("asp")
@pytest.mark.parametrize("name", some(["asp", "local_sgd"], ["bsp", "partial L=2", "adacomm", "grouped", "elastic"]))
def test_a_run_that_is_cut_goes_on_with_the_same_bits(name, tmp_path):
    whole = run(name, C.error_feedback(C.powersgd(rank=1)) if name == "bsp" else TOP_K)
    compression = C.error_feedback(C.powersgd(rank=1)) if name == "bsp" else TOP_K
    half = run(name, compression, resume=engine.Resume(num_evals=1))
    jax.tree.map(np.testing.assert_array_equal, run(name, compression, resume=half).unscheduled, whole.unscheduled)
    with engine.Checkpoints(tmp_path, every=1) as checkpoints:
        run(name, compression, resume=engine.Resume(num_evals=1, checkpoints=checkpoints))
    with engine.Checkpoints(tmp_path, every=1) as checkpoints:
        found = run(name, compression, resume=checkpoints)
    jax.tree.map(np.testing.assert_array_equal, found.unscheduled, whole.unscheduled)


@pytest.mark.slow("asp")
@pytest.mark.parametrize("name", some(["asp", "local_sgd"], ["progressive", "partial L=2", "bsp"]))
def test_vmap_over_seeds_is_the_loop_and_a_replay_is_the_run(name, x64):
    """With commits in wavefronts, whose number differs between seeds."""
    task = regression()  # outside of what is compiled

    def one(key):
        return engine.run(
            task, PROTOCOLS[name], SGD, durations(key), rng_key=key, compression=TOP_K, eval_every=3,
            wavefront_width=4,
        )  # fmt: skip

    keys = jax.random.split(KEY, 2)
    batch = jax.jit(jax.vmap(one))(keys)
    for i in range(2):
        single = one(keys[i])
        assert_close(single.params, batch.params[i])
        assert_close(single.state.compression, jax.tree.map(lambda x: x[i], batch.state.compression))  # noqa: B023
    replayed = engine.replay(
        task, PROTOCOLS[name], SGD, single.schedule, rng_key=keys[1], compression=TOP_K, eval_every=3
    )
    assert_close(replayed.params, single.params)


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.slow
def test_every_protocol_trains(name):
    for compression in (C.int8(), TOP_K, C.error_feedback(C.powersgd(rank=1))):
        losses = run(name, compression, durations=durations(num_units=30)).trajectory.metrics["suboptimality"]
        losses = losses[np.isfinite(losses)]
        assert losses[-1] < 0.5 * losses[0]


def test_a_second_run_compiles_nothing():
    def once():
        return run("bsp", C.error_feedback(C.top_k(share=0.4)), durations=durations() * 2)

    once()
    advance = engine.run.__globals__["_advance"]
    size = advance._cache_size()
    once()
    assert advance._cache_size() == size


@pytest.mark.slow("network0-bsp", "network0-partial L=2", "network1-bsp", "network1-partial L=2")
@pytest.mark.parametrize("name", some(["bsp", "partial L=2"], ["asp", "local_sgd", "adacomm"]))
@pytest.mark.parametrize("network", [stragglers.Network(0.1, 2.0, 1.0), stragglers.Network(0.1, 0.5, 0.3, server=2.0)])
def test_messages_take_as_long_as_they_are_large(name, network):
    """Two of five numbers of 4 bytes with their places are 16 bytes of 20; one of a block of three: 8 of 12."""
    share = 8 / 12 if name == "partial L=2" else 16 / 20
    found = run(name, TOP_K, network=network).schedule
    smaller = network._replace(upload=network.upload * share)
    if network.server is not None:
        smaller = smaller._replace(server_upload=network.server * share)
    wanted = PROTOCOLS[name](durations(), smaller)
    if name != "adacomm":
        np.testing.assert_allclose(found.time, wanted.time, rtol=1e-6)
        np.testing.assert_allclose(found.compute_start - found.start, wanted.compute_start - wanted.start, rtol=1e-6)
    whole = run(name, None, network=network).schedule
    assert found.time[0] < whole.time[0]


def test_a_shared_link_by_hand():
    """Two workers pull 1 s each at the same time, so 2 s; compute 1 s; push 0.5 s each at the same time, so 1 s."""
    network = stragglers.Network(server=1.0, server_upload=0.5)
    for protocol in (protocols.bsp(), protocols.ssp(staleness=1)):
        schedule = protocol(jnp.ones((1, 2)), network)
        np.testing.assert_allclose(schedule.finish[0], [4.0, 4.0])
    np.testing.assert_allclose(network.send_seconds(), 0.5)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: run("bsp", C.sign), "compression must be a Compression.*Was the factory called"),
        (lambda: run("bsp", optax.sgd(0.1)), "compression must be a Compression"),
        (lambda: run("bsp", None, resume=run("bsp", TOP_K)), "same task, protocol, optimizer and compression"),
        (lambda: run("bsp", TOP_K, resume=run("bsp", C.int8())), "same task, protocol, optimizer and compression"),
        (
            lambda: engine.replay(
                regression(), PROTOCOLS["bsp"], SGD, run("bsp", TOP_K).schedule, rng_key=KEY, compression=TOP_K,
                start=engine.Start(1, jnp.zeros(5), ()),
            ),
            "must begin at the beginning",
        ),
    ],
)  # fmt: skip
def test_bad_input(call, match):
    with pytest.raises(ValueError, match=match):
        call()
