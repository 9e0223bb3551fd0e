"""The baselines of Ringleader ASGD against plain Python, and its clients."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.published import digits_of_clients, ia2sgd, malenia
from gcjax import engine, protocols, tasks

KEY, RATE, NUM_WORKERS, NUM_UNITS = jax.random.key(3), 0.1, 4, 12
BATCH_KEY = jax.random.split(KEY)[1]
TASK = tasks.linear_regression(NUM_WORKERS, num_features=3, num_examples=32, batch_size=2, local_data=True)
DURATIONS = np.random.default_rng(0).uniform(0.5, 1.5, (NUM_UNITS, NUM_WORKERS)) * np.array([1.0, 1.7, 2.9, 4.3])


def gradient(params, worker, unit):
    batch = TASK.unit_batch(TASK.data, BATCH_KEY, jnp.int32(worker), jnp.int32(unit))
    return np.asarray(jax.grad(TASK.loss)(params, batch, BATCH_KEY))


def mean_of_means(table):
    return np.mean([np.mean(gradients, axis=0) for gradients in table.values()], axis=0)


def malenia_in_python(params, num_commits):
    """(times, parameters): rounds until everybody has finished a unit; what is under way is dropped."""
    begin, next_unit, times = 0.0, [0] * NUM_WORKERS, []
    for _ in range(num_commits):
        end = begin + max(DURATIONS[next_unit[w], w] for w in range(NUM_WORKERS))
        table = {}
        for worker in range(NUM_WORKERS):
            now, table[worker] = begin, []
            while now < end - 1e-9:
                now += DURATIONS[next_unit[worker], worker]
                if now <= end + 1e-9:
                    table[worker].append(gradient(params, worker, next_unit[worker]))
                next_unit[worker] += 1
        params = params - RATE * mean_of_means(table)
        times.append(end)
        begin = end
    return times, params


def ia2sgd_in_python(params, num_commits):
    """(times, parameters): the newest gradient of each worker, and a step on each arrival once all have one."""
    under_way = {w: (DURATIONS[0, w], 0, params) for w in range(NUM_WORKERS)}
    table, times = {w: [] for w in range(NUM_WORKERS)}, []
    while len(times) < num_commits:
        worker = min(under_way, key=lambda w: under_way[w][0])
        now, unit, read = under_way[worker]
        newest = gradient(read, worker, unit)
        table[worker] = [newest] if times else [*table[worker], newest]
        if all(table.values()):
            params = params - RATE * mean_of_means(table)
            times.append(now)
        under_way[worker] = (now + DURATIONS[unit + 1, worker], unit + 1, params)
    return times, params


@pytest.mark.slow("protocol0-malenia_in_python-2")
@pytest.mark.parametrize(
    ("protocol", "in_python", "num_commits"), [(malenia(), malenia_in_python, 2), (ia2sgd(), ia2sgd_in_python, 14)]
)
def test_baselines_are_what_plain_python_says(protocol, in_python, num_commits, x64):
    params = TASK.init(KEY)
    run = engine.run(
        TASK, protocol, optax.sgd(RATE), jnp.asarray(DURATIONS), rng_key=KEY, params=params, num_commits=num_commits
    )
    times, expected = in_python(np.asarray(params), num_commits)
    np.testing.assert_allclose(run.schedule.time[:num_commits], times, rtol=1e-9)
    np.testing.assert_allclose(run.params, expected, rtol=1e-5)


@pytest.mark.slow
def test_one_worker_alone_is_plain_sgd_under_all_of_them():
    durations, task = jnp.ones((6, 1)), tasks.linear_regression(1, num_features=2)
    ends = [
        engine.run(task, protocol, optax.sgd(0.1), durations, rng_key=KEY).params
        for protocol in (protocols.bsp(), malenia(), ia2sgd(), protocols.ringleader())
    ]
    for end in ends[1:]:
        np.testing.assert_allclose(end, ends[0], rtol=1e-5)


def test_clients_have_their_own_mixtures_of_all_images():
    task, alike = digits_of_clients(10), tasks.digits(10, local_data=True)
    train = task.data.train

    def pixels_and_labels(chunks):
        return {
            (x.tobytes(), int(y)) for x, y in zip(np.asarray(chunks.inputs), np.asarray(chunks.targets), strict=True)
        }

    assert pixels_and_labels(train) == pixels_and_labels(alike.data.train)
    rows_of_clients = zip(train.first_rows, train.sizes, strict=True)
    labels = [np.asarray(train.targets)[first : first + size] for first, size in rows_of_clients]
    largest_share = [np.bincount(own).max() / own.size for own in labels]
    assert np.mean(largest_share) > 0.5 and max(len(own) for own in labels) - min(len(own) for own in labels) <= 1
    even = digits_of_clients(10, concentration=1e4).data.train
    assert np.bincount(np.asarray(even.targets)[: int(even.sizes[0])]).max() < 30
    assert digits_of_clients(10).metrics == task.metrics


@pytest.mark.slow
def test_the_gradient_is_that_of_the_mean_loss_of_all_training_images():
    task = digits_of_clients(7, hidden=(4,))  # chunks of unequal length
    params = task.init(KEY)
    gradient = jax.grad(lambda point: task.metrics(point, task.data)["train_loss"])(params)
    expected = sum(float(jnp.vdot(leaf, leaf)) for leaf in jax.tree.leaves(gradient))
    np.testing.assert_allclose(task.metrics(params, task.data)["gradient"], expected, rtol=1e-4)


@pytest.mark.parametrize("bad", [{"concentration": 0.0}, {"concentration": float("inf")}, {"batch_size": 0}])
def test_bad_clients(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        digits_of_clients(4, **bad)
