"""Rounds that the server stops: they keep their promise, can be replayed, and wait for nobody who is not needed."""

import itertools
import threading
import time

import jax
import numpy as np
import optax
import pytest

from gcjax import codes, parameter_server, protocols
from gcjax.codes import assignments, stopping
from gcjax.parameter_server import stops
from gcjax.parameter_server.coded_rounds import CodedRounds
from gcjax.parameter_server.worker_turns import WorkerTurns
from tests.parameter_server.runs import assert_kept_and_replayed, live_run, setup

CYCLIC = codes.partial(assignments.cyclic(4, load=2))
BLOCKS = codes.partial(assignments.cyclic(4, load=3), num_blocks=2, rng_key=jax.random.key(2))
ONE_TO_THREE = {"L=1": CYCLIC, "L=2": BLOCKS, "uncoded": codes.uncoded(4)}


def in_turn(estimates):
    """Each candidate once, and again."""
    return (estimates.last_candidate + 1) % 3


PROTOCOLS = {
    "adaptive_coded": protocols.adaptive_coded(ONE_TO_THREE),
    "adaptive_coded in turn": protocols.adaptive_coded(ONE_TO_THREE, choose=in_turn),
    "anytime_minibatch": protocols.anytime_minibatch(seconds=0.01),
    "coded": protocols.coded(CYCLIC),
    "coded all workers": protocols.coded(CYCLIC, stop=stopping.all_workers()),
    "coded deadline": protocols.coded(CYCLIC, stop=stopping.deadline(0.006)),
    "coded first of": protocols.coded(CYCLIC, stop=stopping.first_of(stopping.deadline(0.02), stopping.fastest(2))),
    "coded in blocks": protocols.coded(BLOCKS),
    "coded whole workers": protocols.coded(codes.cyclic_mds(4, num_stragglers=1)),
    "stsyn": protocols.stsyn(num_local_steps=2, num_waited=2),
    "stsyn momentum": protocols.stsyn(num_local_steps=2, num_waited=2).replace(
        local=protocols.LocalWork(optimizer=optax.sgd(0.05, momentum=0.9))
    ),
}
CASES = [name if name == "coded" else pytest.param(name, marks=pytest.mark.slow) for name in sorted(PROTOCOLS)]


@pytest.mark.parametrize("name", CASES)
def test_a_live_run_is_what_was_promised_and_can_be_replayed(name):
    with jax.enable_x64(True):
        run, reports = live_run(PROTOCOLS[name])
        assert len(run.loss) == 20 and run.num_refused == 0 and len(reports) == 4
        assert_kept_and_replayed(PROTOCOLS[name], run)


def hanging_from(first_unit, *, odd_seconds=0.002):
    """A throttle that lets worker 2 hang from this unit on, and what ends that; odd units take `odd_seconds`."""
    is_over = threading.Event()

    def throttle(worker, unit):
        """Worker 2 waits until the run is over."""
        if worker == 2 and unit >= first_unit:
            is_over.wait(60)
        return odd_seconds if unit % 2 else 0.002

    return {"throttle": throttle, "on_end": is_over.set}


@pytest.mark.slow
@pytest.mark.parametrize("first_unit", [9, 10, 11])
def test_nobody_waits_for_a_worker_that_hangs(first_unit):
    """Unit 9 is the first chunk of round 3; before unit 10 or 11 the worker has reported one, and may be asked."""
    protocol = protocols.coded(codes.partial(assignments.cyclic(4, load=3)))
    with jax.enable_x64(True):
        run, _ = live_run(protocol, num_commits=12, **hanging_from(first_unit))
        assert len(run.loss) == 12 and not [m for m in run.memberships if m.change == "left"]
        assert (run.schedule.work[4:, 2] == 0).all()
        assert_kept_and_replayed(protocol, run)


@pytest.mark.slow
def test_local_steps_of_a_worker_that_hangs_are_left_out():
    protocol = PROTOCOLS["stsyn"]
    with jax.enable_x64(True):
        run, _ = live_run(protocol, num_commits=12, **hanging_from(1))
        assert len(run.loss) == 12
        assert_kept_and_replayed(protocol, run)


@pytest.mark.slow
def test_a_push_that_comes_too_late_leaves_nothing_behind():
    """Worker 2 hangs now and then, also after units that it has reported; the others go on without these."""
    calls = itertools.count()

    def throttle(worker, unit):
        """2 ms; before each twelfth unit worker 2 answers nothing for 100 ms."""
        time.sleep(0.1 if worker == 2 and next(calls) % 12 == 11 else 0)
        return 0.002

    protocol = PROTOCOLS["stsyn momentum"]
    with jax.enable_x64(True):
        run, reports = live_run(protocol, num_commits=80, throttle=throttle)
        assert reports[2].num_pushes > (run.schedule.worker == 2).sum() > 0
        assert_kept_and_replayed(protocol, run)


@pytest.mark.slow
def test_a_worker_that_leaves_after_the_stop_does_not_hold_up_the_round(monkeypatch):
    num_left, answer = 0, WorkerTurns._answer_next_message

    def leave_first(self, order, *, num_lost):
        """The connection is lost instead of the first two answers of worker 2."""
        nonlocal num_left
        if self._program._worker == 2 and num_left < 2 and self._inbox.queue[0].kind == "stop":
            num_left += 1
            raise parameter_server.Disconnected("lost by the test")
        return answer(self, order, num_lost=num_lost)

    monkeypatch.setattr(WorkerTurns, "_answer_next_message", leave_first)
    monkeypatch.setattr(stops, "MIN_PATIENCE", 1e6)  # who has not left is waited for
    protocol = PROTOCOLS["coded"]
    with jax.enable_x64(True):
        run, reports = live_run(protocol, num_commits=100)
        assert len(run.loss) == 100 and num_left == 2 and reports[2].num_connections == 3
        assert sum(m.change == "left" for m in run.memberships) == 2
        assert_kept_and_replayed(protocol, run)


@pytest.mark.slow
def test_the_code_changes_with_who_is_slow():
    """Uncoded rounds wait for worker 1, which is twenty times slower from round 12 on; the code does without it."""
    protocol = protocols.adaptive_coded({"uncoded": codes.uncoded(4), "L=1": CYCLIC}, window=5)

    def throttle(worker, unit):
        """5 ms, or 100 ms."""
        return 0.1 if worker == 1 and unit >= 2 * 12 else 0.005

    with jax.enable_x64(True):
        run, _ = live_run(protocol, num_commits=30, throttle=throttle)
        assert_kept_and_replayed(protocol, run)
    used = protocols.used_candidate(run.schedule).tolist()
    assert used[0] == 0 and used[-8:] == [1] * 8


def test_a_plan_asks_only_those_whose_messages_are_needed():
    server = parameter_server.Server(setup(PROTOCOLS["coded"]), parameter_server.Limits(1))
    asked = server._coordinator._stops.request_pushes(np.array([2, 0, 2, 0], np.int32), np.ones(4, bool), now=1.0)
    server.close()
    assert asked.tolist() == [True, False, True, False]
    assert server._coordinator._stops.header(0)["num_units"] == 2 and np.shape(
        server._coordinator._stops.header(0)["encode"]
    ) == (1, 2, 1)


def test_only_the_messages_that_are_sent_are_asked_for_and_others_are_refused():
    """In sixths of a gradient, the message of a code with L blocks is 6 / L of them."""
    cyclic = assignments.cyclic(4, load=3)
    in_blocks = [codes.partial(cyclic, num_blocks=num_blocks, rows="harmonic") for num_blocks in (1, 2, 3)]
    rounds = CodedRounds(codes.alternatives(*in_blocks), 4, {"w": np.zeros(12, np.float32)})
    stops_of_turns, sizes = stops.Stops(rounds), []
    for candidate in range(3):
        for worker in range(4):
            rounds.set_row(worker, 4 * candidate + worker)
        stops_of_turns.request_pushes(np.full(4, 3, np.int32), np.ones(4, bool), now=1.0)
        worker = int(np.flatnonzero(rounds.plan.is_needed)[0])
        sizes.append(len(stops_of_turns.header(worker)["encode"]))
        sent = np.arange(1, 2 * sizes[-1] + 1, dtype=np.float32).reshape(-1, 2)
        messages = rounds.messages(worker, sent.view(np.uint8).reshape(-1))
        np.testing.assert_array_equal(messages[messages.any(axis=1)], sent)
        assert messages.shape == (6, 2)
        assert rounds.messages(worker, sent[1:].view(np.uint8).reshape(-1)) is None
    assert sizes == [6, 3, 2] and list(rounds.push_sizes) == [8 * count for count in range(1, 7)]


def test_nothing_of_a_coded_round_can_be_skipped():
    with pytest.raises(ValueError, match="without a code"):
        parameter_server.Server(setup(PROTOCOLS["coded"]), parameter_server.Limits(1, non_finite="skip"))


def test_a_code_is_served_to_its_own_workers():
    with pytest.raises(ValueError, match="the workers must be those of the code, 4; got 3"):
        PROTOCOLS["coded"].rule(3)


@pytest.mark.slow
def test_the_others_go_on_until_they_are_enough_without_a_worker_that_does_not_answer():
    """After one chunk each all four are asked; worker 2 hangs then, and the others need their second chunks."""
    protocol = PROTOCOLS["coded"]
    with jax.enable_x64(True):
        run, _ = live_run(protocol, num_commits=12, seconds=20.0, **hanging_from(7, odd_seconds=0.1))
        assert len(run.loss) == 12 and not [m for m in run.memberships if m.change == "left"]
        assert (run.schedule.work[4:, 2] == 0).all() and (run.schedule.work[4:, [0, 1, 3]].sum(axis=1) >= 4).all()
        assert_kept_and_replayed(protocol, run)
