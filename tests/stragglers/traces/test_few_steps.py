"""Traces of too few steps for a verdict on workers."""

import numpy as np
import pytest

from gcjax.stragglers import describe
from gcjax.stragglers.traces.base import trace_of_array


@pytest.mark.parametrize("num_workers", [2, 8, 9])
def test_a_caution_is_given_where_no_worker_could_be_named(num_workers):
    """One that is slow in all steps is named from the first number of steps on that has no caution."""
    slow_worker = np.where(np.arange(num_workers) == 1, 2.5, 1.0)
    descriptions = [describe(np.tile(slow_worker, (num_steps, 1))) for num_steps in range(1, 15)]
    assert [bool(each.caution) for each in descriptions] == [each.verdict.workers == () for each in descriptions]
    assert {bool(each.caution) for each in descriptions} == {True, False}


def test_a_caution_says_how_many_steps_are_needed():
    assert describe(np.ones((9, 8))).caution == (
        "9 steps are too few to tell from chance which of 8 workers is slow; 10 are needed."
    )
    assert describe(np.ones((1, 2))).caution.startswith("1 step is too few")
    assert describe(np.ones((3, 1))).caution == ""


def test_rows_may_be_workers_where_no_row_says_whose_it_is():
    trace = trace_of_array(np.ones((8, 300)))
    assert describe(trace).caution.endswith("Transpose the table if its rows are workers.")
    trace = trace._replace(reading=trace.reading._replace(layout="named columns"))
    assert describe(trace).caution.endswith("; 15 are needed.")
