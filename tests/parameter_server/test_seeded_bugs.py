"""Bugs put into the server on purpose: each is found by the rules of records, by the promise, or by the replay.

bug                                            structure  promise  replay
a worker may be one unit further ahead                    x
a push that has arrived is left out of a commit           x
a push that a commit has is not applied                            x
a commit is applied twice                                          x
a push is in two commits                       x
a commit takes K - 1 pushes                               x        x
parameters of an older version are sent                            x
a worker is put out, and nobody writes it down            x
a push of a turn that was cut off is taken                         x
weights are one per cent too large                                 x
pushes of a worker count twice for its clock              x
a commit is written down before its push       x
"""

import jax
import pytest

from gcjax import protocols
from gcjax.parameter_server import ViolationError, online_check, rule_state, turn_log
from gcjax.parameter_server.commits import Commits
from gcjax.parameter_server.coordinator import Coordinator
from gcjax.parameter_server.online_check import OnlineCheck
from gcjax.parameter_server.setups import Setup
from gcjax.parameter_server.turn_log import TurnLog
from gcjax.parameter_server.updates import Updates
from gcjax.protocols.simulation import decisions
from tests.parameter_server.driven import Driven, problems
from tests.parameter_server.runs import NUM_WORKERS


def a_worker_may_be_one_unit_further_ahead(patch):
    patch.setattr(Setup, "rule", lambda setup: protocols.ssp(staleness=2).rule(NUM_WORKERS))


def a_push_is_left_out_of_a_commit(patch):
    commit = Commits.commit

    def lossy(commits, is_committed, now):
        commits._pending = commits._pending[:-1] if commits.count == 2 else commits._pending
        commit(commits, is_committed, now)

    patch.setattr(Commits, "commit", lossy)


def a_push_is_not_applied(patch):
    commit = Updates.commit
    patch.setattr(Updates, "commit", lambda updates, those, number: commit(updates, those[number == 2 :], number))


def a_commit_is_applied_twice(patch):
    commit = Updates.commit

    def twice(updates, those, number):
        if number == 2:
            commit(updates, those, number)
        return commit(updates, those, number)

    patch.setattr(Updates, "commit", twice)


def a_push_is_in_two_commits(patch):
    commit = Commits.commit

    def keeping(commits, is_committed, now):
        kept = commits._pending[:1] if commits.count == 2 else []
        commit(commits, is_committed, now)
        commits._pending += kept

    patch.setattr(Commits, "commit", keeping)


def a_commit_takes_one_push_too_few(patch):
    patch.setattr(Setup, "rule", lambda setup: protocols.k_sync(num_contributions=2).rule(NUM_WORKERS))


def parameters_of_an_older_version_are_sent(patch):
    body = Updates.params_bytes.fget

    def old_body(updates):
        updates.bodies = [*getattr(updates, "bodies", []), body(updates)]
        return updates.bodies[max(len(updates.bodies) - 7, 0)]

    patch.setattr(Updates, "params_bytes", property(old_body))


def nobody_writes_down_who_is_put_out(patch):
    member = TurnLog.add_membership
    patch.setattr(
        TurnLog,
        "add_membership",
        lambda log, change, *process: change.change == "left" or member(log, change, *process),
    )


def a_push_of_a_turn_that_was_cut_off_is_taken(patch):
    def is_in_turn(coordinator, worker, message):
        return bool(coordinator.rule_state.alive[worker] and not coordinator.rule_state.idle[worker])

    patch.setattr(Coordinator, "_is_under_way", is_in_turn)


def weights_are_too_large(patch):
    weights = Updates.weights
    patch.setattr(Updates, "weights", lambda *args: 1.01 * weights(*args))


def pushes_of_a_worker_count_twice(patch):
    with_message = decisions.with_message

    def twice(view, worker, arrives, is_accepted):
        view = with_message(view, worker, arrives, is_accepted)
        return view._replace(clock=view.clock.at[worker].add((arrives & (worker == 3)).astype(view.clock.dtype)))

    patch.setattr(rule_state.decisions, "with_message", twice)


def a_commit_is_written_before_its_push(patch):
    commit = TurnLog.add_commit

    def early(log, number, messages, loss, now):
        earlier = [turn.begin for turns in log.turns for turn in turns]
        commit(log, number, messages, loss, (now + max(earlier)) / 2)

    patch.setattr(TurnLog, "add_commit", early)


BUGS = {
    a_worker_may_be_one_unit_further_ahead: ("ssp", "promise"),
    a_push_is_left_out_of_a_commit: ("bsp", "promise"),
    a_push_is_not_applied: ("bsp", "replay"),
    a_commit_is_applied_twice: ("ssp", "replay"),
    a_push_is_in_two_commits: ("k_async", "promise", "replay"),
    a_commit_takes_one_push_too_few: ("k_sync", "promise", "replay"),
    parameters_of_an_older_version_are_sent: ("bsp", "replay"),
    nobody_writes_down_who_is_put_out: ("bsp", "promise"),
    a_push_of_a_turn_that_was_cut_off_is_taken: ("ssp", "replay"),
    weights_are_too_large: ("bsp", "replay"),
    pushes_of_a_worker_count_twice: ("ssp", "promise"),
    a_commit_is_written_before_its_push: ("ssp", "structure", "promise"),
}
QUICK = (a_commit_is_applied_twice, pushes_of_a_worker_count_twice)
CASES = [bug if bug in QUICK else pytest.param(bug, marks=pytest.mark.slow) for bug in BUGS]


def scripted(name, monkeypatch, **arguments):
    """A run in which the first workers are ahead, one leaves and comes back, and old pushes are sent again."""
    run = Driven(name, monkeypatch, min_workers=NUM_WORKERS, **arguments)
    for worker in range(NUM_WORKERS):
        run.join(worker)
    for _ in range(4):
        for worker in (0, 0, 0, 1, 2, 3, 0, 1, 2):
            run.push(worker)
    run.leave(1)
    for worker in (0, 2, 3, 0, 2, 3):
        run.push(worker)
    run.join(1)
    run.silence(2)
    run.push(0)
    run.repeat(2)  # it comes back
    run.repeat(2)
    for _ in range(2):
        for worker in range(NUM_WORKERS):
            run.push(worker)
    return run.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) for n in ("bsp", "k_async", "k_sync")] + ["ssp"]
)
def test_without_a_bug_nothing_is_found(name, monkeypatch):
    with jax.enable_x64(True):
        run = scripted(name, monkeypatch)
        assert len(run.loss) >= 6 and {m.change for m in run.memberships} == {"joined", "left", "came back"}
        assert problems(name, run) == {}


@pytest.mark.slow
@pytest.mark.parametrize("bug", CASES, ids=lambda bug: bug.__name__)
def test_a_bug_is_found(bug, monkeypatch):
    name, *finders = BUGS[bug]
    bug(monkeypatch)
    with jax.enable_x64(True):
        found = problems(name, scripted(name, monkeypatch))
    assert set(found) == set(finders)


def stopped_and_whole(name, monkeypatch):
    """What ends a run that is held against its promise, and what the check of its record so far says; None if kept."""
    servers, init = [], OnlineCheck.__init__
    monkeypatch.setattr(
        OnlineCheck, "__init__", lambda check, setup, log: (servers.append((setup, log)), init(check, setup, log))[1]
    )
    monkeypatch.setattr(online_check, "MAX_COMMITS", 1)
    violation = None
    try:
        scripted(name, monkeypatch, check=True)
    except ViolationError as error:
        violation = error.conformance
    ((setup, log),) = servers
    record = turn_log.schedule_of(log, setup.rule(), log.commit_times[-1])
    specification = setup.protocol.specification(NUM_WORKERS)
    return violation, protocols.check(record, specification, memberships=log.memberships)


@pytest.mark.parametrize("bug", CASES, ids=lambda bug: bug.__name__)
def test_the_check_while_the_run_goes_on_stops_at_the_same_event(bug, monkeypatch):
    name, *finders = BUGS[bug]
    bug(monkeypatch)
    with jax.enable_x64(True):
        violation, whole = stopped_and_whole(name, monkeypatch)
    assert (violation is None) == bool(whole) == ("promise" not in finders)
    if violation is not None:
        assert str(violation) == str(whole) and violation.num_events == whole.num_events
