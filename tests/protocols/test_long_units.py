"""Units that are far longer than the others, and are cut off or waited for, spoil nothing else."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import analysis
from gcjax import protocols as P
from gcjax.protocols.simulation import Work
from tests.parameters import one_in, some
from tests.protocols import rounds_reference as loops
from tests.protocols import table
from tests.protocols.table import commits_of, quick

LONG = (1e6, 1e8, 1e30)
T = 40


def one_long(seconds, dtype=np.float32, row=0):
    durations = np.full((T, 2), 0.125, dtype)
    durations[row, 0] = seconds
    return durations


def schedule(protocol, durations):
    return jax.tree.map(np.asarray, jax.jit(protocol.schedule, compiler_options=quick())(durations, P.base.Network()))


@pytest.mark.slow
@pytest.mark.parametrize("long", some([math.inf], LONG))
@pytest.mark.parametrize("wide", some([False], [True]))
def test_stretches_are_sums_of_their_own_units(long, wide):
    with jax.enable_x64(wide):
        durations = np.random.default_rng(0).choice([0.0, 0.25, 1.0, 3.0], (11, 3)).astype(float)
        durations[[4, 7], [0, 2]] = long
        work = Work.of(jnp.asarray(durations))
        firsts, counts = (np.int32(x.ravel()) for x in np.mgrid[0:12, 0:13])
        wanted = 2.5
        found = jax.jit(
            jax.vmap(lambda f, n: (work.seconds(f, n), work.num_done(f, wanted), work.num_to_fill(f, wanted)))
        )
        with jax.numpy_dtype_promotion("standard"):
            seconds, done, until = found(np.repeat(firsts[:, None], 3, 1), np.repeat(counts[:, None], 3, 1))
        for row, (first, count) in enumerate(zip(firsts, counts, strict=True)):
            for worker in range(3):
                rest = durations[first:, worker].tolist()
                passed = [math.fsum(rest[:n]) for n in range(len(rest) + 1)]
                expected = passed[count] if count < len(passed) else math.inf
                np.testing.assert_allclose(seconds[row, worker], expected, rtol=1e-6)
                assert done[row, worker] == sum(p <= wanted for p in passed) - 1
                assert until[row, worker] == max(1, sum(p < wanted for p in passed))


@pytest.mark.slow
@pytest.mark.parametrize("long", one_in(2, LONG))
@pytest.mark.parametrize("wide", some([False], [True]))
def test_a_unit_that_is_cut_off_only_costs_its_round(long, wide):
    with jax.enable_x64(wide):
        durations = one_long(long, float if wide else np.float32)
        found = schedule(P.anytime_minibatch(seconds=1.25), durations)
        assert found.work[:4].tolist() == [[-1, 10], [10, 10], [10, 10], [10, 10]]
        np.testing.assert_allclose(found.time[:4], [1.25, 2.5, 3.75, 5.0])
        np.testing.assert_allclose(found.compute_end[1:31, 0], 1.25 + 0.125 * np.arange(1, 31))
        found = schedule(P.stsyn(num_local_steps=4, num_waited=1), durations)
        assert found.work[:10].tolist() == [[-1, 4]] + [[4, 4]] * 9
        np.testing.assert_allclose(found.time[:10], 0.5 * np.arange(1, 11))


def test_groups_begin_when_the_round_before_has_ended():
    durations = one_long(1e8, row=1)
    found = schedule(P.grouped(groups=[[0], [1]], num_local_steps=4, merge="change"), durations)
    np.testing.assert_array_equal(found.start[1], [0.125, 0.125])


@pytest.mark.slow("2")
@pytest.mark.parametrize("waited", [2, 3])
def test_stsyn_never_finishes_with_too_many_lost_workers_whoever_runs_out_first(waited, x64):
    """With K = W one is too many; with K = 2 of 3 it is two. The fast worker is soon out of units."""
    links, program = table.no_links(3), P.stsyn(num_local_steps=2, num_waited=waited)
    for fast in (0.25, 0.5, 1.0):
        for lost in (1, 2):
            durations = np.ones((8, 3))
            durations[:, 0], durations[3:, 1 : 1 + lost] = fast, math.inf
            found, expected = (
                schedule(program, durations),
                loops.rounds(loops.first_to_finish(2, waited), durations, links),
            )
            assert commits_of(found)[0] == expected.commits
            assert found.horizon == expected.horizon
            assert analysis.is_stalled(found) == (lost > 3 - waited)
