"""Schedules against what their protocols promise: those of the library keep to it, damaged ones are caught."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import codes, protocols, specifications
from gcjax.protocols import check
from gcjax.protocols.conformance import lanes, step_programs, trace_validation
from gcjax.protocols.conformance.events import events
from gcjax.protocols.simulation import Rule, all_under_way, event_schedule
from gcjax.stragglers.network import Network
from tests.parameters import one_in
from tests.protocols import table
from tests.protocols.table import CASES, W, random_durations, random_links, tied_durations

pytestmark = pytest.mark.promotes  # states are of 32 bits, what is counted about them in Python is not

PROMISED = [name for name in CASES if table.protocol(name).specification is not None]
FIELDS = ("worker", "unit", "work")
SSP = [specifications.ssp(W, staleness=staleness) for staleness in range(3)]


@functools.cache
def promise(name):
    return table.protocol(name).specification(W)


def schedule(name, make=random_durations, seed=1, links=None):
    with jax.enable_x64(True):  # the programs of the other modules
        return table.schedule(name, make(seed, table.shape_of(name)), links)


def quick(protocol, durations):
    """The schedule, by a program that is compiled fast."""
    run = jax.jit(protocol.schedule, compiler_options=table.quick())
    return jax.tree.map(np.asarray, run(jnp.asarray(durations, jnp.float32), Network()))


def changed(found, name, place, value):
    if name == "version":  # of a contribution: what was read for its units
        units = slice(found.unit[place], found.unit[place] + max(found.work[place], 1))
        return changed(found, "read", (units, found.worker[place]), value)
    values = getattr(found, name).copy()
    values[place] = value
    return found._replace(**{name: values})


def without(found, commit, contribution):
    """The schedule without one contribution."""
    return changed(changed(found, "work", (commit, contribution), 0), "worker", (commit, contribution), -1)


def swapped(found, commit):
    """The schedule in which a commit and the next one have each other's contributions."""
    for name in FIELDS:
        values = getattr(found, name)
        found = changed(found, name, [commit, commit + 1], values[[commit + 1, commit]])
    return found


def contributions(found):
    """(commit, contribution) of all that there are."""
    used = (found.worker >= 0) & (found.work > 0) & np.isfinite(found.time)[:, None]
    return list(zip(*(x.tolist() for x in np.nonzero(used)), strict=True))


def test_all_protocols_promise_something():
    assert list(CASES) == PROMISED


@pytest.mark.slow(
    "ad_psgd",
    "adaptive_coded",
    "anytime_minibatch",
    "async_local_sgd",
    "coded_reduce",
    "decoupled_diloco",
    "diloco",
    "eager_sgd",
    "k_async",
    "k_batch_sync",
    "local_sgd",
    "pipelined_coded",
    "rennala",
    "ringleader",
    "ringmaster",
    "sr_sgc",
    "staleness_aware",
    "stsyn",
    "worker_busy",
)
@pytest.mark.parametrize("name", table.plain_first(PROMISED, step=2))
def test_schedules_keep_to_what_is_promised(name):
    specification, events = promise(name), 0
    for make, links in ((random_durations, None), (tied_durations, None), (tied_durations, random_links(2))):
        kept = check(schedule(name, make, 2, links), specification)
        assert kept, kept
        events += kept.num_events
    assert events > 30


def test_the_eager_variant_does_not_promise_what_the_other_one_does():
    """The server applies the push of one worker as a commit of its own."""
    kept = check(schedule("worker_busy eager"), specifications.worker_busy(W))
    assert kept.violated == "guarantee" and kept.actor == "server" and kept.before.pending_units.sum() == 1


def test_a_commit_of_too_few_learners_is_caught():
    found = schedule("decoupled_diloco fixed")  # one learner is enough
    assert check(found, specifications.decoupled_diloco(W, num_local_steps=1, min_quorum=1))
    kept = check(found, specifications.decoupled_diloco(W, num_local_steps=1, min_quorum=2))
    assert kept.violated == "guarantee" and kept.actor == "server" and (kept.before.pending_units > 0).sum() == 1


def test_states_that_are_counted_wrongly_are_caught():
    """Each event must lead to the state in which the next one happens."""
    right = specifications.worker_busy(W)

    def replay(state, events, rows):
        states = right.replay(state, events, rows)
        return states._replace(version=np.append(states.version[:-1], states.version[-1] + 1))

    kept = check(schedule("worker_busy"), right._replace(replay=replay))
    assert kept.violated == "guarantee" and kept.num_events == check(schedule("worker_busy"), right).num_events


def with_zeros(seed, shape):
    return np.random.default_rng(seed).choice([0.0, 0.0, 1.0, 0.5], size=shape)


@pytest.mark.slow(
    "ad_psgd", "adaptive_coded", "coded_reduce", "diloco", "grouped", "k_batch_sync", "local_sgd", "sr_sgc"
)
@pytest.mark.parametrize("name", table.plain_first(PROMISED, step=2))
def test_units_of_no_length(name):
    for seed in range(2):
        assert check(schedule(name, with_zeros, seed), promise(name))


def test_who_is_too_far_ahead_is_named():
    durations = jnp.ones((8, W)).at[:, 2].set(10.0)
    kept = check(quick(protocols.ssp(staleness=4), durations), SSP[2])
    assert not kept and (kept.violated, kept.actor, kept.action, kept.unit, kept.time) == (
        "guarantee", "worker 0", "begin", 3, 3.0,
    )  # fmt: skip
    np.testing.assert_array_equal(kept.before.clock, [3, 3, 0])
    np.testing.assert_array_equal(kept.after.clock, [4, 3, 0])
    kept = check(quick(protocols.asp(), durations), specifications.ssp(W, staleness=5))
    assert (kept.violated, kept.actor, kept.unit, kept.time) == ("guarantee", "worker 0", 6, 6.0)
    assert check(quick(protocols.ssp(staleness=2), durations), specifications.ssp(W, staleness=4))


@pytest.mark.slow(
    "-1-ad_psgd",
    "-1-adsp",
    "-1-coded_reduce chain",
    "-1-d_psgd ring",
    "-1-delay_adaptive",
    "-1-diloco dynamic",
    "-1-eager_sgd majority",
    "-1-grouped",
    "-1-grouped elastic",
    "-1-hop",
    "-1-k_batch_async",
    "-1-prague",
    "-1-psp",
    "-1-psp lenient",
    "-1-ringleader",
    "-1-ringmaster cuts off",
    "-1-sgp",
    "-1-ssp",
    "-1-streaming_diloco late",
    "-1-stsyn",
    "1-ad_psgd",
    "1-adsp",
    "1-coded_reduce chain",
    "1-diloco dynamic",
    "1-grouped elastic",
    "1-hop",
)
@pytest.mark.parametrize("name", one_in(3, (n for n in PROMISED if not re.search("worker_busy|sgc|halos", n))))
@pytest.mark.parametrize("by", [-1, 1])
def test_another_version_is_caught_wherever_it_is(name, by):
    found = schedule(name)
    for place in contributions(found):
        kept = check(changed(found, "version", place, found.version[place] + by), promise(name))
        assert kept.violated in ("arrival", "guarantee"), place


def test_a_newer_version_than_the_others_read_is_caught():
    found = schedule("worker_busy")
    for place in contributions(found):
        assert check(changed(found, "version", place, found.version[place] + 1), promise("worker_busy")).violated
    olders = [changed(found, "version", p, found.version[p] - 1) for p in contributions(found) if p[0] == 0]
    assert all(check(older, promise("worker_busy")).violated == "guarantee" for older in olders)


@pytest.mark.slow("coded-server", "k_sync-server")
@pytest.mark.parametrize(
    ("name", "component"),
    [("coded", "server"), ("grouped", "server"), ("k_async", "server"), ("k_sync", "server"), ("local_sgd", "server")],
)
def test_a_missing_contribution_is_caught(name, component):
    found = schedule(name)
    for commit, contribution in contributions(found):
        kept = check(without(found, commit, contribution), promise(name))
        assert kept.violated == "guarantee" and kept.actor.startswith(component), (commit, contribution)


@pytest.mark.slow("decoupled_diloco of all", "worker_busy overlap")
@pytest.mark.parametrize(
    "name",
    [
        "decoupled_diloco", "decoupled_diloco of all", "eager_sgd majority", "halos", "ringleader",
        "worker_busy", "worker_busy overlap",
    ],
)  # fmt: skip
def test_a_push_that_a_commit_has_lost_is_caught(name):
    """Of a worker with several pushes in a commit; behind the last commit a push may be for the next one."""
    num_lost = 0
    for seed in range(4):
        found = schedule(name, seed=seed)
        last = int(np.isfinite(found.time).sum()) - 1
        assert check(found, promise(name))
        for commit, contribution in contributions(found):
            num_of_worker = (found.worker[commit] == found.worker[commit, contribution]).sum()
            work = found.work[commit, contribution]
            if commit == last or (num_of_worker == 1 and work == 1):
                continue
            worker, unit = found.worker[commit, contribution], found.unit[commit, contribution]
            is_last_of_worker = not (found.worker[commit + 1 : last + 1] == worker).any()
            if name in ("halos", "ringleader") and (is_last_of_worker or found.finish[unit, worker] <= found.time[0]):
                continue  # it may be for a commit that the record, a part of a longer one, does not have
            lost = without(found, commit, contribution)
            fewer = changed(found, "work", (commit, contribution), work - 1)
            damaged = lost if num_of_worker > 1 else fewer
            assert check(damaged, promise(name)).violated in ("guarantee", "arrival"), (seed, commit, contribution)
            num_lost += 1
    assert num_lost > 4


@pytest.mark.slow("async_local_sgd dynamic")
@pytest.mark.parametrize("name", ["adsp", "async_local_sgd dynamic"])
def test_a_commit_without_the_last_unit_of_its_message_is_caught(name):
    """A push may have any number of units; of the last commit, too, the message shows how many."""
    num_last = 0
    for seed in range(4):
        found = schedule(name, seed=seed)
        for commit, contribution in contributions(found):
            work = found.work[commit, contribution]
            if work > 1:
                fewer = changed(found, "work", (commit, contribution), work - 1)
                assert not check(fewer, promise(name)), (seed, commit)
                num_last += commit == np.isfinite(found.time).sum() - 1
    assert num_last > 0


def without_commit(found, commit):
    """The record in which a commit never was: its pushes are in none, and versions count the others."""
    is_left = np.arange(len(found.time)) != commit
    fields = {name: getattr(found, name)[is_left] for name in ("time", "worker", "unit", "work", "weight")}
    return found._replace(**fields, read=np.where(found.read > commit, found.read - 1, found.read))


IGNORING = "ringmaster|rennala"
EACH_MESSAGE_IS_USED = "asp|ad_psgd|adsp|async_local_sgd|delay_adaptive|dssp|psp|ssp|staleness_aware|worker_busy"


@pytest.mark.slow(
    "ad_psgd",
    "coded_reduce chain",
    "decoupled_diloco",
    "delay_adaptive",
    "diloco dynamic",
    "eager_sgd majority",
    "grouped elastic",
    "halos",
    "halos servers",
    "k_sync",
    "psp lenient",
    "sgp arcs",
    "streaming_diloco late",
    "worker_busy overlap",
)
@pytest.mark.parametrize("name", one_in(3, (n for n in PROMISED if not re.search(IGNORING, n))))
def test_a_commit_that_is_missing_is_caught(name):
    """Also the first or last one of a worker, but where its messages may be for a commit that the record has not."""
    found, num_caught = schedule(name), 0
    if np.isfinite(found.time).sum() <= 3:  # all are the first or the last ones of somebody
        durations = np.concatenate([random_durations(seed, table.shape_of(name)) for seed in range(1, 5)])
        found = quick(table.protocol(name), durations)
    num_commits = int(np.isfinite(found.time).sum())
    for commit in range(num_commits - 1):
        workers, units = (x[commit][found.work[commit] > 0] for x in (found.worker, found.unit))
        go_on = [(found.worker[commit + 1 : num_commits] == worker).any() for worker in workers]
        after_first = found.finish[units, workers] > found.time[0]
        is_always_seen = "sgc" in name or re.match(EACH_MESSAGE_IS_USED, name)
        if is_always_seen or (commit > 0 and all(go_on) and after_first.all()):
            assert not check(without_commit(found, commit), promise(name)), commit
            num_caught += 1
    assert num_caught > 0


@pytest.mark.slow("dssp")
@pytest.mark.parametrize("name", ["ssp", "psp", "dssp"])
def test_a_push_in_a_later_commit_is_caught(name):
    found = schedule(name)
    padded = {n: np.pad(getattr(found, n), ((0, 0), (0, 1)), constant_values=0 if n == "weight" else -1)
              for n in ("worker", "unit", "work", "weight")}  # fmt: skip
    for commit in range(int(np.isfinite(found.time).sum()) - 1):
        moved = {n: x.copy() for n, x in padded.items()}
        for n, x in moved.items():
            x[commit + 1, 1], x[commit, 0] = x[commit, 0], 0 if n == "weight" else -1
        assert check(found._replace(**moved), promise(name)).violated == "guarantee", commit


@pytest.mark.parametrize(
    ("name", "place"), [("streaming_diloco", (2, 0)), ("pipelined_coded", (2, 0))], ids=["step", "message"]
)
def test_a_version_that_is_read_before_it_is_made_is_caught(name, place):
    if name == "streaming_diloco":
        protocol = protocols.streaming_diloco(num_local_steps=2, num_fragments=1, overlap_steps=0)
    else:
        protocol = protocols.pipelined_coded(codes.cyclic_repetition(3, num_stragglers=1, rng_key=jax.random.key(0)))
    found = quick(protocol, np.ones((8, 3)) * [1.0, 1.5, 1.7])
    version = found.read[place]
    assert version > 0 and check(found, protocol.specification(3))
    early = changed(found, "start", place, found.time[version - 1] - 0.2)
    assert check(early, protocol.specification(3)).violated == "arrival"


@pytest.mark.slow("servers", "steps")
@pytest.mark.parametrize(
    ("arguments", "servers"),
    [({"num_local_steps": 2, "merge": "change"}, None), ({}, Network(upload=0.75))],
    ids=["steps", "servers"],
)
def test_a_message_can_wait_at_the_server_of_a_group_of_one(arguments, servers):
    """For the steps that are still to come, or on its way to the central server; then it is in no commit yet."""
    protocol = protocols.grouped(groups=((0,), (1,), (2,)), **arguments)
    run = jax.jit(lambda durations: protocol.schedule(durations, Network(servers=servers)))
    num_waiting = 0
    for seed in range(6):
        found = jax.tree.map(np.asarray, run(jnp.asarray(random_durations(seed), jnp.float32)))
        kept = check(found, protocol.specification(3))
        assert kept, kept
        used = {(u, w) for e, c in contributions(found) for w, first, n in [
            (found.worker[e, c], found.unit[e, c], found.work[e, c])] for u in range(first, first + n)}  # fmt: skip
        end = found.time[np.isfinite(found.time)].max()
        num_waiting += sum(
            (u, w) not in used for u, w in np.argwhere(np.isfinite(found.send_start) & (found.finish < end))
        )
    assert num_waiting > 0


@pytest.mark.slow
def test_begins_of_one_moment_stay_in_order_where_times_are_rounded():
    """In float32 the last message of a worker can arrive a little after the commit that it is in."""
    protocol = protocols.grouped(groups=((1,), (0, 2)), num_local_steps=3, merge="elastic", moving_rate=0.5)
    run = jax.jit(protocol.schedule)
    rng, num_late = np.random.default_rng(1), 0
    for _ in range(200):
        durations = rng.choice([0.1, 0.2, 0.3, 0.7], size=(24, 3)).astype(np.float32)
        found = jax.tree.map(np.asarray, run(jnp.asarray(durations), Network()))
        if (found.finish[:-1] > found.start[1:]).any():
            kept = check(found, protocol.specification(3))
            assert kept, kept
            num_late += 1
    assert num_late > 10


@pytest.mark.slow
def test_halos_of_units_of_no_length_keeps_to_its_promise():
    protocol = protocols.halos(groups=((0,), (1, 2)), num_local_steps=1, num_contributions=1)
    kept = check(quick(protocol, [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]), protocol.specification(3))
    assert kept, kept


@pytest.mark.slow("1", "2")
@pytest.mark.parametrize("num_contributions", [1, 2])
def test_halos_of_a_group_with_several_commits_at_a_moment_keeps_to_its_promise(num_contributions):
    """Each worker goes on with what its push has brought, before the next commit of its group at this moment."""
    protocol = protocols.halos(groups=((0, 1, 2, 3, 4),), num_local_steps=1, num_contributions=num_contributions)
    record = quick(protocol, [[1.0] * 5] * 3)
    kept = check(record, protocol.specification(5))
    assert kept and len(set(np.asarray(record.time)[:5].tolist())) < 5 / num_contributions, kept
    assert not check(changed(record, "read", (2, 1), 0), protocol.specification(5))


def test_commits_behind_one_that_never_happens_are_refused():
    found = schedule("asp")
    with pytest.raises(ValueError, match="commits that never happen must be the last ones"):
        check(changed(found, "time", 1, np.inf), promise("asp"))


@pytest.mark.parametrize("name", ["asp", "bsp", "dssp", "fedbuff", "hop", "psp", "ssp"])
def test_commits_of_nothing_are_caught(name):
    """The last commit without its work, and one more of nothing, at its moment or later."""
    found = schedule(name)
    last = int(np.isfinite(found.time).sum()) - 1
    nothing = {"worker": -1, "unit": -1, "work": -1, "weight": 0}
    emptied = found._replace(**{field: np.array(getattr(found, field)) for field in nothing})
    for field, value in nothing.items():
        getattr(emptied, field)[last] = value
    kept = check(emptied, promise(name))
    assert kept.violated and kept.unit == last, kept
    for seconds in (0.0, 0.5):
        times = np.insert(found.time, last + 1, found.time[last] + seconds)
        values = {field: np.insert(getattr(found, field), last + 1, value, axis=0) for field, value in nothing.items()}
        kept = check(found._replace(time=times, **values), promise(name))
        assert kept.violated and kept.unit == last + 1 and "in the commit" in str(kept), kept


@pytest.mark.slow
def test_what_was_asked_for_at_the_moment_of_a_commit_may_be_read_after_it():
    """Worker 0 goes on at the second of a commit of its units of no length, and reads meanwhile what that has made."""
    durations = [
        [2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 2.0, 2.0], [1.0, 0.0, 0.0],
        [1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [2.0, 2.0, 1.0],
    ]  # fmt: skip
    protocol = protocols.worker_busy(overlap=True)
    found = protocol(np.array(durations, np.float32), Network(download=1.0))
    assert found.start[4, 0] == found.time[1] and found.read[4, 0] == 1
    kept = check(found, protocol.specification(W))
    assert kept, kept


@pytest.mark.slow("False")
@pytest.mark.parametrize("eager", [False, True])
def test_who_computes_while_it_sends_begins_with_the_answer_also_late_in_float32(eager):
    """Times are exact here, but what rounding may do to them is more than a unit lasts."""
    protocol = protocols.worker_busy(overlap=True, eager=eager, trigger=0 if eager else None)
    network = Network(upload=0.5, download=0.125)
    record = protocol(np.array([[1e5]] + [[1.0]] * 4, np.float32), network)
    assert record.start[1, 0] < record.time[0] and record.read[1, 0] == 1
    kept = check(record, protocol.specification(1))
    assert kept, kept


def test_a_round_that_cannot_be_decoded_is_caught():
    found = schedule("coded")
    for place in contributions(found):
        kept = check(changed(found, "work", place, found.work[place] - 1), promise("coded"))
        assert (kept.violated, kept.actor, kept.unit) == ("guarantee", "server", place[0])


@pytest.mark.slow("asp", "m_sgc")
@pytest.mark.parametrize("name", ["asp", "bsp", "grouped", "m_sgc", "sr_sgc", "ssp"])
def test_a_commit_before_the_arrival_is_caught(name):
    found = schedule(name)
    for commit in np.flatnonzero(np.isfinite(found.time))[::2]:
        last = found.time[commit - 1] if commit else 0.0
        kept = check(changed(found, "time", commit, (found.time[commit] + last) / 2), promise(name))
        assert kept.violated == ("guarantee" if "sgc" in name else "arrival"), kept


@pytest.mark.parametrize("name", ["fedbuff", "local_sgd"])
def test_a_unit_that_ends_after_its_commit_is_caught_wherever_it_is(name):
    found = schedule(name)
    for commit, column in contributions(found):
        worker, last = found.worker[commit, column], found.unit[commit, column] + found.work[commit, column] - 1
        for unit in range(found.unit[commit, column], last + 1):
            for seconds in (found.time[commit] + 0.3, np.inf):
                assert not check(changed(found, "finish", (unit, worker), seconds), promise(name))


def test_a_message_of_a_unit_that_never_ended_is_caught():
    """Of units that are no events, since they are in a message with a later one, and of which all are used."""
    for name, violated in {"pipelined_coded": "arrival", "sr_sgc": "guarantee"}.items():
        found = changed(schedule(name), "finish", (0, 0), np.inf)
        assert check(found, promise(name)).violated == violated
    for time in ("start", "compute_start", "compute_end"):  # nor begun, in sr_sgc
        found = changed(found, time, (0, 0), np.inf)
    with pytest.raises(ValueError, match="commits must not use more units of a worker than have ended by then"):
        check(found, promise("sr_sgc"))


@pytest.mark.slow("m_sgc")
@pytest.mark.parametrize("name", ["m_sgc", "sr_sgc"])
def test_a_contribution_that_does_not_begin_with_its_job_is_caught(name):
    found, last = schedule(name), len(schedule(name).start) - 1
    for place in contributions(found):
        assert not check(changed(found, "unit", place, min(found.unit[place] + 1, last)), promise(name)), place
        if found.unit[place] > 0:
            with pytest.raises(ValueError, match=f"the job that begins .* contribution {place[1]} has unit"):
                check(changed(found, "unit", place, found.unit[place] - 1), promise(name))


@pytest.mark.slow
def test_an_answer_in_whose_round_a_unit_was_cut_off_is_caught():
    found, num_units = schedule("m_sgc"), table.protocol("m_sgc").round_units
    num_cut_off = 0
    for unit, worker in np.argwhere(np.isfinite(found.finish) & ~np.isfinite(found.send_start)):
        begin = unit // num_units * num_units
        answers = np.isfinite(found.send_start[begin : begin + num_units, worker]).any()
        if answers and found.finish[unit, worker] < found.time[0]:
            assert not check(changed(found, "finish", (unit, worker), np.inf), promise("m_sgc")), (unit, worker)
            num_cut_off += 1
    assert num_cut_off > 3


@pytest.mark.slow("fedbuff")
@pytest.mark.parametrize("name", ["fedbuff", "k_sync"])
def test_what_a_unit_in_no_commit_cannot_have_read_or_done_is_refused(name):
    """A version that was not there, or computing that goes on when its worker begins another unit."""
    found = schedule(name)
    is_used = np.zeros(found.start.shape, bool)
    for place in contributions(found):
        first, worker = found.unit[place], found.worker[place]
        is_used[first : first + found.work[place], worker] = True
    last_time = found.time[np.isfinite(found.time)].max()
    units = np.argwhere(~is_used & (found.compute_end < last_time) & np.isfinite(np.roll(found.start, -1, axis=0)))
    assert len(units) > 0
    for unit, worker in units:
        with pytest.raises(ValueError, match=f"was there; unit {unit} of worker {worker} has read version"):
            check(changed(found, "read", (unit, worker), found.read[unit, worker] + 5), promise(name))
        endless = changed(found, "compute_end", (unit, worker), np.inf)
        endless = changed(endless, "finish", (unit, worker), np.inf)
        with pytest.raises(ValueError, match=f"worker {worker} begins unit {unit + 1} at"):
            check(changed(endless, "send_start", (unit, worker), np.inf), promise(name))


@pytest.mark.slow
def test_a_version_of_an_exchange_that_has_not_begun_is_refused():
    """It is behind the horizon, or begins before that version is made."""
    found, promised = schedule("elastic_averaging", links=random_links(3)), promise("elastic_averaging")
    assert check(found, promised)
    num_commits = int(np.isfinite(found.time).sum())
    exchange = np.minimum.accumulate(found.send_start[::-1])[::-1]
    is_behind = np.isfinite(found.start) & ~(exchange <= found.horizon)
    is_pending = np.isfinite(found.send_start) & (found.finish > found.time[num_commits - 1])
    is_pending &= ~is_behind & (found.read < num_commits)
    assert is_behind.any() and is_pending.any() and (found.read[is_behind] == -1).all()
    for unit, worker in np.argwhere(is_behind | is_pending):
        with pytest.raises(ValueError, match=f"unit {unit} of worker {worker} has read version"):
            check(changed(found, "read", (unit, worker), found.read[unit, worker] + 1), promised)


def test_a_unit_that_is_computed_before_it_starts_is_refused():
    found = schedule("asp")
    early = changed(found, "compute_start", (1, 0), found.start[1, 0] - 0.5)
    with pytest.raises(ValueError, match="start must not come after compute_start; unit 1 of worker 0"):
        check(early, promise("asp"))


@pytest.mark.slow("m_sgc")
@pytest.mark.parametrize("name", ["asp", "grouped", "k_async", "k_sync", "local_sgd", "m_sgc", "ssp", "worker_busy"])
def test_commits_in_the_wrong_order_are_caught(name):
    found = schedule(name)
    for commit in range(int(np.isfinite(found.time).sum()) - 1):
        assert not check(swapped(found, commit), promise(name)), commit


@pytest.mark.parametrize("name", ["m_sgc", "sr_sgc"])
def test_rounds_that_end_with_too_many_late_are_caught(name):
    found, units = schedule(name), table.protocol(name).round_units
    for worker in range(W):
        silent = changed(found, "send_start", (slice(2 * units, 4 * units), worker), np.inf)
        kept = check(silent, promise(name))  # late in two rounds one after the other; a burst of one is allowed
        assert (kept.violated, kept.actor) == ("guarantee", "server") and kept.before.num_rounds <= 3
        assert kept.before.num_answers[worker] == 0


@pytest.mark.slow("m_sgc")
@pytest.mark.parametrize("name", ["m_sgc", "sr_sgc"])
def test_progress_that_nobody_has_made_is_caught(name):
    found = schedule(name)
    for place in contributions(found):
        assert check(changed(found, "work", place, found.work[place] + 1), promise(name)).violated == "guarantee"


def test_a_worker_that_never_reads_the_newest_version_is_caught():
    never = Rule(
        lambda view, worker: (view.num_uncommitted > 0).all(), pulls=lambda view: view.version < 0, needs_everybody=True
    )
    protocol = ruled(never, lambda w: specifications.worker_busy(w), width=40)
    kept = check(quick(protocol, random_durations(1)), promise("worker_busy"))
    assert (kept.violated, kept.action, kept.actor[:6]) == ("guarantee", "begin", "worker")
    assert kept.before.read[int(kept.actor[-1])] == 0 and kept.before.version == 1  # it had to read this one


def test_a_worker_that_waits_is_caught_where_nobody_waits():
    found = schedule("k_async")
    kept = check(found, specifications.k_batch_async(W, num_contributions=2))
    assert (kept.violated, kept.action) == ("guarantee", "begin")
    found = schedule("asp")
    unit, worker = np.argwhere(np.isfinite(found.finish[1:]))[0] + [1, 0]
    pause = found.finish[unit - 1, worker] + 1e-3
    kept = check(changed(found, "start", (unit, worker), pause), promise("asp"))
    assert (kept.violated, kept.action, kept.unit) == ("guarantee", "begin", unit)


def test_an_empty_commit_is_caught():
    found = schedule("anytime_minibatch")
    for commit in np.flatnonzero(np.isfinite(found.time)):
        empty = found
        for contribution in np.flatnonzero(found.worker[commit] >= 0):
            empty = without(empty, commit, contribution)
        kept = check(empty, promise("anytime_minibatch"))
        assert (kept.violated, kept.action, kept.unit) == ("guarantee", "commit", commit)


def ruled(rule, promised, width=1):
    """A protocol by a rule, in a promise of another one."""

    def run(durations, network):
        return event_schedule(rule._replace(num_contributions=width), durations, network)

    return protocols.Protocol(run, specification=promised)


@pytest.mark.parametrize(
    ("rule", "width", "promised", "who"),
    [
        (
            Rule(ready=lambda view: view.clock - view.clock.min() <= 2),
            1, lambda w: SSP[1], "worker",
        ),
        (
            Rule(lambda view, worker: view.num_uncommitted.sum() >= 2, cuts_off=all_under_way),
            2, lambda w: specifications.k_sync(w, num_contributions=2), "worker",
        ),
        pytest.param(
            Rule(lambda view, worker: view.num_uncommitted.sum() >= 2, lambda view: view.num_uncommitted == 0),
            2, lambda w: specifications.k_sync(w, num_contributions=2), "worker",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Rule(pulls=lambda view: view.version < view.num_commits - 1),
            1, lambda w: specifications.asp(w), "server",
            marks=pytest.mark.slow,
        ),
        (
            Rule(lambda view, worker: (view.num_uncommitted > 0).sum() >= 2),
            2, lambda w: specifications.worker_busy(w), "server",
        ),
    ],
    ids=["one unit more", "several of one worker", "nobody is cut off", "an old version", "not everybody"],
)  # fmt: skip
def test_protocols_that_break_their_promise_are_caught(rule, width, promised, who):
    durations = np.asarray(random_durations(3), np.float32)
    durations[:, 2] *= 4
    protocol = ruled(rule, promised, width)
    kept = check(quick(protocol, durations), protocol.specification(W))
    assert kept.violated == "guarantee" and kept.actor.startswith(who), kept


def waits(found, staleness):
    """Naive: whether the units, in the order in which they are in commits, keep to the waiting rule of SSP."""
    clock = [0] * W
    for worker in found.worker[np.isfinite(found.time), 0]:
        if clock[worker] - min(clock) > staleness:
            return False
        clock[worker] += 1
    return True


def test_the_verdict_on_ssp_is_that_of_a_plain_loop():
    rng, verdicts = np.random.default_rng(0), []
    found = schedule("asp")
    for _ in range(60):
        # Who sends when is drawn anew: every order of units is a schedule, most of them of no protocol.
        order = rng.choice(W, size=rng.integers(4, 13), p=rng.dirichlet(np.full(W, 5.0)))
        damaged = ordered(found, order)
        staleness = int(rng.integers(0, 3))
        kept = check(damaged, SSP[staleness])
        assert bool(kept) == waits(damaged, staleness)
        verdicts.append(bool(kept))
    assert 10 < sum(verdicts) < 50


def ordered(found, workers):
    """A schedule of one-unit commits by these workers, one a second."""
    units = [int((workers[:i] == w).sum()) for i, w in enumerate(workers)]
    number, shape = len(workers), (max(units) + 1, W)
    times = np.full(shape, np.inf, np.float32)
    times[units, workers] = np.arange(1, number + 1)
    read = np.full(shape, -1, np.int32)
    read[units, workers] = np.arange(number)
    return found._replace(
        time=np.arange(1, number + 1, dtype=np.float32),
        worker=workers[:, None], unit=np.asarray(units)[:, None], work=np.ones((number, 1), int), read=read,
        start=times - 0.5, compute_start=times - 0.5, compute_end=times, send_start=times, finish=times,
    )  # fmt: skip


def busy_rule(found):
    """Naive, for damage to who is in a commit: everybody is in each, with all that it sent before.

    So is every message that has arrived before the last one.
    """
    used = (found.worker >= 0) & (found.work > 0)
    everybody = all(set(found.worker[e][used[e]]) == set(range(W)) for e in np.flatnonzero(np.isfinite(found.time)))
    units = {w: set() for w in range(W)}
    for e, c in contributions(found):
        units[found.worker[e, c]] |= set(range(found.unit[e, c], found.unit[e, c] + found.work[e, c]))
    end = found.time[np.isfinite(found.time)].max()
    early = np.argwhere(np.isfinite(found.send_start) & (found.finish < end))
    everything = all(unit in units[worker] for unit, worker in early)
    return everybody and everything and all(found == set(range(max(found) + 1)) for found in units.values())


def test_the_verdict_on_wbsp_is_that_of_a_plain_loop():
    rng, verdicts = np.random.default_rng(0), []
    for seed in range(6):
        found = schedule("worker_busy", seed=seed)
        for _ in range(4):
            # A worker's last contribution can be left out without changing its later ones.
            places = contributions(found)
            commit, contribution = places[rng.integers(len(places))]
            last = max(e for e, c in places if found.worker[e, c] == found.worker[commit, contribution])
            damaged = without(found, commit, contribution) if commit == last else found
            kept = check(damaged, promise("worker_busy"))
            assert bool(kept) == busy_rule(damaged), kept
            verdicts.append(bool(kept))
    assert 3 < sum(verdicts) < 22


@pytest.mark.slow
def test_long_runs_with_ties_hold():
    durations = np.random.default_rng(0).choice([0.1, 0.2, 0.3, 0.7], size=(3800, 16)).astype(np.float32)
    found = quick(protocols.ssp(staleness=3), durations)
    assert np.isfinite(found.time).sum() > 60_000
    assert check(found, protocols.ssp(staleness=3).specification(16))
    assert check(found, specifications.ssp(16, staleness=2)).violated == "guarantee"


@pytest.fixture
def short_lanes(monkeypatch):
    """Lanes of 4 events, so that short traces have several blocks, too."""
    monkeypatch.setattr(lanes, "STATE_ENTRIES", 8)
    monkeypatch.setattr(lanes, "NUM_STEPS", 4)
    step_programs.programs_of.cache_clear()
    yield
    step_programs.programs_of.cache_clear()


def verdict(result):
    """What a check says, as something that can be compared."""
    return jax.tree.map(lambda x: np.asarray(x).tolist(), tuple(result[1:]))


def alone(promised, found):
    """The verdict without lanes, and without counting states."""
    kinds = trace_validation.kinds_of(promised)
    stepped = promised._replace(replay=None)
    return verdict(trace_validation.Validation(stepped, block_size=64).replay(events(found, kinds)))


def damaged_in(found, field, rng):
    """The schedule with another number in one contribution, or a unit of it that arrives too late."""
    place = tuple(contributions(found)[rng.integers(len(contributions(found)))])
    if field == "finish":
        return changed(found, field, (found.unit[place], found.worker[place]), found.time[place[0]] + 1)
    return changed(found, field, place, rng.integers(0, 3))


@pytest.mark.slow("asp", "async_local_sgd", "fedbuff", "grouped", "k_async", "worker_busy")
@pytest.mark.parametrize("name", ["asp", "async_local_sgd", "fedbuff", "grouped", "k_async", "ssp", "worker_busy"])
def test_lanes_say_what_is_said_event_by_event(name, short_lanes, monkeypatch):
    rng, verdicts, blocks = np.random.default_rng(0), [], []
    programs = step_programs.programs_of(promise(name)).lanes
    kept_blocks = programs.kept_blocks
    monkeypatch.setattr(programs, "kept_blocks", lambda *args: blocks.append(list(kept_blocks(*args))) or blocks[-1])
    for seed in range(20):
        found = schedule(name, seed=seed % 4)
        if seed >= 4:
            found = damaged_in(found, ("version", "unit", "worker", "finish")[seed % 4], rng)
        try:
            expected = alone(promise(name), found)
        except ValueError:  # no schedule at all
            continue
        assert verdict(check(found, promise(name))) == expected
        verdicts.append(expected[1])
    assert {"", "arrival", "guarantee"} <= set(verdicts) and sum(map(len, blocks)) > 20


def test_lanes_hold_the_property(short_lanes):
    promised = specifications.ssp(W, staleness=3)._replace(invariant=lambda state: state.clock.max() < 5)
    kept = check(schedule("ssp"), promised)
    assert kept.violated == "property" and verdict(kept) == alone(promised, schedule("ssp"))


def test_lanes_must_end_where_the_next_ones_begin(short_lanes):
    right = specifications.worker_busy(W)

    def replay(state, events, rows):
        states = right.replay(state, events, rows)
        return states._replace(next_read=states.next_read + (rows == rows[1])[:, None])  # nobody looks at it

    trace = events(schedule("worker_busy"), trace_validation.kinds_of(right))
    num_kept = [
        len(list(step_programs.programs_of(promised).lanes.kept_blocks(right.initial, trace.event, trace.is_premature)))
        for promised in (right, right._replace(replay=replay))
    ]
    assert num_kept == [trace.time.size // 4, 0]


def test_words():
    found = schedule("k_sync")
    assert str(check(found, promise("k_sync"))) == (
        "All 40 steps keep to k_sync(3 workers, takes 2): a commit takes one gradient each of 2 workers, on the "
        "version that it replaces."
    )
    broken = str(check(without(found, 1, 0), promise("k_sync"))).splitlines()
    assert broken[0].startswith("server: commit 1 at ") and "is not a step that the server guarantees" in broken[0]
    assert broken[1].startswith("  before: version 1, read ") and broken[2].startswith("  after:  version 2, read ")
    assert broken[3].startswith(
        "  record: 1 unit in the commit; 1 message arrived since the commit before, in no commit"
    )
    broken = str(check(changed(found, "version", (1, 0), 0), promise("k_sync")))
    assert "is not a step that the worker guarantees" in broken
    early = changed(schedule("bsp"), "time", 0, 0.01)
    assert "uses what was not there yet, in bsp(3 workers" in str(check(early, promise("bsp")))


def test_bad_input():
    found = schedule("ssp")
    batch = jax.tree.map(lambda x: np.stack([x, x]), found)
    for specification in (promise("ssp"), promise("asp"), promise("m_sgc")):
        with pytest.raises(ValueError, match="is of a batch, its times have shape"):
            check(batch, specification)
    for name in ("ssp", "asp", "sr_sgc"):
        with pytest.raises(ValueError, match="has 4, the schedule 3"):
            check(found, table.protocol(name, 4).specification(4))
    with pytest.raises(ValueError, match=r"the actions of ssp_cached\(.*\) stand for no events"):
        check(found, specifications.ssp_cached(W))


def test_a_version_that_is_not_there_yet_is_caught_where_only_clocks_count():
    whole = schedule("ssp")
    promised = promise("ssp")
    assert check(whole, promised)
    used = np.flatnonzero(np.isfinite(whole.time))
    one = used[3]
    kept = check(changed(whole, "version", (one, 0), one + 1), promised)
    assert (kept.violated, kept.action) == ("arrival", "begin")


def test_who_begins_too_early_is_caught_even_if_nobody_is_ahead_when_it_pushes():
    durations = jnp.asarray([[1.0, 2.0, 2.0], [10.0, 9.0, 9.0], [10.0, 10.0, 10.0]])
    kept = check(quick(protocols.asp(), durations), protocols.ssp(staleness=0).specification(W))
    assert (kept.violated, kept.actor, kept.action, kept.unit, kept.time) == ("guarantee", "worker 0", "begin", 1, 1.0)


def test_what_was_cut_off_cannot_be_in_a_commit():
    whole = schedule("k_sync")
    lost = np.argwhere(np.isfinite(whole.start) & np.isinf(whole.finish))[0]
    at = np.flatnonzero(np.isfinite(whole.time) & (whole.time >= whole.start[tuple(lost)]))[0]
    taken = changed(changed(whole, "worker", (at, 0), lost[1]), "unit", (at, 0), lost[0])
    assert not check(taken, promise("k_sync"))


def test_a_commit_of_nothing_is_right_only_if_nobody_has_done_anything():
    durations = np.ones(table.shape_of("anytime_minibatch"))
    durations[1:3] = 5.0  # nobody ends one of these in 2.5 s, and the next is begun anew
    found = schedule("anytime_minibatch", lambda seed, shape: durations)
    assert (found.worker[np.isfinite(found.time)] < 0).all(axis=1).any()
    assert check(found, promise("anytime_minibatch"))


@pytest.mark.parametrize("name", ["bsp", "ssp", "k_batch_sync", "rennala"])
def test_a_push_that_is_in_two_commits_is_caught(name):
    record = jax.device_get(schedule(name))
    assert check(record, promise(name))
    row, column = np.argwhere((record.worker >= 0) & np.isfinite(record.time)[:, None])[-1]
    earlier = np.argwhere(record.worker[:row] == record.worker[row, column])[-1]
    fields = {field: getattr(record, field).copy() for field in ("unit", "work")}
    for values in fields.values():
        values[row, column] = values[tuple(earlier)]
    assert not check(record._replace(**fields), promise(name))


@pytest.mark.slow("protocol1-durations1")
@pytest.mark.parametrize(
    ("protocol", "durations"),
    [
        (protocols.eager_sgd(), [[0.0, 0.0], [0.0, 0.0]]),
        (protocols.worker_busy(), [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),
    ],
)
def test_a_push_that_no_commit_takes_may_come_after_the_last_of_several_at_a_moment(protocol, durations):
    assert check(protocol(jnp.asarray(durations)), protocol.specification(2))
