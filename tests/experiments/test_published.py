"""Published comparisons: the quadratic, its times, the mixture, and what is said of a claim."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import tuned_schemes
from experiments.published import comparison, gaussian_mixture, half_normal_delays, tridiagonal_quadratic
from experiments.published.quadratic import product
from experiments.tuned_schemes import Setting, TunedSchemes
from gcjax import cli, progress, protocols
from gcjax.stragglers import Network, constant, constant_network, sample_durations
from gcjax.study import Condition
from tests.experiments.test_tuned_schemes import SETTING
from tests.experiments.test_worker_busy import CONFIGS

KEY = jax.random.key(0)
SMALL = (
    "num_workers = 3", "study.num_units = 60", "study.seconds = None", "study.num_seeds = 2", "study.num_evals = 6",
    "tuning.num_trials = 2", "tridiagonal_quadratic.dimension = 5", "study.target = 1.0",
    "published.schemes = {'Ringmaster, R=2': @r2/ringmaster(), 'ASGD': @asp()}",
    "published.claims = [('Ringmaster', 'ASGD', 'faster')]",
)  # fmt: skip


def test_the_quadratic_by_its_definition():
    dimension = 6
    task = tridiagonal_quadratic(2, dimension=dimension, noise=0.5)
    matrix = (2 * np.eye(dimension) - np.eye(dimension, k=1) - np.eye(dimension, k=-1)) / 4
    slope = np.array([-0.25, 0, 0, 0, 0, 0])
    x = jnp.arange(1.0, 7.0)
    value = lambda point: 0.5 * point @ matrix @ point - slope @ point  # noqa: E731
    np.testing.assert_allclose(product(x), matrix @ x, rtol=1e-6)
    metrics = task.metrics(x, task.data)
    np.testing.assert_allclose(metrics["suboptimality"], value(x) - value(np.linalg.solve(matrix, slope)), rtol=1e-5)
    np.testing.assert_allclose(metrics["gradient"], np.sum((matrix @ x - slope) ** 2), rtol=1e-5)
    noises = jnp.stack(
        [task.unit_batch(task.data, KEY, jnp.int32(w), jnp.int32(u)) for w in range(3) for u in range(9)]
    )
    assert len(np.unique(np.asarray(noises))) == noises.size
    gradient = jax.grad(task.loss)(x, noises[0], KEY)
    np.testing.assert_allclose(gradient, matrix @ x - slope + noises[0], rtol=1e-5)
    assert 0.35 < float(noises.std()) < 0.65
    assert task.init(KEY).tolist() == [pytest.approx(6**0.5), 0, 0, 0, 0, 0]


def test_times_of_workers_are_their_number_and_half_a_normal_one():
    seconds = np.asarray(sample_durations(half_normal_delays(4), KEY, 4000, 4))
    index = np.arange(1, 5)
    assert (seconds >= index).all()
    np.testing.assert_allclose(seconds.mean(axis=0), index + np.sqrt(2 * index / np.pi), rtol=0.05)
    np.testing.assert_allclose(seconds.std(axis=0), np.sqrt(index * (1 - 2 / np.pi)), rtol=0.1)


def test_the_mixture_can_be_told_apart():
    sizes = {"num_features": 16, "num_classes": 3, "clusters_per_class": 2, "hidden": 8}
    task = gaussian_mixture(2, num_examples=300, deviation=0.01, **sizes)
    params = task.init(KEY)
    assert params["w1"].shape == (16, 8) and params["b2"].shape == (3,)
    examples = task.data.train.inputs[:300]
    distances = np.linalg.norm(np.asarray(examples)[:, None] - np.asarray(examples)[None], axis=-1)
    is_same = distances < 0.2
    targets = np.asarray(task.data.train.targets[:300])
    assert (targets[:, None] == targets[None])[is_same].all() and 0.1 < is_same.mean() < 0.25
    np.testing.assert_allclose(np.linalg.norm(examples, axis=1), 1.0, atol=0.15)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tridiagonal_quadratic(1, dimension=1), "dimension"),
        (lambda: tridiagonal_quadratic(1, noise=-1.0), "noise"),
        (lambda: half_normal_delays(0), "num_workers"),
        (lambda: gaussian_mixture(1, hidden=0), "hidden"),
        (lambda: gaussian_mixture(1, deviation=-0.1), "deviation"),
    ],
)
def test_bad_numbers(make, message):
    with pytest.raises(ValueError, match=message):
        make()


OTHER = "the other did not reach the target -"


@pytest.mark.parametrize(
    ("fast", "slow", "ours", "holds"),
    [
        ([1.0, 2.0, 3.0], [2.0, 4.2, 5.8], "0.50 [0.45, 0.55]", "yes"),
        ([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], "2.00 [2.00, 2.00]", "**no**"),
        ([2.0, 4.0, 6.0], [3.0, 3.5, 6.1], "0.91 [0.46, 1.81]", "indistinguishable"),
        ([0.0, 0.0, 6.0], [3.0, 3.5, 6.1], "- -", "not decided: the target was reached at once"),
        ([1.0, np.inf, 1.0], [2.0, 2.0, 2.0], "target not reached -", "no: A got there with 2 of 3 seeds"),
        ([1.0, 1.0, 1.0], [2.0, np.inf, 2.0], OTHER, "yes: B got there with 2 of 3 seeds"),
        ([np.inf, 1.0, 1.0], [2.0, np.inf, 2.0], "target not reached -", "not decided: neither always got there"),
        ([1.0, 1.0, 8.0], [2.0, 2.0, np.inf], OTHER, "not decided: B ran for less than the other took"),
        (
            [1.0, 1.0, np.inf],
            [2.0, 2.0, 8.0],
            "target not reached -",
            "not decided: A ran for less than the other took",
        ),
    ],
)
def test_what_is_said_of_a_claim(fast, slow, ours, holds):
    columns = {"scheme": np.array(["A"] * 3 + ["B"] * 3), "condition": np.array(["published"] * 6)}
    tuned = TunedSchemes({**columns, "reach": np.array(fast + slow), "end": np.full(6, 7.0)}, {})
    finding = comparison.finding(tuned, "A", "B", "faster", command="run", seconds=None)
    assert (finding.claim, f"{finding.ours} {finding.interval}") == ("A is faster than B", ours)
    assert finding.holds == holds


def test_who_ran_for_the_seconds_asked_for_ran_as_long():
    columns = {"scheme": np.array(["A", "B"]), "condition": np.array(["published"] * 2)}
    tuned = TunedSchemes({**columns, "reach": np.array([8.0, np.inf]), "end": np.full(2, 7.0)}, {})
    finding = comparison.finding(tuned, "A", "B", "faster", command="run", seconds=9.0)
    assert finding.holds == "yes: B got there with 0 of 1 seeds"


@pytest.mark.parametrize(("reach", "rate"), [(4.0, "0.1"), (np.inf, "0.1 (no trial got there)")])
def test_a_rate_that_no_trial_chose_says_so(reach, rate):
    rows = {"scheme": "A", "variant": "A", "rate": 0.1, "reach": np.inf, "end": 7.0, "stalled": False}
    rows |= {"waiting": 0.5, "mean_staleness": 1.0, "max_staleness": 2}
    trials = {"variant": ["A", "A"], "rate": [0.1, 0.2], "reach": [reach, np.inf]}
    tuned = TunedSchemes({k: np.array([v]) for k, v in rows.items()}, {k: np.array(v) for k, v in trials.items()})
    (line,) = comparison._lines(tuned)
    assert line[comparison.TIME_HEADS.index("Rate")] == rate


def test_each_scheme_has_its_own_network(tmp_path, monkeypatch):
    asked = {}

    def no_trials(scheme, variants, setting, inputs, out, progress):
        networks = [each.network for each in (inputs.trials, inputs.reported)]
        asked[scheme] = (*variants, setting.conditions["published"].network, *(float(x.upload[0]) for x in networks))
        columns = {"scheme": np.array(["A"]), "condition": np.array(["published"]), "reach": np.array([1.0])}
        return TunedSchemes(columns, columns)

    monkeypatch.setattr(tuned_schemes, "_stored_or_run", no_trials)
    slow, usual = constant_network(upload=3.0), constant_network(upload=1.0)
    conditions = {"published": Condition(constant(seconds=1.0))}
    setting = Setting(SETTING.study, SETTING.tuning, conditions, [["published"]], {"A": slow, "B": usual})
    schemes = {"A, 1": protocols.asp(), "B": protocols.bsp(), "A, 2": protocols.asp(), "C": protocols.bsp()}
    tuned = tuned_schemes.tuned_schemes(schemes, setting, out=tmp_path, progress=progress.silent())
    assert asked == {"A": ("A, 1", "A, 2", slow, 3, 3), "B": ("B", usual, 1, 1), "C": ("C", Network(), 0, 0)}
    assert len(tuned.rows["scheme"]) == len(tuned.trials["reach"]) == 3


def published(out, *bindings):
    given = [part for binding in (*SMALL, *bindings) for part in ("--set", binding)]
    return cli.main(["run", str(CONFIGS / "published/ringmaster.gin"), "--out", str(out), *given])


@pytest.mark.slow
def test_a_comparison_writes_its_claims(tmp_path):
    assert published(tmp_path / "out") == 0
    text = (tmp_path / "out" / "summary.md").read_text()
    assert "| Ringmaster is faster than ASGD | faster |" in text and "configs/published/ringmaster.gin" in text


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("published.claims = []", "claims must have one at least"),
        ("published.claims = [('Ringmaster', 'Rennala', 'x')]", "a claim must be of two of the schemes"),
        ("study.num_seeds = 1", "num_seeds"),
        ("published.networks = {'Rennala': @constant_network()}", "networks must be those of schemes"),
        (
            "tuning.own_rates = {'Rennala': (0.1, 1.0)}",
            "own_rates must be those of schemes, Ringmaster, ASGD; got some",
        ),
    ],
)
def test_bad_comparisons(tmp_path, capsys, binding, message):
    assert published(tmp_path / "out", binding) == 2
    assert message in capsys.readouterr().err
