"""Every protocol against a plain-Python event queue that was written from its waiting rule."""

import numpy as np
import pytest

from tests.protocols import table
from tests.protocols.table import CASES, commits_of, random_durations, random_links, schedule, tied_durations

NAMES = [name for name, case in CASES.items() if case.expected is not None]


def check(name, durations, links):
    found, weights = commits_of(schedule(name, durations, links))
    expected = [(time, sorted(parts)) for time, parts in CASES[name].expected(durations, links)]
    context = f"{name} {durations.tolist()} {links}"
    assert [parts for _, parts in found] == [parts for _, parts in expected], context
    np.testing.assert_allclose([t for t, _ in found], [t for t, _ in expected], rtol=1e-9, err_msg=context)
    for e, (_, parts) in enumerate(expected):
        documented = CASES[name].weight(durations.shape[1], e, parts)
        np.testing.assert_allclose(weights[e], documented, rtol=1e-6, err_msg=context)
    return len(found)


def check_many(name, seeds, shape):
    number = 0
    for seed in seeds:
        failing = 0.04 * (seed % 3 == 2)
        for draw in (random_durations, tied_durations):
            for links in (table.no_links(shape[1]), random_links(seed, shape[1])):
                number += check(name, draw(seed, shape, failing), links)
    return number


@pytest.mark.parametrize("name", NAMES)
def test_commits_are_those_of_the_event_queue(name, x64):
    assert check_many(name, range(6), (table.T, table.W)) >= 24
