"""What holds for every task."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import tasks
from gcjax.testing import check_task
from tests.parameters import some
from tests.tasks.tasks import TASKS

KEY = jax.random.key(5)
ALL = pytest.mark.parametrize("name", sorted(TASKS))
SMALL = ["digits", "linear_regression", "logistic_regression"]
MERGEABLE = {"cifar10", "digits", "fashion_mnist", "mnist", "text"}


def make(name, num_chunks=8, **arguments):
    return TASKS[name][0](num_chunks, **arguments)


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def test_every_task_of_the_table_is_tested_here():
    assert set(TASKS) == set(tasks.TABLE)


@pytest.mark.slow("text")
@ALL
def test_everything_has_the_default_float_type(name):
    check_dtype(make(name), jnp.float32)


@ALL
def test_everything_is_float64_under_x64(name, x64):
    check_dtype(make(name), jnp.float64)


def check_dtype(task, dtype):
    params = jax.eval_shape(task.init, KEY)
    batch = jax.eval_shape(task.unit_batch, task.data, KEY, 0, 0)
    loss, gradient = jax.eval_shape(jax.value_and_grad(task.loss), params, batch, KEY)
    metrics = jax.eval_shape(task.metrics, params, task.data)
    floats = [x for x in jax.tree.leaves((task.data, batch)) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert {x.dtype for x in jax.tree.leaves((params, loss, gradient, floats, metrics))} == {jnp.dtype(dtype)}
    assert loss.shape == () and all(x.shape == () for x in metrics.values())


@pytest.mark.slow("cifar10", "digits", "fashion_mnist", "linear_regression", "text")
@ALL
def test_the_contract(name):
    check_task(make(name), quick=name != "linear_regression", rng_key=KEY)


@pytest.mark.slow("digits", "linear_regression")
@pytest.mark.parametrize("name", some(SMALL, [name for name in sorted(TASKS) if name not in SMALL]))
def test_the_contract_of_whole_chunks(name, x64):
    """7 divides no number of examples here: unequal chunks are exact too."""
    check_task(make(name, 7, batch_size=None, local_data=True), whole_chunks=True, quick=True, rng_key=KEY)


@pytest.mark.slow("digits")
@pytest.mark.parametrize("name", ["digits", "linear_regression"])
def test_one_chunk_is_all_data(name, x64):
    check_task(make(name, 1, batch_size=None, local_data=True), whole_chunks=True, quick=True, rng_key=KEY)


def test_tasks_say_whether_batches_go_through_one_pass():
    """Those that do not use the key and have weighted examples."""
    assert {name for name in TASKS if make(name).mergeable} == MERGEABLE


@ALL
def test_every_example_is_in_exactly_one_chunk(name):
    task = make(name, 7, batch_size=None, local_data=True)
    counts, n = np.asarray(task.data.train.sizes), TASKS[name][1]
    assert counts.sum() == n and counts.max() - counts.min() <= 1
    batches = [task.chunk_batch(task.data, KEY, c, 0) for c in range(7)]
    rows = [np.asarray(b.inputs)[np.asarray(b.weights) > 0] for b in batches]
    np.testing.assert_array_equal(np.concatenate(rows), np.asarray(task.data.train.inputs)[:n])


@ALL
def test_chunk_batches_differ_by_chunk_and_round(name):
    task = make(name)
    draw = jax.jit(task.chunk_batch)
    for other in ((2, 5), (3, 4), (5, 3)):
        assert (draw(task.data, KEY, *other).inputs != draw(task.data, KEY, 3, 5).inputs).any()


@ALL
def test_units_differ_by_worker_unit_and_key(name):
    task = make(name)
    first = task.unit_batch(task.data, KEY, 1, 2).inputs
    for key, worker, unit in ((KEY, 2, 2), (KEY, 1, 3), (KEY, 2, 1), (jax.random.key(6), 1, 2)):
        assert (task.unit_batch(task.data, key, worker, unit).inputs != first).any()


@ALL
@pytest.mark.parametrize("batch_size", [None, 4])
def test_local_units_are_the_batches_of_the_own_chunk(name, batch_size):
    task = make(name, batch_size=batch_size, local_data=True)
    for worker in (0, 5, 13):
        unit = task.unit_batch(task.data, KEY, worker, 3)
        assert_same(unit, task.chunk_batch(task.data, KEY, worker % 8, 3))


@ALL
def test_equal_settings_give_equal_functions(name):
    one, other = make(name, seed=1), make(name, seed=2)
    assert one._replace(data=None) == other._replace(data=None)
    assert hash(one._replace(data=None)) == hash(other._replace(data=None))
    assert make(name, batch_size=3).unit_batch != one.unit_batch


@ALL
def test_the_seed_decides_the_data(name):
    assert_same(make(name, seed=1).data, make(name, seed=1).data)
    assert (make(name, seed=1).data.train.inputs != make(name, seed=2).data.train.inputs).any()


@pytest.mark.parametrize("name", some(SMALL, [name for name in sorted(TASKS) if name not in SMALL]))
def test_training_lowers_the_loss(name):
    task, optimizer = make(name), optax.sgd(0.1)

    @jax.jit
    def train(data):
        def step(unit, carry):
            params, state = carry
            gradient = jax.grad(task.loss)(params, task.unit_batch(data, KEY, 0, unit), KEY)
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        params = task.init(KEY)
        trained, _ = jax.lax.fori_loop(0, 200, step, (params, optimizer.init(params)))
        return task.metrics(params, data)["train_loss"], task.metrics(trained, data)["train_loss"]

    before, after = train(task.data)
    assert after < 0.95 * before


@ALL
@pytest.mark.parametrize(
    ("num_chunks", "arguments", "message"),
    [
        (2000, {}, "num_chunks must be a whole number between 1 and .*; got 2000. Every chunk needs"),
        (0, {}, "num_chunks must be a whole number between 1 and"),
        (4, {"batch_size": 0}, "batch_size must be a whole number at least 1; got 0"),
        (4, {"batch_size": None}, "needs local_data=True; got local_data=False. Pass"),
    ],
)
def test_bad_input_is_refused(name, num_chunks, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(name, num_chunks, **arguments)
