"""`check_task` is red on broken tasks, each with its sentence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import tasks
from gcjax.testing import ContractError, check_task

GOOD = tasks.linear_regression(num_chunks=3, num_examples=12, num_features=2, batch_size=4)
WHOLE = tasks.linear_regression(num_chunks=3, num_examples=12, num_features=2, batch_size=None, local_data=True)
GENERATOR = np.random.default_rng(0)


def with_loss(change):
    return GOOD._replace(loss=lambda p, b, k: change(GOOD.loss(p, b, k), p, k))


def with_batch(name, change):
    draw = getattr(GOOD, name)
    return GOOD._replace(**{name: lambda data, key, i, j: change(draw(data, key, i, j), i, j)})


def heavier(batch, factor):
    return batch._replace(weights=batch.weights * factor)


BROKEN = {
    "no number as loss": (with_loss(lambda x, p, k: x / 0 * 0), {}, "the loss must be finite; it is nan"),
    "several losses": (with_loss(lambda x, p, k: x[None]), {}, "raised TypeError|must be one number"),
    "16 bits": (
        with_loss(lambda x, p, k: x.astype(jnp.bfloat16)),
        {},
        "a float type of the parameters; it is bfloat16",
    ),
    "a gradient that is no number": (
        with_loss(lambda x, p, k: x + sum(jnp.sqrt(0 * y).sum() for y in jax.tree.leaves(p))),
        {},
        "gradients must be finite",
    ),
    "a random loss": (
        with_loss(lambda x, p, k: x + GENERATOR.random()),
        {},
        "must depend on parameters, batch and key only",
    ),
    "random batches": (
        with_batch("unit_batch", lambda b, i, j: heavier(b, GENERATOR.random())),
        {},
        r"the same alone and among others\. Smallest case: unit_batch\(data, rng_key, 0, 0\)",
    ),
    "random chunks": (
        with_batch("chunk_batch", lambda b, i, j: heavier(b, GENERATOR.random())),
        {},
        r"the same alone and among others\. Smallest case: chunk_batch\(data, rng_key, 0, 0\)",
    ),
    "a batch for the first worker only": (
        with_batch("unit_batch", lambda b, i, j: b if i == 0 else heavier(b, 2)),
        {},
        "unit_batch must be a pure function",
    ),
    "another batch without jit": (
        with_batch("unit_batch", lambda b, i, j: heavier(b, 1.0 if isinstance(i, jax.core.Tracer) else 2.0)),
        {},
        r"the same with and without jit\. Smallest case: unit_batch\(data, rng_key, 0, 0\)",
    ),
    "not mergeable": (
        with_loss(lambda x, p, k: x + 1)._replace(mergeable=True),
        {},
        "merged batches must be the weighted sum of their losses",
    ),
    "a metric of text": (
        GOOD._replace(metrics=lambda p, d: {"n": jnp.arange(2)}),
        {},
        "'n' must be one floating point number",
    ),
    "an endless metric": (
        GOOD._replace(metrics=lambda p, d: {"n": jnp.log(jnp.zeros(()))}),
        {},
        "metrics must be finite; 'n' is -inf",
    ),
    "no whole chunks": (GOOD, {"whole_chunks": True}, "the same in every round|mean loss of the chunks must be"),
    "a chunk too heavy": (
        WHOLE._replace(
            chunk_batch=lambda d, k, c, r: heavier(WHOLE.chunk_batch(d, k, c, r), jnp.where(c == 1, 2.0, 1.0))
        ),
        {"whole_chunks": True},
        "the mean loss of the chunks must be the loss of all data; it is .* instead of",
    ),
    "random parameters": (
        GOOD._replace(init=lambda k: jax.tree.map(lambda x: x + GENERATOR.random(), GOOD.init(k))),
        {},
        "the same key must give the same parameters",
    ),
    "whole numbers as parameters": (
        GOOD._replace(init=lambda k: {"n": jnp.zeros(2, jnp.int32)}),
        {},
        "must have floating point numbers",
    ),
    "no task": (GOOD.loss, {}, "a task must be a gcjax.tasks.Task"),
}


@pytest.mark.slow("a chunk too heavy", "not mergeable", "random chunks")
@pytest.mark.parametrize("name", BROKEN)
def test_broken_tasks_are_red(name):
    task, arguments, sentence = BROKEN[name]
    with pytest.raises(ContractError, match=sentence):
        check_task(task, **arguments)


def test_good_tasks_are_green():
    check_task(GOOD, rng_key=jax.random.key(1))
    check_task(WHOLE, whole_chunks=True, quick=True)


@pytest.mark.slow
def test_the_checks_need_no_test_runner():
    import subprocess
    import sys

    text = "import sys, gcjax.testing; print([m for m in ('pytest', 'hypothesis') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
