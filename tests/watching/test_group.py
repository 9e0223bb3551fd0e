"""Rows of many processes that come in any order."""

import numpy as np

from gcjax.watching.group import PATIENCE, Group
from gcjax.watching.reports import Report

NO_ROWS = np.empty((0, 7))


def rows(worker, first, last, late=0.0):
    """The rows of a process whose host is so many seconds late in each step."""
    return np.array([[worker, unit, 0.01, np.nan, 0.01, late, 0.0] for unit in range(first, last)])


def test_steps_are_judged_when_all_have_come():
    group = Group(3)
    assert group.add(rows(0, 1, 101)) == [] == group.add(rows(1, 1, 51))
    assert group.report().num_steps == 0 and str(group.report()) == "No step is known of all processes yet."
    changes = group.add(rows(2, 1, 31, late=0.005))
    assert group.report()[:3] == (30, 30, 3)
    assert [change.step for change in changes] == [10]
    assert [verdict.worker for verdict in changes[0].slow] == [2]
    assert not group.is_complete()
    group.add(rows(2, 31, 101, late=0.005))
    assert group.report().step == 50


def test_changes_for_the_worse_and_the_end_are_told_once():
    group = Group(2)
    late = np.zeros(200)
    late[50:120] = 0.0015
    late[80:120] = 0.004
    group.add(rows(0, 0, 200))
    data = rows(1, 0, 200)
    data[:, 5] = late
    changes = group.add(data)
    levels = [[(verdict.is_persistent, verdict.is_critical) for verdict in change.slow] for change in changes]
    assert levels[0] == [(True, False)] and [(True, True)] in levels and levels[-1] == []
    assert len(changes) == 3


def test_what_was_worse_and_is_better_is_not_told_again():
    group = Group(2)
    late = np.zeros(300)
    late[50:100] = late[150:170] = 0.004
    late[100:150:3] = 0.005
    group.add(rows(0, 0, 300))
    data = rows(1, 0, 300)
    data[:, 5] = late
    changes = group.add(data)
    assert [len(change.slow) for change in changes[-2:]] == [1, 0] and len(changes) <= 4


def test_who_is_silent_is_waited_for_no_longer():
    group = Group(2)
    group.add(np.concatenate([rows(0, 0, 20), rows(1, 0, 20)]), ends_interval=True)
    for i in range(PATIENCE):
        assert group.report().silent == () and group.report().step == 19
        changes = group.add(rows(0, 20 + 10 * i, 30 + 10 * i), ends_interval=True)
    assert [change.silent for change in changes] == [(1,)] and group.add(rows(0, 50, 51), ends_interval=True) == []
    assert group.report().silent == (1,) and group.report().step == 20 + 10 * PATIENCE
    assert "silent: 1" in str(group.report()) and group.is_complete()
    assert group.add(rows(1, 20, 30)) == [] and group.report().silent == ()  # it was only slow to write
    assert [change.silent for change in group.add(rows(1, 30, 40), ends_interval=True)] == [()]
    assert group.report().silent == () and not group.is_complete()


def test_news_of_nobody_make_nobody_silent():
    group = Group(2)
    group.add(rows(0, 0, 20))
    for _ in range(10):
        group.add(NO_ROWS, ends_interval=True)
    assert group.report().silent == ()


def test_only_calls_that_count_make_anybody_silent():
    group = Group(5)
    for worker in (0, 1, 2):
        assert group.add(rows(worker, 0, 20)) == []
    assert group.report().silent == () and not group.is_complete()


def test_who_is_dead_becomes_silent_however_often_the_others_are_asked_for_news():
    group, changes = Group(3), []
    for i in range(PATIENCE):
        assert not changes
        for worker in (0, 1, 0):
            group.add(rows(worker, 10 * i, 10 * i + 10))  # so that nothing is left for the call that counts
        changes = group.add(NO_ROWS, ends_interval=True)
    assert [change.silent for change in changes] == [(2,)] and group.is_complete()


def test_the_report_in_words():
    group = Group(2)
    group.add(rows(0, 0, 100))
    group.add(rows(1, 0, 100, late=0.0025))
    assert str(group.report()) == (
        "step 99, 2 processes, iteration 10.0 ms: process 1 is slow since step 0 (persistent), 2.5 ms later than the "
        "median process; that costs 25 % of the iteration (critical)"
    )
    assert str(Report(5, 3, 2, (), 0.01, ())) == "step 5, 2 processes, iteration 10.0 ms: no process is slow"


def test_rows_of_more_processes_than_there_are_count_for_nothing():
    group = Group(1)
    group.add(np.concatenate([rows(0, 0, 20), rows(3, 0, 20, late=0.009)]))
    assert group.report()[1:3] == (20, 1) and group.report().slow == ()
