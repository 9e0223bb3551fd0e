"""Completion times and stopping rules on worked examples."""

import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes
from gcjax.codes import assignments, stopping
from tests.codes.helpers import KEY


def test_completion_is_inf_when_too_few_hold_a_chunk():
    code = codes.partial(assignments.cyclic(4, load=2), num_blocks=3, rng_key=KEY)
    assert np.isinf(codes.completion_time(code, jnp.ones(4)))


def test_rules_on_a_worked_example():
    code = codes.partial(assignments.cyclic(3, load=2))
    finish = jnp.asarray([[1.0, 2.0], [1.5, 3.0], [10.0, 20.0]])  # chunks 01, 12, 20
    stop = lambda rule: float(rule.time(code, finish))  # noqa: E731
    assert stop(stopping.decodable()) == 3.0
    assert stop(stopping.all_workers()) == stop(stopping.fastest(3)) == 20.0
    assert stop(stopping.fastest(1)) == 2.0
    assert stop(stopping.deadline(2.5)) == 2.5
    assert stop(stopping.deadline(25.0)) == 20.0
    assert stop(stopping.first_of(stopping.decodable(), stopping.deadline(2.5))) == 2.5
    assert stop(stopping.first_of(stopping.decodable(), stopping.deadline(5.0))) == 3.0


def test_a_worker_without_chunks_is_not_among_the_fastest():
    code = codes.partial(assignments.from_matrix([[1, 0, 1], [1, 0, 1]]))
    finish = jnp.asarray([[1.0, 2.0], [0.0, 0.0], [2.0, 3.0]])
    assert stopping.fastest(1).time(code, finish) == 2.0
    with pytest.raises(ValueError, match="between 1 and 2; got 3"):
        stopping.fastest(3).time(code, finish)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: stopping.deadline(0.0), "seconds must be above 0; got 0"),
        (lambda: stopping.deadline((1.0, 2.0)), "seconds must be one number"),
        (lambda: stopping.deadline(float("nan")), "seconds must be above 0; got nan"),
        (lambda: stopping.fastest(0), "at least 1; got 0"),
        (lambda: stopping.first_of(), "one or more stopping rules"),
        (
            lambda: codes.completion_time(codes.uncoded(2), jnp.asarray([1.0, -1.0])),
            "chunk_seconds must be at least 0",
        ),
        (lambda: codes.completion_time(codes.uncoded(2), jnp.ones(3)), r"float\[2\]"),
        (
            lambda: stopping.fastest(4).time(codes.uncoded(3), jnp.ones((3, 1))),
            "wait_for of fastest must be a whole number between 1 and 3; got 4",
        ),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_numbers_of_numpy_keep_the_type_of_times(x64):
    """In 64 bits a number of NumPy would win over times of 32."""
    finish = jnp.array([[0.5, 1.5], [0.25, 3.0]], jnp.float32)
    code = codes.uncoded(2, load=2)
    assert stopping.deadline(np.float64(1.0)).time(code, finish).dtype == jnp.float32
