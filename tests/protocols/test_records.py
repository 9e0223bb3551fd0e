"""The record of a run and its views: commits, events, truncation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols
from gcjax.protocols import commits, events, truncate
from gcjax.specifications.events import KINDS
from tests.parameters import one_in
from tests.protocols import table
from tests.protocols.table import CASES, random_durations

pytestmark = pytest.mark.promotes


def record(name, seed=1):
    with jax.enable_x64(True):
        return table.schedule(name, random_durations(seed, table.shape_of(name)))


@pytest.mark.slow("stsyn")
@pytest.mark.parametrize("name", one_in(4, CASES))
def test_every_unit_that_was_begun_has_read_a_version_that_was_there(name):
    """Also where it is in no commit: what was cut off, or is pending at the end."""
    s = record(name)
    begun, reading_ends = np.isfinite(s.start), s.compute_end
    if name == "elastic_averaging":  # an exchange reads when all steps are done
        reading_ends = np.minimum.accumulate(s.send_start[::-1])[::-1]
        begun &= reading_ends <= s.horizon
    assert (s.read[begun] >= 0).all()
    ended = begun & (reading_ends <= s.horizon) & np.isfinite(reading_ends)
    made = np.searchsorted(s.time, reading_ends[ended], side="right")
    assert (s.read[ended] <= made).all()
    finite = np.isfinite(s.time)
    assert (s.version[finite][s.worker[finite] >= 0] >= 0).all() and (s.version[~finite] == -1).all()


@pytest.mark.slow("k_async", "local_sgd", "worker_busy")
@pytest.mark.parametrize("name", ["asp", "k_async", "local_sgd", "worker_busy"])
def test_truncation_leaves_the_commits_up_to_a_time_or_a_number(name):
    s = record(name)
    made = np.flatnonzero(np.isfinite(s.time))
    half = made[made.size // 2]
    with jax.enable_x64(True):
        cuts = truncate(s, s.time[half]), truncate(s, num_commits=half + 1)
    for cut in cuts:
        np.testing.assert_array_equal(np.isfinite(cut.time), np.arange(s.time.size) <= half)
        for field, x, y in zip(commits(s)._fields, commits(s), commits(cut), strict=True):
            np.testing.assert_array_equal(y[: half + 1], x[: half + 1], err_msg=field)
        assert (np.asarray(cut.worker[half + 1 :]) == -1).all() and (np.asarray(cut.weight[half + 1 :]) == 0).all()
        np.testing.assert_array_equal(cut.start, s.start)


def test_events_of_a_small_run_by_hand():
    """Two workers, K-async with K = 2: the first waits for the second, then both read version 1."""
    s = protocols.k_async(num_contributions=2)(jnp.asarray([[1.0, 3.0], [1.0, 1.0], [9.0, 9.0]]))
    found = events(s, ("begin", "unit", "commit"))
    rows = zip(found.time, found.event.kind, found.event.worker, found.event.unit, found.event.version, strict=True)
    assert [(float(t), KINDS[k], int(w), int(n), int(v)) for t, k, w, n, v in rows if k != KINDS.index("commit")] == [
        (0.0, "begin", 0, 0, 0),
        (0.0, "begin", 1, 0, 0),
        (1.0, "unit", 0, 0, 0),
        (3.0, "unit", 1, 0, 0),
        (3.0, "begin", 0, 1, 1),
        (3.0, "begin", 1, 1, 1),
        (4.0, "unit", 0, 1, 1),
        (4.0, "unit", 1, 1, 1),
        (4.0, "begin", 0, 2, 2),
        (4.0, "begin", 1, 2, 2),
        (13.0, "unit", 0, 2, 2),
        (13.0, "unit", 1, 2, 2),
    ]
    committed = found.event.kind == KINDS.index("commit")
    np.testing.assert_array_equal(found.time[committed], [3.0, 4.0, 13.0])
    np.testing.assert_array_equal(found.event.size[committed], 2)
    assert not found.is_premature.any() and found.event.waited.sum() == 1  # worker 0, from 1 s to 3 s


def test_messages_are_sent_and_arrive_in_order():
    s = record("m_sgc")
    found = events(s, ("send", "message", "commit"), only_counts_units=True)
    kinds = np.asarray(KINDS)[found.event.kind]
    assert set(kinds) == {"send", "message", "commit"} and (np.diff(found.time) >= 0).all()
    for worker in range(table.W):
        own = kinds[(found.event.worker == worker) & (kinds != "commit")]
        assert (own[::2] == "send").all() and (own[1::2] == "message").all()
