"""Who is named, when, and as what; on made-up times."""

import numpy as np
import pytest

from gcjax.watching.detection import CRITICAL, LEAST_STEPS, LONG_STEPS, WARNING, WINDOW, Detector
from gcjax.watching.joining import Steps

ITERATION = 0.01


def steps(compute, first=0, iteration=ITERATION):
    """The steps of a job with a collective, of float[T, W] seconds, that take so long at least."""
    compute = np.asarray(compute)
    iterations = np.maximum(np.nanmax(compute, axis=1), iteration)
    return Steps(np.arange(first, first + len(compute)), compute, iterations[:, None] - compute, iterations)


def quiet(num_steps, num_workers=4, seed=0, spread=0.03):
    return 0.009 * np.random.default_rng(seed).lognormal(sigma=spread, size=(num_steps, num_workers))


def named(compute):
    """Step -> the verdicts of that step, of those at which somebody is named."""
    detector = Detector(compute.shape[1])
    return {step: verdicts for step, verdicts in detector.add(steps(compute)) if verdicts}


@pytest.mark.parametrize("num_workers", [2, 3, 4, 64])
@pytest.mark.parametrize("factor", [1.3, 2.0, 10.0])
def test_a_slow_process_is_named_within_a_window(num_workers, factor):
    compute = quiet(200, num_workers)
    compute[100:, 1] *= factor
    first, verdicts = next(iter(named(compute).items()))
    assert 100 <= first < 100 + WINDOW
    assert list(verdicts) == [1] and verdicts[1].since == 100
    last = named(compute)[199][1]
    assert last.is_persistent and last.since == 100
    late = (factor - 1) * 0.009
    assert last.seconds == pytest.approx(late, rel=0.2)
    assert last.cost == pytest.approx(late / max(ITERATION, factor * 0.009), rel=0.2)
    assert last.is_critical == (last.cost >= CRITICAL)


def test_a_process_that_is_stopped_now_and_then_is_passing_and_after_a_while_is_not():
    compute = quiet(200)
    compute[100::5, 2] += 0.02
    verdicts = {step: slow[2] for step, slow in named(compute).items()}
    assert min(verdicts) < 100 + WINDOW
    assert not verdicts[100 + LONG_STEPS - 1].is_persistent and verdicts[100 + LONG_STEPS].is_persistent
    assert verdicts[199].since == 100


def test_what_passes_is_forgotten():
    compute = quiet(200)
    compute[100, 3] += 0.5
    assert set(named(compute)) == set(range(100, 100 + WINDOW))
    assert all(list(slow) == [3] and not slow[3].is_persistent for slow in named(compute).values())


def test_nobody_is_slow_where_all_are_late_in_turn():
    compute = quiet(400)
    compute[np.arange(400), np.arange(400) % 4] *= 2
    assert not named(compute)


def test_no_false_alarms_in_1000_quiet_windows():
    assert not named(quiet(1000 * WINDOW, seed=1))


def test_what_is_within_the_exactness_of_clocks_is_not_slow():
    compute = np.full((100, 4), 0.001)
    compute[:, 0] += 0.0009
    assert not Detector(4).add(steps(compute, iteration=0.001))
    compute[:, 0] += 0.0002
    assert Detector(4).add(steps(compute, iteration=0.001))


def test_what_costs_less_than_the_threshold_is_not_named():
    compute = np.full((100, 4), 0.01)
    compute[:, 0] *= 1 / (1 - 0.9 * WARNING)
    assert not named(compute)
    compute[:, 0] = 0.01 / (1 - 1.1 * WARNING)
    assert min(named(compute)) == LEAST_STEPS - 1


def test_steps_give_the_same_one_by_one_as_together():
    compute = quiet(150)
    compute[60:90, 0] *= 1.5
    compute[70:72, 1] += 0.1
    together = named(compute)
    detector, single = Detector(4), {}
    for step in range(150):
        for _, verdicts in detector.add(steps(compute[step : step + 1], first=step)):
            single.update({step: verdicts} if verdicts else {})
    assert list(single) == list(together)
    for step, verdicts in together.items():
        np.testing.assert_allclose(
            np.array([tuple(verdict) for verdict in single[step].values()], float),
            np.array([tuple(verdict) for verdict in verdicts.values()], float),
            rtol=1e-9,
        )


def test_a_process_that_is_not_there_is_not_late():
    compute = quiet(100)
    compute[50:, 1] = np.nan
    compute[60:, 2] *= 2
    assert set().union(*named(compute).values()) == {2}
