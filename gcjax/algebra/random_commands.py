"""Random commands, sets, relations and steps, to try laws on; all kinds of density, so that few laws hold for nothing.

Letters: S states, A steps, N words.
"""

import functools
import math

import jax
import jax.numpy as jnp

from gcjax.algebra.command import Command, choice, closed, sequence
from gcjax.algebra.iteration import omega, star
from gcjax.algebra.primitives import abort, assertion, atomic, environment_step, test
from gcjax.algebra.traces import Model, words


def command(model: Model, rng_key: jax.Array) -> Command:
    """A random command: any traces, or a term of steps, tests, aborts and iterations, or a choice of both."""
    tree_key, term_key = jax.random.split(rng_key)
    tree, term = _tree(model, tree_key), _term(model, term_key)
    return _one_of(_bytes(model, rng_key), (tree, term, choice(tree, term)))


def step(model: Model, rng_key: jax.Array) -> Command:
    """A random atomic step, of the program and of the environment."""
    return atomic(model, _coins(model, rng_key, (model.space.num_states, model.space.num_steps), (64, 128, 192)))


def states(model: Model, rng_key: jax.Array) -> jax.Array:
    """bool[S], a random set."""
    return _coins(model, rng_key, (model.space.num_states,), (128,))


def relation(model: Model, rng_key: jax.Array) -> jax.Array:
    """bool[S, S], a random relation."""
    return _coins(model, rng_key, (model.space.num_states,) * 2, (64, 128, 192))


def _coins(model: Model, rng_key: jax.Array, shape: tuple[int, ...], *odds: tuple[int, ...]) -> jax.Array:
    """bool[len(odds), *shape], random; the first axis is left out if there is one `odds` only.

    For each of the odds one of its numbers is drawn: the chance of True, in 256.
    """
    return _coins_from_bytes(_bytes(model, rng_key), shape, odds)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _coins_from_bytes(drawn: jax.Array, shape: tuple[int, ...], odds: tuple[tuple[int, ...], ...]) -> jax.Array:
    """As `_coins`, from random bytes: for each of the odds one that chooses the chance, then one for each entry."""
    number, size = len(odds), math.prod(shape)
    drawn = drawn[: number * (1 + size)].reshape(number, 1 + size)
    chances = [jnp.asarray(chance, jnp.uint8)[drawn[i, 0] % len(chance)] for i, chance in enumerate(odds)]
    coins = (drawn[:, 1:] < jnp.stack(chances)[:, None]).reshape(number, *shape)
    return coins[0] if number == 1 else coins


@functools.partial(jax.jit, static_argnums=0)
def _bytes(model: Model, rng_key: jax.Array) -> jax.Array:
    """As many random bytes as anything here needs: always the same number, since generators compile slowly."""
    return jax.random.bits(rng_key, (3 * (1 + model.shape[1] * model.shape[2]),), jnp.uint8)


def _tree(model: Model, rng_key: jax.Array) -> Command:
    """Branches cut off at random; what is left terminates or aborts at random."""
    odds = (100, 160, 220, 255), (0, 32, 128, 255), (0, 0, 8, 64)
    return _tree_from_coins(model, _coins(model, rng_key, model.shape[1:], *odds))


@functools.partial(jax.jit, static_argnums=0)
def _tree_from_coins(model: Model, coins: jax.Array) -> Command:
    """bool[3, S, N]: whether each word is kept, terminates and aborts; a word is there if all its prefixes are kept."""
    keep, stop, fail = coins
    incomplete = keep.at[:, 0].set(True)[:, words(model).prefix].all(axis=1)
    return closed(model, jnp.stack([incomplete & stop, incomplete, incomplete & fail]))


def _term(model: Model, rng_key: jax.Array) -> Command:
    """A small program."""
    keys = jax.random.split(rng_key, 4)
    a, b = step(model, keys[0]), step(model, keys[1])
    p, r = states(model, keys[2]), relation(model, keys[3])
    guarded = sequence(test(model, p), a)
    options = (
        sequence(guarded, b),
        sequence(star(choice(guarded, b)), test(model, p)),
        omega(sequence(a, choice(b, assertion(model, p)))),
        sequence(assertion(model, p), omega(a)),
        choice(a, sequence(environment_step(model, r), abort(model))),
        choice(test(model, p), sequence(b, sequence(test(model, ~p), abort(model)))),
    )
    return _one_of(_bytes(model, rng_key), options)


@jax.jit
def _one_of(drawn: jax.Array, options: tuple[Command, ...]) -> Command:
    """One of these commands, chosen by the first random byte."""
    traces = jnp.stack([option.traces for option in options])
    return Command(traces[drawn[0] % len(options)], options[0].model)
