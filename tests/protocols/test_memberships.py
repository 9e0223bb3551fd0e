"""Runs in which workers leave and join, held against the promise for those who take part; damage is caught."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols, specifications
from gcjax.parameter_server import turn_log
from gcjax.parameter_server.turn_log import Turn, TurnLog
from gcjax.parameter_server.waiting import JOIN, LEAVE, MESSAGE, Waiting
from gcjax.protocols import check
from gcjax.protocols.conformance.memberships import Membership
from tests.protocols.test_rules import PROTOCOLS

W = 4
HELD = ("asp", "backup_workers", "bsp", "diloco", "k_async", "k_batch_async", "k_batch_sync", "k_sync", "local_sgd")
HELD += (
    "async_local_sgd",
    "async_local_sgd dynamic",
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
        self.waiting, self.log, self.memberships = Waiting(self.rule, W), TurnLog(W), []
        self.pending, self.now = [], 0.0

    def join(self, worker):
        change = "came back" if self.log.turns[worker] else "joined"
        self._decide(JOIN, worker, change)

    def leave(self, worker):
        if not self.waiting.idle[worker]:
            self.log.cut_off(worker, self.now + 1)
        self._decide(LEAVE, worker, "left")

    def push(self, worker):
        """The worker's turn ends, if it is in one."""
        if self.waiting.idle[worker] or not self.waiting.alive[worker]:
            return
        turn, now = self.log.turns[worker][-1], self.now + 1
        ends = tuple(np.linspace(turn.begin, now, self.num_units[worker] + 1)[1:].tolist())
        self.log.replace_last(worker, compute_start=turn.begin, ends=ends, stop=now, send_start=now, arrive=now)
        self._decide(MESSAGE, worker)

    def _decide(self, kind, worker, change=""):
        self.now += 1.0 if self.log.turns != [[]] * W or change != "joined" else 0.0
        if change:
            self.memberships.append(Membership(self.now, worker, change))
        decision = self.waiting.decide(kind, worker, self.now)
        if decision.is_accepted:
            self.pending.append((worker, len(self.log.turns[worker]) - 1))
        if decision.commits:
            messages = [message for message in self.pending if decision.taken[message[0]]]
            self.pending = [message for message in self.pending if not decision.taken[message[0]]]
            self.log.commit(len(self.log.commit_times), messages, 0.0, self.now)
        for other in np.flatnonzero(decision.cut):
            self.log.cut_off(int(other), self.now)
        self.num_units = decision.num_units
        for other in np.flatnonzero(decision.begins):
            first = self.log.next_unit(other)
            self.log.turns[other].append(Turn(first=first, version=int(decision.version[other]), begin=self.now))

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
        if not run.waiting.alive[worker]:
            if draw < 0.3:
                run.join(worker)
        elif draw < 0.12 and run.waiting.alive.sum() > 2:
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
        assert kept.events > len(one.memberships) and "of those who take part" in str(kept)


@pytest.mark.slow("bsp")
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
