"""The examples in docstrings run, and show what they say; the functions that everybody needs have one."""

import doctest
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gcjax
import gcjax.specifications
from tests.docs.test_reference import PUBLIC

SESSION = {"gcjax": gcjax, "jax": jax, "jnp": jnp, "np": np, "optax": optax}
MOST_USED = {
    "gcjax.codes.assignments.cyclic", "gcjax.codes.completion_time", "gcjax.codes.diagnostics.q_max",
    "gcjax.codes.fractional_repetition", "gcjax.codes.partial", "gcjax.comparable", "gcjax.engine.coded_value_and_grad",
    "gcjax.engine.run", "gcjax.protocols.bsp", "gcjax.protocols.check", "gcjax.protocols.local_sgd",
    "gcjax.protocols.ssp", "gcjax.specifications.check", "gcjax.stragglers.replay", "gcjax.stragglers.sample_durations",
}  # fmt: skip


def examples():
    """Full name, the first of several -> the docstring's examples, of all public functions and types that have any."""
    finder = doctest.DocTestFinder(recurse=False)
    found, seen = {}, []
    for module, name in PUBLIC:
        value = getattr(importlib.import_module(module), name)
        if callable(value) and ">>>" in (value.__doc__ or "") and not any(value is other for other in seen):
            seen.append(value)
            (found[f"{module}.{name}"],) = finder.find(value, name, module=False, globs=dict(SESSION))
    return found


EXAMPLES = examples()


@pytest.mark.slow(
    "gcjax.advice.advise",
    "gcjax.codes.block_coordinate",
    "gcjax.codes.fractional_repetition",
    "gcjax.codes.independent_set",
    "gcjax.codes.partial",
    "gcjax.codes.tree_code",
    "gcjax.codes.unbiased",
    "gcjax.compression.powersgd",
    "gcjax.compression.qsgd",
    "gcjax.engine.replay",
    "gcjax.engine.run",
    "gcjax.protocols.adaptive_coded",
    "gcjax.protocols.async_local_sgd",
    "gcjax.protocols.decoupled_diloco",
    "gcjax.protocols.diloco",
    "gcjax.protocols.eager_sgd",
    "gcjax.protocols.fedbuff",
    "gcjax.protocols.halos",
    "gcjax.protocols.rennala",
    "gcjax.protocols.ringleader",
    "gcjax.protocols.ringmaster",
    "gcjax.specifications.check",
    "gcjax.stragglers.absences",
    "gcjax.stragglers.fit",
)
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_show_what_they_say(name):
    said = []
    results = doctest.DocTestRunner(verbose=False).run(EXAMPLES[name], out=said.append)
    assert results.attempted > 0
    assert results.failed == 0, "".join(said)


def test_the_most_used_functions_have_one():
    assert set(EXAMPLES) >= MOST_USED
