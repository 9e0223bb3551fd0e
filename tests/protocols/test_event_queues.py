"""Every protocol against a plain-Python event queue that was written from its waiting rule."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols
from gcjax.stragglers.network import Network
from tests.protocols import table
from tests.protocols.event_queue import TIMES
from tests.protocols.table import CASES, commits_of, random_durations, random_links, schedule, tied_durations

NAMES = [name for name, case in CASES.items() if case.expected is not None]


def check(name, durations, links):
    result, reference = schedule(name, durations, links), CASES[name].expected(durations, links)
    found, weights = commits_of(result)
    expected = [(time, sorted(parts)) for time, parts in reference.commits]
    context = f"{name} {durations.tolist()} {links}"
    assert [parts for _, parts in found] == [parts for _, parts in expected], context
    np.testing.assert_allclose([t for t, _ in found], [t for t, _ in expected], rtol=1e-9, err_msg=context)
    for e, (_, parts) in enumerate(expected):
        documented = CASES[name].weight(durations.shape[1], e, parts)
        np.testing.assert_allclose(weights[e], documented, rtol=1e-6, err_msg=context)
    np.testing.assert_allclose(result.horizon, reference.horizon, rtol=1e-9, err_msg=context)
    if reference.times is not None:
        check_times(result, reference, "overlap" in name)
    return len(found)


def check_times(result, reference, overlap):
    """The times of every unit up to the end of the run; of units pushed by then only, where computing never stops."""
    finish = np.asarray(reference.times["finish"])
    end = min(reference.horizon, max([time for time, _ in reference.commits], default=0.0)) * (1 + 1e-9)
    for name in TIMES:
        found, expected = getattr(result, name), np.asarray(reference.times[name])
        both = (np.where((x <= end) & ((finish <= end) | (not overlap)), x, np.inf) for x in (found, expected))
        np.testing.assert_allclose(*both, rtol=1e-9, err_msg=name)


def check_many(name, seeds, shape):
    number = 0
    for seed in seeds:
        failing = 0.04 * (seed % 3 == 2)
        for draw in (random_durations, tied_durations):
            for links in (table.no_links(shape[1]), random_links(seed, shape[1])):
                number += check(name, draw(seed, shape, failing), links)
    return number


@pytest.mark.slow(
    "adacomm",
    "adsp",
    "dssp",
    "elastic_averaging",
    "fedbuff",
    "k_async",
    "k_batch_sync",
    "k_sync",
    "prague",
    "progressive_groups",
    "psp",
    "stsyn",
)
@pytest.mark.parametrize("name", table.plain_first(NAMES))
def test_commits_are_those_of_the_event_queue(name, x64):
    assert check_many(name, range(6), (table.T, table.W)) >= 24


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_commits_of_more_workers_are_those_of_the_event_queue(name, x64):
    assert check_many(name, range(6, 46), (13, 5)) >= 480


@pytest.mark.slow("worker_busy eager overlap", "worker_busy overlap")
@pytest.mark.parametrize("name", ["worker_busy eager overlap", "worker_busy overlap"])
def test_all_units_that_begin_before_the_horizon_are_recorded_where_computing_never_stops(name, x64):
    for seed, server in itertools.product(range(8), (None, 0.15)):
        durations, links = random_durations(seed, (9, 4)), random_links(seed, 4, server)
        found = schedule(name, durations, links)
        begin = found.compute_start[0] + np.cumsum(np.append(np.zeros((1, 4)), durations, axis=0), axis=0)
        if server is None:
            np.testing.assert_allclose(found.compute_start[0], np.asarray(links.latency) + links.download)
        is_begun, ends = begin[:-1] < found.horizon, begin[1:] <= found.horizon
        for field, expected in (("compute_start", begin[:-1]), ("compute_end", begin[1:])):
            np.testing.assert_allclose(np.asarray(getattr(found, field))[is_begun], expected[is_begun], rtol=1e-9)
        assert (found.read[is_begun] >= 0).all() and (found.start[~is_begun] >= found.horizon).all()
        assert all((np.diff(start[begun]) >= 0).all() for start, begun in zip(found.start.T, is_begun.T, strict=True))
        # None was cut off; when a message that is under way on a shared link arrives is not known.
        assert (np.isfinite(found.finish) | np.isfinite(found.send_start))[ends].all()


@pytest.mark.slow("False")
@pytest.mark.parametrize("eager", [False, True])
def test_units_of_no_length_that_end_as_a_push_is_sent_are_in_it_however_sums_are_rounded(eager, x64):
    durations = jnp.array([[1.0, 1.0], [0.0, 0.0], [0.5, 0.5], [1.0, 1.0], [1.0, 1.0]])
    protocol = protocols.worker_busy(eager=eager, overlap=True, trigger=1 if eager else None)
    assert (0.4 + 1) - 0.4 < 1 == (0.25 + 1) - 0.25
    exact, rounded = (protocol(durations, Network(latency=seconds)) for seconds in (0.25, 0.4))
    assert rounded.work[0].max() == exact.work[0].max() == 2  # of the first push
