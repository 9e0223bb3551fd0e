"""Runs in which workers leave and join, held against the promise for those who take part; damage is caught."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols, specifications
from gcjax.parameter_server import turn_log
from gcjax.parameter_server.rule_state import JOIN, LEAVE, MESSAGE, RuleState
from gcjax.parameter_server.turn_log import Turn, TurnLog
from gcjax.protocols import check
from gcjax.protocols.conformance.memberships import Membership
from tests.protocols.test_rules import PROTOCOLS

W = 4
HELD = ("asp", "backup_workers", "bsp", "diloco", "k_async", "k_batch_async", "k_batch_sync", "k_sync", "local_sgd")
HELD += (
    "async_local_sgd",
    "async_local_sgd dynamic",
    "diloco dynamic",
    "decoupled_diloco",
    "delay_adaptive",
    "fedbuff",
    "rennala",
    "ringmaster",
    "ringmaster cuts off",
    "ssp",
    "staleness_aware",
    "worker_busy",
)
QUICK = ("bsp", "ssp")

pytestmark = pytest.mark.promotes  # states are of 32 bits, what is counted about them in Python is not


class Run:
    """A run that is written down event by event, by the rule of a protocol; an event is a second later than another."""

    def __init__(self, protocol):
        self.rule = protocol.rule(W)
        self.rule_state, self.log, self.memberships = RuleState(self.rule, W), TurnLog(W), []
        self.pending, self.now = [], 0.0

    def join(self, worker):
        change = "came back" if self.log.turns[worker] else "joined"
        self._decide(JOIN, worker, change)

    def leave(self, worker):
        if not self.rule_state.idle[worker]:
            self.log.cut_off(worker, self.now + 1)
        self._decide(LEAVE, worker, "left")

    def push(self, worker):
        """The worker's turn ends, if it is in one."""
        if self.rule_state.idle[worker] or not self.rule_state.alive[worker]:
            return
        turn, now = self.log.turns[worker][-1], self.now + 1
        ends = tuple(np.linspace(turn.begin, now, self.num_units[worker] + 1)[1:].tolist())
        self.log.update_last_turn(
            worker, compute_start=turn.begin, unit_ends=ends, compute_end=now, send_start=now, arrive=now
        )
        self._decide(MESSAGE, worker)

    def _decide(self, kind, worker, change=""):
        self.now += 1.0 if self.log.turns != [[]] * W or change != "joined" else 0.0
        if change:
            self.memberships.append(Membership(self.now, worker, change))
        decision = self.rule_state.decide(kind, worker, self.now, self.log.compute_seconds(worker))
        if decision.is_accepted:
            self.pending.append((worker, len(self.log.turns[worker]) - 1))
        if decision.has_commit:
            messages = [message for message in self.pending if decision.is_committed[message[0]]]
            self.pending = [message for message in self.pending if not decision.is_committed[message[0]]]
            self.log.add_commit(len(self.log.commit_times), messages, 0.0, self.now)
        for other in np.flatnonzero(decision.is_cut_off):
            self.log.cut_off(int(other), self.now)
        self.num_units = decision.num_units
        for other in np.flatnonzero(decision.begins):
            first = self.log.next_unit(other)
            self.log.turns[other].append(Turn(first_unit=first, version=int(decision.version[other]), begin=self.now))

    @property
    def schedule(self):
        return jax.device_get(turn_log.schedule_of(self.log, self.rule, self.now))


def run(name, seed=0, num_events=60):
    """A run in which workers push, leave and join at random; two at least take part."""
    run, generator = Run(PROTOCOLS[name]), np.random.default_rng(seed)
    for worker in range(W):
        run.join(worker)
    for _ in range(num_events):
        worker, draw = int(generator.integers(W)), generator.random()
        if not run.rule_state.alive[worker]:
            if draw < 0.3:
                run.join(worker)
        elif draw < 0.12 and run.rule_state.alive.sum() > 2:
            run.leave(worker)
        else:
            run.push(worker)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in HELD])
def test_runs_in_which_workers_come_and_go_keep_their_promise(name):
    specification = PROTOCOLS[name].specification(W)
    for seed in range(3):
        one = run(name, seed)
        kept = check(one.schedule, specification, memberships=one.memberships)
        assert kept, str(kept)
        assert {m.change for m in one.memberships} == {"joined", "left", "came back"}
        assert kept.num_events > len(one.memberships) and "of those who take part" in str(kept)


@pytest.mark.slow("bsp", "ssp")
@pytest.mark.parametrize("name", ["bsp", "ssp"])
def test_the_same_runs_break_the_promise_if_nobody_had_left(name):
    one = run(name, 1)
    assert not check(one.schedule, PROTOCOLS[name].specification(W))
    joined = [m for m in one.memberships if m.change == "joined"]
    assert not check(one.schedule, PROTOCOLS[name].specification(W), memberships=joined)


def test_a_commit_that_takes_a_cut_off_unit_is_caught():
    one = Run(PROTOCOLS["asp"])
    for worker in range(W):
        one.join(worker)
    one.push(0)
    one.push(1)
    schedule = one.schedule
    sent = float(schedule.finish[0, 1])
    changes = [Membership(sent - 0.5, 1, "left"), Membership(sent - 0.25, 1, "came back")]
    found = check(schedule, PROTOCOLS["asp"].specification(W), memberships=[*one.memberships, *changes])
    assert not found and "worker 1" in str(found)


def test_who_has_joined_already_cannot_join():
    one = run("bsp", 0, 10)
    again = [one.memberships[0], *one.memberships]
    found = check(one.schedule, PROTOCOLS["bsp"].specification(W), memberships=again)
    assert not found and found.violated == "guarantee"


def test_bad_memberships_and_specifications_without_members_are_refused():
    one = Run(PROTOCOLS["bsp"])
    one.join(0)
    specification = PROTOCOLS["bsp"].specification(W)
    with pytest.raises(ValueError, match="memberships must be of the 4 workers"):
        check(one.schedule, specification, memberships=[Membership(0.0, 7, "joined")])
    with pytest.raises(ValueError, match="in order of time"):
        check(one.schedule, specification, memberships=[Membership(1.0, 0, "joined"), Membership(0.0, 1, "joined")])
    with pytest.raises(ValueError, match="workers leave and join"):
        check(one.schedule, specifications.dssp(W), memberships=one.memberships)


def test_where_all_stay_it_is_the_same_promise():
    schedule = protocols.ssp(staleness=1)(jnp.asarray(np.random.default_rng(0).exponential(size=(6, W))))
    joined = [Membership(0.0, worker, "joined") for worker in range(W)]
    assert check(schedule, specifications.ssp(W, staleness=1), memberships=joined)
    assert not check(schedule, specifications.ssp(W, staleness=0), memberships=joined)
