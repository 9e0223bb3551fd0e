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
    tree_key, term_key, choice_key = jax.random.split(rng_key, 3)
    tree, term = _random_tree(model, tree_key), _random_term(model, term_key)
    return _one_of(_random_bytes(model, choice_key), (tree, term, choice(tree, term)))


def step(model: Model, rng_key: jax.Array) -> Command:
    """A random atomic step: from each state, some of the steps of the program and of the environment."""
    allowed_in_256 = (64, 128, 192)  # the chance of each step to be allowed: one of these
    return atomic(model, _coins(model, rng_key, (model.space.num_states, model.space.num_steps), allowed_in_256))


def states(model: Model, rng_key: jax.Array) -> jax.Array:
    """bool[S], a random set."""
    return _coins(model, rng_key, (model.space.num_states,), (128,))


def relation(model: Model, rng_key: jax.Array) -> jax.Array:
    """bool[S, S], a random relation."""
    return _coins(model, rng_key, (model.space.num_states,) * 2, (64, 128, 192))


def _coins(model: Model, rng_key: jax.Array, shape: tuple[int, ...], *chances_in_256: tuple[int, ...]) -> jax.Array:
    """bool[len(chances_in_256), *shape], random; the first axis is left out if there is one entry of chances only.

    From each entry one of its numbers is drawn: the chance of True, in 256, for one array `shape`.
    """
    return _coins_from_bytes(_random_bytes(model, rng_key), shape, chances_in_256)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _coins_from_bytes(
    random_bytes: jax.Array, shape: tuple[int, ...], chances_in_256: tuple[tuple[int, ...], ...]
) -> jax.Array:
    """As `_coins`: for each array of coins one byte that chooses its chance, then one byte for each coin."""
    num_arrays, num_coins = len(chances_in_256), math.prod(shape)  # coins of one array
    bytes_per_array = 1 + num_coins
    random_bytes = random_bytes[: num_arrays * bytes_per_array].reshape(num_arrays, bytes_per_array)
    chosen_chances = [
        jnp.asarray(choices, jnp.uint8)[random_bytes[i, 0] % len(choices)] for i, choices in enumerate(chances_in_256)
    ]
    coins = (random_bytes[:, 1:] < jnp.stack(chosen_chances)[:, None]).reshape(num_arrays, *shape)
    return coins[0] if num_arrays == 1 else coins


@functools.partial(jax.jit, static_argnums=0)
def _random_bytes(model: Model, rng_key: jax.Array) -> jax.Array:
    """As many random bytes as anything here needs: always the same number, since generators compile slowly.

    uint8[3 (1 + S N)], for three arrays of coins [S, N] and the bytes that choose their chances.
    """
    return jax.random.bits(rng_key, (3 * (1 + model.shape[1] * model.shape[2]),), jnp.uint8)


def _random_tree(model: Model, rng_key: jax.Array) -> Command:
    """Branches cut off at random; what is left terminates or aborts at random, with one of four chances each."""
    kept_in_256, terminates_in_256, aborts_in_256 = (100, 160, 220, 255), (0, 32, 128, 255), (0, 0, 8, 64)
    states_and_words = model.shape[1:]
    coins = _coins(model, rng_key, states_and_words, kept_in_256, terminates_in_256, aborts_in_256)
    return _tree_from_coins(model, coins)


@functools.partial(jax.jit, static_argnums=0)
def _tree_from_coins(model: Model, coins: jax.Array) -> Command:
    """The command of coins bool[3, S, N]: whether each word, from each start, is kept, terminates and aborts.

    A word is there if all its prefixes are kept. What is stacked are the terminated, incomplete and aborted traces.
    """
    is_kept, terminates, aborts = coins
    empty_word, prefixes = 0, words(model).prefix  # prefixes: int32[n + 1, N]
    incomplete = is_kept.at[:, empty_word].set(True)[:, prefixes].all(axis=1)  # of [S, n + 1, N], over the prefixes
    return closed(model, jnp.stack([incomplete & terminates, incomplete, incomplete & aborts]))


def _random_term(model: Model, rng_key: jax.Array) -> Command:
    """One of six small programs of two random steps a and b, a random set p and a random relation r."""
    a_key, b_key, p_key, r_key, choice_key = jax.random.split(rng_key, 5)
    step_a, step_b = step(model, a_key), step(model, b_key)
    set_p, relation_r = states(model, p_key), relation(model, r_key)
    a_if_in_p = sequence(test(model, set_p), step_a)
    programs = (
        sequence(a_if_in_p, step_b),
        sequence(star(choice(a_if_in_p, step_b)), test(model, set_p)),
        omega(sequence(step_a, choice(step_b, assertion(model, set_p)))),
        sequence(assertion(model, set_p), omega(step_a)),
        choice(step_a, sequence(environment_step(model, relation_r), abort(model))),
        choice(test(model, set_p), sequence(step_b, sequence(test(model, ~set_p), abort(model)))),
    )
    return _one_of(_random_bytes(model, choice_key), programs)


@jax.jit
def _one_of(random_bytes: jax.Array, options: tuple[Command, ...]) -> Command:
    """One of these commands, chosen by the first random byte."""
    traces = jnp.stack([option.traces for option in options])
    return Command(traces[random_bytes[0] % len(options)], options[0].model)
