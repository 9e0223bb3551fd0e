"""From what each process measured to what each computed and waited."""

import math

import numpy as np
import pytest

from gcjax.watching.joining import empty_rows, joined_trace, steps_of

NAN = math.nan


def row(worker, unit, *, interval=10.0, host=0.0, stalled=0.0, local=NAN):
    seconds = interval if math.isnan(local) else local
    return [worker, unit, seconds, interval - local, interval, host, stalled]


def test_who_is_late_most_waits_for_nobody():
    rows = np.array([row(0, 1, host=1.0), row(1, 1, host=4.0, stalled=2.0), row(2, 1)])
    steps = steps_of(rows, 3)
    np.testing.assert_allclose(steps.communication, [[5.0, 0.0, 6.0]])
    np.testing.assert_allclose(steps.compute, [[5.0, 10.0, 4.0]])
    np.testing.assert_allclose(steps.iteration_seconds, [10.0])


def test_a_local_part_says_what_was_computed():
    steps = steps_of(np.array([row(0, 1, local=3.0), row(1, 1, local=9.0, host=8.0)]), 2)
    np.testing.assert_allclose([steps.compute[0], steps.communication[0]], [[3.0, 9.0], [7.0, 1.0]])


def test_steps_that_wait_for_nobody_are_all_computing():
    steps = steps_of(np.array([row(0, 1, interval=3.0, host=NAN), row(1, 1, interval=5.0, host=NAN)]), 2)
    np.testing.assert_allclose(steps.compute, [[3.0, 5.0]])
    assert np.isnan(steps.communication).all() and steps.iteration_seconds == [5.0]
    assert joined_trace(np.array([row(0, 1, host=NAN)])).communication is None


def test_the_trace_has_gaps_where_a_process_was_not_there():
    trace = joined_trace(np.array([row(4, 7), row(2, 5), row(4, 5, host=2.0), row(2, 5, host=1.0)]))
    assert trace.workers == ("2", "4") and trace.steps.tolist() == [5, 7]
    np.testing.assert_allclose(trace.compute, [[9.0, 10.0], [NAN, 10.0]])
    np.testing.assert_allclose(trace.communication, [[1.0, 0.0], [NAN, 0.0]])
    assert trace.reading.workers_joined_late == () and trace.reading.workers_left_early == (0,)


def test_no_rows():
    with pytest.raises(ValueError, match="must have rows; there are none"):
        joined_trace(empty_rows())
