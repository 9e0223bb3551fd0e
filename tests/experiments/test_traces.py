"""Advice that is judged by the second half of a trace, on small synthetic ones."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments import traces as experiment
from gcjax import progress, protocols, stragglers
from gcjax.advice import Scheme
from gcjax.advice.blocks import default_block_steps

SCHEMES = [
    Scheme("bsp", "", protocols.bsp()),
    Scheme("k_sync", "K=3", protocols.k_sync(num_contributions=3)),
    Scheme("asp", "", protocols.asp()),
]


def alternating(slow, num_steps=64):
    """float[T, W]: one worker takes `slow` seconds in the first half, and in the second half nobody does."""
    seconds = np.ones((num_steps, 4))
    seconds[: num_steps // 2, 3] = slow
    return seconds


@pytest.mark.slow
def test_a_choice_is_judged_where_it_was_not_made():
    half = experiment.halves(alternating(2.0), SCHEMES, num_bootstraps=20, seed=0)
    chosen = experiment.choice(half.first, half.second, same_gradient=False)
    assert chosen.scheme == "asp" and chosen.regret == pytest.approx(0.0, abs=1e-3)
    by_gradient = experiment.choice(half.first, half.second, same_gradient=True)
    assert by_gradient == ("bsp", 0.0)
    # Where the second half has a worker that takes three times as long, K-sync with K = 3 costs less than BSP.
    k_sync_first = half.first._replace(
        schemes=tuple(sorted(half.first.schemes, key=lambda row: row.scheme.name != "bsp"))
    )
    judged = experiment.halves(alternating(3.0)[::-1].copy(), SCHEMES, num_bootstraps=20, seed=0).second
    bsp = experiment.choice(k_sync_first, judged, same_gradient=False)
    assert bsp.scheme == "bsp" and bsp.regret == pytest.approx(3.0 / 1.2 - 1, rel=1e-2)  # ASP takes 4 / (3 + 1/3) s


def test_the_model_has_the_mean_of_the_first_half():
    half = experiment.halves(alternating(5.0, num_steps=400), SCHEMES[:1], num_bootstraps=20, seed=1)
    assert half.first.bsp_seconds.value == pytest.approx(5.0) and half.second.bsp_seconds.value == pytest.approx(1.0)
    harmonic = 1 + 1 / 2 + 1 / 3 + 1 / 4  # the mean of the largest of four
    assert half.model.bsp_seconds.value == pytest.approx(2.0 * harmonic, rel=0.1)


def test_coverage_is_of_every_scheme_but_bsp():
    half = experiment.halves(alternating(2.0), SCHEMES, num_bootstraps=20, seed=0)
    shares = experiment.won_back(half.first)
    assert experiment.coverage(half.first, shares) == [True, True]
    assert experiment.coverage(half.first, shares | {"asp": -1.0}) == [False, True]


def test_halves_have_blocks_of_one_length():
    seconds = np.ones((1024, 3))
    seconds[:512, 0] += np.repeat(np.random.default_rng(1).random(26) < 0.3, 20)[:512]  # spells in the first half only
    assert default_block_steps(seconds[:512]) > default_block_steps(seconds[512:]) == 24
    half = experiment.halves(seconds, SCHEMES[:1], num_bootstraps=20, seed=0)
    assert {advised.block_steps for advised in half} == {default_block_steps(seconds[:512])}


def test_the_experiment_writes_a_page_for_each_trace_and_the_judgement(tmp_path):
    seconds = np.random.default_rng(2).gamma(4.0, size=(64, 4))
    stragglers.write_trace(tmp_path / "job.csv", seconds)
    rows = experiment.traces(
        paths={"a job": str(tmp_path / "job.csv")},
        names=("bsp", "k_sync", "asp"),
        synthetic={"independent": stragglers.shifted_exponential(shift=1.0, mean=0.3)},
        synthetic_names=("bsp", "asp"),
        num_traces=2,
        num_steps=64,
        num_workers=4,
        num_bootstraps=20,
        out=tmp_path,
        progress=progress.silent(),
    )
    assert {row["scheme"] for row in rows} == {"bsp", "k_sync (K=3)", "asp"}
    assert pq.read_table(tmp_path / "results.parquet").num_rows == 3
    summary = (tmp_path / "summary.md").read_text()
    assert "| a job | asp | 0.0 % | bsp | 0.0 % |" in summary and "| independent |" in summary
    assert "Cost in the first half" in summary
    assert "Stragglers cost" in next(tmp_path.glob("a*job.md")).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        stragglers.shifted_exponential(shift=1.0, mean=0.5),
        stragglers.markov(base=1.0, slowdown=3.0, probability=0.1, persistence=0.9),
    ],
)
def test_intervals_cover_what_they_say_on_stationary_traces(model):
    covered = experiment.synthetic_coverage(model, (30, 1024, 8), ("bsp", "k_sync", "asp"), num_bootstraps=100, seed=3)
    assert len(covered) == 60 and 0.78 < np.mean(covered) < 0.99  # of 90 %


def test_nothing_to_do_is_refused(tmp_path):
    with pytest.raises(ValueError, match="traces must be given files"):
        experiment.traces(paths={}, out=tmp_path, progress=progress.silent())


def test_traces_that_are_too_short_for_halves_are_refused_before_anything_is_computed(tmp_path):
    stragglers.write_trace(tmp_path / "long.csv", alternating(2.0))
    stragglers.write_trace(tmp_path / "short.csv", alternating(2.0, num_steps=44))
    paths = {"long": str(tmp_path / "long.csv"), "short": str(tmp_path / "short.csv")}
    with pytest.raises(ValueError, match="64 steps at least, half of them .*; 'short' has 44"):
        experiment.traces(paths=paths, out=tmp_path / "out", progress=progress.silent())
    assert not (tmp_path / "out").exists()
