"""What all schemes share: the runs of several conditions, one condition after the other."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import stragglers, tasks
from gcjax.study import Condition, Study, draw
from gcjax.study.inputs import labels

UNITS, WORKERS, SEEDS = 5, 3, 2
KEY = jax.random.key(7)
SLOW = stragglers.exponential(mean=1.0)
CONDITIONS = {
    "even": Condition(SLOW),
    "uneven": Condition(stragglers.scaled(SLOW, factor=4.0, workers=(1,)), stragglers.links(upload=8.0)),
}
TASK = tasks.digits(WORKERS, hidden=(4,))
SIZES = {"num_workers": WORKERS, "num_units": UNITS, "num_seeds": SEEDS}
STUDY = Study(task=TASK, optimizer=optax.sgd(0.1), seed=7, **SIZES)


@pytest.fixture(scope="module")
def two():
    return draw(STUDY, CONDITIONS)


def test_every_run_says_what_it_is():
    study = Study(task=TASK, optimizer=None, num_workers=WORKERS, num_units=UNITS, num_seeds=SEEDS)
    assert {name: column.tolist() for name, column in labels(study, CONDITIONS).items()} == {
        "condition": ["even", "even", "uneven", "uneven"],
        "seed": [0, 1, 0, 1],
    }


def test_conditions_differ_in_nothing_but_who_is_slow_and_what_messages_cost(two):
    even, uneven = two.durations[:SEEDS], two.durations[SEEDS:]
    np.testing.assert_allclose(uneven, even * jnp.array([1.0, 4.0, 1.0]), rtol=1e-6)
    for leaf in (*jax.tree.leaves(two.params), jax.random.key_data(two.rng_key)):
        np.testing.assert_array_equal(leaf[:SEEDS], leaf[SEEDS:])
    size = sum(leaf[0].nbytes for leaf in jax.tree.leaves(two.params))
    assert two.network.upload.tolist() == [0.0, 0.0, size / 8, size / 8]


def test_conditions_may_differ_in_whether_servers_of_groups_are_apart():
    networks = stragglers.Network(0.5), stragglers.Network(servers=stragglers.Network(0.25, upload=1.0))
    inputs = draw(STUDY, {str(number): Condition(SLOW, network) for number, network in enumerate(networks)})
    servers = inputs.network.servers
    assert [servers.latency.tolist(), servers.upload.tolist()] == [[0, 0, 0.25, 0.25], [0, 0, 1, 1]]
    assert inputs.network.latency.tolist() == [0.5, 0.5, 0, 0] and servers.server is None


def test_times_of_messages_may_be_of_all_workers_or_of_each():
    latencies = 0.5, tuple(range(STUDY.num_workers))
    conditions = {str(number): Condition(SLOW, stragglers.Network(x)) for number, x in enumerate(latencies)}
    expected = [[0.5] * STUDY.num_workers] * STUDY.num_seeds + [list(latencies[1])] * STUDY.num_seeds
    assert draw(STUDY, conditions).network.latency.tolist() == expected


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (stragglers.constant_network(server=1.0), "of 'free' and 'dear' only one has server. Give the other one"),
        (stragglers.Network(service=0.1), "only one has service. Give"),
    ],
)
def test_networks_of_other_kinds_are_refused(network, words):
    conditions = {"free": Condition(SLOW), "dear": Condition(SLOW, network)}
    with pytest.raises(ValueError, match=words):
        draw(STUDY, conditions)


def test_each_seed_draws_its_own(two):
    key, init_key, batch_key = jax.random.split(jax.random.split(KEY, SEEDS)[1], 3)
    np.testing.assert_array_equal(two.durations[1], stragglers.sample_durations(SLOW, key, UNITS, WORKERS))
    assert two.rng_key[1] == batch_key and two.rng_key[0] != batch_key
    expected = TASK.init(init_key)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x[1], y, rtol=1e-6), two.params, expected)


def test_each_seed_draws_its_own_absences_and_other_draws_stay_as_they_are(two):
    away = stragglers.random_absences(mean_present=2.0, mean_away=1.0, max_count=2)
    given = stragglers.absences(workers=(1,), leave=(1.0,))
    conditions = {
        "random": Condition(SLOW, absences=away),
        "none": Condition(SLOW),
        "given": Condition(SLOW, absences=given),
    }
    sizes = {"num_workers": WORKERS, "num_units": UNITS, "num_seeds": SEEDS}
    inputs = draw(Study(task=TASK, optimizer=optax.sgd(0.1), seed=7, **sizes), conditions)
    assert two.absences is None
    np.testing.assert_array_equal(inputs.durations[:SEEDS], two.durations[:SEEDS])
    leave, join = inputs.absences
    assert leave.shape == join.shape == (3 * SEEDS, WORKERS, 2)
    assert np.isfinite(leave[:SEEDS]).all() and (leave[0] != leave[1]).all()
    assert np.isinf(leave[SEEDS : 2 * SEEDS]).all()
    assert leave[2 * SEEDS :, 1, 0].tolist() == [1.0, 1.0] and np.isfinite(leave[2 * SEEDS :]).sum() == 2
    keys = jax.random.split(jax.random.split(KEY, SEEDS)[0], 4)
    np.testing.assert_array_equal(leave[0], away.sample(keys[3], WORKERS).leave)
