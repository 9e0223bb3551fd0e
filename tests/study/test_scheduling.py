"""What is said before anything is trained of units that do not last."""

from types import SimpleNamespace

import numpy as np
import pytest

from gcjax.study.scheduling import check_enough_units


@pytest.mark.parametrize(("horizon", "num_units"), [(80.0, 276), (0.05, 401)])
def test_no_more_units_are_advised_than_twice_what_anybody_can_compute(horizon, num_units):
    """A worker that computes for 100 s without a pause takes 200 units of half a second."""
    study = SimpleNamespace(num_units=200, seconds=100.0)
    schedule = SimpleNamespace(horizon=np.array([horizon]))
    durations = np.full((1, 200, 3), [0.5, 0.5, 4.0])
    with pytest.raises(ValueError, match=rf"used up after .*'ADSP'\. Sample about {num_units} units"):
        check_enough_units("ADSP", schedule, study, durations)
