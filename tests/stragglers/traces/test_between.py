"""Some of the steps of a trace, by their numbers."""

import numpy as np
import pytest

from gcjax import stragglers

NAN = np.nan


def whole_trace():
    """Steps 10, 20, 40, 50, of which worker 0 has not measured step 40."""
    seconds = np.array([[9.0, 9.0, 9.0], [1.0, 1.0, NAN], [NAN, 1.0, 2.0], [1.0, 1.0, 2.0]])
    trace = stragglers.traces.base.trace_of_array(seconds, communication=10 * seconds)
    reading = trace.reading._replace(num_rows=12, num_duplicates=3, num_incomplete=4)
    return trace._replace(steps=np.array([10, 20, 40, 50]), reading=reading)


@pytest.mark.parametrize(
    ("first", "end", "rows"),
    [(20, None, slice(1, 4)), (11, 41, slice(1, 3)), (None, 40, slice(0, 2)), (None, None, slice(0, 4))],
)
def test_steps_are_taken_by_their_numbers_as_a_slice_has_them(first, end, rows):
    whole = whole_trace()
    part = whole.between(first, end)
    np.testing.assert_array_equal(part.compute, whole.compute[rows])
    np.testing.assert_array_equal(part.communication, whole.communication[rows])
    np.testing.assert_array_equal(part.steps, whole.steps[rows])
    assert part.workers == whole.workers


def test_gaps_and_who_has_joined_are_those_of_the_part():
    whole = whole_trace()
    assert whole.between(20).reading == whole.reading._replace(
        num_gaps=1, num_missing_steps=28, workers_joined_late=(2,), workers_left_early=()
    )
    assert whole.between(20, 41).reading.workers_left_early == (0,)


def test_steps_that_there_are_not_are_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"the trace has no steps 51: \(.*its steps are 10 to 50\."):
        whole_trace().between(51)
    with pytest.raises(ValueError, match="the trace has no steps 21:40"):
        whole_trace().between(21, 40)


def test_a_part_of_a_trace_without_communication():
    assert stragglers.traces.base.trace_of_array(np.ones((4, 2))).between(end=2).communication is None
