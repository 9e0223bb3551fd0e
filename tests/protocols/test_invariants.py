"""What must hold of the schedule of every protocol, driven by the one table of `table`."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import analysis, protocols
from gcjax.stragglers.network import Network
from tests.protocols import table
from tests.protocols.table import CASES, W, protocol, random_durations, random_links, schedule, tied_durations

SOME = ("coded", "k_batch_sync", "psp", "stsyn", "worker_busy overlap")
OTHERS = [name for name in CASES if name not in SOME]
NETWORKS = (table.no_links(W), random_links(3))
EPS = 1e-9  # sums of the same numbers in another order
INDICES = ("worker", "unit", "version", "work")


def run(name, seed, failing=0.0, links=0):
    draw = tied_durations if seed % 2 else random_durations
    shape = table.shape_of(name)
    return schedule(name, draw(seed, shape, failing), NETWORKS[links])


def test_every_protocol_is_in_the_table():
    assert {name.split()[0] for name in CASES} == set(protocols.TABLE)


@pytest.mark.parametrize("name", CASES)
def test_invariants(name, x64):
    number, before = 0, table.TRACES[name, table.shape_of(name)]
    for seed in range(4):
        for links in range(2):
            s = run(name, seed, failing=0.1 * (seed >= 2), links=links)
            check_commits(s, protocol(name))
            check_units(s, protocol(name))
            check_times(s, overlaps="overlap" in name)
            number += int(np.isfinite(s.time).sum())
    assert number >= 8
    # Durations, failures and links are no reason to compile anew.
    assert table.TRACES[name, table.shape_of(name)] <= before + 1


@pytest.mark.parametrize("name", CASES)
def test_a_worker_that_never_returns(name, x64):
    """Those who wait for it come to a halt, and are said to; the others run until the units run out."""
    durations = tied_durations(1, table.shape_of(name))
    durations[3 * (protocol(name).round_units if protocol(name).code else 1) :, 0] = np.inf
    s = schedule(name, durations)
    assert analysis.is_stalled(s) == CASES[name].stalls
    end = s.time[np.isfinite(s.time)].max(initial=0)
    uses = (s.worker == 0) & (s.work > 0) & np.isinf(durations[(s.unit + s.work - 1).clip(0, len(durations) - 1), 0])
    assert not uses.any()
    assert 0 < end <= durations[np.isfinite(durations)].sum()
    others = tied_durations(1, table.shape_of(name))
    assert not analysis.is_stalled(schedule(name, others))


@pytest.mark.parametrize("name", CASES)
def test_dtypes(name, x64):
    for dtype in (jnp.float32, jnp.float64):
        shape = table.shape_of(name)
        s = jax.eval_shape(protocol(name).schedule, jax.ShapeDtypeStruct(shape, dtype), Network())
        chex.assert_type([getattr(s, field) for field in INDICES], jnp.int32)
        others = [value for field, value in s._asdict().items() if field not in INDICES]
        chex.assert_type(others, dtype)
        chex.assert_equal_shape([s.worker, s.unit, s.version, s.work, s.weight])
        chex.assert_shape([s.start, s.compute_start, s.compute_end, s.send_start, s.finish], shape)


@pytest.mark.parametrize("name", [*SOME, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_vmap_over_seeds_is_the_loop(name, x64):
    seeds = np.stack([random_durations(seed, table.shape_of(name), 0.1 * (seed == 1)) for seed in range(3)])
    one = table.compiled(name)
    network = Network(*(np.asarray(x) for x in NETWORKS[1][:3]))
    batch = jax.jit(jax.vmap(table.function(name), (0, None)), compiler_options=table.quick())(seeds, network)
    for i, durations in enumerate(seeds):
        for field, a, b in zip(batch._fields, one(durations, network), batch, strict=True):
            np.testing.assert_array_equal(a, b[i], err_msg=field)


@pytest.mark.parametrize(
    "name", ["adsp", "anytime_minibatch", "elastic_averaging", "k_batch_sync", "worker_busy overlap"]
)
def test_less_units_than_a_round_takes(name, x64):
    s = schedule(name, np.ones((1, W)))
    assert np.isfinite(s.time).sum() <= W and not analysis.is_stalled(s)


@pytest.mark.parametrize(
    "name", ["adacomm", "coded", "diloco", "grouped change", "grouped elastic", "local_sgd", "stsyn"]
)
def test_too_few_units_for_any_round(name):
    with pytest.raises(ValueError, match=r"takes [23] units.*got durations of 1 units"):
        protocol(name)(jnp.ones((1, W)))


def check_commits(s, made):
    """Commits are ordered, padded, read only what is there, and have the documented staleness."""
    used = np.isfinite(s.time)
    assert not used[np.argmin(used) :].any() or used.all()
    assert (np.diff(s.time[used]) >= 0).all()
    assert s.horizon >= s.time[used].max(initial=0)
    filled = s.worker >= 0
    for name in INDICES:
        assert (getattr(s, name)[~used] == -1).all() and ((getattr(s, name) >= 0) == filled).all(), name
    assert (s.weight[~filled] == 0).all() and (s.weight[filled] > 0).all() and np.isfinite(s.weight).all()
    stale = np.where(filled, np.arange(s.time.size)[:, None] - s.version, 0)
    assert (stale >= 0).all()
    if made.max_staleness is not None:
        assert stale.max() <= made.max_staleness(W)
    if made.one_version:
        for version, there in zip(s.version, filled, strict=True):
            assert np.unique(version[there]).size <= 1
    for e, w, unit, version in zip(
        *np.nonzero(filled)[:1], s.worker[filled], s.unit[filled], s.version[filled], strict=True
    ):
        read = s.start[unit, w]  # no version is read before it is there
        assert version == 0 or s.time[version - 1] <= max(read, s.send_start[unit : unit + s.work[e].max(), w].min())


def check_units(s, made):
    """Every unit is used once at most, the units of a worker in order, when they have arrived."""
    last = np.full(W, -1)
    for e in range(s.time.size):
        rows = [(w, u, k) for w, u, k in zip(s.worker[e], s.unit[e], s.work[e], strict=True) if w >= 0 and k > 0]
        for w, unit, work in sorted(rows):
            if made.code is None:
                assert unit > last[w]
                assert np.isfinite(s.compute_end[unit : unit + work, w]).all()
                assert s.finish[unit + work - 1, w] <= s.time[e]
            last[w] = unit + work - 1
            assert last[w] < s.start.shape[0] or made.code is not None


def check_times(s, overlaps):
    """No unit starts before its worker is free, and a unit's times follow each other."""
    order = [s.start, s.compute_start, s.compute_end, s.finish]
    for before, after in itertools.pairwise(order):
        both = np.isfinite(before) & np.isfinite(after)
        assert (before <= after + EPS)[both].all()
    sent = np.isfinite(s.send_start)
    assert ((s.compute_end <= s.send_start) & (s.send_start <= s.finish))[sent].all()
    for w in range(W):
        begun = np.isfinite(s.start[:, w])
        start, ends = s.start[begun, w], s.compute_end[begun, w]
        assert (start[1:] >= ends[:-1] - EPS).all()
        for begin, arrived in zip(s.send_start[sent[:, w], w], s.finish[sent[:, w], w], strict=True):
            assert (
                overlaps or not ((start > begin + EPS) & (start < arrived - EPS)).any()
            )  # nobody computes while sending
