"""Products outside of networks are in full precision on every device: none in their programs is left to the device."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, compression, engine, protocols, tasks
from gcjax.codes import assignments
from tests.codes.helpers import KEY, exact_codes
from tests.devices import mesh

CODES = {name: code for name, code, _ in exact_codes()}
CODES["error correcting"] = codes.error_correcting(6, num_stragglers=1, num_wrong=1)
PARTIAL = codes.partial(assignments.cyclic(4, load=3), num_blocks=2, rng_key=KEY)
PROTOCOLS = {
    "coded": protocols.coded(PARTIAL),
    "asp": protocols.asp(),
    "k_sync": protocols.k_sync(num_contributions=2),
    "local_sgd": protocols.local_sgd(num_local_steps=2),
    "gossip": protocols.d_psgd(),
}


def products(jaxpr):
    """(operation, precision) of all products of floats of a program, also of those inside of its loops and calls."""
    for equation in jaxpr.eqns:
        is_product = equation.primitive.name in ("dot_general", "conv_general_dilated")
        if is_product and jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.inexact):
            yield str(equation), equation.params["precision"]
        for value in equation.params.values():
            for part in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from products(inner)


def assert_full(function, *arguments, at_least=0):
    all_products = list(products(jax.make_jaxpr(function)(*arguments).jaxpr))
    rounded = [text for text, precision in all_products if set(np.ravel(precision)) != {jax.lax.Precision.HIGHEST}]
    assert not rounded and len(all_products) >= at_least


def test_a_product_that_is_left_to_the_device_is_seen():
    matrix = jnp.ones((2, 2))
    loop = jax.jit(lambda x: jax.lax.fori_loop(0, 2, lambda _, y: y @ y, x))
    with pytest.raises(AssertionError):
        assert_full(loop, matrix)


@pytest.mark.parametrize("name", CODES)
def test_of_plans(name):
    code = CODES[name]
    assert_full(code.plan, jnp.asarray(code.assignment.loads))


def test_of_decoding_by_least_squares():
    assert_full(codes.optimal_decoding(assignments.cyclic(5, load=3)).plan, jnp.ones(5, jnp.int32), at_least=2)
    without_table = codes.partial(assignments.cyclic(26, load=24), num_blocks=2, rng_key=KEY)
    assert_full(without_table.plan, jnp.ones(26, jnp.int32), at_least=2)


@pytest.mark.parametrize("name", ["partial L=2", "partial L=1", "multi-message"])
def test_of_coded_steps(name):
    code = CODES[name]
    step = engine.coded_value_and_grad(lambda params, x: (params * x).sum(), code, mesh(1))
    batch = jnp.ones((*code.assignment.chunks.shape, 8))
    assert_full(step, jnp.ones(8), batch, jnp.asarray(code.assignment.loads), at_least=1)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_of_runs(name):
    task = tasks.linear_regression(4, num_features=3, batch_size=2)

    def params(durations):
        return engine.run(task, PROTOCOLS[name], optax.sgd(0.1), durations, rng_key=KEY, eval_every=3).params

    assert_full(params, jnp.ones((6, 4)), at_least=2)


def test_of_matrices_sent_as_factors():
    scheme = compression.powersgd(rank=2)
    message = jnp.ones((5, 4))
    assert_full(lambda m: scheme.compress(m, scheme.init(KEY, m), KEY)[0], message, at_least=3)
