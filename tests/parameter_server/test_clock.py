"""The clock of a record: events in order, and a warning where its type no longer tells their times apart."""

import itertools

import jax
import pytest

from gcjax.parameter_server.clock import EventClock

DAY = 86400.0


class Time:
    """A clock that is set by hand."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


def event_times(begin, interval, count):
    """So many events of a run that has gone on for `begin` seconds, one each `interval` seconds."""
    machine = Time()
    clock = EventClock(machine, begin=begin)
    times = []
    for _ in range(count):
        machine.seconds += interval
        times.append(clock.next_event_time())
    return times


def test_events_at_the_same_moment_are_in_order_and_that_is_no_reason_for_a_warning(recwarn):
    times = event_times(10.0, 0.0, 100)
    assert all(earlier < later for earlier, later in itertools.pairwise(times))
    assert times[-1] < 10.001 and not recwarn


def test_events_that_come_faster_than_their_type_tells_apart_are_told_once():
    with jax.enable_x64(False), pytest.warns(UserWarning, match="float32, are 0.0078 s apart.*JAX_ENABLE_X64") as told:
        times = event_times(DAY, 1e-3, 1000)
    assert len(told) == 1
    assert times[-1] > DAY + 7  # 1000 events a step of float32 apart, in one second


def test_in_64_bits_they_are_told_apart_for_years(recwarn):
    with jax.enable_x64(True):
        times = event_times(365 * DAY, 1e-3, 1000)
    assert times[-1] == pytest.approx(365 * DAY + 1.0, abs=1e-3) and not recwarn
