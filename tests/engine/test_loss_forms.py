"""Losses of examples: what belongs to a whole chunk, and arrays without numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, engine
from tests.devices import mesh

B, FEATURES = 5, 3
CODE = codes.fractional_repetition(4, num_stragglers=1)
NUM_CHUNKS = CODE.assignment.num_chunks


def gradient_of(loss, chunks, **options):
    """What is decoded when everybody is there, and the mean of the gradients of the chunks' mean losses."""
    on_mesh = mesh(1)
    batch = engine.shard_chunks(chunks, CODE, on_mesh)
    p = jnp.linspace(1.0, 2.0, FEATURES)
    decoded = engine.coded_value_and_grad(loss, CODE, on_mesh, **options)(p, batch, CODE.assignment.loads)[:2]

    def mean_loss(p):
        value_and_aux = [loss(p, jax.tree.map(lambda x, i=i: x[i], chunks)) for i in range(NUM_CHUNKS)]
        values = [x[0] if options.get("has_aux") else x for x in value_and_aux]
        return jnp.stack(values).mean()

    return decoded, jax.value_and_grad(mean_loss)(p)


def inputs():
    return jax.random.normal(jax.random.key(0), (NUM_CHUNKS, B, FEATURES))


def test_what_belongs_to_a_chunk_stays_its_own():
    """With all chunks as one batch the first one's factor, or key, would be that of all."""
    chunks = {"x": inputs(), "factor": jnp.arange(1.0, NUM_CHUNKS + 1)[:, None]}
    decoded, expected = gradient_of(lambda p, chunk: (chunk["x"] @ p) ** 2 * chunk["factor"][:1], chunks)
    np.testing.assert_allclose(decoded[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(decoded[1], expected[1], rtol=1e-5)


def test_a_key_of_each_chunk_draws_for_its_examples():
    chunks = {"x": inputs(), "seed": np.arange(NUM_CHUNKS)}

    def loss(p, chunk):
        is_kept = jax.random.bernoulli(jax.random.key(chunk["seed"]), 0.5, (B,))
        return jnp.where(is_kept, (chunk["x"] @ p) ** 2, 0)

    decoded, expected = gradient_of(loss, chunks)
    np.testing.assert_allclose(decoded[1], expected[1], rtol=1e-5)


def test_a_mean_may_keep_its_axis():
    decoded, expected = gradient_of(lambda p, chunk: ((chunk["x"] @ p) ** 2).mean(keepdims=True), {"x": inputs()})
    np.testing.assert_allclose(decoded[1], expected[1], rtol=1e-5)


@pytest.mark.parametrize("per_example", [False, True])
def test_arrays_may_have_no_numbers(per_example):
    chunks = {"x": inputs(), "unused": jnp.zeros((NUM_CHUNKS, B, 0))}

    def loss(p, chunk):
        values = (chunk["x"] @ p) ** 2
        return (values, jnp.zeros((values.size, 0))) if per_example else (values.mean(), jnp.zeros(0))

    decoded, expected = gradient_of(loss, chunks, has_aux=True)
    assert decoded[0][1].shape == (0,)
    np.testing.assert_allclose(decoded[0][0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(decoded[1], expected[1], rtol=1e-5)
