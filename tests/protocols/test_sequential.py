"""Sequential gradient codes against a plain simulation, their theory, and the engine."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import codes, engine, protocols, stragglers, tasks
from gcjax.codes import assignments
from tests.parameters import one_in
from tests.stragglers.bursts import is_bursty

KEY = jax.random.key(3)
SETTINGS = [
    (protocols.sr_sgc, 6, 1, 2, 2),
    (protocols.sr_sgc, 5, 2, 5, 3),
    (protocols.sr_sgc, 4, 1, 3, 4),
    (protocols.m_sgc, 6, 1, 2, 2),
    (protocols.m_sgc, 5, 2, 4, 3),
    (protocols.m_sgc, 4, 2, 3, 4),
]


def make(setting, tolerance=1.0):
    factory, n, burst, window, most = setting
    return factory(n, burst=burst, window=window, max_slow=most, tolerance=tolerance, rng_key=KEY)


def still_late(delay, slow, burst, window, most, tolerance):
    """Waits for one worker after the other until the pattern conforms; when it stops, and who is late."""
    stop = min((1 + tolerance) * delay.min(), delay.max())
    while True:
        late = delay > stop
        if is_bursty(np.array([*slow, late])[-window:], burst=burst, window=window, max_slow=most):
            return stop, late
        stop = delay[delay > stop].min()


def simulate(setting, units, tolerance):
    """`[(time, job, work of each worker of the code)]` by a plain loop over rounds."""
    factory, n, burst, window, most = setting
    now, slow, result, number = 0.0, [], [], len(units)
    if factory is protocols.sr_sgc:
        s = math.ceil(burst * most / (window - 1 + burst))
        own, ended = [], set()
        for r in range(number):
            repeats = []
            if r >= burst and own[r - burst].sum() < n - s:
                lacking = [w for w in range(n) if not own[r - burst][w]]
                repeats = lacking[: n - s - int(own[r - burst].sum())]
            stop, late = still_late(units[r].sum(axis=0), slow, burst, window, most, tolerance)
            slow, now = [*slow, late], now + stop
            own.append(np.array([not late[w] and w not in repeats for w in range(n)]))
            if r >= burst and r - burst not in ended:
                again = np.array([not late[w] and w in repeats for w in range(n)])
                assert (own[r - burst] | again).sum() >= n - s
                result.append((now, r - burst, (s + 1) * (own[r - burst] | again)))
            if own[r].sum() >= n - s:
                ended.add(r)
                result.append((now, r, (s + 1) * own[r]))
        return sorted(result, key=lambda commit: commit[:2])
    size = most + 1 if most < n else 1
    plain, shares = np.zeros((number, n), int), np.zeros((number, burst, n), int)
    for r in range(number):
        tasks_of, delay = [], np.zeros(n)
        for w, age in itertools.product(range(n), range(window - 1 + burst)):
            job = r - age
            owes = age < window - 1 or plain[job, w] < window - 1
            if job >= 0 and (owes or most < n):
                delay[w] += units[r][age * size : (age + 1) * size, w].sum()
                tasks_of.append((w, job, None if owes else age - window + 1))
        stop, late = still_late(delay, slow, burst, window, most, tolerance)
        slow, now = [*slow, late], now + stop
        for w, job, group in tasks_of:
            if not late[w] and group is None:
                plain[job, w] += 1
            elif not late[w]:
                shares[job, group, w] = 1
        job = r - (window + burst - 2)
        if job >= 0:
            assert (plain[job] == window - 1).all() and (most == n or (shares[job].sum(axis=1) >= n - most).all())
            work = plain[job] if most == n else np.concatenate([plain[job], shares[job].ravel()])
            result.append((now, job, size * work))
    return result


@pytest.mark.slow
@pytest.mark.parametrize("setting", one_in(3, [(setting,) for setting in SETTINGS]))
@pytest.mark.parametrize("tolerance", [0.2, pytest.param(1.0, marks=pytest.mark.slow)])
def test_schedules_are_those_of_a_plain_simulation(setting, tolerance, x64):
    protocol = make(setting, tolerance)
    n, k, rounds = setting[1], protocol.round_units, 14
    compiled = jax.jit(protocol.schedule, static_argnums=1)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        units = rng.exponential(size=(rounds, 1, n)) * rng.uniform(0.9, 1.1, size=(rounds, k, n))
        schedule = compiled(jnp.asarray(units.reshape(-1, n)), stragglers.Network())
        expected = simulate(setting, units, tolerance)
        used = int(np.isfinite(schedule.time).sum())
        assert used == len(expected) >= rounds - 4
        np.testing.assert_allclose(schedule.time[:used], [time for time, _, _ in expected], rtol=1e-9)
        np.testing.assert_array_equal(np.asarray(schedule.unit[:used, 0]) // k, [job for _, job, _ in expected])
        np.testing.assert_array_equal(schedule.work[:used], [work for _, _, work in expected])
        assert (np.arange(used) - np.asarray(schedule.version[:used, 0]) <= protocol.max_staleness(n)).all()
        residuals = jax.jit(jax.vmap(protocol.code.plan))(schedule.work[:used]).residual
        assert residuals.max() < 1e-8


@pytest.mark.parametrize("setting", one_in(3, [(setting,) for setting in SETTINGS]))
def test_patterns_of_the_model_are_not_waited_for(setting):
    _, n, burst, window, most = setting
    protocol = make(setting)
    model = stragglers.bursty(
        slowdown=50.0, burst=burst, window=window, max_slow=most, probability=0.4, period=protocol.round_units
    )
    durations = stragglers.sample_durations(model, KEY, 40 * protocol.round_units, n)
    ends = np.asarray(protocol(durations).compute_end)
    length = 40 * protocol.round_units
    assert ends[np.isfinite(ends)].max() <= (2.0 if most < n else 50.0) * length + 1e-3


def test_loads_are_those_of_the_paper():
    for factory, n, burst, window, most in SETTINGS:
        protocol = factory(n, burst=burst, window=window, max_slow=most, rng_key=KEY)
        load = protocol.round_units / protocol.code.assignment.num_chunks
        if factory is protocols.sr_sgc:
            expected = (math.ceil(burst * most / (window - 1 + burst)) + 1) / n
        elif most < n:
            expected = (most + 1) * (window - 1 + burst) / (n * (burst + (window - 1) * (most + 1)))
        else:
            expected = (window - 1 + burst) / (n * (window - 1))
        np.testing.assert_allclose(load, expected)


def test_a_pattern_outside_of_the_model_is_waited_for():
    protocol = protocols.sr_sgc(4, burst=1, window=2, max_slow=2)
    durations = np.ones((6, 4), np.float32)
    durations[0:2, 0] = 5.0  # two units a round: worker 0 is late in round 0,
    durations[2:4, 0] = 7.0  # and in round 1, which a burst of 1 does not allow
    ends = np.asarray(protocol(jnp.asarray(durations)).start)[::2].max(axis=1)
    np.testing.assert_allclose(ends, [0.0, 4.0, 4.0 + 14.0])


def test_a_failed_worker_stops_the_run_only_where_it_must_be_waited_for():
    protocol = protocols.sr_sgc(4, burst=1, window=2, max_slow=2)
    durations = np.ones((12, 4), np.float32)
    durations[2:4, 1] = np.inf
    assert np.isfinite(protocol(jnp.asarray(durations)).time).all()
    durations[4:6, 1] = np.inf
    assert np.isfinite(protocol(jnp.asarray(durations)).time).sum() == 2


@pytest.mark.parametrize("setting", [pytest.param(SETTINGS[0], marks=pytest.mark.slow), SETTINGS[4]])
def test_training_applies_the_full_gradient_of_the_version_read(setting, x64):
    protocol = make(setting)
    n, k = setting[1], protocol.round_units
    task = tasks.linear_regression(num_chunks=protocol.code.assignment.num_chunks, num_features=3, batch_size=2)
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, 8 * k, n)
    params = [task.init(KEY)]
    run = engine.run(task, protocol, optax.sgd(0.1), durations, rng_key=KEY, params=params[0])
    assert run.info.residual.max() < 1e-7
    schedule = protocol(durations)
    assert int(run.info.num_commits) >= 3
    batch_key = jax.random.split(KEY)[1]

    def total(p, job):
        def loss(chunk):
            return task.loss(p, task.chunk_batch(task.data, batch_key, chunk, job), batch_key)

        return jax.vmap(loss)(jnp.arange(task.num_chunks)).mean()

    gradient = jax.jit(jax.grad(total))
    for e in range(int(run.info.num_commits)):
        job = schedule.unit[e, 0] // protocol.round_units
        old = params[int(schedule.version[e, 0])]
        params.append(jax.tree.map(lambda p, g: p - 0.1 * g, params[-1], gradient(old, job)))
    for found, expected in zip(jax.tree.leaves(run.params), jax.tree.leaves(params[-1]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_codes_side_by_side():
    code = codes.side_by_side(codes.uncoded(2, load=2), codes.fractional_repetition(2, num_stragglers=1))
    np.testing.assert_array_equal(code.assignment.chunks, [[0, 1], [2, 3], [4, 5], [4, 5]])
    np.testing.assert_allclose(codes.completion_time(code, jnp.asarray([1.0, 2.0, 1.0, 9.0])), 4.0)
    with pytest.raises(ValueError, match=r"same number of blocks; got \[1, 2\]"):
        codes.side_by_side(codes.uncoded(2), codes.partial(assignments.cyclic(3, load=2), num_blocks=2, rng_key=KEY))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: protocols.sr_sgc(6, burst=2, window=4, max_slow=2), "Use window=3 or 5"),
        (
            lambda: protocols.sr_sgc(6, burst=3, window=3, max_slow=2),
            "burst must be a whole number between 1 and 2; got 3",
        ),
        (
            lambda: protocols.m_sgc(6, burst=1, window=3, max_slow=7),
            "max_slow must be a whole number between 0 and 6; got 7",
        ),
        (lambda: protocols.m_sgc(5, burst=1, window=3, max_slow=2), "needs rng_key, since 3 does not divide 5"),
        (lambda: protocols.m_sgc(6, burst=1, window=3, max_slow=2, tolerance=-1.0), "tolerance must be at least 0"),
        (lambda: protocols.sr_sgc(6, burst=1, window=3, max_slow=2)(jnp.ones((4, 5))), "got 5 columns for 6 workers"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
