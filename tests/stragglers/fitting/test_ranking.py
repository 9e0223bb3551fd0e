"""Models are ranked by steps that they were not fitted to, with intervals, and written as configs load them."""

import warnings

import gin
import jax
import numpy as np
import pytest

from gcjax import config, progress, register, stragglers
from gcjax.cli.trace import fit_tables
from gcjax.stragglers import StragglerModel
from gcjax.stragglers.traces.fitting import scores
from gcjax.stragglers.traces.fitting.statistics import StatisticsWithFailures, statistics_with_failures
from tests.stragglers.fitting.test_recovery import simulated

WEIBULL = stragglers.weibull(scale=3.0, shape=5.0)
MODELS: dict = {}


@register("experiment")
def fitted_sampler(stragglers: StragglerModel, *, out, progress):
    """An experiment that only keeps its straggler model."""
    MODELS["model"] = stragglers


@pytest.fixture
def sampled(tmp_path):
    """The durations of 4 workers that a config with these lines leads to."""

    def durations(text):
        text = "run.experiment = @fitted_sampler\n" + text.replace("compare.stragglers", "fitted_sampler.stragglers")
        (tmp_path / "fit.gin").write_text(text)
        config.load(tmp_path / "fit.gin", [])
        config.run_loaded(tmp_path, progress.silent())
        return np.asarray(stragglers.sample_durations(MODELS["model"], jax.random.key(0), 3, 4))

    yield durations
    gin.clear_config()
    MODELS.clear()


def markov(persistence):
    return simulated(
        stragglers.markov(probability=0.3, persistence=persistence, slowdown=3.0, base=WEIBULL), 500, 4
    )  # fmt: skip


def by_name(fits):
    return {fit.name: fit for fit in fits}


@pytest.mark.slow
def test_what_is_being_fitted_is_told():
    updates = []
    told = progress.Progress(lambda label, fraction, detail="": updates.append((label, fraction, detail)), print)
    fits = stragglers.fit(markov(0.9)[:40], num_simulated_models=0, progress=told)
    assert [*dict.fromkeys(label for label, _, _ in updates)] == [
        "independent times", "hidden states", "patterns", "bursts", "likelihoods, simulated times",
    ]  # fmt: skip
    fractions = [fraction for _, fraction, _ in updates]
    assert fractions == sorted(fractions) and fractions[0] == 0.0 and fractions[-1] < 1.0
    assert {fit.name for fit in fits.duration_fits} <= {detail for _, _, detail in updates}


@pytest.fixture(scope="module")
def persistent():
    return stragglers.fit(markov(0.9), num_simulated_models=0)


def test_markov_beats_independent_times_where_slowness_persists(persistent):
    fits = by_name(persistent.duration_fits)
    assert "markov(weibull)" in persistent.best.name and "no memory" not in persistent.best.name
    assert not fits["markov(weibull)"].is_surely_behind
    assert (
        fits["markov(weibull), no memory"].is_surely_behind
        and fits["markov(weibull), no memory"].score_behind_best.mean > 0.2
    )
    for name in ("exponential", "shifted_exponential", "pareto", "weibull", "scaled(weibull)", "delayed(exponential)"):
        assert fits[name].is_surely_behind
    patterns = by_name(persistent.pattern_fits)
    assert persistent.pattern_fits[0].name == "markov" and patterns["bimodal"].is_surely_behind


@pytest.mark.slow
def test_markov_beats_nothing_where_times_are_independent():
    fits = by_name(stragglers.fit(markov(0.3), num_simulated_models=0).duration_fits)
    with_memory, without = fits["markov(weibull)"], fits["markov(weibull), no memory"]
    assert abs(with_memory.held_out_score.mean - without.held_out_score.mean) < 0.01
    assert not without.is_surely_behind
    fits = by_name(stragglers.fit(simulated(WEIBULL, 500, 4), num_simulated_models=0).duration_fits)
    assert not fits["weibull"].is_surely_behind
    assert fits["markov(weibull)"].held_out_score.mean < fits["weibull"].held_out_score.mean + 0.01


@pytest.mark.slow
def test_scores_of_a_held_out_part_are_the_logarithms_of_densities():
    """Of exponential times by hand; the background is 1 / (n + 1) of the density."""
    seconds = simulated(stragglers.exponential(mean=2.0), 100, 3)
    fits = stragglers.fit(seconds, held_out=0.25, num_simulated_models=0)
    assert (fits.num_fitted_steps, fits.num_held_out_steps) == (75, 25)
    first, last = seconds[:75], seconds[75:]
    middle, share = np.median(first), 1 / 226
    density = np.exp(-last / first.mean()) / first.mean()
    values = np.log((1 - share) * density + share * 0.5 * middle / (middle + last) ** 2)
    actual = by_name(fits.duration_fits)["exponential"]
    assert actual.held_out_score.mean == pytest.approx(values.mean(), rel=1e-6)
    assert actual.held_out_score.low < values.mean() < actual.held_out_score.high
    names = [fit.held_out_score.mean for fit in fits.duration_fits]
    assert names == sorted(names, reverse=True)


@pytest.mark.slow
def test_one_time_that_was_impossible_does_not_decide():
    seconds = simulated(stragglers.shifted_exponential(shift=2.0, mean=0.5), 300, 4)
    seconds[-1, 0] = 1.9
    fits = by_name(stragglers.fit(seconds, num_simulated_models=0).duration_fits)
    assert fits["exponential"].is_surely_behind and not fits["shifted_exponential"].is_surely_behind
    assert np.isfinite([fit.held_out_score.mean for fit in fits.values()]).all()


@pytest.mark.slow
def test_intervals_of_means_cover_them_also_where_steps_are_alike():
    """90 % of 100 series of means of 0, where neighbours are alike, about 90 times."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(100):
        steps = np.convolve(rng.normal(size=1004), np.ones(5), mode="valid")
        low, high = np.quantile(scores.block_means(steps[:, None], jax.random.key(0)), [0.05, 0.95])
        covered += low < 0 < high
    assert 78 <= covered <= 97


@pytest.mark.slow
def test_every_model_of_the_table_is_fitted_or_says_why(persistent):
    fitted = " ".join(
        fit.name for fit in (*persistent.duration_fits, *persistent.pattern_fits, *persistent.fits_without_likelihood)
    )
    for name in stragglers.TABLE:
        assert (name in fitted) != (name in persistent.not_fitted), name
    failing = np.where(np.arange(500)[:, None] % 50 == 0, np.inf, markov(0.3))
    fits = stragglers.fit(failing, num_simulated_models=0)
    assert (
        set(fits.not_fitted) == {"replay", "failed_workers"}
        and len(fits.duration_fits) == len(persistent.duration_fits) + 1
    )
    names = " ".join(fit.name for fit in fits.duration_fits)
    assert all(name in names for name in ("failed_count", "failed_probability"))


@pytest.mark.slow
def test_the_lines_of_every_model_load_and_sample(persistent, sampled):
    for fit in (persistent.best, *persistent.pattern_fits, *persistent.fits_without_likelihood):
        expected = stragglers.sample_durations(fit.model, jax.random.key(0), 3, 4)
        np.testing.assert_array_equal(sampled(fit.gin), expected, err_msg=fit.name)
    expected = stragglers.sample_durations(persistent.best.model, jax.random.key(0), 3, 4)
    np.testing.assert_array_equal(sampled(persistent.gin), expected)


@pytest.mark.slow
def test_the_lines_of_failures_load_and_sample(sampled):
    seconds = simulated(stragglers.failed_workers(WEIBULL, workers=(1,), onset=30), 100, 4)
    fits = by_name(stragglers.fit(seconds, num_simulated_models=0).duration_fits)
    for name in ("failed_workers", "failed_probability"):
        fit = next(fit for fit in fits.values() if fit.name.startswith(name))
        expected = stragglers.sample_durations(fit.model, jax.random.key(0), 3, 4)
        np.testing.assert_array_equal(sampled(fit.gin), expected)


@pytest.mark.slow
def test_every_commented_model_loads_too(persistent, sampled):
    """Each section of the file, without the marks of comments, is a config."""
    sections = persistent.gin.strip().split("\n\n")[1:]
    assert len(sections) == len(persistent.duration_fits) + len(persistent.pattern_fits) + len(
        persistent.fits_without_likelihood
    )
    for section in sections[1:4]:
        _, *lines = [line.removeprefix("# ") for line in section.splitlines()]
        assert sampled("\n".join(lines)).shape == (3, 4)


def test_a_name_of_a_worker_cannot_end_the_comment(persistent, sampled):
    fits = persistent._replace(workers=("a", "b\nx = 1", "c\rx.y = 2", "d\u2028z"))
    assert "# a, b x = 1, c x.y = 2, d z" in fits.gin.splitlines()
    assert sampled(fits.gin).shape == (3, 4)


def test_statistics_by_hand():
    seconds = np.array([[1.0, 1, 1, 4], [1, 2, 2, 4], [1, 1, 1, np.inf], [2, np.nan, 1, 1]])
    actual = statistics_with_failures(seconds)
    assert (
        actual.median == 1
        and actual.slow_probability == pytest.approx(4 / 15)
        and actual.slow_again_probability == pytest.approx(2 / 3)
    )
    assert actual.slowest_over_median == pytest.approx((4 + 2) / 2)
    assert actual.p99_over_median == pytest.approx(4.0)
    assert actual.slowdown == pytest.approx((4 + 4 + 1 + 2) / (1 + 2 + 1 + 1))
    assert actual.slowdown == stragglers.describe(seconds).slowdown.total_ratio


def test_failed_workers_are_slow_also_where_most_have_failed():
    seconds = np.full((30, 3), np.inf)
    seconds[:, 2] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = statistics_with_failures(seconds)
    assert actual.slow_probability == pytest.approx(2 / 3) and actual.slow_again_probability == pytest.approx(1)
    assert actual.slowest_over_median == np.inf and actual.slowdown == 1
    assert np.isnan(statistics_with_failures(np.full((3, 2), np.inf))[:2]).all()


@pytest.mark.slow
def test_held_out_steps_without_slow_units_are_told():
    seconds = np.random.default_rng(0).uniform(0.9, 1.1, (60, 4))
    seconds[10:20, 1] = 3.0
    cautions = [
        stragglers.fit(times, num_simulated_models=0).caution
        for times in (seconds, np.concatenate([seconds[20:], seconds[:20]]), seconds[20:])
    ]
    assert cautions[0].startswith("Of the held-out times 0 % are slow, of the fitted ones 6 %: the ranking says little")
    assert cautions[1:] == ["", ""]


def with_range_of_slowdown(fits, low, high):
    """The fits, whose best model has S between these two, and for all other numbers what was measured."""
    simulated_range = tuple(fits.measured_statistics._replace(slowdown=value) for value in (low, high))
    best = fits.best._replace(simulated_statistics=simulated_range[0], simulated_range=simulated_range)
    return fits._replace(duration_fits=(best, *fits.duration_fits[1:]), num_draws=20)


def test_a_fit_that_makes_stragglers_cost_more_or_less_says_so(persistent):
    measured = persistent.measured_statistics.slowdown
    assert persistent.caution == ""  # nothing was simulated
    assert with_range_of_slowdown(persistent, measured * 0.9, measured * 1.1).caution == ""
    assert with_range_of_slowdown(persistent, measured * 1.0005, measured * 1.1).caution == ""  # all but rounding
    above = with_range_of_slowdown(persistent, measured * 1.1, measured * 1.2)
    assert above.best.statistics_outside(above.measured_statistics) == ("slowdown",)
    assert above.caution == (
        f"S, the slowest over the median, is {measured:.3g} in the trace, and {1.1 * measured:.3g} to "
        f"{1.2 * measured:.3g} in 20 simulations of {persistent.best.name}: a study on this fit seems to overstate "
        "what stragglers cost."
    )
    assert "understate" in with_range_of_slowdown(persistent, measured * 0.8, measured * 0.9).caution


@pytest.mark.slow
def test_a_worker_that_leaves_is_said():
    seconds = np.random.default_rng(0).gamma(9.0, size=(40, 3))
    seconds[25:, 1] = np.nan
    fits = stragglers.fit(seconds, num_simulated_models=0)
    assert fits.departures == (("1", 25),)
    said = [str(part) for part in fit_tables.printed_parts(fits)]
    assert any(text.startswith("Worker 1 has no times from step 25 on: models are fitted") for text in said)


def test_numbers_that_are_not_there_are_not_outside(persistent):
    numbers = StatisticsWithFailures(1.0, 2.0, 0.1, np.nan, np.inf, 3.0)
    fit = persistent.best._replace(simulated_range=(numbers, numbers))
    assert fit.statistics_outside(numbers) == ()
    other_numbers = numbers._replace(slow_again_probability=0.5, slowest_over_median=2.0, median=1.1)
    assert fit.statistics_outside(other_numbers) == ("median", "slowest_over_median")


@pytest.mark.slow
def test_what_is_simulated_is_like_what_was_measured():
    fits = stragglers.fit(simulated(WEIBULL, 300, 4), num_simulated_models=1)
    assert fits.duration_fits[1].simulated_statistics is None
    np.testing.assert_allclose(fits.best.simulated_statistics[:2], fits.measured_statistics[:2], rtol=0.1)
    assert fits.best.simulated_statistics.slow_probability == pytest.approx(
        fits.measured_statistics.slow_probability, abs=0.01
    )


@pytest.mark.slow
def test_workers_that_join_leave_or_take_no_time(tmp_path):
    seconds = simulated(WEIBULL, 100, 4)
    seconds[:80, 3], seconds[50:, 0], seconds[5, 1] = np.nan, np.nan, 0
    fits = stragglers.fit(seconds, num_simulated_models=0)
    assert fits.num_zero_times == 1 and np.isfinite([fit.held_out_score.mean for fit in fits.duration_fits]).all()
    assert len(by_name(fits.duration_fits)["scaled(weibull)"].call.arguments["factor"]) == 4
    stragglers.write_trace(tmp_path / "trace.csv", seconds)
    assert stragglers.fit(tmp_path / "trace.csv", num_simulated_models=0).best == fits.best


@pytest.mark.slow
def test_the_same_seed_gives_the_same():
    seconds = simulated(WEIBULL, 60, 2)
    assert stragglers.fit(seconds, num_simulated_models=0) == stragglers.fit(seconds, num_simulated_models=0)
    other = stragglers.fit(seconds, num_simulated_models=0, seed=1)
    assert other.best.held_out_score.low != stragglers.fit(seconds, num_simulated_models=0).best.held_out_score.low


def test_traces_that_cannot_be_fitted_are_refused():
    ones = np.ones((100, 2))
    for seconds, settings, match in (
        (ones[:20], {}, "at least 8 steps and ranked on as many; got 14 and 6 of 20 steps"),
        (ones, {"held_out": 0.95}, "got 5 and 95 of 100 steps. Measure more steps, or change held_out=0.95"),
        (ones, {"held_out": 0.0}, "held_out must be above 0"),
        (ones * np.nan, {}, "the fitted steps of a trace must have a time above 0 that is finite"),
        (np.where(np.arange(100)[:, None] < 80, 1, np.inf), {"held_out": 0.2}, "the held-out steps of a trace must"),
        (ones.astype(int), {}, r"must be float\[T, W\]"),
        (ones, {"num_simulated_models": -1}, "num_simulated_models must be a whole number"),
    ):
        with pytest.raises(ValueError, match=match):
            stragglers.fit(seconds, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_times_that_are_all_equal_and_single_workers(num_workers):
    fits = stragglers.fit(np.full((40, num_workers), 2.5), num_simulated_models=0)
    assert by_name(fits.fits_without_likelihood)["constant"].call.arguments["seconds"] == (2.5,) * num_workers
    fits = stragglers.fit(simulated(WEIBULL, 60, num_workers), num_simulated_models=0)
    assert ("scaled" in fits.not_fitted) == (num_workers == 1)


RNG = np.random.default_rng(1)
ODD = {
    "whole numbers, also 0": np.round(RNG.exponential(size=(24, 2)) * 2),
    "half of them not measured": np.where(RNG.random((24, 2)) < 0.5, np.nan, RNG.exponential(size=(24, 2))),
    "many failures": np.where(RNG.random((24, 2)) < 0.2, np.inf, RNG.exponential(size=(24, 2))),
    "one of two": np.where(RNG.random((24, 2)) < 0.5, 1.0, 3.0),
    "many magnitudes": 10.0 ** RNG.uniform(-6, 6, size=(24, 2)),
    "all but one equal": np.where(np.arange(48).reshape(24, 2) == 11, 2.0, 1.0),
    "a single time of a worker": np.where(np.arange(24)[:, None] != 3, [np.nan, 1.0], 2.0),
    "a worker that fails early": np.where(np.arange(24)[:, None] > 10, [1.5, np.inf], RNG.exponential(size=(24, 2))),
    "ever slower": np.cumsum(RNG.exponential(size=(24, 2)), axis=0) * 1e-6,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ODD)
def test_odd_traces_have_models_with_finite_numbers(name):
    fits = stragglers.fit(ODD[name], num_simulated_models=0)
    ranked = (*fits.duration_fits, *fits.pattern_fits)
    assert (
        np.isfinite([fit.held_out_score for fit in ranked]).all()
        and np.isfinite([fit.score_behind_best for fit in ranked]).all()
    )
    for fit in (*ranked, *fits.fits_without_likelihood):
        assert not {"nan", "inf"} & set(fit.gin.replace("(", " ").replace(",", " ").split()), fit.gin
        assert fit.model


def test_times_that_differ_by_rounding_are_equal():
    of_clock = np.diff(np.arange(41) * 0.1 + 1000.0)[:, None].repeat(2, axis=1)
    of_neighbours = np.full((40, 2), 7.299257909835141)
    of_neighbours[::3, 0] = np.nextafter(of_neighbours[0, 0], 9)
    for seconds in (of_clock, of_neighbours):
        fits = stragglers.fit(seconds, num_simulated_models=0)
        assert fits.not_fitted["bursty"] == "all times are equal, so that nobody is slow"


def test_models_that_say_the_same_are_told_apart_by_nobody():
    """Times are 1 or 5 s: the second of these models is the first with a factor of 1 for each worker."""
    seconds = np.where(np.random.default_rng(0).random((100, 4)) < 0.3, 5.0, 1.0)
    fits = by_name(stragglers.fit(seconds, num_simulated_models=0).duration_fits)
    lead = fits["scaled(markov(shifted_exponential)), no memory"].score_behind_best
    assert abs(lead.mean) < 1e-3 and not fits["scaled(markov(shifted_exponential)), no memory"].is_surely_behind


@pytest.mark.slow
def test_who_fails_in_the_steps_held_out_is_told():
    seconds = np.random.default_rng(0).exponential(1.0, (100, 4))
    seconds[70:, 2] = np.inf
    reasons = stragglers.fit(seconds, num_simulated_models=0).not_fitted
    assert reasons["failed_workers"] == "nobody failed in the fitted steps, but in those held out"
