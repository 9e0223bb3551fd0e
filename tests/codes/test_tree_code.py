"""CodedReduce's code: who can be decoded from node to node, by definition, and the load of the paper."""

import itertools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, memory
from gcjax.codes import assignments
from tests.codes.helpers import KEY, completion, decoded


def cyclic_tree(num_children, num_stragglers, num_layers):
    code = codes.cyclic_repetition(num_children, num_stragglers=num_stragglers, rng_key=KEY)
    return codes.tree_code(code, num_layers=num_layers)


def below(num_children, num_layers, layer, number):
    """The workers below node number so much above a layer."""
    first = sum(num_children**i for i in range(1, layer + 1))
    return range(first + number * num_children, first + (number + 1) * num_children)


def decodes(finished, num_children, num_layers, is_enough, layer=0, number=0):
    """Whether a node can decode: `is_enough(sends)` of those below it."""
    sends = []
    for j, w in enumerate(below(num_children, num_layers, layer, number)):
        is_leaf = layer + 1 == num_layers
        inner = is_leaf or decodes(finished, num_children, num_layers, is_enough, layer + 1, number * num_children + j)
        sends.append(finished[w] and inner)
    return is_enough(sends)


TREES = {
    "2 of 3": (cyclic_tree(3, 1, 2), 3, 2, lambda sends: sum(sends) >= 2),
    "1 of 2, three layers": (cyclic_tree(2, 1, 3), 2, 3, lambda sends: sum(sends) >= 1),
    "groups": (
        codes.tree_code(codes.fractional_repetition(4, num_stragglers=1), num_layers=2),
        4,
        2,
        lambda sends: (sends[0] or sends[1]) and (sends[2] or sends[3]),
    ),
    "all": (codes.tree_code(codes.uncoded(2), num_layers=2), 2, 2, all),
}


def masks_of(num_workers, num_masks=1024):
    """All masks, or random ones of several densities."""
    if 2**num_workers <= num_masks:
        return np.array(list(itertools.product((False, True), repeat=num_workers)))
    generator = np.random.default_rng(0)
    density = generator.choice([0.5, 0.7, 0.85, 0.95], size=(num_masks, 1))
    return generator.random((num_masks, num_workers)) < density


@pytest.mark.parametrize("name", TREES)
def test_the_sum_is_decoded_iff_the_server_can(x64, name):
    code, num_children, num_layers, is_enough = TREES[name]
    masks = masks_of(code.assignment.num_workers)
    coding = jax.jit(jax.vmap(code.plan))(np.where(masks, code.assignment.load, 0).astype(np.int32))
    gradients = np.random.default_rng(1).normal(size=(code.assignment.num_chunks, 2))
    estimates = decoded(code, jax.tree.map(np.asarray, coding), gradients)
    is_right = np.isclose(estimates, gradients.sum(axis=0)[None], rtol=0, atol=1e-8).all(axis=1)
    expected = [decodes(mask, num_children, num_layers, is_enough) for mask in masks]
    np.testing.assert_array_equal(is_right, expected)
    np.testing.assert_array_equal(coding.residual < 1e-6, expected)
    assert any(expected) and not all(expected)


@pytest.mark.parametrize(
    ("num_children", "num_stragglers", "num_layers"), [(3, 1, 2), (2, 1, 3), (4, 2, 2), (3, 0, 2), (2, 0, 4), (5, 1, 1)]
)
def test_everybody_computes_the_least_share_there_is(num_children, num_stragglers, num_layers):
    a = cyclic_tree(num_children, num_stragglers, num_layers).assignment
    ratio = Fraction(num_children, num_stragglers + 1)
    assert Fraction(a.load, a.num_chunks) == 1 / sum(ratio**layer for layer in range(1, num_layers + 1))
    assert a.num_workers == sum(num_children**layer for layer in range(1, num_layers + 1))
    assert (a.loads == a.load).all() and all(len(set(row)) == a.load for row in a.chunks.tolist())


def test_one_layer_is_the_code_itself():
    code = codes.cyclic_repetition(5, num_stragglers=2, rng_key=KEY)
    tree = codes.tree_code(code, num_layers=1)
    plans = jax.jit(lambda progress: (code.plan(progress), tree.plan(progress)))
    for progress in ([3, 3, 3, 3, 3], [3, 0, 3, 3, 0]):
        one, other = plans(jnp.asarray(progress, jnp.int32))
        np.testing.assert_allclose(one.decode, other.decode, rtol=1e-6)
        np.testing.assert_allclose(one.encode.sum(axis=(1, 3)), other.encode.sum(axis=(1, 3)), rtol=1e-6)


def test_completion_is_that_of_the_slowest_path(x64):
    code, num_children, num_layers, is_enough = TREES["2 of 3"]
    seconds_of = completion(code)
    generator = np.random.default_rng(2)
    for _ in range(10):
        seconds = generator.exponential(size=12)
        first = min(
            time
            for time in seconds
            if decodes(seconds <= time, num_children, num_layers, is_enough)
        )  # fmt: skip
        np.testing.assert_allclose(seconds_of(jnp.asarray(seconds)), first * code.assignment.load)


@pytest.mark.parametrize(
    "make",
    [
        lambda: codes.partial(assignments.cyclic(4, load=2)),
        lambda: codes.communication_efficient(5, num_stragglers=1, num_blocks=2, rng_key=KEY),
        lambda: codes.heterogeneous([1, 2, 4], num_chunks=5, num_stragglers=1, rng_key=KEY),
        lambda: codes.one_step(assignments.cyclic(4, load=2)),
    ],
)
def test_codes_that_have_no_tree_are_refused(make):
    with pytest.raises(ValueError, match="whose workers have the same load, and send one message"):
        codes.tree_code(make(), num_layers=2)


def test_bad_input():
    with pytest.raises(ValueError, match="tree_code needs a GradientCode"):
        codes.tree_code(3, num_layers=2)
    with pytest.raises(ValueError, match="num_layers must be a whole number at least 1; got 0"):
        codes.tree_code(codes.uncoded(2), num_layers=0)


@pytest.mark.parametrize(("num_children", "num_layers"), [(1, 10**6), (2, 40), (2, 10**6), (2, 2**31 - 1)])
def test_a_tree_that_does_not_fit_into_memory_is_refused_at_once(num_children, num_layers):
    with pytest.raises(ValueError, match=rf"in {num_layers} layers must fit into memory; .* Lower num_layers"):
        codes.tree_code(codes.uncoded(num_children), num_layers=num_layers)


@pytest.mark.parametrize(
    "make",
    [
        lambda: codes.uncoded(2**31 - 1, load=2**20),
        lambda: assignments.bernoulli(2**31 - 1, num_chunks=4, load=2, rng_key=KEY),
    ],
)
def test_codes_that_do_not_fit_into_memory_are_refused(make, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    with pytest.raises(ValueError, match="must fit into memory"):
        make()
