"""Workers that differ for good."""

import jax
import numpy as np
import pytest
from scipy import stats

from gcjax import stragglers


def sample(model, num_units=20, num_workers=6):
    return np.asarray(stragglers.sample_durations(model, jax.random.key(3), num_units, num_workers))


def test_worker_speeds_are_drawn_once():
    seconds = sample(stragglers.worker_speeds(stragglers.exponential(mean=2.0)), num_workers=3000)
    assert (seconds == seconds[0]).all()
    assert stats.ks_1samp(seconds[0], stats.expon(scale=2.0).cdf).statistic < 2.5 / np.sqrt(3000)


def test_inverse_worker_speeds():
    model = stragglers.shifted_exponential(shift=1.0, mean=1.0)
    slow, fast = (sample(stragglers.worker_speeds(model, inverse=inverse)) for inverse in (False, True))
    np.testing.assert_allclose(slow * fast, 1.0, rtol=1e-6)


def test_scaled_changes_only_its_workers():
    model = stragglers.exponential()
    ratio = sample(stragglers.scaled(model, factor=4.0, workers=(1, 5))) / sample(model)
    np.testing.assert_allclose(ratio, np.tile([1.0, 4.0, 1.0, 1.0, 1.0, 4.0], (20, 1)), rtol=1e-6)


def test_scaled_everyone_by_a_factor_each():
    model, factors = stragglers.exponential(), np.arange(1.0, 7.0)
    ratio = sample(stragglers.scaled(model, factor=factors)) / sample(model)
    np.testing.assert_allclose(ratio, np.tile(factors, (20, 1)), rtol=1e-6)


def test_scaled_leaves_failures_alone():
    failed = stragglers.failed_workers(stragglers.constant(), workers=(2,))
    seconds = sample(stragglers.scaled(failed, factor=0.5))
    np.testing.assert_array_equal(seconds[0], [0.5, 0.5, np.inf, 0.5, 0.5, 0.5])


def test_the_state_of_the_scaled_model_goes_on():
    failed = stragglers.failed_workers(stragglers.constant(), workers=(2,), forever=False, onset=3)
    seconds = sample(stragglers.scaled(failed, factor=2.0))
    assert np.argwhere(np.isinf(seconds)).tolist() == [[3, 2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factor": 0.0}, "factor must be above 0 and finite; got 0"),
        (
            {"factor": 2.0, "workers": (6,)},
            "an entry of workers must be a whole number between 0 and 5; got 6",
        ),
        ({"factor": 2.0, "workers": (-1,)}, "between 0 and 5; got -1"),
        ({"factor": 2.0, "workers": (1.5,)}, "between 0 and 5; got 1.5"),
        ({"factor": [1.0, 2.0]}, r"factor must be one number or one a worker.*got shape \(2,\)"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        sample(stragglers.scaled(stragglers.constant(), **arguments))
