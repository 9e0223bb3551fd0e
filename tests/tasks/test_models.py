"""Networks: sizes, structure, options."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax.tasks.layers import local_response_norm
from gcjax.tasks.models import MODELS, Transformer, causal_attention, network
from tests.parameters import some

KEY = jax.random.key(1)


@pytest.mark.parametrize(
    ("name", "options", "shape", "parameters"),
    [
        ("lrn_cnn", {}, (32, 32, 3), 148_298),
        ("lrn_cnn", {"width": 8}, (28, 28, 1), 208 + 1608 + 3930),
        ("resnet20", {}, (32, 32, 3), 269_722),
        ("resnet20", {"width": 32}, (32, 32, 3), 1_073_962),
        ("resnet20", {}, (8, 8, 1), 269_434),
        ("mlp", {"hidden": (5, 4)}, (28, 28, 1), 3999),
        ("cnn", {"hidden": ()}, (32, 32, 3), 224 + 1168 + 10250),
    ],
)
def test_numbers_of_parameters(name, options, shape, parameters):
    module = network(name, **options).module(10, jnp.float32)
    params = jax.eval_shape(module.init, KEY, jnp.zeros((1, *shape)))
    assert sum(x.size for x in jax.tree.leaves(params)) == parameters


SHAPES = [(8, 8, 1), (28, 28, 1), (32, 32, 3)]
DEEP = [("resnet20", shape) for shape in SHAPES[1:]]


@pytest.mark.slow("resnet20-shape9")
@pytest.mark.parametrize(
    ("name", "shape"), some([(n, s) for n in sorted(MODELS) for s in SHAPES if (n, s) not in DEEP], DEEP)
)
def test_every_network_takes_every_size_and_float_type(name, shape, x64):
    for dtype in (jnp.float32, jnp.float64):
        module = network(name).module(10, dtype)
        images = jnp.zeros((3, *shape), dtype)
        params = jax.eval_shape(module.init, KEY, images)
        logits = jax.eval_shape(lambda p, x, module=module: module.apply(p, x, train=True), params, images)
        assert {x.dtype for x in jax.tree.leaves((params, logits))} == {jnp.dtype(dtype)}
        assert logits.shape == (3, 10)


def test_the_network_of_wbsp_has_its_layers_in_order():
    module = network("lrn_cnn", width=3).module(10, jnp.float32)
    images = jax.random.normal(KEY, (2, 8, 8, 1))
    params = jax.tree.map(lambda x: x + 0.1, jax.jit(module.init)(KEY, images)["params"])

    def convolved(x, layer):
        kernel = layer["kernel"].reshape(5, 5, -1, 3)
        out = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return nn.relu(out + layer["bias"].reshape(1, 1, 1, -1))

    def pooled(x):
        return nn.max_pool(x, (3, 3), (2, 2), "SAME")

    @jax.jit
    def expected(params):
        x = local_response_norm(pooled(convolved(images, params["Dense_0"])))
        x = pooled(local_response_norm(convolved(x, params["Dense_1"])))
        return x.reshape(2, -1) @ params["Dense_2"]["kernel"] + params["Dense_2"]["bias"][None]

    found = jax.jit(module.apply)({"params": params}, images)
    np.testing.assert_allclose(found, expected(params), rtol=1e-4)


@pytest.mark.slow
def test_resnet20_is_its_shortcuts_where_the_blocks_are_zero():
    """Every second pixel twice, and new channels on both sides; an example's logits depend on no other."""
    module = network("resnet20", width=2).module(10, jnp.float32)
    images = np.random.default_rng(0).normal(size=(3, 8, 8, 2)).astype(np.float32)
    params = jax.jit(module.init)(KEY, images)["params"]
    apply = jax.jit(lambda params, images: module.apply({"params": params}, images, capture_intermediates=True))
    one, other = (apply(params, x)[0] for x in (images, images[[0, 2, 1]]))
    np.testing.assert_allclose(one[:1], other[:1], atol=1e-5)
    assert (jnp.abs(one[1:] - other[1:]) > 1e-3).any()

    for block in range(9):
        params[f"GroupNorm_{2 * block + 2}"]["GroupNorm_0"]["scale"] *= 0
    logits, state = apply(params, images)
    first = np.maximum(0, state["intermediates"]["GroupNorm_0"]["__call__"][0])
    assert [state["intermediates"][f"GroupNorm_{i}"]["__call__"][0].shape[1] for i in (6, 7, 12, 13)] == [8, 4, 4, 2]
    features = np.pad(first[:, ::4, ::4].mean(axis=(1, 2)), ((0, 0), (3, 3)))
    np.testing.assert_allclose(logits, features @ np.asarray(params["Dense_19"]["kernel"]), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "resnet"}, "model must be one of .*; got 'resnet'. Did you mean 'resnet20'"),
        ({"model": "resnet20", "hidden": (3,)}, r"'resnet20' has no option hidden; got \(3,\). It has width."),
        ({"model": "lrn_cnn", "dropout": 0.5}, "'lrn_cnn' has no option dropout; got 0.5. It has width."),
        ({"model": "mlp", "width": 3}, "'mlp' has no option width; got 3. It has hidden and dropout."),
        ({"model": "resnet20", "width": 0}, "width must be a whole number at least 1; got 0"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        network(**arguments)


def test_the_transformer_looks_only_back():
    module = Transformer(num_tokens=11, width=8, depth=1)
    tokens = jax.random.randint(KEY, (2, 6), 0, 11)
    params = jax.jit(module.init)(KEY, tokens)
    apply = jax.jit(module.apply)
    one, other = apply(params, tokens), apply(params, tokens.at[:, 4].add(1) % 11)
    np.testing.assert_array_equal(one[:, :4], other[:, :4])
    assert (jnp.abs(one[:, 4:] - other[:, 4:]).max(axis=(0, 2)) > 1e-3).all()


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs a GPU")
def test_attention_on_a_gpu_is_that_of_flax():
    query, key, value = jax.random.normal(KEY, (3, 2, 16, 4, 32), jnp.bfloat16)
    mask = jnp.tril(jnp.ones((16, 16), bool))[None, None]
    result, gradient = jax.value_and_grad(lambda q: causal_attention(q, key, value, mask).astype(jnp.float32).sum())(
        query
    )
    expected, expected_gradient = jax.value_and_grad(
        lambda q: nn.dot_product_attention(q, key.astype(jnp.float32), value.astype(jnp.float32), mask=mask).sum()
    )(query.astype(jnp.float32))
    np.testing.assert_allclose(result, expected, rtol=0.02)
    np.testing.assert_allclose(gradient.astype(jnp.float32), expected_gradient, atol=0.05)


def test_a_head_has_as_many_numbers_as_asked_for():
    for head_size, shape in ((4, (8, 2, 4)), (32, (8, 1, 8))):
        module = Transformer(num_tokens=11, width=8, depth=1, head_size=head_size)
        params = jax.eval_shape(module.init, KEY, jnp.zeros((1, 6), jnp.int32))["params"]
        assert params["MultiHeadDotProductAttention_0"]["query"]["kernel"].shape == shape  # [width, heads, numbers]
