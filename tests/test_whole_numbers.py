"""Whole numbers may be NumPy's, also narrow ones and ones without a sign: they count as the integers that they are."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import _validate, codes, compression, specifications
from gcjax.codes import assignments, diagnostics

ROOT = Path(__file__).parents[1]
KEY = jax.random.key(0)


def chunks(code):
    return code.assignment.chunks


RESULTS = {
    "uncoded": lambda i: chunks(codes.uncoded(i(20), load=i(20))),
    "clustered": lambda i: chunks(
        codes.clustered(codes.fractional_repetition(4, num_stragglers=1), num_clusters=i(90))
    ),
    "graph_code": lambda i: chunks(codes.graph_code(i(200), replication=i(4), rng_key=KEY)),
    "reed_solomon": lambda i: chunks(codes.reed_solomon(i(20), num_chunks=i(200), num_stragglers=i(3))),
    "heterogeneous": lambda i: chunks(
        codes.heterogeneous([1, 2, 3], num_chunks=i(60), num_stragglers=i(1), rng_key=KEY)
    ),
    "proportional": lambda i: assignments.proportional([1, 2, 3], num_chunks=i(200), replication=i(2)).chunks,
    "powersgd": lambda i: compression.powersgd(rank=i(20)).num_bytes(jnp.ones((100, 100))),
    "qsgd": lambda i: compression.qsgd(levels=i(200)).num_bytes(jnp.ones(512)),
    "int8": lambda i: compression.int8(block_size=i(128)).compress(jnp.arange(300.0), (), KEY)[0],
    "conditioning": lambda i: (
        diagnostics.conditioning(
            codes.fractional_repetition(4, num_stragglers=1), num_stragglers=i(1), rng_key=KEY, max_masks=i(3)
        ).num_masks
    ),
}


@pytest.mark.parametrize("integer", [np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_those_of_plain_integers(name, integer):
    np.testing.assert_array_equal(RESULTS[name](integer), RESULTS[name](int))


def test_what_fits_no_memory_is_refused_whatever_the_type():
    with pytest.raises(ValueError, match="GiB"):
        assignments.cyclic(np.int32(370728), load=np.int32(46341))


def used_after_bare_check(function):
    """The lines of statements that check a parameter of a function which is used later, and drop the integer."""
    arguments = function.args
    parameters = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    parameters -= {n.id for n in names if isinstance(n.ctx, ast.Store)}  # they are replaced by what was checked
    for node in ast.walk(function):
        call = node.value if isinstance(node, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "_validate.integer":
            name = ast.unparse(call.args[1])
            if name in parameters and any(n.id == name and n.lineno > node.end_lineno for n in names):
                yield node.lineno


def test_functions_compute_with_the_integers_that_were_checked():
    places = [
        (str(path.relative_to(ROOT)), line)
        for folder in ("gcjax", "experiments")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for line in used_after_bare_check(function)
    ]
    assert places == []


@pytest.mark.parametrize(
    ("arguments", "bounds"),
    [
        ({}, "between 0 and 2147483647"),
        ({"minimum": 1}, "between 1 and 2147483647"),
        ({"maximum": 5}, "between 0 and 5"),
    ],
)
def test_numbers_that_no_array_of_32_bits_holds_are_refused(arguments, bounds):
    with pytest.raises(ValueError, match=f"count must be a whole number {bounds}; got 2147483648"):
        _validate.integer("count", 2**31, **arguments)


def test_bounds_of_whole_numbers():
    assert _validate.integer("count", 2**31 - 1) == 2**31 - 1
    assert _validate.integer("seed", 2**70, maximum=None) == 2**70
    with pytest.raises(ValueError, match="count must be a whole number at least 0; got -1"):
        _validate.integer("count", -1)


def test_specifications_refuse_numbers_that_no_array_of_32_bits_holds():
    with pytest.raises(ValueError, match="num_local_steps must be a whole number between 1 and 2147483647"):
        specifications.local_sgd(2, num_local_steps=2**31)
