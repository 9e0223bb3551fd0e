"""Rounds that the server stops, in which workers leave and join at any moment, also between the stop and the commit."""

import os

import hypothesis.strategies as st
import jax
import pytest
from hypothesis import HealthCheck, given, settings

from gcjax import codes, protocols
from gcjax.parameter_server import stops, wire
from gcjax.parameter_server.wire import Message
from gcjax.protocols import used_candidate
from tests.parameter_server import driven as driven_runs
from tests.parameter_server.driven import Driven, problems
from tests.parameter_server.runs import NUM_WORKERS

TIMES = int(os.environ.get("GCJAX_FUZZ", "1"))
KINDS = ("unit", "unit", "unit", "answer", "answer", "impatience", "join", "leave", "silence", "bad")
EVENTS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, NUM_WORKERS - 1)), max_size=40)
ROUND = [("unit", worker) for worker in (0, 1, 2, 3, 0, 1, 2)] + [("answer", worker) for worker in range(4)]


def driven(name, events, monkeypatch):
    """The run in which these events happen, and then a round of everybody."""
    non_finite = "stop" if "coded" in name else "skip"  # nothing of a code's round can be skipped
    run = Driven(name, monkeypatch, min_workers=NUM_WORKERS, non_finite=non_finite)
    for worker in range(NUM_WORKERS):
        run.join(worker)
    for kind, worker in [*ROUND, *events]:
        getattr(run, kind)(worker)
    for worker in range(NUM_WORKERS):
        run.join(worker)
    for kind, worker in ROUND * 2:
        getattr(run, kind)(worker)
    return run.end()


@pytest.fixture
def repetition(monkeypatch):
    """A run of a code of which two workers are enough."""
    code = codes.fractional_repetition(NUM_WORKERS, num_stragglers=1)
    monkeypatch.setitem(driven_runs.PROTOCOLS, "repetition", protocols.coded(code))
    return Driven("repetition", monkeypatch, min_workers=NUM_WORKERS)


def test_who_was_silent_at_a_stop_and_has_done_all_is_needed_again_once_it_is_heard_of(repetition):
    run = repetition
    for worker in range(NUM_WORKERS):
        run.join(worker)
    for worker in (1, 0, 1, 0, 2, 2):  # 0 and 2 are asked
        run.unit(worker)
    run.answer(2)
    run.impatience(0)  # now 1 is asked in its place
    run.leave(1)
    assert run.server.num_commits == 0
    run.answer(0)  # too late, as an answer
    run.answer(0)
    run.answer(2)
    assert run.server.num_commits == 1


def test_reports_and_pushes_that_no_turn_has_room_for_end_no_run(repetition):
    run, times = repetition, {"compute_start": 0.0, "unit_end": 0.0, "loss": 0.0}
    run.join(0)
    run.deal(run.connections[0], Message({"kind": "unit", "turn": -1, **times}))  # before there is a turn
    for worker in range(1, NUM_WORKERS):
        run.join(worker)
    for _ in range(5):  # it has two chunks
        run.deal(run.connections[0], Message({"kind": "unit", "turn": 0, **times}))
    assert run.server._coordinator.rule_state.view.progress[0] == 2
    for _ in range(2):
        run.unit(2)
    (stop,) = (m.header for m in run.connections[2].sent if m.kind == "stop")
    push = {"kind": "push", "turn": 0, "stop_number": stop["stop_number"], "loss": 0.0, "is_finite": True}
    push |= {"compute_start": 0.0, "unit_ends": [0.0] * 3, "send_start": 0.0, "num_lost": 0}
    run.deal(run.connections[2], Message(push, wire.to_bytes(jax.numpy.zeros_like(run.setup.initial_params()))))
    assert run.server.num_commits == 0 and run.server._members.num_refused == 3 + 1
    run.end()


@pytest.mark.parametrize("change", ["leave", pytest.param("bad", marks=pytest.mark.slow)])
def test_a_round_begins_again_without_a_push_that_it_needs(change, monkeypatch):
    """Two have taken two steps, and one of them leaves before it pushes, or pushes NaN: two take two steps again."""
    steps = [("unit", worker) for worker in (0, 1, 2, 0, 1)]
    again = [("unit", worker) for worker in (1, 2, 3, 1, 2)]
    answers = [("answer", worker) for worker in (1, 2, 3)]
    with jax.enable_x64(True):
        run = driven("stsyn", [*steps, ("answer", 1), (change, 0), *answers, *again, *answers], monkeypatch)
        assert problems("stsyn", run) == {}
    commit = 1  # the one before it is of the first round
    steps_of = dict(zip(run.schedule.worker[commit].tolist(), run.schedule.work[commit].tolist(), strict=True))
    assert {worker: steps_of[worker] for worker in (1, 2, 3)} == {1: 2, 2: 2, 3: 1} and 0 not in steps_of


def test_who_takes_the_place_of_a_worker_that_does_not_answer_is_asked(monkeypatch):
    """Two have taken two steps and one of them is silent; a third, which had taken none at the stop, takes two."""
    monkeypatch.setattr(stops, "MIN_PATIENCE", 1e6)
    steps = [("unit", worker) for worker in (0, 1, 0, 1)]
    changes = [*steps, ("unit", 2), ("answer", 1), ("impatience", 0), ("unit", 2), ("impatience", 0)]
    with jax.enable_x64(True):
        run = driven("stsyn", [*changes, ("answer", 2), ("impatience", 0)], monkeypatch)
        assert problems("stsyn", run) == {}
    assert sorted(run.schedule.worker[1].tolist()) == [-1, -1, 1, 2]


@pytest.mark.slow
def test_a_worker_that_joins_after_the_stop_is_not_waited_for(monkeypatch):
    """Three are to be waited for, and two take part: a third joins when both have been stopped."""
    changes = [("leave", 0), ("leave", 1), ("unit", 2), ("unit", 3), ("join", 0), ("answer", 2), ("answer", 3)]
    with jax.enable_x64(True):
        run = driven("stsyn of three", changes, monkeypatch)
        assert problems("stsyn of three", run) == {}
    assert sorted(run.schedule.worker[1].tolist()) == [-1, -1, 2, 3]


@pytest.mark.slow
def test_an_answer_to_a_stop_that_was_taken_back_is_none(monkeypatch):
    """All four messages are needed; one worker leaves, two are dropped, and the fourth is under way meanwhile."""
    steps = [("unit", worker) for worker in range(4)]
    changes = [*steps, ("answer", 2), ("answer", 3), ("leave", 0), ("answer", 1)]
    with jax.enable_x64(True):
        assert problems("coded", driven("coded", changes, monkeypatch)) == {}


def test_a_round_has_the_code_that_its_begin_has_named_whoever_leaves_and_joins(monkeypatch):
    """Rounds take turns with L = 1 and L = 2, and a code of either does without one worker."""
    a_round = [*[("unit", worker) for worker in range(4)] * 3, *[("answer", worker) for worker in range(4)]]
    with jax.enable_x64(True):
        run = driven("adaptive_coded", [*a_round, ("leave", 3), *a_round * 3, ("join", 3), *a_round * 2], monkeypatch)
        assert problems("adaptive_coded", run) == {}
    used = used_candidate(run.schedule).tolist()
    assert len(used) > 6 and used == [commit % 2 for commit in range(len(used))]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adaptive_coded", "coded", "stsyn", "stsyn of three"])
def test_whatever_happens_a_round_is_what_was_promised(name):
    @settings(max_examples=10 * TIMES, suppress_health_check=list(HealthCheck))
    @given(EVENTS)
    def holds(events):
        events = [event for event in events if "coded" not in name or event[0] != "bad"]
        with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
            assert problems(name, driven(name, events, patch)) == {}

    holds()
