"""What is waited for, of what a function returns."""

import functools
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from gcjax.watching.outputs import RARELY, Outputs


class State(NamedTuple):
    weights: jax.Array
    count: jax.Array


def state():
    return State(jnp.zeros((8, 8)), jnp.zeros(3))


def waited(outputs, output, copies=()):
    """The shapes of the arrays that are waited for."""
    outputs.wait(output, copies)
    return [array.shape for array in (functools.reduce(step, path, output) for path in outputs._awaited_paths)]


def step(tree, key):
    return tree[key.idx] if hasattr(key, "idx") else tree[key.key] if hasattr(key, "key") else getattr(tree, key.name)


def test_of_a_compiled_program_its_smallest_array():
    assert waited(Outputs(jax.jit(lambda: None)), (state(), {"loss": jnp.zeros(())})) == [()]


def test_of_a_python_function_the_smallest_of_each_part():
    assert waited(Outputs(lambda: None), (state(), {"loss": jnp.zeros(()), "all": jnp.zeros(9)})) == [(3,), ()]


@pytest.mark.parametrize("output", [None, 3.0, (), {"a": "text"}, jax.random.key(0), jnp.zeros((0, 3))])
def test_there_may_be_nothing_to_wait_for(output):
    assert not Outputs(lambda: None).wait(output, ())


def test_what_is_given_away_is_replaced_by_another_one():
    outputs = Outputs(jax.jit(lambda: None))
    assert waited(outputs, state()) == [(3,)]
    output = state()
    output.count.delete()
    with pytest.raises(RuntimeError):
        outputs.wait(output, ())
    assert waited(outputs, state()) == [(8, 8)] and not outputs._copied_paths


def give_away_before_its_turn(outputs):
    output = jnp.ones(4)
    output.delete()
    with pytest.raises(RuntimeError):
        outputs.wait(output, ())


def test_what_is_rarely_given_away_before_its_turn_is_not_copied():
    outputs = Outputs(lambda: None)
    outputs.copied_numbers(jnp.ones(4))
    for _ in range(3):
        give_away_before_its_turn(outputs)
        for _ in range(RARELY):
            assert waited(outputs, jnp.ones(4)) == [(4,)] and not outputs.needs_copies
    give_away_before_its_turn(outputs)
    give_away_before_its_turn(outputs)
    outputs.wait(jnp.ones(4), ())
    assert outputs.needs_copies


def test_where_all_is_given_away_a_number_is_copied():
    outputs = Outputs(lambda: None)
    assert outputs.copied_numbers(jnp.ones(4)) == []
    output = jnp.ones(4)
    outputs.wait(output, ())
    output.delete()
    with pytest.raises(RuntimeError):
        outputs.wait(output, ())
    give_away_before_its_turn(outputs)
    outputs.wait(jnp.ones(4), ())
    assert outputs.needs_copies
    (copy,) = outputs.copied_numbers(jnp.full(4, 5.0))
    assert copy.shape == () and float(copy) == 5.0
    output.delete()
    waits = []
    assert outputs.wait(output, [SimpleNamespace(block_until_ready=lambda: waits.append(copy))]) and waits


@jax.tree_util.register_pytree_node_class
class Unnamed:
    """Its parts have numbers, but no names by which to take them."""

    def __init__(self, *parts):
        self.parts = parts

    def tree_flatten(self):
        return self.parts, None

    @classmethod
    def tree_unflatten(cls, _, parts):
        return cls(*parts)


def test_parts_without_names_are_waited_for_too():
    outputs = Outputs(lambda: None)
    assert outputs.wait(Unnamed(3.0, jnp.zeros(4)), ())
    output = (Unnamed(3.0, jnp.zeros(4)), None)
    output[0].parts[1].delete()
    with pytest.raises(RuntimeError):
        outputs.wait(output, ())


def test_it_may_return_something_of_another_form():
    outputs = Outputs(lambda: None)
    assert waited(outputs, (jnp.zeros(2), jnp.zeros(3))) == [(2,), (3,)]
    assert waited(outputs, {"a": jnp.zeros(4)}) == [(4,)]


def test_what_is_being_compiled_is_refused():
    with pytest.raises(ValueError, match=r"must not be compiled .* got values that JAX is tracing"):
        jax.jit(lambda x: Outputs(lambda: None).copied_numbers(x))(1.0)
