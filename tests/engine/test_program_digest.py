"""The digest of a program: equal where the same is computed, another where a number differs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax.engine.program_digest import digest_of_program

X = jnp.arange(3.0)


def digest(function, *arguments):
    return digest_of_program(jax.make_jaxpr(function)(*arguments))


def test_what_it_was_written_as_does_not_count():
    def twice(x):
        return 2 * jnp.sin(x)

    def other(y):
        sine = jnp.sin(y)
        return 2 * sine

    assert digest(twice, X) == digest(other, X)
    assert digest(jax.jit(twice), X) == digest(jax.jit(other), X)


def test_what_jax_traced_before_does_not_count():
    """It writes a function that it has traced already down once, and one that it traces anew again."""

    def both(x):
        return jnp.where(x > 0, x, 0.0) + jnp.where(x > 1, x, 0.0)

    first = digest(both, X)
    jax.clear_caches()
    inner = jax.jit(lambda x: jnp.where(x > 1, x, 0.0))
    inner(X)
    assert digest(both, X) == first


def test_numbers_and_operations_count():
    table = np.array([1.0, 2.0, 3.0], np.float32)
    functions = [
        lambda x: 2 * x,
        lambda x: 3 * x,
        lambda x: 2 + x,
        lambda x: x + table,
        lambda x: x + 2 * table,
        lambda x: jax.lax.fori_loop(0, 3, lambda _, y: 2 * y, x),
        lambda x: jax.lax.fori_loop(0, 4, lambda _, y: 2 * y, x),
        lambda x: jax.lax.fori_loop(0, 3, lambda _, y: 3 * y, x),
        lambda x: x.sum(axis=0),
        lambda x: x[::-1],
    ]
    digests = [digest(function, X) for function in functions]
    assert len(set(digests)) == len(functions)
    assert digest(functions[0], X[:2]) != digests[0]


def test_settings_of_optimizers_count():
    optimizers = [optax.sgd(0.1), optax.sgd(0.2), optax.sgd(0.1, momentum=0.9), optax.sgd(0.1, momentum=0.8)]
    optimizers += [optax.sgd(lambda count, steps=steps: jnp.where(count < steps, 0.1, 0.2)) for steps in (10, 20)]
    digests = {digest(lambda g, o=optimizer: o.update(g, o.init(X), X), X) for optimizer in optimizers}
    assert len(digests) == len(optimizers)
    assert digest(lambda g: optax.sgd(0.1).update(g, optax.sgd(0.1).init(X), X), X) in digests
