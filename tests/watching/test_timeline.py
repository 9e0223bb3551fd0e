"""Seconds of steps from the times of one clock, and stops from beats that come late."""

import math

import numpy as np

from gcjax.watching.pulse import PERIOD, Pulse
from gcjax.watching.timeline import measured_rows

NAN = math.nan


def rows(*events, begin=0.0, stalls=(), waits=True, **options):
    """Of events (unit, called, end of the local part, end), whose calls return after a second."""
    events = [(unit, called, called + 1.0, local_end, end) for unit, called, local_end, end in events]
    return measured_rows(events, begin, stalls, waits=waits, **options)


def test_a_late_call_is_time_of_the_host():
    np.testing.assert_allclose(rows((7, 3.0, NAN, 10.0)), [[7, 10.0, NAN, 10.0, 3.0, 0.0]])


def test_a_call_before_the_end_of_the_step_before_is_not_late():
    assert rows((1, -2.0, NAN, 4.0))[0, 4] == 0.0


def test_the_end_of_the_local_part_divides_computing_from_waiting():
    np.testing.assert_allclose(rows((1, 0.5, 6.0, 10.0)), [[1, 6.0, 4.0, 10.0, 0.5, 0.0]])


def test_a_step_that_waits_for_nobody_has_no_time_of_the_host():
    assert np.isnan(rows((1, 3.0, NAN, 10.0), waits=False)[0, 4])


def test_each_step_begins_where_the_one_before_ended():
    np.testing.assert_allclose(rows((1, 1.0, NAN, 5.0), (2, 5.5, NAN, 7.0))[:, 3], [5.0, 2.0])


def test_nothing_is_said_of_steps_next_to_an_unknown_end():
    events = [(1, 0.0, NAN, 2.0), (2, 2.0, NAN, NAN), (3, 4.0, NAN, 6.0), (4, 6.0, NAN, 8.0)]
    assert rows(*events)[:, 0].tolist() == [1, 4]
    assert rows(*events, begin=NAN)[:, 0].tolist() == [4]
    assert rows().shape == (0, 6)


def test_a_step_that_is_not_counted_is_where_the_next_one_begins():
    np.testing.assert_allclose(rows((1, NAN, NAN, 4.0), (2, 4.0, NAN, 7.0))[:, [0, 3]], [[2, 3.0]])


def test_only_stops_between_the_call_and_the_end_count_as_stops():
    stalled = rows((1, 2.0, NAN, 10.0), (2, 10.0, NAN, 20.0), stalls=[(1.0, 4.0), (9.0, 12.0), (30.0, 40.0)])[:, 5]
    np.testing.assert_allclose(stalled, [2.0 + 1.0, 2.0])


def test_an_accelerator_goes_on_with_what_it_has_been_given():
    events = [(1, 2.0, NAN, 10.0), (2, 5.0, NAN, 20.0)]  # the second call returned before it could begin
    stalled = rows(*events, stalls=[(2.5, 4.0), (5.2, 12.0)], has_accelerator=True)[:, 5]
    np.testing.assert_allclose(stalled, [0.5, 0.0])


def test_a_beat_that_comes_late_is_a_stop():
    now = [0.0]
    pulse = Pulse(lambda: now[0])
    for late in (0.001, 0.5, 0.004):
        pulse.expect()
        now[0] += PERIOD + late
        pulse.beat()
    np.testing.assert_allclose(pulse.stalls(since=0.0), [(2 * PERIOD + 0.001, 2 * PERIOD + 0.501)])
    assert pulse.stalls(since=1.0) == [] == pulse.stalls(since=0.0)
