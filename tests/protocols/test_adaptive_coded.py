"""Rounds that switch among codes: against a plain simulation, the engine, and what they promise."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, compression, engine, protocols, stragglers, tasks
from gcjax.codes import assignments, stopping
from gcjax.parameter_server.rule_state import first_view
from gcjax.protocols.adaptive_coded_rule import measured_network, no_messages, with_messages
from gcjax.protocols.base import workers_of
from gcjax.protocols.observed_rounds import Estimates, ObservedRound, likely_finish, mean_seconds
from tests import devices
from tests.parameters import some
from tests.protocols import reference

KEY = jax.random.key(5)
W, WINDOW = 5, 3
CYCLIC = assignments.cyclic(W, load=3)
ONE, TWO = codes.partial(CYCLIC), codes.partial(CYCLIC, num_blocks=2, rows="harmonic")
REVERSED = codes.partial(codes.Assignment(CYCLIC.chunks[:, ::-1].copy(), W))
UNEVEN = codes.partial(
    assignments.from_matrix([[1, 1, 0, 0, 0], [0, 1, 1, 0, 1], [0, 0, 1, 1, 0], [1, 0, 0, 1, 1], [0, 0, 0, 0, 1]])
)
CANDIDATES = {"L=1": ONE, "L=2": TWO, "uncoded": codes.uncoded(W), "reversed": REVERSED, "uneven": UNEVEN}
LOAD = 3
NAMES = list(CANDIDATES)


def markov(seed, rounds, slowdown=8.0):
    model = stragglers.markov(
        probability=0.3, persistence=0.95, slowdown=slowdown, base=stragglers.exponential(mean=1.0)
    )
    return np.asarray(stragglers.sample_durations(model, jax.random.key(seed), rounds * LOAD, W), np.float64)


def stop_of(code, finish):
    """When the plan is exact for the first time, one chunk after the other, and the progress then."""
    loads, exact = code.assignment.loads, reference.is_decodable(code)
    for at in sorted({finish[w][k] for w in range(W) for k in range(loads[w])}):
        progress = np.array([sum(x <= at for x in finish[w][: loads[w]]) for w in range(W)], np.int32)
        if exact(progress):
            return at, progress
    return math.inf, None


def message_time(code, progress, upload):
    sent = np.asarray(code.sent(jnp.asarray(progress))).sum(axis=1) / code.num_blocks
    return upload * sent.max()


def simulate(candidates, units, window, receive, upload):
    """[(time, candidate, progress)] by a plain loop over rounds, and the seconds that each candidate seemed to take."""
    rounds, now, result, busy, done, seconds = list(candidates.values()), 0.0, [], [], [], []
    for round_units in units:
        means = np.mean(seconds[-window:], axis=0) if seconds else np.zeros(len(rounds))
        used = int(np.argmin(means)) if seconds else 0
        code = rounds[used]
        loads = code.assignment.loads
        finish = [[receive + round_units[: k + 1, w].sum() for k in range(loads[w])] for w in range(W)]
        stop, progress = stop_of(code, finish)
        now += stop + message_time(code, progress, upload)
        result.append((now, used, progress))
        ends = [finish[w][-1] if loads[w] and progress[w] == loads[w] else stop for w in range(W)]
        busy.append([end - receive if loads[w] else 0.0 for w, end in enumerate(ends)])
        done.append(progress.tolist())
        worked, chunks = np.sum(busy[-window:], axis=0), np.sum(done[-window:], axis=0)
        mean = np.where(worked > 0, worked / np.maximum(chunks, 1), 0)
        mean = np.where(worked > 0, mean, mean.sum() / max((worked > 0).sum(), 1))
        likely = []
        for w in range(W):
            pace = (busy[-1][w] + mean[w]) / (progress[w] + 1)
            end = ends[w] if loads[w] else receive
            likely.append(finish[w][: progress[w]] + [end + (k + 1) * pace for k in range(LOAD - progress[w])])
        times = []
        for candidate in rounds:
            at, reached = stop_of(candidate, likely)
            times.append(at + message_time(candidate, reached, upload))
        seconds.append(times)
    return result


@pytest.mark.slow("0.0-0", "0.0-1", "3.0-0")
@pytest.mark.parametrize("seed", some([0, 1], [2, 3, 4]))
@pytest.mark.parametrize("upload", [0.0, 3.0])
def test_rounds_are_those_of_a_plain_simulation(seed, upload, x64):
    rounds = 16
    durations = markov(seed, rounds)
    protocol = protocols.adaptive_coded(CANDIDATES, window=WINDOW)
    network = stragglers.Network(latency=0.0, upload=upload, download=0.25)
    schedule = protocol(jnp.asarray(durations), network)
    expected = simulate(CANDIDATES, durations.reshape(rounds, LOAD, W), WINDOW, receive=0.25, upload=upload)
    used = np.asarray(protocols.used_candidate(schedule))
    assert used.tolist() == [candidate for _, candidate, _ in expected]
    np.testing.assert_allclose(schedule.time, [time for time, _, _ in expected], rtol=1e-9)
    work = np.asarray(schedule.work).reshape(rounds, len(CANDIDATES), W)
    np.testing.assert_array_equal(work[np.arange(rounds), used], [progress for _, _, progress in expected])
    assert len(set(used.tolist())) > 1, "a trace on which nothing changes shows little"


@pytest.mark.slow
def test_one_candidate_is_coded():
    durations = jnp.asarray(markov(0, 8), jnp.float32)
    network = stragglers.Network(upload=0.5, download=0.25)
    fixed = protocols.coded(TWO)(durations, network)
    adaptive = protocols.adaptive_coded({"L=2": TWO})(durations, network)
    for name, one, other in zip(fixed._fields, fixed, adaptive, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.slow
def test_what_nobody_has_seen_changes_nothing():
    """The choice of a round does not depend on later rounds, nor on chunks that were cut off or not begun."""
    durations = markov(1, 12)
    protocol = protocols.adaptive_coded(CANDIDATES, window=WINDOW)
    schedule = protocol(jnp.asarray(durations, jnp.float32))
    used = np.asarray(protocols.used_candidate(schedule))
    seen = np.isfinite(np.asarray(schedule.finish))
    cut_off_later = np.where(seen, durations, 1e4)  # what was cut off is longer still
    again = protocol(jnp.asarray(cut_off_later, jnp.float32))
    np.testing.assert_array_equal(protocols.used_candidate(again), used)
    np.testing.assert_array_equal(again.time, schedule.time)
    other_future = durations.copy()
    other_future[6 * LOAD :] = 1.0
    np.testing.assert_array_equal(
        protocols.used_candidate(protocol(jnp.asarray(other_future, jnp.float32)))[:7], used[:7]
    )


def test_what_was_not_seen_is_filled_in_at_the_pace_of_the_worker():
    inf = math.inf
    seen = ObservedRound(
        finish=jnp.asarray([[1.0, 2.0, inf], [3.0, inf, inf], [inf, inf, inf]]),
        work_begin=jnp.zeros(3),
        work_end=jnp.asarray([2.0, 4.0, 4.0]),
    )
    found = likely_finish(seen, jnp.asarray([1.0, 2.0, 5.0]))
    np.testing.assert_allclose(found, [[1, 2, 3], [3, 6, 8], [9, 14, 19]])
    busy, done = jnp.asarray([[2.0, 4.0, 0.0], [4.0, 4.0, 0.0]]), jnp.asarray([[2, 0, 0], [1, 0, 0]])
    np.testing.assert_allclose(mean_seconds(busy, done), [2.0, 8.0, 5.0])


def test_what_a_server_has_seen_of_a_round(x64):
    """Chunks end at 1, 2.5 and 2 s after the begin at 10 s; the last push comes 0.5 s after the stop."""
    rule = protocols.adaptive_coded({"uncoded": codes.uncoded(3)}).rule(3)
    view = first_view(rule, 3)
    view = view._replace(
        now=jnp.asarray(13.0),
        num_uncommitted=jnp.asarray([1, 1, 0], jnp.int32),
        idle=jnp.ones(3, bool),
        alive=jnp.asarray([True, True, False]),
        begin_time=jnp.full(3, 10.0),
        progress=jnp.ones(3, jnp.int32),
        memory=view.memory._replace(unit_end=jnp.asarray([[11.0], [12.5], [12.0]])),
    )
    memory = rule.remember(view, jnp.int32(0))
    assert memory.window.busy_seconds[0].tolist() == [1.0, 2.5, 0.0]
    assert memory.messages._asdict() == {
        "num_rounds": 1.0, "size": 1.0, "seconds": 0.5, "size_spread": 0.0, "common_spread": 0.0
    }  # fmt: skip
    assert memory.window.estimates.seconds[0].tolist() == [3.0]
    for not_over in (
        view._replace(stopped=jnp.asarray([False, True, False])),  # somebody owes a push
        view._replace(num_uncommitted=jnp.ones(3, jnp.int32)),  # somebody has pushed and left
    ):
        assert int(rule.remember(not_over, jnp.int32(0)).window.num_rounds) == 0


def test_who_has_not_taken_part_would_not_have_finished_anything():
    observed = ObservedRound(
        finish=jnp.asarray([[1.0, math.inf], [math.inf, math.inf]]),
        work_begin=jnp.zeros(2),
        work_end=jnp.asarray([1.5, 0.0]),
        is_present=jnp.asarray([True, False]),
    )
    assert likely_finish(observed, jnp.asarray([1.0, 1.0])).tolist() == [[1.0, 2.5], [math.inf, math.inf]]


@pytest.mark.parametrize(
    ("sizes", "seconds", "latency", "upload"),
    [
        ([0.5, 0.5], [2.0, 4.0], 0.0, 6.0),  # one size: in proportion
        ([0.5, 1.0], [2.0, 3.0], 1.0, 2.0),  # two points: the line through them
        ([0.5, 1.0, 1.0], [2.0, 2.5, 3.5], 1.0, 2.0),  # more: least squares
        ([0.5, 1.0], [1.0, 4.0], 0.0, 3.6),  # no latency below 0: least squares through it
        ([0.5, 1.0], [3.0, 1.0], 2.0, 0.0),  # no bandwidth below 0: the mean
        ([], [], 0.0, 0.0),
    ],
)
def test_what_messages_take_is_the_line_of_least_squares(sizes, seconds, latency, upload, x64):
    moments = no_messages(jnp.float64)
    for size, time in zip(sizes, seconds, strict=True):
        moments = with_messages(moments, size, time)
    network = measured_network(moments)
    assert float(network.latency) == pytest.approx(latency) and float(network.upload) == pytest.approx(upload)


def test_rounding_is_no_spread_of_sizes():
    """In float32, messages of one size stay so, however many there are."""
    seconds = jax.random.uniform(KEY, (3000,), jnp.float32, 0.2, 0.25)

    def step(moments, time):
        """The moments with a round more, twice."""
        return (with_messages(moments, jnp.float32(1 / 3), time),) * 2

    _, moments = jax.lax.scan(step, no_messages(jnp.float32), seconds)
    network = jax.vmap(measured_network)(moments)
    assert not network.latency.any()
    np.testing.assert_allclose(network.upload[-1], 3 * seconds.mean(), rtol=1e-4)


def test_the_least_mean_seconds_count_what_is_decoded():
    estimates = Estimates(
        seconds=jnp.asarray([[4.0, 3.0, 2.0], [2.0, 3.0, 2.0], [99.0, 0.0, 0.0]]),
        decoded_share=jnp.asarray([[1.0, 1.0, 0.5], [1.0, 1.0, 0.5], [1.0, 1.0, 1.0]]),
        is_observed=jnp.asarray([True, True, False]),
        last_candidate=jnp.int32(1),
    )
    assert int(protocols.least_mean_seconds(estimates)) == 0  # 3, 3 and 4; the first of several
    assert int(protocols.least_mean_seconds(estimates._replace(decoded_share=jnp.ones((3, 3))))) == 2


def test_a_deadline_pays_for_what_it_leaves_out(x64):
    """Where nobody is slow a deadline saves nothing, where somebody always is it saves most of the time."""
    candidates = {"exact": codes.uncoded(W), "deadline": (codes.uncoded(W), stopping.deadline(1.5))}
    protocol = protocols.adaptive_coded(candidates)
    assert protocol.specification is None
    even, uneven = jnp.ones((12, W)), jnp.ones((12, W)).at[:, 0].set(9.0)
    assert not np.asarray(protocols.used_candidate(protocol(even))).any()
    assert np.asarray(protocols.used_candidate(protocol(uneven)))[1:].all()
    assert not np.asarray(protocols.used_candidate(protocol(jnp.ones((12, W)).at[:, 0].set(1.6)))).any()


@pytest.mark.parametrize(("upload", "blocks"), [(1.0, 1), (3.0, 2)])
def test_messages_count(upload, blocks):
    """All chunks take 1 s: L = 1 is there at 1 s and sends 1 gradient, L = 2 at 2 s and sends a half."""
    protocol = protocols.adaptive_coded({"L=2": TWO, "L=1": ONE})
    schedule = protocol(jnp.ones((4 * LOAD, W)), stragglers.Network(upload=upload))
    assert protocols.used_candidate(schedule).tolist()[1:] == [2 - blocks] * 3
    np.testing.assert_allclose(np.diff(schedule.time), min(1 + upload, 2 + upload / 2), rtol=1e-6)


def test_a_compression_that_differs_by_worker_is_refused():
    task = tasks.linear_regression(num_chunks=W)
    protocol, qsgd = protocols.adaptive_coded({"L=1": ONE, "L=2": TWO}), compression.qsgd(levels=np.full(W, 3))
    with pytest.raises(ValueError, match="differs by worker .* a protocol with messages of 10"):
        engine.run(task, protocol, optax.sgd(0.1), jnp.ones((6, W)), rng_key=KEY, compression=qsgd)


def test_the_workers_of_a_code_of_several_rows_are_known():
    assert workers_of(protocols.adaptive_coded({"L=1": ONE, "L=2": TWO})) == W
    assert workers_of(protocols.m_sgc(4, burst=1, window=2, max_slow=4)) == 4
    assert (workers_of(protocols.coded(ONE)), workers_of(protocols.asp())) == (W, None)


def test_a_choice_of_ones_own_and_what_it_sees(x64):
    def next_one(estimates):
        return (estimates.last_candidate + 1) % len(NAMES)

    protocol = protocols.adaptive_coded(CANDIDATES, window=2, choose=next_one)
    used = protocols.used_candidate(protocol(jnp.ones((7 * LOAD, W))))
    assert np.asarray(used).tolist() == [0, 1, 2, 3, 4, 0, 1]


def take_turns(estimates):
    return (estimates.last_candidate + 1) % len(NAMES)


@pytest.fixture(scope="module")
def trained():
    with jax.enable_x64(True):
        task = tasks.linear_regression(num_chunks=W, num_features=7, num_examples=40)
        protocol = protocols.adaptive_coded(CANDIDATES, choose=take_turns)
        durations = jnp.asarray(markov(2, 10))
        return task, protocol, durations, engine.run(task, protocol, optax.sgd(0.05), durations, rng_key=KEY)


def test_gradients_are_exact_whichever_code_a_round_has(trained, x64):
    """The parameters are those of uncoded rounds of the same batches."""
    task, _, durations, run = trained
    assert set(np.asarray(protocols.used_candidate(run.schedule)).tolist()) == set(range(len(NAMES)))
    assert float(run.info.residual.max()) < 1e-9
    plain = engine.run(task, protocols.coded(codes.uncoded(W)), optax.sgd(0.05), durations[:10], rng_key=KEY)
    np.testing.assert_allclose(run.params, plain.params, rtol=1e-9)


@pytest.mark.slow
def test_a_replay_has_the_same_bits_and_so_does_the_same_key(trained, x64):
    task, protocol, durations, run = trained
    again = engine.run(task, protocol, optax.sgd(0.05), durations, rng_key=KEY)
    replayed = engine.replay(task, protocol, optax.sgd(0.05), run.schedule, rng_key=KEY)
    for other in (again, replayed):
        np.testing.assert_array_equal(other.params, run.params)


@pytest.mark.slow
def test_a_mesh_gives_the_same_parameters(trained, x64):
    task, protocol, durations, run = trained
    mesh = devices.mesh(2)
    meshed = engine.run(task, protocol, optax.sgd(0.05), durations, rng_key=KEY, mesh=mesh)
    np.testing.assert_allclose(meshed.params, run.params, rtol=1e-9)


@pytest.mark.slow
def test_another_choice_compiles_nothing_and_seeds_can_be_mapped(trained, x64):
    protocol = protocols.adaptive_coded(CANDIDATES, window=WINDOW)
    task, traces = trained[0], []

    @jax.jit
    def parameters(durations, key):
        traces.append(durations.shape)
        run = engine.run(task, protocol, optax.sgd(0.05), durations, rng_key=key, num_commits=10)
        return run.params, protocols.used_candidate(run.schedule)

    seeds = range(3)
    durations = jnp.asarray(
        [markov(seed, 10, slowdown) for seed, slowdown in zip(seeds, (1.0, 8.0, 30.0), strict=True)]
    )
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    one_by_one = [parameters(durations[i], keys[i]) for i in seeds]
    assert len(traces) == 1 and parameters._cache_size() == 1
    assert len({tuple(used.tolist()) for _, used in one_by_one}) > 1
    params, used = jax.vmap(parameters)(durations, keys)
    for i in seeds:
        np.testing.assert_allclose(params[i], one_by_one[i][0], rtol=1e-9)
        np.testing.assert_array_equal(used[i], one_by_one[i][1])


def damaged(schedule, name, commit, column, value):
    values = np.asarray(getattr(schedule, name)).copy()
    values[commit, column] = value
    return schedule._replace(**{name: values})


def moved(schedule, commit, candidate):
    """The record that says that a commit is of another candidate."""
    used = int(protocols.used_candidate(schedule)[commit])
    for name, fill in (("worker", -1), ("unit", -1), ("work", -1), ("weight", 0.0)):
        values = np.asarray(getattr(schedule, name)).copy()
        row = values[commit].reshape(-1, W)
        row[candidate], row[used] = row[used].copy(), fill
        schedule = schedule._replace(**{name: values})
    return schedule


@pytest.mark.slow
def test_a_record_is_held_against_the_code_that_its_round_used():
    protocol = protocols.adaptive_coded({"L=1": ONE, "L=2": TWO}, window=2, choose=two_turns)
    schedule = jax.tree.map(np.asarray, protocol(jnp.asarray(markov(3, 8), jnp.float32)))
    specification = protocol.specification(W)
    assert protocols.check(schedule, specification)
    assert protocols.used_candidate(schedule).tolist() == [0, 1] * 4
    num_caught = 0
    for commit in range(8):
        used = commit % 2
        kept = protocols.check(moved(schedule, commit, 1 - used), specification)
        if used == 0:  # what one block needs is not enough for two
            assert not kept and kept.violated == "guarantee", commit
        work, exact = schedule.work[commit].reshape(2, W)[used], reference.is_decodable((ONE, TWO)[used])
        for worker in np.flatnonzero(work):
            one_less = work - (np.arange(W) == worker)
            kept = protocols.check(
                damaged(schedule, "work", commit, used * W + worker, one_less[worker]), specification
            )
            # Not enough; or a chunk is left out that a message has, which has arrived.
            is_message_left_out = np.isfinite(
                schedule.send_start[schedule.unit[commit, used * W + worker] + work[worker] - 1, worker]
            )
            assert bool(kept) == (exact(one_less) and not is_message_left_out), (commit, worker)
            num_caught += not kept
    assert num_caught > 8


def two_turns(estimates):
    return 1 - estimates.last_candidate


@pytest.mark.slow
def test_the_first_round_has_the_first_code():
    protocol = protocols.adaptive_coded({"L=1": ONE, "reversed": REVERSED}, window=2, choose=two_turns)
    schedule = jax.tree.map(np.asarray, protocol(jnp.asarray(markov(3, 1), jnp.float32)))
    kept = protocols.check(moved(schedule, 0, 1), protocol.specification(W))
    assert (kept.violated, kept.action) == ("guarantee", "begin")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: protocols.adaptive_coded({}), "needs candidates by name.*; got {}"),
        (lambda: protocols.adaptive_coded([ONE]), "needs candidates by name"),
        (lambda: protocols.adaptive_coded({"a": 3}), "candidate 'a' cannot be used: coded needs a GradientCode"),
        (lambda: protocols.adaptive_coded({"a": (ONE, 3.0)}), "candidate 'a' cannot be used: stop must be"),
        (
            lambda: protocols.adaptive_coded({"a": ONE, "b": codes.uncoded(4)}),
            "same workers and chunks; got 4 workers, 4 chunks and 5 workers, 5 chunks",
        ),
        (lambda: protocols.adaptive_coded({"a": ONE}, window=0), "window must be a whole number at least 1; got 0"),
        (lambda: protocols.adaptive_coded({"a": ONE}, choose="best"), "choose must be a function .*; got 'best'"),
        (
            lambda: protocols.adaptive_coded({"a": ONE}, choose=lambda estimates: 1)(jnp.ones((6, W))),
            "choose must return the number of a candidate, .* from 0 to 0; got 1",
        ),
        (
            lambda: protocols.adaptive_coded({"a": ONE}, choose=lambda estimates: 0.9)(jnp.ones((6, W))),
            "choose must return the number of a candidate",
        ),
        (lambda: protocols.adaptive_coded({"a": ONE})(jnp.ones((2, W))), "Sample at least 3"),
        (lambda: protocols.adaptive_coded({"a": ONE})(jnp.ones((6, 4))), "got 4 columns for 5 workers"),
        (lambda: protocols.adaptive_coded({"a": ONE}).rule(W - 1), "workers must be those of the code, 5; got 4"),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
