"""Protocols that look at the loss: what they choose, and that the run follows it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import engine, protocols, stragglers, tasks
from gcjax.protocols import Observed, observed_losses
from gcjax.protocols.adsp import _reward
from tests.engine.test_local_work import KEY, NETWORK, PROTOCOLS, SGD, durations, regression, result, run
from tests.engine.test_run import assert_close
from tests.parameters import one_in

pytestmark = pytest.mark.promotes  # 64-bit sums of 32-bit numbers
ADAPTIVE = ["adacomm", "adsp"]


@functools.cache
def schedule_of(name):
    return jax.jit(PROTOCOLS[name][0].loss_feedback.schedule)


def numbers(name, controls, value):
    """The controls with these numbers of steps or commits."""
    return (
        jnp.asarray(value, jnp.int32)
        if name == "adacomm"
        else controls._replace(num_commits=jnp.asarray(value, jnp.int32))
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, ADAPTIVE))
def test_later_windows_do_not_change_earlier_commits(name, x64):
    loss_feedback, schedule = PROTOCOLS[name][0].loss_feedback, schedule_of(name)
    first, count = loss_feedback.initial(loss_feedback.num_windows), loss_feedback.num_windows
    draw, changed = np.random.default_rng(0), 0
    for _ in range(30):
        d, window = durations(jax.random.key(draw.integers(99))), draw.integers(count - 1)
        value = draw.integers(1, 6, count)
        other = np.where(np.arange(count) > window, draw.integers(1, 6, count), value)
        one, two = (schedule(d, NETWORK, numbers(name, first, v)) for v in (value, other))
        made = np.asarray(one.time) < (window + 1) * loss_feedback.seconds
        assert (made == (np.asarray(two.time) < (window + 1) * loss_feedback.seconds)).all()
        for field in ("time", "worker", "unit", "version", "work", "weight"):
            np.testing.assert_array_equal(getattr(one, field)[made], getattr(two, field)[made])
        changed += made.any() and not np.array_equal(one.time, two.time)
    assert changed > 10


@pytest.mark.parametrize("name", one_in(2, ADAPTIVE))
def test_the_schedule_of_a_run_is_the_one_that_was_followed(name, x64):
    found = result(name)
    schedule = schedule_of(name)(durations(), NETWORK, found.state.controls)
    jax.tree.map(np.testing.assert_array_equal, found.schedule, schedule)
    made = int(found.info.num_commits)
    assert made == np.isfinite(schedule.time).sum() == found.state.commit >= 4
    stale = np.where(schedule.worker >= 0, np.arange(len(schedule.time))[:, None] - schedule.version, -1).max(axis=1)
    np.testing.assert_array_equal(found.info.staleness, np.where(np.arange(stale.size) < made, stale, -1))
    commit = np.asarray(found.trajectory.commit)
    judged = commit > 0
    np.testing.assert_array_equal(commit[judged], [*range(2, made, 2), made])
    np.testing.assert_array_equal(found.trajectory.time[judged], schedule.time[commit[judged] - 1])
    assert np.isfinite(found.info.loss[:made]).all() and np.isposinf(found.info.loss[made:]).all()
    initial = PROTOCOLS[name][0](durations(), NETWORK)
    assert not np.array_equal(initial.time, schedule.time)  # it has changed its mind


@pytest.mark.parametrize("name", one_in(2, ADAPTIVE))
def test_it_chooses_once_a_window_by_what_has_happened(name, x64):
    """The same controls come out when the windows' commits are shown one window after the other."""
    found, loss_feedback = result(name), PROTOCOLS[name][0].loss_feedback
    controls, choose = loss_feedback.initial(loss_feedback.num_windows), jax.jit(loss_feedback.next)
    for window in range(loss_feedback.num_windows - 1):
        end = (window + 1) * loss_feedback.seconds
        there = found.schedule.time < end
        time, loss = jnp.where(there, found.schedule.time, jnp.inf), jnp.where(there, found.info.loss, jnp.inf)
        controls = choose(controls, Observed(jnp.int32(window), jnp.asarray(end), time, loss))
    assert_close(found.state.controls, controls)


@pytest.mark.slow
def test_only_what_has_happened_is_seen_and_the_end_is_judged(x64):
    """A protocol that writes down at each window how many commits it sees, with their times and with their losses."""
    adacomm = PROTOCOLS["adacomm"][0]
    inner = adacomm.loss_feedback

    def look(controls, seen):
        steps, counts = controls
        new = jnp.stack([jnp.isfinite(x).sum(dtype=jnp.int32) for x in (seen.time, seen.loss)])
        return inner.next(steps, seen), counts.at[seen.window].set(new)

    loss_feedback = inner._replace(
        initial=lambda n: (inner.initial(n), jnp.zeros((n, 2), jnp.int32)),
        schedule=lambda d, n, controls: inner.schedule(d, n, controls[0]),
        next=look,
    )
    protocol = adacomm.replace(loss_feedback=loss_feedback)
    found = engine.run(regression(), protocol, SGD, durations(), rng_key=KEY, eval_every=3, network=NETWORK)
    made = [int((found.schedule.time < (j + 1) * inner.seconds).sum()) for j in range(inner.num_windows - 1)]
    assert found.state.controls[1][:-1].tolist() == [[n, n] for n in made]
    assert made[-1] < found.info.num_commits == 8
    assert found.trajectory.commit[:4].tolist() == [0, 3, 6, 8]


def test_adacomm_chooses_by_its_formula(x64):
    """`H[j] = ceil(sqrt(F[j] / F[0]) H[0])`, or half of what it was if that is not less."""
    found, loss_feedback = result("adacomm"), PROTOCOLS["adacomm"][0].loss_feedback
    time, loss = np.asarray(found.schedule.time), np.asarray(found.info.loss)
    mean = [
        loss[(time >= j * loss_feedback.seconds) & (time < (j + 1) * loss_feedback.seconds)].mean()
        for j in range(loss_feedback.num_windows - 1)
    ]
    steps = [3]
    for value in mean:
        wanted = int(np.ceil(np.sqrt(value / loss[0]) * 3))
        steps.append(wanted if wanted < steps[-1] else max(steps[-1] // 2, 1))
    np.testing.assert_array_equal(found.state.controls, steps)
    begin = np.concatenate([[0.0], time[:-1]])
    for e in range(int(found.info.num_commits)):
        window = min(int(begin[e] // loss_feedback.seconds), loss_feedback.num_windows - 1)
        assert (np.asarray(found.schedule.work)[e] == steps[window]).all()


def fed(loss_feedback, losses_of_windows, num_windows):
    """The controls after each window, when these are the losses of its commits, at equal distances."""
    seconds, size = loss_feedback.seconds, 120
    time, loss = np.full(size, np.inf), np.full(size, np.inf)
    controls, found, made = loss_feedback.initial(num_windows), [], 0
    choose = jax.jit(loss_feedback.next)
    for window, losses in enumerate(losses_of_windows):
        there = slice(made, made + len(losses))
        time[there] = window * seconds + np.arange(len(losses)) * seconds / max(len(losses), 1)
        loss[there], made = losses, made + len(losses)
        seen = Observed(jnp.int32(window), jnp.asarray((window + 1) * seconds), jnp.asarray(time), jnp.asarray(loss))
        controls = choose(controls, seen)
        found.append(controls)
    return found


def test_adacomm_follows_what_it_is_shown(x64):
    """Down with the square root; half if the loss has not fallen enough; the same after a window without commits."""
    loss_feedback = protocols.adacomm(num_local_steps=12, seconds=4.0, num_windows=6).loss_feedback
    found = fed(loss_feedback, [[9.0, 1.35, 1.35], [1.0], [1.0], [], [36.0]], 6)
    assert np.asarray(found[-1]).tolist() == [12, 8, 4, 2, 2, 1]
    assert np.asarray(fed(loss_feedback, [[], [9.0, 1.35, 1.35]], 6)[-1]).tolist() == [12, 12, 8, 8, 8, 8]


def curves(speeds, start=2.0, end=0.1):
    """Losses `1 / (a² t + b) + c` of one window after another, each with its speed a²; a negative one rises."""
    last, windows = start, []
    for speed in speeds:
        t = np.arange(1, 9) * 4.0 / 8
        losses = 1 / (0.3 * speed * t + 1 / (last - end)) + end if speed > 0 else last - speed * t
        windows.append(losses)
        last = losses[-1]
    return windows


def test_adsp_searches_for_the_rate(x64):
    """Up while the loss falls faster, back by one when it does not, at rest until the loss has risen by 30 %."""
    found = fed(PROTOCOLS["adsp"][0].loss_feedback, curves([1, 1.5, 2, 2.5, 1.5, 1.5, 1.5, -0.001, -0.1, 1, 2]), 12)
    assert np.asarray(found[-1].num_commits).tolist() == [1, 2, 3, 4, 5, 4, 4, 4, 4, 1, 2, 3]
    assert [bool(c.is_searching) for c in found] == [True] * 4 + [False] * 4 + [True] * 3
    for j, controls in enumerate(found):  # what has been, stays
        np.testing.assert_array_equal(controls.num_commits[: j + 1], found[-1].num_commits[: j + 1])


@pytest.mark.slow
def test_adsp_rewards_the_inverse_time_to_the_target(x64):
    """On losses that are `1 / (a² t + b) + c` in the second window, for a c that the search tries (the 11th of 32)."""
    speed, offset, seconds = 0.7, 0.4, 4.0
    t = np.arange(8) * seconds / 8
    fall = 1 / (speed * t + offset)
    share = 0.98 * 10 / 31
    end = share * fall[-1] / (1 - share)  # c = share * least loss
    seen = Observed(jnp.int32(1), jnp.asarray(2 * seconds), jnp.asarray(seconds + t), jnp.asarray(fall + end))

    def reward(target):
        return float(_reward(seen, seconds, target))

    np.testing.assert_allclose(reward(None), speed, rtol=1e-9)
    for after in (3.0, 40.0):
        np.testing.assert_allclose(reward(1 / (speed * after + offset) + end), 1 / after, rtol=1e-9)
    assert reward(0.99 * end) == reward(0.5 * end) == 0  # never
    assert reward(1 / offset + end + 0.1) == np.inf  # from the begin
    rising = seen._replace(loss=seen.loss[::-1])
    assert float(_reward(rising, seconds, None)) == float(_reward(rising, seconds, end + 0.01)) == 0


def test_adsp_with_a_target_searches_on_where_the_target_comes_nearer(x64):
    """The curve flattens, so that by a² the first rate was the best, but the target is less far away."""
    losses = curves([1, 0.9, 0.8], end=0.0)
    options = {"seconds": 4.0, "num_windows": 3, "min_interval": 0.5}
    by_speed, by_time = (
        fed(protocols.adsp(**options, target_loss=target).loss_feedback, losses, 3)[-1] for target in (None, 0.3)
    )
    assert (by_speed.num_commits.tolist(), by_time.num_commits.tolist()) == ([1, 2, 1], [1, 2, 3])


@pytest.mark.slow
def test_a_ring_that_is_too_small_is_an_error(x64):
    with pytest.raises(ValueError, match=r"the ring keeps 1 past versions .* needs \d+ at once. Pass ring_size="):
        run("adsp", ring_size=1)


@pytest.mark.slow
@pytest.mark.parametrize("ring_size", [1, 2])
def test_with_a_ring_that_is_too_small_no_number_is_left_under_jit(ring_size, x64):
    task = regression()
    jitted = jax.jit(
        lambda d: engine.run(task, PROTOCOLS["adsp"][0], SGD, d, rng_key=KEY, eval_every=2, ring_size=ring_size)
    )
    found = jitted(durations())
    assert np.isnan(found.params).all() and np.isnan(found.trajectory.metrics["train_loss"]).any()
    with pytest.raises(ValueError, match=f"keeps {ring_size} past versions"):
        engine.check(found)


@pytest.mark.slow
def test_the_smallest_ring_is_enough(x64):
    """A version is kept until it is read last; with one place less it is an error."""
    needed = int(result("adsp").info.versions_alive)
    assert needed == result("adsp").info.staleness.max() + 1 > 2
    assert_close(run("adsp", ring_size=needed).params, result("adsp").params)


@pytest.mark.slow
def test_fewer_commits_at_first_than_asked_for_are_no_error(x64):
    """The first choice would make fewer commits than the run does in the end."""
    made, initial = int(result("adsp").info.num_commits), PROTOCOLS["adsp"][0](durations(), NETWORK)
    assert made > np.isfinite(initial.time).sum()
    part = run("adsp", num_commits=made, resume=engine.Resume(num_evals=1))
    assert part.state.commit == 2
    whole = run("adsp", num_commits=made, resume=part)
    assert_close(whole.params, result("adsp").params)
    with pytest.raises(ValueError, match=f"only {made} commits"):
        run("adsp", num_commits=made + 1)


QUARTERS = "42 33 13 24 41 11 33 23 13 13 31 44 11 43 32 41 31 13 22 14 32 23 33 13"  # of a second, of two workers


def test_rates_of_later_windows_change_no_commit_of_earlier_ones():
    """A turn begins in one window, and its parameters arrive in the next one, where units run out."""
    feedback = protocols.adsp(seconds=4.0, num_windows=8, min_interval=0.0).loss_feedback
    network, rates = stragglers.constant_network(download=[1.5, 0.25]), feedback.initial(8)
    durations = jnp.array([[int(quarters) for quarters in pair] for pair in QUARTERS.split()]) / 4
    until_next_window = 16.0
    schedule_of, times = jax.jit(feedback.schedule), []
    for later in (4, 3):
        num_commits = jnp.array([1, 2, 3, 4, *[later] * 4])
        schedule = schedule_of(durations, network, rates._replace(num_commits=num_commits))
        time = np.asarray(schedule.time)
        times.append(time[time <= until_next_window])
    np.testing.assert_array_equal(*times)
    assert times[0].size > 10


def test_every_moment_is_in_one_window():
    """Also by rounding: a moment at which one ends is in the next one, for all that ask."""
    numbers = jnp.arange(60)
    for seconds in (0.1, 0.3, 0.7, 1.0, 1.1, 3.3, 10.1):
        begins = observed_losses.window_begin(numbers, seconds, jnp.float32)
        assert jax.jit(lambda t, s=seconds: observed_losses.window_of(t, s, 99))(begins).tolist() == numbers.tolist()
        observed = Observed(jnp.int32(0), jnp.float32(0), begins, jnp.ones(60))
        within = jax.jit(jax.vmap(lambda j, s=seconds, o=observed: observed_losses.in_window(o, j, s)))(numbers)
        np.testing.assert_array_equal(within, np.eye(60, dtype=bool))


def test_the_last_window_has_no_end_however_many_would_fit():
    moments = jnp.asarray([2.2e9, 1e30, jnp.inf, 0.0])
    assert observed_losses.window_of(moments, 1.0, 10).tolist() == [9, 9, 0, 0]


def test_rounds_at_the_end_of_a_window_are_what_was_trained():
    """Commits at the end of a window, and rounds of no length there: the record has what was trained."""
    task = tasks.linear_regression(1, num_examples=16, num_features=4, batch_size=None, local_data=True)
    seconds = [0.125] * 8 + [0.0] * 4 + [0.25] * 8
    protocol = protocols.adacomm(num_local_steps=4, seconds=1.0, num_windows=3)
    d = jnp.asarray(seconds, jnp.float32)[:, None]
    found = engine.run(task, protocol, SGD, d, rng_key=KEY, params=jnp.ones(4))
    plain = engine.run(task, protocols.local_sgd(num_local_steps=1), SGD, d, rng_key=KEY, params=jnp.ones(4))
    assert found.schedule.time[:4].tolist() == [0.5, 1.0, 1.0, 1.0] and found.schedule.work.clip(0).sum() == 20
    assert found.state.controls.tolist() == [4, 2, 1]
    # One worker: 20 steps, however they are divided into rounds.
    np.testing.assert_allclose(found.params, plain.params, rtol=1e-5)
