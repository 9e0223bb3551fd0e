"""When workers are away: given, drawn, and as the changes that the event queue and the check go through."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gcjax import protocols, stragglers
from gcjax.stragglers import Absences, absences, random_absences

INF = float("inf")


def test_given_ones_are_a_row_for_each_worker():
    away = absences(workers=(1, 3, 1), leave=(2.0, 0.0, 6.0), join=(4.0, 5.0, INF))
    assert away.leave.tolist() == [[INF, INF], [2.0, 6.0], [INF, INF], [0.0, INF]]
    assert away.join.tolist() == [[INF, INF], [4.0, INF], [INF, INF], [5.0, INF]]
    assert away.validated(6).leave.shape == (6, 2)
    assert away.validated(5).is_present.tolist() == [True, True, True, False, True]
    assert absences(workers=(), leave=()).validated(3).changes().time.tolist() == [INF]
    for_good = absences(workers=[0], leave=[1.0])
    assert for_good.join.tolist() == [[INF]]


def test_who_joins_comes_before_who_leaves_and_then_the_lowest():
    away = absences(workers=(0, 2, 1, 3), leave=(1.0, 4.0, 4.0, 0.0), join=(4.0, INF, 5.0, 4.0))
    time, worker, joins = (x.tolist() for x in away.changes())
    assert time[:7] == [1.0, 4.0, 4.0, 4.0, 4.0, 5.0, INF]
    assert worker[:6] == [0, 0, 3, 1, 2, 1]
    assert joins[:6] == [False, True, True, False, False, True]


@pytest.mark.slow
def test_memberships_say_who_joined_left_and_came_back():
    away = absences(workers=(0, 2, 2), leave=(3.0, 0.0, 6.0), join=(5.0, 4.0, INF))
    schedule = protocols.asp()(jnp.ones((3, 3)), absences=away)
    assert [tuple(m)[:3] for m in away.memberships(schedule)] == [
        (0.0, 0, "joined"), (0.0, 1, "joined"), (3.0, 0, "left"), (4.0, 2, "joined"), (5.0, 0, "came back"),
        (6.0, 2, "left"),
    ]  # fmt: skip


def test_times_are_those_of_the_durations_type(x64):
    away = absences(workers=(0,), leave=(0.7,), join=(1.1,))
    schedule = protocols.asp()(jnp.ones((3, 2), jnp.float32), absences=away)
    left = [m.time for m in away.memberships(schedule) if m.change == "left"]
    assert left == [float(np.float32(0.7))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": (0,), "leave": (1.0, 2.0)}, r"got 1 workers, 2 and 2 times"),
        ({"workers": 0, "leave": (1.0,)}, "workers must be a sequence, as in .*; got 0"),
        ({"workers": (0,), "leave": 1.0}, "leave must be a sequence"),
        ({"workers": (-1,), "leave": (1.0,)}, r"a worker of absences must be a whole number"),
        ({"workers": (0,), "leave": (2.0,), "join": (1.0,)}, r"leave < join .* got \[2.0, 1.0\] for worker 0"),
        ({"workers": (0,), "leave": (2.0,), "join": (2.0,)}, r"leave < join .* got \[2.0, 2.0\] for worker 0"),
        ({"workers": (1, 1), "leave": (1.0, 3.0), "join": (4.0, 5.0)}, r"apart.* got \[1.0, 4.0, 3.0, 5.0\] for"),
        ({"workers": (1, 1), "leave": (1.0, 3.0)}, r"apart.* got \[1.0, 3.0\] for worker 1"),
        ({"workers": (0,), "leave": (INF,)}, r"leave must be finite; got \[inf\] for worker 0"),
        ({"workers": (0,), "leave": (-1.0,)}, r"leave must be at least 0"),
        ({"workers": (0,), "leave": (1.0,), "join": (float("nan"),)}, r"join must be at least 0"),
    ],
)  # fmt: skip
def test_bad_absences_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        absences(**arguments)


def test_absences_of_other_workers_or_none_are_refused():
    durations = jnp.ones((3, 2))
    with pytest.raises(ValueError, match=r"absences must be of the 2 workers; got 3 rows"):
        protocols.asp()(durations, absences=absences(workers=(2,), leave=(1.0,)))
    with pytest.raises(ValueError, match=r"must be Absences; got RandomAbsences.*sample"):
        protocols.asp()(durations, absences=random_absences(mean_present=1.0, mean_away=1.0, max_count=1))
    with pytest.raises(ValueError, match=r"same shape \[W, absences\]; got \[2, 1\] and \[2, 2\]"):
        protocols.asp()(durations, absences=Absences(jnp.ones((2, 1)), jnp.ones((2, 2))))


def test_drawn_ones_are_in_order_and_of_the_means():
    model = random_absences(mean_present=3.0, mean_away=0.5, max_count=40)
    away = model.sample(jax.random.key(0), 50)
    assert away.leave.shape == away.join.shape == (50, 40)
    away.validated(50)
    present = away.leave - jnp.pad(away.join[:, :-1], ((0, 0), (1, 0)))
    for seconds, mean in ((present, 3.0), (away.join - away.leave, 0.5)):
        np.testing.assert_allclose(seconds.mean(), mean, rtol=0.1)
        np.testing.assert_allclose((seconds < mean).mean(), 1 - np.exp(-1), atol=0.05)
    np.testing.assert_array_equal(away.leave, model.sample(jax.random.key(0), 50).leave)
    assert (away.leave != model.sample(jax.random.key(1), 50).leave).all()


def test_times_stay_apart_where_one_mean_is_tiny():
    model = random_absences(mean_present=1e6, mean_away=1e-6, max_count=30)
    model.sample(jax.random.key(3), 20).validated(20)


def test_means_are_kept_where_times_are_long():
    mean_away = 60.0  # seconds; after 1000 days float32 knows every eighth second
    model = random_absences(mean_present=86400.0, mean_away=mean_away, max_count=1000)
    leave, join = (np.asarray(times, np.float64) for times in model.sample(jax.random.key(0), 400))
    np.testing.assert_allclose((join - leave).mean(), mean_away, rtol=0.1)
    assert (join > leave).all() and (leave[:, 1:] > join[:, :-1]).all()


@pytest.mark.parametrize("name", ["mean_present", "mean_away", "max_count"])
def test_means_and_counts_are_above_0(name):
    arguments = {"mean_present": 1.0, "mean_away": 1.0, "max_count": 1, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be"):
        stragglers.random_absences(**arguments)


def test_absences_that_are_too_many_for_the_memory_are_refused():
    with pytest.raises(ValueError, match="2000000000 absences of 2 workers"):
        random_absences(mean_present=1.0, mean_away=1.0, max_count=2 * 10**9).sample(jax.random.key(0), 2)
