"""Workers that compute while their push and the answer travel: what is on which version, and what is lost."""

import jax
import numpy as np
import pytest

from gcjax.parameter_server.inbox import Inbox
from gcjax.parameter_server.overlapping import OverlappingTurns
from gcjax.parameter_server.overlapping_program import OverlappingProgram
from gcjax.parameter_server.worker_turns import Order
from tests.parameter_server.driven import Driven, problems
from tests.parameter_server.runs import NUM_WORKERS, setup
from tests.protocols.test_rules import PROTOCOLS

NAMES = ["worker_busy overlap", pytest.param("worker_busy eager overlap", marks=pytest.mark.slow)]


def begun(name, monkeypatch, **limits):
    """A run in which everybody has pushed once."""
    run = Driven(name, monkeypatch, **limits)
    for worker in range(NUM_WORKERS):
        run.join(worker)
    for worker in range(NUM_WORKERS):
        run.push(worker)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_units_that_end_before_the_answer_has_come_are_on_the_version_before(name, monkeypatch):
    with jax.enable_x64(True):
        run = begun(name, monkeypatch)
        for _ in range(3):
            run.unit(0)
            run.unit(0)
            for worker in range(NUM_WORKERS):
                run.push(worker)
        result = run.end()
        assert problems(name, result) == {}
    host = jax.device_get(result.schedule)
    version = host.read[:7, 0].tolist()
    assert version[:3] == [0, 0, 0] and version == sorted(version) and len(set(version)) > 1
    pushed = [int(unit) for unit in np.flatnonzero(np.isfinite(host.send_start[:, 0]))]
    assert pushed == [0, 2, 4, 6]  # the units 1 and 2 in one push, and so on
    assert (host.compute_start[1:7, 0] == host.compute_end[:6, 0]).all()  # it never stops
    assert host.compute_start[1, 0] < host.finish[0, 0]  # and computes while its push travels


@pytest.mark.parametrize("name", NAMES)
def test_what_was_not_pushed_is_lost_with_the_connection(name, monkeypatch):
    with jax.enable_x64(True):
        run = begun(name, monkeypatch)
        run.unit(2)
        run.push(1)
        run.leave(2)
        for worker in (0, 1, 3):
            run.push(worker)
        run.join(2)
        for _ in range(2):
            run.unit(2)
            for worker in range(NUM_WORKERS):
                run.push(worker)
        result = run.end()
        assert problems(name, result) == {}
    lost = np.asarray(result.schedule.read)[1, 2], np.asarray(result.schedule.finish)[1, 2]
    assert lost[0] >= 0 and np.isinf(lost[1])


@pytest.mark.parametrize("name", NAMES)
def test_a_push_that_came_too_late_is_taken_back(name, monkeypatch):
    with jax.enable_x64(True):
        run = begun(name, monkeypatch)
        run.push(3)
        run.silence(3)
        run.unit(3)
        run.push(3)  # of a turn that was cut off
        assert run.server.num_late == 1
        for _ in range(3):
            for worker in range(NUM_WORKERS):
                run.push(worker)
        result = run.end()
        assert result.num_late == 1 and problems(name, result) == {}


def broken(unit):
    raise ArithmeticError("broken in the thread that computes")


def test_an_error_of_the_thread_that_computes_is_raised():
    one, inbox = setup(PROTOCOLS["worker_busy overlap"]), Inbox()
    program = OverlappingProgram(one, one.protocol.local, 0)
    turns = OverlappingTurns(None, inbox, program, None, 0.0, broken)
    order = Order(
        turn=0, first_unit=0, num_units=1, code_row=0, weight=0.25, pulls_before_push=False, can_be_cut_off=False,
        turn_seconds=0.0, lasts_until_stopped=False, last_arrived_turn=-1, version=-1, begins_anew=False,
    )  # fmt: skip
    turns.begin(order, None)
    assert inbox.get(timeout=60).kind == "computed"
    with pytest.raises(ArithmeticError, match="broken in the thread"):
        turns.push_if_due()
    turns.close()


def test_who_joins_later_computes_nothing_before_it_has_read(monkeypatch):
    with jax.enable_x64(True):
        run = Driven("worker_busy overlap", monkeypatch)
        for worker in range(NUM_WORKERS - 1):
            run.join(worker)
        for _ in range(3):
            for worker in range(NUM_WORKERS - 1):
                run.push(worker)
        run.join(3)
        for _ in range(2):
            for worker in range(NUM_WORKERS):
                run.push(worker)
        result = run.end()
        assert problems("worker_busy overlap", result) == {}
    assert np.asarray(result.schedule.read)[0, 3] > 0
