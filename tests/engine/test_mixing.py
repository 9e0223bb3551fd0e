"""Training without a server: what mixing must come to whatever is trained, and what is refused."""

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import optax
import pytest

from gcjax import compression, engine, memory, mixing_matrices, protocols, stragglers, tasks
from gcjax.engine.local_state import LocalState
from gcjax.engine.mixing import states_after_exchange, values_after_averaging
from tests.engine.by_definition import Sgd, loss_and_gradient
from tests.engine.test_local_work import KEY, SGD, W, batches, durations, regression
from tests.engine.test_run import assert_close

PROTOCOLS = {
    "d_psgd": protocols.d_psgd(),
    "sgp": protocols.sgp(),
    "ad_psgd": protocols.ad_psgd(rng_key=KEY),
    "prague": protocols.prague(group_size=2, rng_key=KEY),
    "hop": protocols.hop(),
}


def trained(protocol, **changes):
    return engine.run(regression(), protocol, SGD, durations(), rng_key=KEY, **changes)


@pytest.mark.slow("made0", "made1")
@pytest.mark.parametrize("made", [protocols.d_psgd(mixing=np.eye(W)), protocols.prague(group_size=1, rng_key=KEY)])
def test_workers_that_mix_with_nobody_train_alone(made, x64):
    """W runs of SGD, each on the batches of one worker; the mean of what they come to."""
    found = trained(made)
    num_steps = int(found.info.num_commits)
    assert num_steps == 3 or num_steps > 3
    for worker in range(W):
        x, optimizer = np.zeros(4), Sgd(0.1, 0.5)
        velocity = optimizer.start(x)
        for unit in range(num_steps):
            x, velocity = optimizer.step(x, loss_and_gradient(x, batches(), worker, unit)[1], velocity)
        np.testing.assert_allclose(found.state.local.params[worker], x, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.params, np.mean(found.state.local.params, axis=0), rtol=1e-12)


def test_the_mean_of_all_is_bsp_to_the_last_digits(x64):
    found, bsp = trained(protocols.d_psgd(mixing=np.full((W, W), 1 / W))), trained(protocols.bsp())
    for left, right in ((found.params, bsp.params), (found.schedule.time, bsp.schedule.time)):
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-14)
    for own in found.state.local.params:
        np.testing.assert_allclose(own, bsp.params, rtol=1e-12, atol=1e-14)
    made = int(bsp.info.num_commits)
    np.testing.assert_allclose(found.info.loss[:made], bsp.info.loss[:made], rtol=1e-12)


@pytest.mark.slow("ad_psgd", "d_psgd", "hop", "prague")
@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_version_is_kept_however_far_ahead_somebody_is(name, x64):
    """The parameters are the mean of the workers' own, and stay so in a replay of the record."""
    found = trained(PROTOCOLS[name])
    assert found.state.ring is None and found.info.versions_alive == 0
    assert found.info.staleness.max() > 0
    np.testing.assert_allclose(found.params, np.mean(found.state.local.params, axis=0), rtol=1e-12)
    assert_close(engine.replay(regression(), PROTOCOLS[name], SGD, found.schedule, rng_key=KEY).params, found.params)


def test_gradients_of_constant_sign_do_not_meet_others_weights(x64):
    """With equal gradients everywhere the mean moves by one step a commit, whoever hears whom."""
    task = regression()._replace(loss=lambda params, batch, key: jnp.sum(params))
    arcs = np.array([[0.5, 0, 0.25, 0], [0.5, 0.4, 0, 0.3], [0, 0.6, 0.5, 0], [0, 0, 0.25, 0.7]])
    found = engine.run(task, protocols.sgp(mixing=arcs), optax.sgd(0.1), durations(), rng_key=KEY)
    np.testing.assert_allclose(found.params, -0.1 * int(found.info.num_commits), rtol=1e-12)
    assert found.state.local.push_sum_weight.std() > 0.1
    np.testing.assert_allclose(found.state.local.push_sum_weight.sum(), W)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_what_a_server_would_be_needed_for_is_refused(name):
    with pytest.raises(ValueError, match="only messages to a server can be compressed"):
        trained(PROTOCOLS[name], compression=compression.top_k(share=0.5))
    away = stragglers.Absences(jnp.array([[1.0]]), jnp.array([[2.0]]))
    with pytest.raises(ValueError, match="workers can only be away under .* there is no server in this protocol"):
        trained(PROTOCOLS[name], absences=away)


@pytest.mark.slow
def test_a_worker_and_its_neighbour_average_with_any_weights(x64):
    """A row for the worker, and one for its neighbour; the gradient is of what the worker had when it began."""
    weights = np.array([[0.25, 0.75], [0.5, 0.5]])
    protocol = protocols.ad_psgd(rng_key=KEY)
    matrix = protocols.MixingMatrix(jnp.asarray(weights))
    mixing = protocol.local.mixing._replace(matrix=lambda schedule: lambda commit: matrix)
    found = trained(protocol.replace(local=protocol.local._replace(mixing=mixing)))
    neighbours = mixing.neighbour(found.schedule)
    own, begun, optimizer = np.zeros((W, 4)), np.zeros((W, 4)), Sgd(0.1, 0.5)
    states = [optimizer.start(own[0]) for _ in range(W)]
    for e in range(int(found.info.num_commits)):
        w, v, unit = int(found.schedule.worker[e, 0]), int(neighbours[e]), int(found.schedule.unit[e, 0])
        assert w != v
        own[[w, v]] = weights @ own[[w, v]]
        after, states[w] = optimizer.step(begun[w], loss_and_gradient(begun[w], batches(), w, unit)[1], states[w])
        own[w] += after - begun[w]
        begun[w] = own[w]
    np.testing.assert_allclose(found.state.local.params, own, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.params, own.mean(axis=0), rtol=1e-12, atol=1e-14)


def test_a_matrix_of_a_worker_and_its_neighbour_is_whole():
    made = protocols.ad_psgd(rng_key=KEY)
    matrix = protocols.MixingMatrix(jnp.full((2, 1), 1.0), jnp.zeros((2, 1), jnp.int32))
    mixing = made.local.mixing._replace(matrix=lambda schedule: lambda commit: matrix)
    with pytest.raises(ValueError, match=r"weights float\[2, 2\] without columns; got weights of shape \(2, 1\)"):
        trained(made.replace(local=made.local._replace(mixing=mixing)))


@pytest.mark.parametrize(("protocol", "push_sum"), [(protocols.bsp(), False), (protocols.asp(), True)])
def test_a_neighbour_is_for_single_contributions_without_push_sum(protocol, push_sum):
    local = protocols.ad_psgd(rng_key=KEY).local
    local = local._replace(mixing=local.mixing._replace(push_sum=push_sum))
    with pytest.raises(ValueError, match=f"must have one contribution, .* push_sum={push_sum}"):
        trained(protocol.replace(local=local))


@pytest.mark.slow("ad_psgd", "d_psgd", "hop", "prague", "sgp")
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_single_step_without_a_loop_has_the_same_bits(name, x64):
    """Also under vmap, where one run has more commits than the other."""
    protocol = PROTOCOLS[name]
    assert protocol.local.single_steps
    looped = protocol.replace(local=protocol.local._replace(single_steps=False))
    several = jnp.stack([durations(), durations().at[3:].set(jnp.inf)])

    def runs(protocol):
        params_of = jax.vmap(lambda seconds: engine.run(regression(), protocol, SGD, seconds, rng_key=KEY).params)
        return [trained(protocol).params, *params_of(several)]

    for found, wanted in zip(runs(protocol), runs(looped), strict=True):
        assert (found == wanted).all()


def without_worker_2_in_commit_1(protocol):
    """The protocol, but that worker 2 is not in the second commit, where all others are."""

    def schedule(durations, network):
        whole = protocol.schedule(durations, network)
        is_left_out = (jnp.arange(whole.time.size)[:, None] == 1) & (whole.worker == 2)
        return whole._replace(worker=jnp.where(is_left_out, -1, whole.worker))

    return protocol.replace(schedule=schedule)


def test_who_has_no_step_in_a_commit_averages_what_it_had(x64):
    protocol = without_worker_2_in_commit_1(protocols.d_psgd())
    found = trained(protocol)
    own, optimizer = np.zeros((W, 4)), Sgd(0.1, 0.5)
    states = [optimizer.start(own[0]) for _ in range(W)]
    matrix = mixing_matrices.mixing_matrices("ring", W)[0]
    for e in range(int(found.info.num_commits)):
        for w in set(range(W)) - ({2} if e == 1 else set()):
            gradient = loss_and_gradient(own[w], batches(), w, e)[1]
            own[w], states[w] = optimizer.step(own[w], gradient, states[w])
        own = matrix @ own
    np.testing.assert_allclose(found.state.local.params, own, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_of_several_runs_each_is_as_by_itself(x64):
    """One is shorter than the other."""
    protocol = without_worker_2_in_commit_1(protocols.d_psgd())
    several = jnp.stack([durations(), durations().at[3:].set(jnp.inf)])

    def params_of_workers(seconds):
        run = engine.run(regression(), protocol, SGD, seconds, rng_key=KEY)
        return run.state.local.params

    for params, seconds in zip(jax.vmap(params_of_workers)(several), several, strict=True):
        np.testing.assert_allclose(params, params_of_workers(seconds), rtol=1e-12, atol=1e-14)


SPARSE = {
    "d_psgd": lambda: protocols.d_psgd(mixing=protocols.metropolis_weights(nx.path_graph(13))),  # ends keep more
    "sgp": lambda: protocols.sgp(),
    "prague": lambda: protocols.prague(group_size=3, rng_key=KEY),  # groups of two and three
    "hop": lambda: protocols.hop(),
}


@pytest.mark.slow("d_psgd", "hop", "prague")
@pytest.mark.parametrize("name", SPARSE)
def test_rows_of_few_entries_train_as_the_whole_matrix_does(name, monkeypatch, x64):
    num_workers = 13
    task = tasks.linear_regression(num_workers, num_examples=60, num_features=4, batch_size=8)
    seconds = jax.random.uniform(KEY, (6, num_workers), minval=0.5, maxval=2.0)

    def trained_and_matrix():
        memory.forget_programs()
        protocol = SPARSE[name]()
        run = engine.run(task, protocol, SGD, seconds, rng_key=KEY)
        return run, protocol.local.mixing.matrix(run.schedule)(jnp.asarray(1))

    found, matrix = trained_and_matrix()
    monkeypatch.setattr(mixing_matrices, "_MOST_LISTED", 0)
    wanted, whole = trained_and_matrix()
    assert matrix.weights.shape == matrix.columns.shape < whole.weights.shape == (num_workers, num_workers)
    assert whole.columns is None
    written_out = np.zeros((num_workers, num_workers))
    np.add.at(written_out, (np.arange(num_workers)[:, None], matrix.columns), matrix.weights)
    np.testing.assert_allclose(written_out, whole.weights, rtol=1e-15)
    assert found.state.local.params.std(axis=0).max() > 1e-3
    np.testing.assert_allclose(found.state.local.params, wanted.state.local.params, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.params, wanted.params, rtol=1e-12, atol=1e-14)


def test_numbers_of_few_bits_are_added_up_in_more():
    """A mean of ten is rounded once."""
    values = jax.random.normal(KEY, (40, 64), jnp.bfloat16)
    columns = jnp.arange(40)[:, None] // 10 * 10 + jnp.arange(10)[None]
    matrix = protocols.MixingMatrix(jnp.full((40, 10), 0.1, jnp.float32), columns)
    found = values_after_averaging(matrix, values)
    assert found.dtype == jnp.bfloat16
    exact = np.asarray(values, np.float64).reshape(4, 10, 64).mean(axis=1).repeat(10, axis=0)
    np.testing.assert_allclose(np.asarray(found, np.float64), exact, rtol=2**-8, atol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("num_workers", [3, 2], ids=["all", "a worker and its neighbour"])
def test_factors_are_not_rounded_to_the_type_of_what_they_average(dtype, num_workers):
    """Three times a third in bfloat16 is 1.002: parameters would grow with every average."""
    factors = np.full((num_workers, num_workers), 1 / 3)
    factors[:, 0] += 1 - factors.sum(axis=1)  # of two: 2/3 and 1/3
    values = jax.random.normal(KEY, (num_workers, 4096), dtype) + 1.7
    matrix = protocols.MixingMatrix(jnp.asarray(factors, jnp.float32))
    if num_workers == 2:
        states = LocalState(values, (), jnp.zeros(2, jnp.int32))
        own, states = states_after_exchange(jnp.int32(0), jnp.int32(1), matrix.weights, states)
        found = states.params.at[0].set(own.params)
    else:
        found = values_after_averaging(matrix, values)
    assert found.dtype == dtype
    exact = factors @ np.asarray(values, np.float64)
    np.testing.assert_allclose(np.asarray(found, np.float64).mean(), exact.mean(), rtol=1e-4)
