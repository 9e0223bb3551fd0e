"""The procedure that tunes schemes, on a task whose best rate is known, and what is kept of it."""

import dataclasses

import numpy as np
import optax
import pytest

from experiments import tuned_schemes
from experiments.tuned_schemes import Setting, choice, scheme_of, variants_of
from gcjax import comparable, progress, protocols, stragglers, tasks
from gcjax.study import Condition, Study, Trial, Tuning

SETTING = Setting(
    study=Study(
        task=tasks.linear_regression(2, num_features=3, num_examples=64, batch_size=None, local_data=True),
        optimizer=comparable(optax.sgd)(1.0), num_workers=2, num_units=20, num_seeds=2, num_evals=20, target=0.02,
        metric="suboptimality",
    ),
    tuning=Tuning(num_trials=4, rates=(0.01, 10.0), seed=1),
    conditions={
        "even, free": Condition(stragglers.constant(seconds=1.0)),
        "slow, free": Condition(stragglers.constant(seconds=(1.0, 3.0))),
    },
    groups=[["even, free", "slow, free"]],
)  # fmt: skip
SCHEMES = {"K-sync, K=2": protocols.k_sync(num_contributions=2), "K-sync, K=1": protocols.k_sync(num_contributions=1)}


def tuned(out, setting=SETTING, schemes=SCHEMES):
    return tuned_schemes.tuned_schemes(schemes, setting, out=out, progress=progress.silent())


def test_names_say_scheme_and_variant():
    assert [scheme_of(name) for name in ("SSP, s=3", "BSP", "A, H=4, outer 0.3")] == ["SSP", "BSP", "A"]
    assert {name: list(each) for name, each in variants_of({**SCHEMES, "BSP": None}).items()} == {
        "K-sync": ["K-sync, K=2", "K-sync, K=1"],
        "BSP": ["BSP"],
    }


def test_the_choice_is_of_the_conditions_asked_for():
    trials = {
        "variant": np.array(["A, 1", "A, 2"] * 2),
        "rate": np.array([0.1, 0.1, 0.1, 0.1]),
        "condition": np.array(["x", "x", "y", "y"]),
        "reach": np.array([1.0, 2.0, 9.0, 3.0]),
    }
    assert choice(trials, ["x"]) == Trial("A, 1", 0.1)
    assert choice(trials, ["y"]) == choice(trials, ["x", "y"]) == Trial("A, 2", 0.1)


@pytest.mark.slow
def test_each_group_of_conditions_has_its_own_choice_and_done_schemes_are_kept(tmp_path, monkeypatch):
    first = tuned(tmp_path / "a")
    assert first.rows["scheme"].tolist() == ["K-sync"] * 4 and first.rows["seed"].tolist() == [0, 1] * 2
    assert len(first.trials["rate"]) == 4 * 2 and set(first.trials["seed"].tolist()) == {0}
    np.testing.assert_allclose(sorted(set(first.trials["rate"].tolist())), [0.01, 10.0])
    best = choice(first.trials, list(SETTING.conditions))
    assert set(first.rows["variant"].tolist()) == {best.scheme} and set(first.rows["rate"].tolist()) == {best.rate}

    apart = tuned(tmp_path / "b", SETTING._replace(groups=[[name] for name in SETTING.conditions]))
    for name in SETTING.conditions:
        expected = choice(apart.trials, [name])
        is_here = apart.rows["condition"] == name
        assert set(apart.rows["variant"][is_here].tolist()) == {expected.scheme}
        assert set(apart.rows["rate"][is_here].tolist()) == {expected.rate}

    monkeypatch.setattr(tuned_schemes, "_trial_rows", lambda *args: pytest.fail("it has been done"))
    again = tuned(tmp_path / "a")
    for name, column in first.rows.items():
        np.testing.assert_array_equal(again.rows[name], column, strict=True)
    assert {name: column.dtype for name, column in again.trials.items()} == {
        name: column.dtype for name, column in first.trials.items()
    }
    slower = {name: Condition(stragglers.constant(seconds=2.0)) for name in SETTING.conditions}
    with pytest.raises(pytest.fail.Exception, match="it has been done"):  # the durations are no longer these
        tuned(tmp_path / "a", SETTING._replace(conditions=slower))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([["even, free"]], "each condition must be in one group; 'slow, free' is in 0"),
        ([["even, free", "slow, free"], ["even, free"]], "each condition must be in one group; 'even, free' is in 2"),
        ([["even, free", "slow, free", "slow"]], "groups must be of conditions, even, free, slow, free; got 'slow'"),
        ([], "'even, free' is in 0"),
    ],
)
def test_each_condition_must_be_in_one_group(tmp_path, groups, message):
    with pytest.raises(ValueError, match=message):
        tuned(tmp_path, SETTING._replace(groups=groups))


def test_own_rates_must_be_of_schemes_not_of_their_variants(tmp_path):
    for name in ("nobody", "K-sync, K=2"):
        tuning = dataclasses.replace(SETTING.tuning, own_rates={name: (0.1, 1.0)})
        with pytest.raises(ValueError, match=f"own_rates must be those of schemes, K-sync; got some for '{name}'"):
            tuned(tmp_path, SETTING._replace(tuning=tuning))
    tuned_schemes.check_setting(
        SETTING._replace(tuning=dataclasses.replace(SETTING.tuning, own_rates={"K-sync": (0.1, 1.0)})), SCHEMES
    )


def test_optimizers_must_be_of_schemes(tmp_path):
    study = dataclasses.replace(SETTING.study, optimizers={"nobody": optax.sgd(1.0)})
    with pytest.raises(ValueError, match="optimizers must be those of schemes"):
        tuned(tmp_path, SETTING._replace(study=study))
