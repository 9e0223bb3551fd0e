"""Gradients cut into blocks, array by array, and put together again."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, compression, engine, protocols
from gcjax.codes import assignments
from gcjax.engine import messages
from gcjax.tasks.base import Task

ARRAYS = {"matrix": np.arange(12.0).reshape(3, 4), "number": np.float64(50.0), "vector": np.arange(90.0, 95.0)}


@pytest.mark.parametrize("num_blocks", [1, 2, 3, 7])
def test_a_block_has_its_part_of_each_array(num_blocks):
    with jax.enable_x64(True):
        blocks = messages.gradient_blocks(jax.tree.map(jnp.asarray, ARRAYS), num_blocks)
    expected = []
    for array in ARRAYS.values():
        width = -(-array.size // num_blocks)
        padded = [*array.reshape(-1), *[0.0] * (width * num_blocks - array.size)]
        expected.append(np.reshape(padded, (num_blocks, width)))
    np.testing.assert_array_equal(blocks, np.concatenate(expected, axis=1))
    assert messages.block_shape(ARRAYS, num_blocks).shape == blocks.shape[1:]


@pytest.mark.parametrize("num_blocks", [1, 2, 5])
def test_blocks_put_together_are_the_gradient_in_its_own_types(num_blocks):
    gradient = {"wide": jnp.ones((2, 3), jnp.float32), "narrow": jnp.full(5, 0.1, jnp.bfloat16), "one": jnp.float32(3)}
    with jax.numpy_dtype_promotion("standard"):  # a block has one type
        blocks = messages.gradient_blocks(gradient, num_blocks)
        assert blocks.dtype == messages.block_shape(gradient, num_blocks).dtype == jnp.float32
    restored = messages.gradient_from_blocks(blocks, gradient)
    jax.tree.map(np.testing.assert_array_equal, restored, gradient)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), restored) == jax.tree.map(lambda x: (x.shape, x.dtype), gradient)


def test_a_gradient_of_no_arrays_has_blocks_of_no_numbers():
    """A step has one where nothing is trained."""
    assert messages.gradient_blocks({}, num_blocks=2).shape == (2, 0)
    assert messages.gradient_from_blocks(jnp.zeros((2, 0)), {}) == {}
    messages_of_workers, losses = messages.worker_messages(
        lambda _, chunk: chunk.sum(), {}, jnp.ones((3, 2, 5)), jnp.ones((3, 1, 2, 2))
    )
    assert messages_of_workers.shape == (3, 1, 0)
    np.testing.assert_array_equal(losses, np.full((3, 2), 5.0))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (20, 20)])
def test_rows_are_combined_in_few_operations(shape, x64):
    """They are compiled for each array of a gradient."""
    generator = np.random.default_rng(0)
    coefficients, rows = generator.normal(size=shape), generator.normal(size=(shape[1], 7))
    np.testing.assert_allclose(
        messages.combined_rows(jnp.asarray(coefficients), jnp.asarray(rows)), coefficients @ rows
    )
    assert len(jax.make_jaxpr(messages.combined_rows)(coefficients, rows).eqns) < 60


SHAPES = {"matrix": (3, 3), "nothing": (0, 2), "number": (), "vector": (5,)}
RATE, W, L = 0.1, 4, 2
CODE = codes.partial(assignments.cyclic(W, load=3), num_blocks=L, rng_key=jax.random.key(4))
WIDTH = 5 + 0 + 1 + 3  # of a block


def towards(chunk):
    """What the parameters of a chunk's loss go to, each array its own."""
    return {name: np.cos(np.arange(np.prod(shape)) + 3.0 * chunk).reshape(shape) for name, shape in SHAPES.items()}


def quadratic():
    """A task whose gradient on a chunk is what the parameters still lack of `towards(chunk)`."""
    targets = jax.tree.map(lambda *rows: jnp.stack(rows), *map(towards, range(W)))
    return Task(
        data=targets,
        init=lambda rng_key: {name: jnp.zeros(shape) for name, shape in SHAPES.items()},
        loss=lambda params, batch, rng_key: (
            optax.tree.norm(jax.tree.map(jnp.subtract, params, batch), squared=True) / 2
        ),
        unit_batch=lambda data, rng_key, worker, unit: jax.tree.map(lambda x: x[worker], data),
        chunk_batch=lambda data, rng_key, chunk, round_number: jax.tree.map(lambda x: x[chunk], data),
        metrics=lambda params, data: {},
        num_chunks=W,
    )


def blocks_in_numpy(tree):
    """float[L, WIDTH]: a part of each array in each block."""
    padded = [np.pad(np.ravel(x), (0, -x.size % L)).reshape(L, -1) for x in map(np.asarray, tree.values())]
    return np.concatenate(padded, axis=1)


def arrays_in_numpy(blocks):
    """The arrays of which blocks float[L, WIDTH] are."""
    found, begin = {}, 0
    for name, shape in SHAPES.items():
        size = int(np.prod(shape))
        width = -(-size // L)
        found[name] = blocks[:, begin : begin + width].ravel()[:size].reshape(shape)
        begin += width
    return found


def largest(vector, number):
    """The vector with only the `number` largest of its numbers."""
    return np.where(np.isin(np.arange(vector.size), np.argsort(-np.abs(vector))[:number]), vector, 0)


@pytest.mark.parametrize("kept_numbers", [None, 3])
def test_a_coded_run_of_several_arrays_is_that_of_its_definition(kept_numbers, x64):
    """Also with messages of which only the largest numbers are sent, and the others kept for the next one."""
    used_compression = kept_numbers and compression.error_feedback(compression.top_k(share=kept_numbers / WIDTH))
    durations = jnp.asarray(np.random.default_rng(0).gamma(4.0, size=(9, W)))
    protocol = protocols.coded(CODE)
    run = engine.run(
        quadratic(), protocol, optax.sgd(RATE), durations, rng_key=jax.random.key(1), compression=used_compression
    )
    params, kept = {name: np.zeros(shape) for name, shape in SHAPES.items()}, np.zeros((W, WIDTH))
    num_commits = int(run.info.num_commits)
    for work, weight in zip(run.schedule.work[:num_commits], run.schedule.weight[:num_commits], strict=True):
        coding, is_sent = CODE.plan(work), np.asarray(CODE.sent(work))[:, 0]
        gradients = [blocks_in_numpy({name: params[name] - x for name, x in towards(c).items()}) for c in range(W)]
        estimate = np.zeros((L, WIDTH))
        for worker in np.flatnonzero(is_sent):
            held = CODE.assignment.chunks[worker]
            message = sum(coding.encode[worker, 0, k] @ gradients[chunk] for k, chunk in enumerate(held))
            if kept_numbers is not None:
                message = message + kept[worker]
                kept[worker] = message - largest(message, kept_numbers)
                message = message - kept[worker]
            estimate += np.outer(coding.decode[worker, 0], message) * float(weight[worker])
        params = {name: params[name] - RATE * x for name, x in arrays_in_numpy(estimate).items()}
    assert num_commits == 3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), run.params, params)
    if kept_numbers is not None:
        np.testing.assert_allclose(run.state.compression.residual, kept, rtol=1e-9, atol=1e-12)
