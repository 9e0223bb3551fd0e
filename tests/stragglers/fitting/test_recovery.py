"""What is simulated with known parameters is fitted with about these, for every straggler model."""

import jax
import numpy as np
import pytest

from gcjax import stragglers
from gcjax.stragglers.traces.fitting import bursts, failed, hidden, independent, patterns, point_masses
from gcjax.stragglers.traces.fitting.calls import Call
from gcjax.stragglers.traces.fitting.expectation import ModelKind
from gcjax.stragglers.traces.fitting.families import FAMILIES

T, W = 1500, 8


def simulated(model, num_units=T, num_workers=W):
    return np.asarray(stragglers.sample_durations(model, jax.random.key(5), num_units, num_workers), np.float64)


def fitted(candidates, seconds, name):
    """The call of the candidate of this name."""
    return {candidate.name: candidate.call for candidate in candidates(seconds)}[name]


def parameters(call):
    """Numbers of a call and of those in it, by the name of the factory and the parameter."""
    result = {}
    for name, value in call.arguments.items():
        result |= parameters(value) if isinstance(value, Call) else {f"{call.name}.{name}": value}
    return result


MEAN = stragglers.exponential(mean=0.5)
FACTOR = tuple(np.linspace(0.5, 2.0, W))
INDEPENDENT = {
    "exponential": (MEAN, {"exponential.mean": 0.5}),
    "shifted_exponential": (
        stragglers.shifted_exponential(shift=2.0, mean=0.5),
        {"shifted_exponential.shift": 2.0, "shifted_exponential.mean": 0.5},
    ),
    "lognormal": (stragglers.lognormal(median=2.0, sigma=0.8), {"lognormal.median": 2.0, "lognormal.sigma": 0.8}),
    "pareto": (stragglers.pareto(minimum=0.2, shape=2.5), {"pareto.minimum": 0.2, "pareto.shape": 2.5}),
    "weibull": (stragglers.weibull(scale=3.0, shape=0.7), {"weibull.scale": 3.0, "weibull.shape": 0.7}),
    "delayed(exponential)": (
        stragglers.delayed(MEAN, seconds=FACTOR),
        {"exponential.mean": 0.5, "delayed.seconds": FACTOR},
    ),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_times(name):
    model, expected = INDEPENDENT[name]
    actual = parameters(fitted(independent.candidates, simulated(model), name))
    assert set(actual) == set(expected)
    for parameter, value in expected.items():
        np.testing.assert_allclose(actual[parameter], value, rtol=0.03, err_msg=parameter)


@pytest.mark.parametrize("shortest", [1e-3, 1e-8, 1e-12])
def test_the_likeliest_shift_is_the_shortest_time(shortest):
    seconds = np.random.default_rng(0).exponential(1000.0, (60, 1))
    seconds[0] = shortest
    actual = parameters(fitted(independent.candidates, seconds, "shifted_exponential"))
    np.testing.assert_allclose(actual["shifted_exponential.shift"], shortest)
    np.testing.assert_allclose(actual["shifted_exponential.mean"], seconds.mean() - shortest, rtol=1e-6)


@pytest.mark.parametrize("name", ["exponential", "shifted_exponential", "lognormal", "pareto", "weibull"])
def test_a_factor_of_each_worker(name):
    model, expected = INDEPENDENT[name]
    actual = parameters(
        fitted(independent.candidates, simulated(stragglers.scaled(model, factor=FACTOR)), f"scaled({name})")
    )
    factor = np.array(actual.pop("scaled.factor"))
    np.testing.assert_allclose(factor, FACTOR / np.median(FACTOR), rtol=0.15 if name == "weibull" else 0.1)
    for parameter in {f"{name}.shape", f"{name}.sigma"} & set(actual):
        np.testing.assert_allclose(actual.pop(parameter), expected[parameter], rtol=0.05)
    products = np.multiply.outer(factor, list(actual.values()))
    truth = np.multiply.outer(FACTOR, [expected[parameter] for parameter in actual])
    np.testing.assert_allclose(products, truth, rtol=0.15)


def test_times_that_were_not_measured_count_nowhere():
    seconds = simulated(INDEPENDENT["weibull"][0])
    gaps = np.where(np.random.default_rng(0).random(seconds.shape) < 0.5, np.nan, seconds)
    for name in ("weibull", "scaled(weibull)"):
        whole, part = (parameters(fitted(independent.candidates, x, name)) for x in (seconds, gaps))
        np.testing.assert_allclose(part["weibull.shape"], whole["weibull.shape"], rtol=0.05)
    alone = np.where(np.arange(W) == 3, seconds, np.nan)
    assert parameters(fitted(independent.candidates, alone, "scaled(weibull)"))["scaled.factor"] == (1.0,) * W
    of_one = fitted(independent.candidates, seconds[:, 3:4], "weibull")
    assert parameters(fitted(independent.candidates, alone, "weibull")) == parameters(of_one)


BASES = {
    "exponential": (stragglers.exponential(mean=0.5), {"exponential.mean": 0.5}, 20.0),
    "shifted_exponential": (INDEPENDENT["shifted_exponential"][0], INDEPENDENT["shifted_exponential"][1], 3.0),
    "lognormal": (stragglers.lognormal(median=2.0, sigma=0.2), {"lognormal.median": 2.0, "lognormal.sigma": 0.2}, 3.0),
    "pareto": (stragglers.pareto(minimum=0.2, shape=6.0), {"pareto.minimum": 0.2, "pareto.shape": 6.0}, 3.0),
    "weibull": (stragglers.weibull(scale=3.0, shape=5.0), {"weibull.scale": 3.0, "weibull.shape": 5.0}, 3.0),
}


SHARP = ("shifted_exponential", "pareto")  # slow units have a shortest time, so that the slowdown shows exactly


@pytest.mark.slow("exponential", "lognormal", "pareto", "weibull")
@pytest.mark.parametrize("name", BASES)
def test_hidden_states(name):
    base, expected, slowdown = BASES[name]
    model = stragglers.markov(probability=0.3, persistence=0.9, slowdown=slowdown, base=base)
    kind = ModelKind(FAMILIES[name], is_scaled=False, has_memory=True)
    actual = parameters(hidden.hidden_candidate(kind, simulated(model)).call)
    assert actual["markov.slowdown"] == pytest.approx(slowdown, rel=0.002 if name in SHARP else 0.08)
    assert actual["markov.probability"] == pytest.approx(0.3, abs=0.04)
    assert actual["markov.persistence"] == pytest.approx(0.9, abs=0.02)
    for parameter, value in expected.items():
        assert actual[parameter] == pytest.approx(value, rel=0.06), parameter


@pytest.mark.slow
def test_hidden_states_of_workers_that_differ():
    markov = stragglers.markov(probability=0.3, persistence=0.9, slowdown=3.0, base=BASES["weibull"][0])
    seconds = simulated(stragglers.scaled(markov, factor=FACTOR))
    kind = ModelKind(FAMILIES["weibull"], is_scaled=True, has_memory=True)
    actual = parameters(hidden.hidden_candidate(kind, seconds).call)
    np.testing.assert_allclose(actual["scaled.factor"], FACTOR / np.median(FACTOR), rtol=0.03)
    assert actual["markov.slowdown"] == pytest.approx(3.0, rel=0.03)
    assert actual["markov.persistence"] == pytest.approx(0.9, abs=0.02)
    assert actual["weibull.shape"] == pytest.approx(5.0, rel=0.05)


def test_states_that_are_forgotten_at_once():
    model = stragglers.markov(probability=0.3, persistence=0.3, slowdown=3.0, base=BASES["weibull"][0])
    seconds = simulated(model)
    kinds = [ModelKind(FAMILIES["weibull"], is_scaled=False, has_memory=has_memory) for has_memory in (True, False)]
    with_memory, without = (parameters(hidden.hidden_candidate(kind, seconds).call) for kind in kinds)
    assert with_memory["markov.persistence"] == pytest.approx(0.3, abs=0.03)
    assert without["markov.persistence"] == without["markov.probability"] == pytest.approx(0.3, abs=0.02)


def test_times_that_are_one_of_two():
    seconds = simulated(stragglers.bimodal(fast=0.5, slow=1.25, probability=0.2))
    actual = parameters(fitted(patterns.candidates, seconds, "bimodal"))
    assert actual == {
        "bimodal.fast": 0.5, "bimodal.slow": 1.25, "bimodal.probability": pytest.approx(0.2, abs=0.01)
    }  # fmt: skip
    seconds = simulated(stragglers.markov(probability=0.3, persistence=0.9, slowdown=4.0, base=0.5))
    actual = parameters(fitted(patterns.candidates, seconds, "markov"))
    assert (actual["markov.base"], actual["markov.slowdown"]) == (0.5, 4.0)
    assert actual["markov.probability"] == pytest.approx(0.3, abs=0.03)
    assert actual["markov.persistence"] == pytest.approx(0.9, abs=0.01)


@pytest.mark.slow("3-7-4")
@pytest.mark.parametrize(("burst", "window", "max_slow"), [(3, 7, 4), (5, 5, 8), (1, 4, 2), (4, 20, 8)])
def test_bursts(burst, window, max_slow):
    settings = {"base": 0.5, "slowdown": 4.0, "burst": burst, "window": window, "max_slow": max_slow}
    seconds = simulated(stragglers.bursty(**settings, probability=0.1))
    actual = fitted(bursts.candidates, seconds, "bursty").arguments
    assert {name: actual[name] for name in settings} == settings
    assert actual["probability"] == pytest.approx(0.1, rel=0.1)


def test_slow_units_at_random_are_bursts_of_one():
    seconds = simulated(stragglers.bimodal(fast=0.5, slow=1.25, probability=0.2))
    actual = fitted(bursts.candidates, seconds, "bursty").arguments
    assert (actual["burst"], actual["window"], actual["max_slow"]) == (1, 1, 7)
    assert actual["probability"] == pytest.approx(0.2, abs=0.01)
    assert not list(bursts.candidates(np.ones((5, 2))))


def test_failures_in_each_round():
    seconds = simulated(stragglers.failed_probability(MEAN, probability=0.2))
    best = failed.failure_models(seconds)[0]
    assert (best.name, best.arguments["forever"]) == ("failed_probability", False)
    assert best.arguments["probability"] == pytest.approx(0.2, abs=0.01)


def test_failures_for_good():
    seconds = simulated(stragglers.failed_probability(MEAN, probability=0.001, forever=True), num_workers=300)
    best = next(model for model in failed.failure_models(seconds) if model.name == "failed_probability")
    assert best.arguments["forever"] and best.arguments["probability"] == pytest.approx(0.001, rel=0.15)


def test_a_number_of_failures():
    seconds = simulated(stragglers.failed_count(MEAN, count=2, max_count=4))
    best = failed.failure_models(seconds)[0]
    assert (best.name, best.arguments) == ("failed_count", {"count": 2, "max_count": 4, "forever": False})


def test_failures_of_given_workers():
    seconds = simulated(stragglers.failed_workers(MEAN, workers=(1, 3, 6), onset=500, latest_onset=600))
    best = failed.failure_models(seconds)[0]
    assert (best.name, best.arguments["workers"]) == ("failed_workers", (1, 3, 6))
    assert 500 <= best.arguments["onset"] <= best.arguments["latest_onset"] <= 600


def test_one_time_a_worker():
    times = np.array([1.0, 2.0, 3.5, 0.25])
    seconds = simulated(stragglers.constant(seconds=times), num_units=9, num_workers=4)
    assert fitted(point_masses.candidates, seconds, "constant") == Call("constant", {"seconds": tuple(times.tolist())})
    speeds = stragglers.worker_speeds(stragglers.weibull(scale=3.0, shape=5.0))
    actual = fitted(point_masses.candidates, simulated(speeds, 3, 2000), "worker_speeds(weibull)")
    assert parameters(actual) == {
        "weibull.scale": pytest.approx(3, rel=0.03), "weibull.shape": pytest.approx(5, rel=0.06)
    }  # fmt: skip


@pytest.mark.slow
def test_of_a_large_trace_hidden_states_are_fitted_to_the_last_steps(monkeypatch):
    monkeypatch.setattr(hidden, "_MAX_TIMES", 200 * W)
    kind = ModelKind(FAMILIES["exponential"], is_scaled=False, has_memory=True)
    last = simulated(stragglers.markov(probability=0.3, persistence=0.9, slowdown=20.0, base=MEAN), 200)
    assert (
        hidden.hidden_candidate(kind, np.concatenate([last * 9, last])).call == hidden.hidden_candidate(kind, last).call
    )
    gone = np.full_like(last, np.nan)
    assert hidden.hidden_candidate(kind, np.concatenate([last, gone])).call.arguments["base"].arguments["mean"] < 1
