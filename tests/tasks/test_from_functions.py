"""Tasks of a user's own model."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gcjax
from gcjax.tasks import task_of
from gcjax.tasks.base import merge
from tests.parameters import some

KEY = jax.random.key(3)
INPUTS = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
TARGETS = (INPUTS @ np.ones(4) + 1).astype(np.float32)
DATA = INPUTS, TARGETS


def init(rng_key):
    return {"w": jax.random.normal(rng_key, (4,)), "b": jnp.zeros(())}


def each(params, examples):
    inputs, targets = examples
    return (inputs @ params["w"] + params["b"][None] - targets) ** 2


def mean(params, examples):
    return jnp.mean(each(params, examples))


def noisy(params, examples, key):
    losses = each(params, examples)
    return losses if key is None else losses * jax.random.uniform(key, losses.shape)


def noisy_if_asked(params, examples, rng_key=None):
    return noisy(params, examples, rng_key)


def bias(params, examples):
    return {"bias": params["b"], "examples": jnp.asarray(len(examples[1]))}


def chunk_gradients(task, num_chunks):
    params = task.init(KEY)
    batches = [task.chunk_batch(task.data, KEY, jnp.int32(c), jnp.int32(0)) for c in range(num_chunks)]
    return params, [jax.grad(task.loss)(params, batch, KEY) for batch in batches]


@pytest.mark.slow("0-each-7", "0-mean-5")
@pytest.mark.parametrize(("loss", "num_chunks"), some([(each, 7), (mean, 5)], [(each, 1), (each, 3), (mean, 3)]))
@pytest.mark.parametrize("seed", [0, None])
def test_the_mean_of_the_chunk_gradients_is_the_full_gradient(loss, num_chunks, seed):
    task = task_of(init, loss, DATA, num_chunks=num_chunks, batch_size=None, local_data=True, seed=seed)
    params, gradients = chunk_gradients(task, num_chunks)
    full = jax.grad(mean)(params, DATA)
    got = jax.tree.map(lambda *leaves: sum(leaves) / num_chunks, *gradients)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), got, full)


def test_drawn_batches_of_unequal_chunks_count_by_their_chunks():
    task = task_of(init, mean, DATA, num_chunks=7, batch_size=8)
    params = task.init(KEY)
    batch = task.chunk_batch(task.data, KEY, jnp.int32(0), jnp.int32(0))  # of 5 examples out of 30
    expected = 5 * 7 / 30 * mean(params, (batch.inputs, batch.targets))
    np.testing.assert_allclose(task.loss(params, batch, KEY), expected, rtol=1e-5)


def test_examples_are_dealt_in_a_random_order_unless_they_are_left():
    labels = np.repeat(np.arange(3), 10)
    as_it_is = task_of(init, each, (INPUTS, labels.astype(np.float32)), num_chunks=3, seed=None)
    dealt = task_of(init, each, (INPUTS, labels.astype(np.float32)), num_chunks=3)
    assert np.array_equal(as_it_is.data.train.targets, labels)
    assert len(set(np.asarray(dealt.data.train.targets[:10]).tolist())) == 3
    assert np.array_equal(np.sort(dealt.data.train.targets), labels)


def test_metrics_are_of_the_examples_that_they_say():
    task = task_of(init, each, DATA, num_chunks=7, held_out=(INPUTS[:5] + 1, TARGETS[:5]), metrics=bias)
    params = task.init(KEY)
    metrics = task.metrics(params, task.data)
    np.testing.assert_allclose(metrics["train_loss"], mean(params, DATA), rtol=1e-5)
    np.testing.assert_allclose(metrics["test_loss"], mean(params, (INPUTS[:5] + 1, TARGETS[:5])), rtol=1e-5)
    assert metrics["examples"] == 5
    alone = task_of(init, each, DATA, num_chunks=7, metrics=bias)
    assert set(alone.metrics(params, alone.data)) == {"train_loss", "bias", "examples"}
    assert alone.metrics(params, alone.data)["examples"] == 30  # not the padding


@pytest.mark.slow("noisy")
@pytest.mark.parametrize("loss", [noisy, noisy_if_asked])
def test_a_loss_with_a_third_parameter_gets_the_key_and_none_in_metrics(loss):
    task = task_of(init, loss, DATA, num_chunks=3)
    params = task.init(KEY)
    batch = task.unit_batch(task.data, KEY, jnp.int32(0), jnp.int32(0))
    values = [float(task.loss(params, batch, jax.random.key(i))) for i in range(2)]
    assert values[0] != values[1]
    np.testing.assert_allclose(task.metrics(params, task.data)["train_loss"], mean(params, DATA), rtol=1e-5)
    assert not task.mergeable


def test_only_losses_of_each_example_are_merged():
    assert not task_of(init, mean, DATA, num_chunks=3).mergeable
    task = task_of(init, each, DATA, num_chunks=3)
    assert task.mergeable
    params = task.init(KEY)
    batches = [task.unit_batch(task.data, KEY, jnp.int32(w), jnp.int32(0)) for w in range(2)]
    weights = jnp.asarray([0.3, 0.7])
    both = task.loss(params, merge(jax.tree.map(lambda *x: jnp.stack(x), *batches), weights), KEY)
    expected = sum(w * task.loss(params, batch, KEY) for w, batch in zip(weights, batches, strict=True))
    np.testing.assert_allclose(both, expected, rtol=1e-5)


def test_equal_settings_give_equal_functions_whatever_the_data():
    one = task_of(init, each, DATA, num_chunks=3, metrics=bias)
    two = task_of(init, each, (2 * INPUTS, TARGETS), num_chunks=3, metrics=bias, seed=1)
    assert one._replace(data=None) == two._replace(data=None)
    assert one.loss != task_of(init, mean, DATA, num_chunks=3, metrics=bias).loss


def test_types(x64):
    task = task_of(init, each, (INPUTS, TARGETS), num_chunks=3)
    assert task.data.train.inputs.dtype == jnp.float64
    images = task_of(
        init, lambda p, e: each(p, (e[0].astype(float), e[1])), (INPUTS.astype(np.uint8), TARGETS), num_chunks=2
    )
    assert images.data.train.inputs.dtype == jnp.uint8


def test_a_run_learns():
    task = task_of(init, each, DATA, num_chunks=3, batch_size=8)
    durations = jnp.ones((40, 3))
    run = gcjax.engine.run(task, gcjax.protocols.bsp(), optax.sgd(0.1), durations, rng_key=KEY)
    losses = run.trajectory.metrics["train_loss"]
    assert losses[-1] < 0.01 * losses[0]


BAD = [
    ({"loss": lambda p, e: each(p, e)[:, None]}, r"float\[B\], or their mean, float\[\]; got shape \(2, 1\)"),
    ({"loss": lambda p, e: (mean(p, e), 1)}, r"must return a number for each example"),
    (
        {"loss": mean, "num_chunks": 7, "batch_size": None, "local_data": True},
        "30 examples make 7 chunks",
    ),
    ({"data": INPUTS}, r"data must be a pair \(inputs, targets\); got ndarray"),
    ({"data": (INPUTS, TARGETS[:3])}, r"as many inputs as targets, one at least; got shapes \(30, 4\) and \(3,\)"),
    (
        {"held_out": (INPUTS[:, :2], TARGETS)},
        r"held_out must have the shapes of data.*got \(2,\) where data has \(4,\)",
    ),
    ({"num_chunks": 31}, "num_chunks must be a whole number between 1 and 30"),
    ({"batch_size": 0}, "batch_size must be a whole number at least 1"),
    ({"batch_size": None}, "needs local_data=True"),
    ({"seed": -1}, "seed must be a whole number at least 0"),
    ({"data": (INPUTS, TARGETS + 1j)}, "targets must be real numbers; got an array of complex64"),
    ({"data": (INPUTS, TARGETS.astype(str))}, "targets must be real numbers; got an array of <U32"),
    (
        {"data": (np.arange(120).reshape(30, 4) + 2**31, TARGETS)},
        "inputs must be whole numbers that int32 can hold; got 21474836",
    ),
    (
        {"data": (INPUTS.astype(np.uint8), TARGETS), "held_out": (np.full((2, 4), 300), TARGETS[:2])},
        "inputs of held_out, as those of data, must be whole numbers that uint8 can hold; got 300",
    ),
    (
        {"data": (INPUTS.astype(int), TARGETS), "held_out": (np.full((2, 4), 0.5), TARGETS[:2])},
        "inputs of held_out, .* that int32 can hold; got 0.5",
    ),
    (
        {"data": (INPUTS.astype(int), TARGETS), "held_out": (np.full((2, 4), np.inf), TARGETS[:2])},
        "that int32 can hold; got inf",
    ),
]


@pytest.mark.parametrize(("arguments", "match"), BAD)
def test_bad_input_says_what_is_wrong(arguments, match):
    given = {"loss": each, "data": DATA, "num_chunks": 3, **arguments}
    with pytest.raises(ValueError, match=match):
        task_of(init, given.pop("loss"), given.pop("data"), **given)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (1.0, r"metrics must return a number for each name, .*; got shapes \[\]"),
        ({"each": np.ones(3)}, r"got shapes \{'each': \[3\]\}"),
        ({"train_loss": 1.0}, "other names than train_loss; got 'train_loss' again"),
    ],
)
def test_metrics_that_are_none_are_refused(values, match):
    task = task_of(init, each, DATA, num_chunks=3, metrics=lambda params, examples: values)
    with pytest.raises(ValueError, match=match):
        task.metrics(init(jax.random.key(0)), task.data)


def test_a_loss_may_take_its_key_by_keyword_only():
    def loss(params, example, *, rng_key=None):
        noise = 0.0 if rng_key is None else jax.random.normal(rng_key, ())
        return example[0] @ params - example[1] + noise

    task = task_of(lambda key: jnp.zeros(2), loss, (np.ones((4, 2)), np.zeros(4)), num_chunks=4)
    batch = task.chunk_batch(task.data, jax.random.key(0), jnp.int32(0), jnp.int32(0))
    losses = [float(task.loss(jnp.zeros(2), batch, jax.random.key(seed))) for seed in range(2)]
    assert losses[0] != losses[1]
