"""Pipelined gradient coding: what it is where there is nothing to pipeline, its weights, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, protocols, specifications
from gcjax.codes import assignments
from gcjax.engine.kept_gradients import coding_of_commit
from gcjax.engine.program import ring_size_or_default

KEY = jax.random.key(3)
W = 4
FRC = codes.fractional_repetition(W, num_stragglers=1)


def durations(num_units=12):
    return np.random.default_rng(0).uniform(0.5, 1.5, size=(num_units, W))


def test_one_chunk_is_a_round_of_all_with_nothing_kept(x64):
    pipelined, bsp = (p(durations()) for p in (protocols.pipelined_coded(codes.uncoded(W)), protocols.bsp()))
    for name in ("time", "worker", "unit", "version", "work", "weight", "start", "finish"):
        np.testing.assert_array_equal(getattr(pipelined, name), getattr(bsp, name), err_msg=name)


def test_plain_sums_have_the_weights_of_the_released_code(x64):
    """W / ((W - s) K) each, of W - s messages of round after round."""
    load, wait_for = 2, 3
    sums = codes.one_step(assignments.cyclic(W, load=load))
    schedule = protocols.pipelined_coded(sums, wait_for=wait_for)(durations())
    coding_of = jax.jit(lambda schedule, e: coding_of_commit(sums, protocols.commits(schedule), e))
    for e in range(schedule.time.size):
        coding = coding_of(schedule, jnp.int32(e))
        weight = np.asarray(coding.decode)[:, 0, 0] * W  # of the sum; in the commit it is the mean of the chunks
        in_time = np.asarray(schedule.finish)[e + load - 1] <= schedule.time[e]
        assert in_time.sum() == wait_for
        np.testing.assert_allclose(weight, np.where(in_time, W / (wait_for * load), 0))
        assert (np.asarray(coding.encode)[in_time] == 1).all()


def test_rounds_take_one_chunk_after_the_first(x64):
    """Of equal workers; a code's rounds take two."""
    times = np.asarray(protocols.pipelined_coded(FRC)(np.ones((6, W))).time)
    np.testing.assert_array_equal(times, [2, 3, 4, 5, 6])
    np.testing.assert_array_equal(protocols.coded(FRC)(np.ones((6, W))).time, [2, 4, 6])


def test_a_failed_worker_stops_nobody_unless_it_is_needed():
    lost = durations()
    lost[3, 1] = np.inf
    schedule = protocols.pipelined_coded(FRC)(lost)
    assert np.isfinite(schedule.time).all()
    assert (np.asarray(schedule.worker)[2:] != 1).all()  # from the round of its fourth unit on
    needed = protocols.pipelined_coded(FRC, wait_for=W)(lost)
    assert np.isfinite(needed.time).sum() == 2 and np.isinf(needed.horizon)


def test_units_that_are_not_those_of_their_message_are_caught():
    """Worker 2 is late in the first round and in another one, worker 1 in two in a row."""
    protocol = protocols.pipelined_coded(codes.one_step(assignments.cyclic(3, load=3)), wait_for=2)
    seconds = np.ones((9, 3)) * [1.0, 1.25, 0.5]
    seconds[[2, 5], 2] = 3.0, 2.5
    record = jax.tree.map(np.asarray, protocol(seconds))
    specification, num_damaged = protocol.specification(3), 0
    assert protocols.check(record, specification)
    assert (record.work[record.worker >= 0] == 2).any()
    contributions = [tuple(place) for place in np.argwhere(record.worker >= 0)]
    for place in contributions:
        of_worker = [
            other for other in contributions if record.worker[other] == record.worker[place] and other != place
        ]
        for unit in {*(record.unit[other] for other in of_worker), record.unit[place] - 1, record.unit[place] + 1}:
            damaged = record._replace(unit=record.unit.copy())
            damaged.unit[place] = unit
            if 0 <= unit <= len(seconds) - record.work[place]:
                assert not protocols.check(damaged, specification), (place, unit)
                num_damaged += 1
    assert num_damaged > 50


def test_the_ring_has_room_for_what_can_be_read():
    protocol = protocols.pipelined_coded(FRC)
    assert ring_size_or_default(None, protocol, protocol(durations()), is_traced=True) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: protocols.pipelined_coded(None), "needs a GradientCode"),
        (
            lambda: protocols.pipelined_coded(codes.partial(assignments.cyclic(4, load=2), num_blocks=2, rng_key=KEY)),
            "one block and one message a worker; this one has L=2, M=1",
        ),
        (lambda: protocols.pipelined_coded(codes.multi_message(assignments.cyclic(4, load=2))), "L=1, M=2"),
        (
            lambda: protocols.pipelined_coded(codes.partial(assignments.from_matrix([[1, 1], [1, 0]]))),
            "equally many chunks, .* from 1 to 2",
        ),
        (
            lambda: protocols.pipelined_coded(codes.majority(6, num_wrong=1, num_stragglers=0)),
            "weights follow from who has sent",
        ),
        (lambda: protocols.pipelined_coded(FRC, wait_for=5), "wait_for must be .* No more messages arrive"),
        (lambda: protocols.pipelined_coded(FRC, wait_for=0), "wait_for must be"),
        (
            lambda: protocols.pipelined_coded(
                codes.unbiased(assignments.cyclic(4, load=2), straggler_probabilities=0.5)
            ),
            "stopping when decodable needs a code",
        ),
        (lambda: protocols.pipelined_coded(FRC)(np.ones((1, W))), "durations of 1 units"),
        (lambda: protocols.pipelined_coded(FRC)(np.ones((W, 3))), "got 3 columns for 4 workers"),
        (lambda: specifications.pipelined_coded(3, wait_for=None), "wait_for or decodable"),
        (lambda: specifications.pipelined_coded(3, wait_for=4), "wait_for must be"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
