"""Pushes, leaving, silence, coming back and old messages in any order, under every protocol with a rule.

Each record must keep to the rules of records and, where a protocol says what it promises if workers come and go, to its
promise, and its replay must give the parameters of the server. A case that does not is cut down to few events.

GCJAX_FUZZ is how many times more cases there are.
"""

import os

import hypothesis.strategies as st
import jax
import pytest
from hypothesis import HealthCheck, given, settings

from gcjax import codes, protocols
from gcjax.codes import assignments
from tests.parameter_server.chaos import CHANGES, Change, chaos
from tests.parameter_server.chaos import problems as problems_of_threads
from tests.parameter_server.driven import Driven, problems
from tests.parameter_server.runs import NUM_WORKERS
from tests.protocols.test_rules import PROTOCOLS

TIMES = int(os.environ.get("GCJAX_FUZZ", "1"))
KINDS = ("push", "push", "push", "push", "unit", "join", "leave", "kill", "silence", "repeat")
EVENTS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, NUM_WORKERS - 1)), max_size=40)
QUICK = ()
SERVED = {
    **PROTOCOLS,
    "coded": protocols.coded(codes.partial(assignments.cyclic(NUM_WORKERS, load=2))),
    "stsyn": protocols.stsyn(num_local_steps=2, num_waited=2),
}


def driven(name, events, monkeypatch, **limits):
    """The run in which these events happen, behind some pushes with which every run begins."""
    run = Driven(name, monkeypatch, **limits)
    for worker in range(NUM_WORKERS):
        run.join(worker)
    for _ in range(3):
        for worker in range(NUM_WORKERS):
            run.push(worker)
    for kind, worker in events:
        getattr(run, kind)(worker)
    return run.end()


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in sorted(PROTOCOLS)]
)
def test_whatever_happens_a_run_is_what_was_promised(name):
    @settings(max_examples=2 * TIMES, suppress_health_check=list(HealthCheck))
    @given(EVENTS)
    def holds(events):
        with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
            assert problems(name, driven(name, events, patch)) == {}

    holds()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bsp", "coded", "k_async", "local_sgd", "ssp", "stsyn", "worker_busy", "worker_busy overlap"]
)
def test_threads_whose_connections_are_cut_or_held_up(name):
    @settings(max_examples=TIMES, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(
            st.builds(Change, st.integers(0, 60), st.sampled_from(CHANGES), st.integers(0, NUM_WORKERS - 1)),
            min_size=1,
            max_size=10,
        )
    )
    def holds(changes):
        with pytest.MonkeyPatch.context() as patch, jax.enable_x64(True):
            assert problems_of_threads(SERVED[name], chaos(SERVED[name], changes, patch)) == {}

    holds()


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_worker_that_leaves_between_two_pushes_to_one_commit(times, monkeypatch):
    again = [("leave", 0), ("join", 0), ("push", 0)] * times
    changes = [("push", 0), *again, *(("push", worker) for worker in range(1, NUM_WORKERS))] * 2
    with jax.enable_x64(True):
        run = driven("worker_busy", changes, monkeypatch)
        assert problems("worker_busy", run) == {}
    last = run.schedule.worker[len(run.loss) - 1]
    assert (last == 0).sum() == 1 + times  # a contribution for each stretch, and a unit is lost between two


@pytest.mark.slow
def test_a_worker_that_leaves_between_two_pushes_to_one_commit_and_computes_meanwhile(monkeypatch):
    changes = [("push", 0), ("leave", 0), ("join", 0), *(("push", worker) for worker in range(NUM_WORKERS))] * 2
    with jax.enable_x64(True):
        run = driven("worker_busy overlap", changes, monkeypatch)
        assert problems("worker_busy overlap", run) == {}
