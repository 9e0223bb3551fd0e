"""Who fails, when, and for how long."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gcjax import stragglers

BASE = stragglers.constant(seconds=2.0)
ROUNDS = st.integers(1, 5)


def failed(model, num_units=24, num_workers=6, seed=0):
    """bool[T, W]: which units never end; the others take what the base model says."""
    seconds = stragglers.sample_durations(model, jax.random.key(seed), num_units, num_workers)
    assert set(np.unique(seconds)) <= {2.0, np.inf}
    return np.isinf(np.asarray(seconds))


@given(onset=st.integers(0, 30), period=ROUNDS)
def test_given_workers_fail_for_ever_from_the_onset(onset, period):
    mask = failed(stragglers.failed_workers(BASE, workers=(1, 4), onset=onset, period=period))
    expected = (np.arange(24)[:, None] >= onset) & np.isin(np.arange(6), (1, 4))
    np.testing.assert_array_equal(mask, expected)


@given(onset=st.integers(0, 30), period=ROUNDS)
def test_given_workers_fail_for_the_round_of_the_onset(onset, period):
    model = stragglers.failed_workers(BASE, workers=(1, 4), forever=False, onset=onset, period=period)
    unit = np.arange(24)[:, None]
    expected = (unit >= onset) & (unit // period == onset // period) & np.isin(np.arange(6), (1, 4))
    np.testing.assert_array_equal(failed(model), expected)


def test_an_onset_for_each_worker():
    mask = failed(stragglers.failed_workers(BASE, workers=(0, 1, 2), onset=np.array([3, 0, 9, 0, 0, 0])))
    np.testing.assert_array_equal(mask.argmax(axis=0), [3, 0, 9, 0, 0, 0])
    np.testing.assert_array_equal(mask.any(axis=0), [True, True, True, False, False, False])


def test_onsets_are_whole_numbers_of_any_size():
    far = 2**24 + 1  # which float32 has not
    onsets = stragglers.failed_workers(BASE, workers=(0,), onset=(far, 2**40)).init(jax.random.key(0), 2).onset
    assert onsets.tolist() == [far, 2**31 - 2]
    model = stragglers.failed_workers(BASE, workers=(0,), latest_onset=2**31 - 1)  # some unit, or none
    onsets = np.asarray(model.init(jax.random.key(0), 1000).onset)
    assert abs(onsets.mean() / 2**30 - 1) < 0.1


@given(seed=st.integers(0, 1000), onset=st.integers(0, 5), width=st.integers(0, 6))
def test_a_random_onset_lies_in_its_range(seed, onset, width):
    workers = tuple(range(6))
    model = stragglers.failed_workers(BASE, workers=workers, onset=onset, latest_onset=onset + width)
    first = failed(model, seed=seed).argmax(axis=0)
    assert (first >= onset).all() and (first <= onset + width).all()


def test_random_onsets_are_uniform():
    model = stragglers.failed_workers(BASE, workers=tuple(range(900)), onset=2, latest_onset=4)
    counts = np.bincount(failed(model, num_units=6, num_workers=900).argmax(axis=0), minlength=6)
    assert counts.sum() == counts[2:5].sum() == 900 and (abs(counts[2:5] - 300) < 70).all()


@given(count=st.integers(0, 6), period=ROUNDS, onset=st.integers(0, 6), seed=st.integers(0, 100))
def test_a_number_of_workers_fails_in_each_round(count, period, onset, seed):
    mask = failed(stragglers.failed_count(BASE, count=count, period=period, onset=onset), seed=seed)
    assert not mask[:onset].any()
    assert (mask[onset:].sum(axis=1) == count).all()
    rounds = np.arange(24) // period
    same_round = (rounds[1:] == rounds[:-1]) & (np.arange(1, 24) > onset)
    assert (mask[1:] == mask[:-1])[same_round].all()


def test_the_failed_are_chosen_evenly_and_anew():
    mask = failed(stragglers.failed_count(BASE, count=2), num_units=3000)
    assert (abs(mask.mean(axis=0) - 1 / 3) < 0.04).all()
    again = mask[1:][mask[:-1]].mean()
    assert abs(again - 1 / 3) < 0.04


def test_a_random_number_of_workers_fails():
    numbers = failed(stragglers.failed_count(BASE, count=1, max_count=4), num_units=2000).sum(axis=1)
    assert (abs(np.bincount(numbers, minlength=7) - [0, 500, 500, 500, 500, 0, 0]) < 100).all()


@given(count=st.integers(0, 6), onset=st.integers(0, 10), seed=st.integers(0, 100))
def test_one_set_fails_for_ever(count, onset, seed):
    mask = failed(stragglers.failed_count(BASE, count=count, forever=True, onset=onset), seed=seed)
    assert not mask[:onset].any()
    assert (mask[onset:] == mask[onset]).all() and mask[onset].sum() == count


@given(probability=st.floats(0.01, 0.99), period=ROUNDS, seed=st.integers(0, 100))
def test_each_worker_fails_with_a_probability(probability, period, seed):
    model = stragglers.failed_probability(BASE, probability=probability, period=period)
    mask = failed(model, num_units=60, num_workers=300, seed=seed)
    rounds = mask[::period]
    spread = np.sqrt(probability * (1 - probability) / rounds.size)
    assert abs(rounds.mean() - probability) <= 5 * spread
    np.testing.assert_array_equal(mask, np.repeat(rounds, period, axis=0)[:60])


def test_rounds_fail_independently():
    mask = failed(stragglers.failed_probability(BASE, probability=0.3), num_units=200, num_workers=300)
    assert abs(mask[1:][mask[:-1]].mean() - 0.3) < 0.02
    assert abs(mask[:, 1:][mask[:, :-1]].mean() - 0.3) < 0.02


@given(probability=st.floats(0.01, 0.5), period=ROUNDS, onset=st.integers(0, 8), seed=st.integers(0, 100))
def test_a_failure_for_ever_stays(probability, period, onset, seed):
    model = stragglers.failed_probability(BASE, probability=probability, forever=True, period=period, onset=onset)
    mask = failed(model, num_workers=400, seed=seed)
    assert not mask[:onset].any()
    assert (mask[1:] >= mask[:-1]).all()
    alive = (1 - probability) ** (23 // period - onset // period + 1)
    assert abs(mask[-1].mean() - (1 - alive)) <= 5 * np.sqrt(alive * (1 - alive) / 400)


@pytest.mark.parametrize("forever", [False, True])
def test_failures_may_be_stacked(forever):
    inner = stragglers.failed_workers(BASE, workers=(0,))
    mask = failed(stragglers.failed_workers(inner, workers=(3,), onset=5, forever=forever))
    assert mask[:, 0].all() and mask[5, 3] and mask[6, 3] == forever
    assert not mask[:, [1, 2, 4, 5]].any()


def test_the_state_of_the_inner_model_goes_on():
    inner = stragglers.failed_workers(BASE, workers=(0,), forever=False, onset=3)
    mask = failed(stragglers.failed_workers(inner, workers=(5,), forever=False, onset=7))
    assert np.argwhere(mask).tolist() == [[3, 0], [7, 5]]


def test_the_times_of_the_others_do_not_change():
    model = stragglers.exponential()
    with_failures = stragglers.failed_probability(model, probability=jnp.array([0.0, 1.0, 0.5]))
    seconds = stragglers.sample_durations(with_failures, jax.random.key(0), 400, 3)
    assert np.isinf(seconds).any(axis=0).tolist() == [False, True, True]
    plain = stragglers.sample_durations(model, jax.random.key(0), 400, 3)
    np.testing.assert_array_equal(np.where(np.isinf(seconds), plain, seconds), plain)


@pytest.mark.parametrize(
    ("factory", "arguments", "message"),
    [
        (
            "failed_workers",
            {"workers": (6,)},
            "an entry of workers must be a whole number between 0 and 5; got 6",
        ),
        ("failed_workers", {"workers": (1,), "period": 0}, "period must be a whole number between 1 and .*; got 0"),
        (
            "failed_workers",
            {"workers": (1,), "period": 2**31},
            "period must be a whole number between 1 and .*; got 214",
        ),
        ("failed_workers", {"workers": (1,), "period": (1, 2)}, "period must be one number"),
        ("failed_workers", {"workers": (1,), "forever": 1}, "forever must be True or False; got 1"),
        ("failed_workers", {"workers": (1,), "latest_onset": 2**63}, "latest_onset must be a whole number between 0"),
        ("failed_workers", {"workers": (1,), "onset": -1}, "onset must be a whole number between 0 and .*; got -1"),
        (
            "failed_workers",
            {"workers": (1,), "onset": 1.5},
            "onset must be a whole number between 0 and .*; got 1.5",
        ),
        (
            "failed_workers",
            {"workers": (1,), "onset": 5, "latest_onset": 3},
            "latest_onset must be at least onset; got onset=5 and latest_onset=3",
        ),
        ("failed_count", {"count": 7}, "count must be a whole number between 0 and 6; got 7"),
        ("failed_count", {"count": 3, "max_count": 2}, "max_count must be at least count"),
        (
            "failed_count",
            {"count": 1, "onset": np.array([1, 2])},
            r"onset must be one number or .*got shape \(2,\)",
        ),
        ("failed_probability", {"probability": 1.5}, "probability must be at least 0 and at most 1; got 1.5"),
        (
            "failed_probability",
            {"probability": np.nan},
            "probability must be at least 0 and at most 1; got nan",
        ),
    ],
)
def test_bad_input_is_refused(factory, arguments, message):
    with pytest.raises(ValueError, match=message):
        failed(getattr(stragglers, factory)(BASE, **arguments))
