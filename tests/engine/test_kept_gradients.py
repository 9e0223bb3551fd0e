"""Messages of gradients that workers keep: the engine against the definition, and against itself."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, compression, engine, protocols, tasks
from tests import devices
from tests.engine.test_run import assert_close
from tests.parameters import some

KEY = jax.random.key(7)
W = 4
SGD = optax.sgd(0.1, momentum=0.5)
FRC = codes.fractional_repetition(W, num_stragglers=1)
CRC = codes.cyclic_repetition(W, num_stragglers=2, rng_key=KEY)
SUMS = codes.one_step(codes.assignments.cyclic(W, load=3))
# name -> (code, how many messages a commit waits for, and the weights of those who are in time)
PIPELINES = {
    "frc": (FRC, None, lambda there: [float(w in (min(set(there) & {0, 1}), min(set(there) & {2, 3}))) for w in there]),
    "crc": (CRC, None, lambda there: np.linalg.lstsq(rows(CRC)[there].T, np.ones(W), rcond=None)[0].tolist()),
    "plain sums": (SUMS, 2, lambda there: [W / len(there) / 3] * len(there)),
}


def protocol(name):
    code, wait_for, _ = PIPELINES[name]
    return protocols.pipelined_coded(code, wait_for=wait_for)


def rows(code):
    """float[W, N]: the coefficient of each chunk in the message of each worker."""
    encode, result = np.asarray(code.plan([code.assignment.load] * W).encode)[:, 0, :, 0], np.zeros((W, W))
    for w, (chunks, coefficients) in enumerate(zip(code.assignment.chunks, encode, strict=True)):
        result[w, chunks] = coefficients
    return result


@functools.cache
def _regression(x64):
    with jax.ensure_compile_time_eval():  # it is kept, also if a program is traced that asks for it first
        return tasks.linear_regression(num_chunks=W, num_examples=40, num_features=3)


def regression():
    return _regression(jax.config.jax_enable_x64)


def durations(seed=3):
    """Now and then somebody takes a third longer, and is in time again some rounds later."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.choice([0.9, 1.0, 1.3], size=(10, W)) + rng.uniform(0, 0.01, size=(10, W)))


def trained(name, schedule, optimizer):
    """The run by its definition: all versions in a list, every message made anew of gradients of its versions."""
    task, (code, _, weights_of) = regression(), PIPELINES[name]
    (init_key, batch_key), coefficients_of = jax.random.split(KEY), rows(code)
    versions, load = [task.init(init_key)], code.assignment.load
    opt_state, residuals, kept = optimizer.init(versions[0]), [], {}

    @jax.jit
    def gradient(params, chunk, version):
        key = jax.random.fold_in(jax.random.fold_in(batch_key, chunk), version)
        return jax.grad(task.loss)(params, task.chunk_batch(task.data, batch_key, chunk, version), key)

    @functools.cache
    def gradient_of(chunk, version):
        return gradient(versions[version], jnp.int32(chunk), jnp.int32(version))

    for e in range(int(np.isfinite(schedule.time).sum())):
        in_time = np.flatnonzero(np.asarray(schedule.finish)[e + load - 1] <= schedule.time[e]).tolist()
        total = 0.0
        for w, weight in zip(in_time, weights_of(in_time), strict=True):
            for unit in range(e, e + load):  # the last one on each chunk
                chunk, version = int(code.assignment.chunks[w, unit % load]), max(0, unit - load + 1)
                g = gradient_of(chunk, version)
                total = total + weight * coefficients_of[w, chunk] * g / W
                kept[w, unit % load] = g
        coefficients = np.asarray(weights_of(in_time)) @ coefficients_of[in_time]
        residuals.append(np.linalg.norm(coefficients - 1))
        updates, opt_state = optimizer.update(total, opt_state, versions[-1])
        versions.append(optax.apply_updates(versions[-1], updates))
    return versions[-1], residuals, kept


@pytest.mark.slow("frc")
@pytest.mark.parametrize("name", PIPELINES)
def test_a_run_is_its_definition(name, x64):
    found = engine.run(regression(), protocol(name), SGD, durations(), rng_key=KEY)
    params, residuals, kept = trained(name, found.schedule, SGD)
    assert len(residuals) == found.info.num_commits == 11 - PIPELINES[name][0].assignment.load
    assert_close(found.params, params)
    assert_close(found.info.residual, np.array(residuals))
    assert found.info.staleness.max() >= 1  # somebody was late
    for (w, slot), gradient in kept.items():
        assert_close(found.state.local.params[w, slot], gradient)


def chunk_numbers():
    """Chunk c has the gradient e_c: the parameters count how often each chunk was applied."""
    return regression()._replace(
        init=lambda key: jnp.zeros(W),
        loss=lambda params, batch, key: params @ batch,
        chunk_batch=lambda data, key, chunk, number: jax.nn.one_hot(chunk, W),
        metrics=lambda params, data: {},
    )


def durations_of_late(late):
    """float[T, W] seconds: in round r worker `late[r]` is late by a tenth, and all others are done after a second."""
    free, units = np.zeros(W), [np.full(W, 0.25)]
    for r, late_worker in enumerate(late):
        ends = r + 1.0 + 0.1 * (np.arange(W) == late_worker)
        units.append(ends - np.maximum(free, r) - 0.25 * (r == 0))
        free = ends
    return np.stack(units)


@pytest.mark.slow
def test_each_chunk_is_in_each_commit_once_whoever_is_late(x64):
    """All sequences of at most one late worker in each of three rounds."""
    late = list(itertools.product(range(-1, W), repeat=3))
    task, pipelined = chunk_numbers(), protocols.pipelined_coded(FRC, wait_for=W - 1)

    def applied(seconds):
        run = engine.run(task, pipelined, optax.sgd(1.0), seconds, rng_key=KEY, num_commits=3)
        return run.params, run.info.residual, run.schedule.time

    params, residual, time = jax.jit(jax.vmap(applied))(jnp.asarray([durations_of_late(workers) for workers in late]))
    assert_close(time, np.tile([1.0, 2.0, 3.0], (len(late), 1)))
    assert_close(params, np.full((len(late), W), -3 / W))
    assert_close(residual, np.zeros((len(late), 3)))


@pytest.mark.slow("crc")
@pytest.mark.parametrize("name", some(["crc"], ["frc", "plain sums"]))
def test_runs_at_once_are_runs_alone(name, x64):
    """Rounds of some have more new gradients than those of others."""
    task = regression()  # not first within `jit`, whose values must not stay

    def params(seconds):
        return engine.run(task, protocol(name), SGD, seconds, rng_key=KEY).params

    batch = jnp.stack([durations(seed) for seed in range(6, 9)])
    assert_close(jax.jit(jax.vmap(params))(batch), jnp.stack([params(seconds) for seconds in batch]))


@pytest.mark.slow("2")
@pytest.mark.parametrize("size", some([2], [4, 8]))
def test_a_mesh_changes_nothing(size, x64):
    mesh = devices.mesh(size)
    alone, spread = (
        engine.run(regression(), protocol("crc"), SGD, durations(), rng_key=KEY, mesh=m) for m in (None, mesh)
    )
    assert_close(spread.params, alone.params)
    assert_close(spread.info.loss, alone.info.loss)


@pytest.mark.slow
def test_a_run_cut_in_its_midst_and_resumed_has_the_same_bits():
    def run(**more):
        return engine.run(regression(), protocol("frc"), SGD, durations(), rng_key=KEY, eval_every=2, **more)

    whole, cut = run(), run(resume=engine.Resume(num_evals=2))
    rest = run(resume=cut)
    jax.tree.map(np.testing.assert_array_equal, rest.params, whole.params)
    jax.tree.map(np.testing.assert_array_equal, rest.state.local.params, whole.state.local.params)


@pytest.mark.slow
def test_a_replay_is_the_run(x64):
    found = engine.run(regression(), protocol("frc"), SGD, durations(), rng_key=KEY)
    again = engine.replay(regression(), protocol("frc"), SGD, found.schedule, rng_key=KEY)
    assert_close(again.params, found.params)


def test_a_load_of_one_is_bsp_with_batches_of_chunks(x64):
    uncoded = codes.uncoded(W)
    one, other = (
        engine.run(regression(), p, SGD, durations(), rng_key=KEY)
        for p in (protocols.pipelined_coded(uncoded), protocols.coded(uncoded))
    )
    assert_close(one.params, other.params)
    assert_close(one.schedule.time, other.schedule.time)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"compression": compression.top_k(share=0.5)}, "only gradients, what local steps have changed"),
        ({"task": tasks.linear_regression(num_chunks=3)}, "the code has 4, the task 3"),
    ],
)
def test_bad_input(change, message):
    arguments = {"task": regression(), "protocol": protocol("frc"), "optimizer": SGD, "durations": durations()}
    with pytest.raises(ValueError, match=message):
        engine.run(**{**arguments, **change}, rng_key=KEY)
