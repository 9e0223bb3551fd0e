"""Codes inside groups: by hand, the two extremes, training by its definition, and what they promise."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, protocols, specifications, stragglers, tasks
from gcjax.codes import assignments, stopping
from gcjax.engine.gradients import RoundInputs, chunk_batch
from gcjax.specifications import Decodable
from gcjax.stragglers.network import Network
from tests.parameters import some
from tests.protocols import reference

KEY = jax.random.key(2)
GROUPS = ((3, 0, 2), (1, 4))
CODES = (
    codes.partial(assignments.from_matrix(np.ones((3, 3), int)), num_blocks=2, rows="harmonic"),
    codes.partial(codes.Assignment(np.array([[0, 1, 2], [2, 1, 0]], np.int32), 3)),
)
W, LOAD = 5, 3


def drawn(seed, rounds):
    rng = np.random.default_rng(seed)
    return rng.exponential(size=(LOAD * rounds, W)) * rng.uniform(0.5, 2.0, size=W)


def test_a_worked_example():
    """Of the pair worker 0 has both chunks at 2 s, before worker 1 has one; worker 2 has them at 4 s.

    A message takes 0.5 s, the exchange with the central server too: pushes each 3 s, and each 5 s.
    """
    pair, alone = codes.partial(assignments.cyclic(2, load=2)), codes.uncoded(1, load=2)
    protocol = protocols.grouped(groups=((0, 1), (2,)), code=(pair, alone))
    network = Network(upload=0.5, servers=Network(upload=0.5))
    s = protocol(jnp.broadcast_to(jnp.asarray([1.0, 3.0, 2.0]), (6, 3)), network)
    inf = math.inf
    np.testing.assert_allclose(s.time, [3, 5, 6, 9, inf, inf])
    assert float(s.horizon) == 9.0
    np.testing.assert_array_equal(s.worker[:4], [[0, 1, -1, -1], [-1, -1, 2, -1], [0, 1, -1, -1], [0, 1, -1, -1]])
    np.testing.assert_array_equal(s.work[:4], [[2, 0, -1, -1], [-1, -1, 2, -1], [2, 0, -1, -1], [2, 0, -1, -1]])
    np.testing.assert_array_equal(s.unit[:4].max(axis=1), [0, 0, 2, 4])
    np.testing.assert_array_equal(s.version[:4].max(axis=1), [0, 0, 1, 3])
    np.testing.assert_allclose(s.weight[:4].max(axis=1), [1 / 3, 1 / 6, 1 / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_allclose(s.start[:2], [[0, 0, 0], [1, inf, 2]])
    np.testing.assert_allclose(s.compute_end[:2], [[1, 2, 2], [2, inf, 4]])  # worker 1 is cut off
    np.testing.assert_allclose(s.send_start[:2], [[inf, inf, inf], [2, inf, 4]])
    np.testing.assert_allclose(s.finish[:2], [[1, inf, 2], [2.5, inf, 4.5]])
    np.testing.assert_allclose(s.start[2:5:2], [[3, 3, 5], [6, 6, 10]])


@pytest.mark.slow
def test_one_group_is_coded():
    code = codes.partial(assignments.cyclic(4, load=2), num_blocks=2, rows="harmonic")
    durations = jnp.asarray(np.random.default_rng(0).exponential(size=(14, 4)), jnp.float32)
    network = Network(latency=0.1, upload=0.5, download=0.25)
    one, whole = protocols.grouped(groups=((0, 1, 2, 3),), code=code), protocols.coded(code)
    found, expected = one(durations, network), whole(durations, network)
    for name, left, right in zip(found._fields, found, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6, err_msg=name)
    task = tasks.linear_regression(num_chunks=4, num_features=5)
    runs = [engine.run(task, p, optax.sgd(0.1), durations, rng_key=KEY, network=network) for p in (one, whole)]
    np.testing.assert_allclose(runs[0].params, runs[1].params, rtol=1e-5)


@pytest.mark.slow
def test_groups_of_one_without_redundancy_are_asp():
    durations = jnp.asarray(np.random.default_rng(0).exponential(size=(6, 3)), jnp.float32)
    network = Network(upload=0.5, download=0.25)
    alone = protocols.grouped(groups=((0,), (1,), (2,)), code=codes.uncoded(1))(durations, network)
    asp = protocols.asp()(durations, network)
    for name in ("time", "start", "compute_start", "compute_end", "send_start", "finish", "read", "horizon"):
        np.testing.assert_allclose(getattr(alone, name), getattr(asp, name), rtol=1e-6, err_msg=name)
    for name in ("worker", "unit", "version", "work", "weight"):
        np.testing.assert_allclose(getattr(alone, name).max(axis=1), getattr(asp, name)[:, 0], rtol=1e-6, err_msg=name)


@pytest.fixture(scope="module")
def trained():
    with jax.enable_x64(True):
        task = tasks.linear_regression(num_chunks=3, num_features=7, num_examples=30)
        protocol = protocols.grouped(groups=GROUPS, code=CODES)
        durations = jnp.asarray(drawn(0, 8))
        return task, protocol, durations, engine.run(task, protocol, optax.sgd(0.1), durations, rng_key=KEY)


def test_a_commit_is_the_whole_gradient_at_the_version_of_its_group(trained, x64):
    """By the definition: size / W times the mean gradient of all chunks, at what the group has read."""
    task, _, _, run = trained
    init_key, batch_key = jax.random.split(KEY)
    versions = [np.asarray(task.init(init_key))]
    gradient = jax.jit(
        lambda params, chunk, number: jax.grad(task.loss)(
            params, *chunk_batch(task, RoundInputs(task.data, batch_key, number), chunk)
        )
    )
    schedule = jax.tree.map(np.asarray, run.schedule)
    stale = 0
    for commit in range(int(np.isfinite(schedule.time).sum())):
        version, unit = schedule.version[commit].max(), schedule.unit[commit].max()
        size = (schedule.worker[commit] >= 0).sum()
        assert tuple(w for w in schedule.worker[commit] if w >= 0) in GROUPS
        mean = np.mean([gradient(versions[version], c, unit // LOAD) for c in range(3)], axis=0)
        versions.append(versions[-1] - 0.1 * size / W * mean)
        stale += version < commit
    assert stale > 2
    np.testing.assert_allclose(run.params, versions[-1], rtol=1e-9)
    assert float(run.info.residual.max()) < 1e-9


@pytest.mark.slow
def test_a_replay_a_batch_of_seeds_and_one_program(trained, x64):
    task, protocol, durations, run = trained
    replayed = engine.replay(task, protocol, optax.sgd(0.1), run.schedule, rng_key=KEY)
    np.testing.assert_array_equal(replayed.params, run.params)

    @jax.jit
    def params(durations, key):
        return engine.run(task, protocol, optax.sgd(0.1), durations, rng_key=key).params

    seeds, keys = jnp.stack([durations, jnp.asarray(drawn(1, 8))]), jax.random.split(KEY, 2)
    one_by_one = [params(seeds[i], keys[i]) for i in range(2)]
    assert params._cache_size() == 1
    np.testing.assert_allclose(jax.vmap(params)(seeds, keys), one_by_one, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", some([3], [4, 5]))
def test_a_record_keeps_its_promise_and_a_damaged_one_does_not(seed):
    protocol = protocols.grouped(groups=GROUPS, code=CODES)
    network = stragglers.Network(upload=0.5, download=0.125, servers=stragglers.Network(upload=0.25))
    schedule = jax.tree.map(np.asarray, protocol(jnp.asarray(drawn(seed, 6), jnp.float32), network))
    promise = protocol.specification(W)
    assert protocols.check(schedule, promise)
    num_caught = 0
    for commit in np.flatnonzero(np.isfinite(schedule.time)):
        group = int((schedule.worker[commit] >= 0).argmax()) // 3
        exact = reference.is_decodable(CODES[group])
        own = slice(3 * group, 3 * group + len(GROUPS[group]))
        for place in np.flatnonzero(schedule.work[commit, own] > 0):
            work = schedule.work.copy()
            work[commit, 3 * group + place] -= 1
            kept = protocols.check(schedule._replace(work=work), promise)
            column = 3 * group + place
            last_unit = schedule.unit[commit, column] + work[commit, column]  # which is left out
            has_message = np.isfinite(schedule.send_start[last_unit, schedule.worker[commit, column]])
            if not has_message:  # else it is a chunk of a message that has arrived
                assert bool(kept) == exact(work[commit, own]), (commit, place)
            assert not kept or exact(work[commit, own]), (commit, place)
            num_caught += not kept
        for by in (-1, 1):  # what another version is based on
            read, worker = schedule.read.copy(), [w for w in schedule.worker[commit] if w >= 0]
            units = slice(schedule.unit[commit].max(), schedule.unit[commit].max() + LOAD)
            read[units, worker] += by
            assert protocols.check(schedule._replace(read=read), promise).violated, (commit, by)
    assert num_caught > 8


def test_a_failed_group_holds_nobody_up():
    durations = drawn(0, 6)
    durations[:, [1, 4]] = np.inf
    schedule = protocols.grouped(groups=GROUPS, code=CODES)(jnp.asarray(durations, jnp.float32))
    used = np.isfinite(schedule.time)
    assert used.sum() == 6 and (np.asarray(schedule.worker)[used].max(axis=1) == 3).all()
    durations[:, 1] = 1.0  # one of the two is enough for its code
    assert (np.asarray(protocols.grouped(groups=GROUPS, code=CODES)(jnp.asarray(durations)).worker) == 1).any()


def test_a_deadline_promises_nothing_and_is_applied():
    protocol = protocols.grouped(groups=((0, 1),), code=codes.uncoded(2, load=2), stop=stopping.deadline(3.0))
    assert protocol.specification is None
    schedule = protocol(jnp.asarray([[1.0, 2.0], [1.0, 2.0], [0.25, 0.25], [0.25, 0.25]]))
    np.testing.assert_allclose(schedule.time, [3.0, 3.5])
    np.testing.assert_array_equal(schedule.work, [[2, 1], [2, 2]])


def test_the_specification_of_groups_with_codes():
    """Two workers of which either is enough, and one alone: all that can happen keeps the promise."""
    either = Decodable(load=1, is_decodable=lambda work: work.sum() >= 1)
    whole = specifications.grouped(3, groups=((0, 1), (2,)), decodable=(either, either))
    assert specifications.check(whole)
    broken = whole._replace(
        server=whole.server._replace(
            actions=tuple(
                action._replace(
                    move=lambda state, server, move=action.move: (move(state, server)[0], state.version > -1)
                )
                for action in whole.server.actions
            )
        )
    )
    assert not specifications.check(broken)
    with pytest.raises(ValueError, match="decodable must have an entry for each group"):
        specifications.grouped(3, groups=((0, 1), (2,)), decodable=(either,))
