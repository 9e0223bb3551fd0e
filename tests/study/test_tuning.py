"""Learning rates in the state of an optimizer, and what trials choose."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import comparable, progress, protocols, stragglers, tasks
from gcjax.study import (
    Condition,
    Study,
    Trial,
    Tuning,
    best_trial,
    final_rows,
    plan,
    rate_grid,
    run,
    seed_values,
    select_runs,
    trial_plan,
)
from gcjax.study.rates import RateState, set_rates, with_rate

RATES = (0.02, 0.1, 0.3)
STUDY = Study(
    task=tasks.linear_regression(4, num_features=4),
    optimizer=comparable(optax.sgd)(1.0),
    num_workers=4,
    num_units=24,
    num_seeds=2,
    num_evals=12,
    target=0.05,
    metric="suboptimality",
)
CONDITIONS = {"a": Condition(stragglers.exponential(mean=1.0)), "b": Condition(stragglers.constant(seconds=1.0))}
SCHEMES = {
    "BSP": protocols.bsp(),
    "ASP": protocols.asp(),
    "local": protocols.local_sgd(num_local_steps=2),
    "ringleader": protocols.ringleader(),
}


def table(reach):
    """Rows of trials, {(scheme, rate): seconds of its runs}."""
    rows = [(*trial, seconds) for trial, each in reach.items() for seconds in each]
    return {
        name: np.array(column)
        for name, column in zip(("scheme", "rate", "reach"), zip(*rows, strict=True), strict=True)
    }


@pytest.mark.parametrize("scheme", [pytest.param(s, marks=[pytest.mark.slow] * (s != "BSP")) for s in SCHEMES])
def test_a_run_of_the_trials_is_the_run_with_that_learning_rate(scheme, tmp_path):
    schemes = {scheme: SCHEMES[scheme]}
    tried = final_rows(
        run(trial_plan(plan(STUDY, schemes, CONDITIONS), RATES), out=tmp_path, progress=progress.silent())
    )
    assert tried["rate"].tolist() == np.repeat(RATES, 4).tolist()
    for rate in RATES[2:]:
        study = dataclasses.replace(STUDY, optimizer=comparable(optax.sgd)(rate))
        alone = final_rows(run(plan(study, schemes, CONDITIONS), out=tmp_path / str(rate), progress=progress.silent()))
        of_rate = {name: column[tried["rate"] == rate] for name, column in tried.items()}
        for condition in CONDITIONS:
            for column in ("reach", "suboptimality"):
                values = seed_values(of_rate, scheme, condition, column)
                np.testing.assert_allclose(values, seed_values(alone, scheme, condition, column), rtol=1e-4)
    is_of_first_seed = (tried["seed"] == 0) & (tried["condition"] == "a")
    assert len(set(tried["suboptimality"][is_of_first_seed].tolist())) == len(RATES)


def test_runs_are_picked_with_all_that_is_theirs(tmp_path):
    whole = trial_plan(plan(STUDY, {"BSP": SCHEMES["BSP"]}, CONDITIONS), RATES)
    picked = select_runs(whole, np.array([5, 2, 2]))
    assert picked.rates.tolist() == [RATES[1], RATES[0], RATES[0]]
    assert picked.labels["condition"].tolist() == ["a", "b", "b"] and picked.labels["seed"].tolist() == [1, 0, 0]
    np.testing.assert_array_equal(picked.inputs.durations[0], whole.inputs.durations[1])
    np.testing.assert_array_equal(picked.schedules["BSP"].time[1], whole.schedules["BSP"].time[2])


def test_an_optimizer_with_a_rate_takes_steps_of_that_rate():
    params, gradient = {"w": jnp.arange(3.0)}, {"w": jnp.ones(3)}
    for make in (optax.sgd, optax.adamw):
        rated, plain = with_rate(make(1.0)), make(0.3)
        state = set_rates(jax.tree.map(lambda x: jnp.asarray(x)[None], rated.init(params)), np.array([0.3]))
        state = jax.tree.map(lambda x: x[0], state)
        updates, new_state = rated.update(gradient, state, params)
        expected, _ = plain.update(gradient, plain.init(params), params)
        np.testing.assert_allclose(updates["w"], expected["w"], rtol=1e-6)
        assert float(new_state.rate) == np.float32(0.3)


def test_rates_are_set_for_every_worker_and_for_nothing_else():
    state = {"server": RateState((), jnp.ones(2)), "workers": RateState(jnp.zeros((2, 3)), jnp.ones((2, 3)))}
    replaced = set_rates(state, np.array([0.5, 2.0]))
    assert replaced["server"].rate.tolist() == [0.5, 2.0]
    assert replaced["workers"].rate.tolist() == [[0.5] * 3, [2.0] * 3]
    assert not replaced["workers"].inner.any()


def test_bad_rates():
    with pytest.raises(ValueError, match="uses no optimizer of the study, but its own"):
        set_rates({"other": jnp.ones(2)}, np.ones(2))
    with pytest.raises(ValueError, match="a rate for each of 2 runs; got shape"):
        set_rates(RateState((), jnp.ones(2)), np.ones(3))
    with pytest.raises(ValueError, match="lowest rate must be below the highest; got 1 and 0.1"):
        rate_grid(1.0, 0.1, 3)
    with pytest.raises(ValueError, match="num_rates"):
        rate_grid(0.1, 1.0, 0)


def test_bad_trials():
    planned = plan(STUDY, {"BSP": SCHEMES["BSP"]}, CONDITIONS)
    with pytest.raises(ValueError, match="a learning rate at least, .*; got none"):
        trial_plan(planned, ())
    for rate in (float("nan"), -0.1, 0.0, float("inf")):
        with pytest.raises(ValueError, match="a rate of trials must be above 0 and finite; got"):
            trial_plan(planned, (0.1, rate))
    with pytest.raises(ValueError, match="a rate of trials must be one number; got '0.1'"):
        trial_plan(planned, ("0.1",))
    with pytest.raises(ValueError, match="of a plan without rates"):
        trial_plan(trial_plan(planned, RATES), RATES)


def test_the_grid_has_equal_ratios_and_both_ends():
    np.testing.assert_allclose(rate_grid(0.1, 0.8, 4), [0.1, 0.2, 0.4, 0.8])


def test_a_single_rate_is_the_middle_one():
    np.testing.assert_allclose(rate_grid(0.1, 1.6, 1), [0.4])
    np.testing.assert_allclose(rate_grid(1e-200, 1e250, 1), [1e25])
    np.testing.assert_allclose(Tuning(num_trials=2, rates=(0.1, 1.6)).grid("A", 2), [0.4])


@pytest.mark.parametrize("lowest", [0, 3, 7])
def test_the_best_of_a_known_curve_is_chosen(lowest):
    rates = rate_grid(0.1, 2.0, 8)
    curve = {("A", rate): [10.0 + abs(i - lowest), 30.0 + abs(i - lowest)] for i, rate in enumerate(rates.tolist())}
    assert best_trial(table(curve)) == Trial("A", rates[lowest])


def test_a_trial_that_always_arrives_is_better_than_a_fast_one_that_does_not():
    seconds = {("A", 0.1): [1.0, np.inf], ("A", 0.2): [50.0, 60.0], ("B", 0.1): [40.0, 60.0], ("B", 0.2): [np.inf] * 2}
    assert best_trial(table(seconds)) == Trial("B", 0.1)
    never = {("A", 0.1): [np.inf, np.inf], ("A", 0.2): [np.inf, 5.0]}
    assert best_trial(table(never)) == Trial("A", 0.2)
    with pytest.raises(ValueError, match="a row for each run of each trial"):
        best_trial({"scheme": np.array([]), "rate": np.array([]), "reach": np.array([])})


def test_every_scheme_has_the_same_number_of_trials_on_other_seeds():
    tuning = Tuning(num_trials=6, rates=(0.1, 3.2), own_rates={"B": (1.0, 4.0)}, seed=3, num_seeds=4)
    for variants in (1, 2, 3):
        assert len(tuning.grid("A", variants)) * variants == 6
    np.testing.assert_allclose(tuning.grid("B", 2), [1.0, 2.0, 4.0])
    other = tuning.study(STUDY)
    assert (other.seed, other.num_seeds, other.num_units) == (3, 4, STUDY.num_units)
    with pytest.raises(ValueError, match="multiple of the 4 variants of 'A'; got 6. Try 4"):
        tuning.grid("A", 4)
    with pytest.raises(ValueError, match="another seed than the study; both have 0"):
        Tuning(num_trials=6, rates=(0.1, 1.0), seed=0).study(STUDY)
    with pytest.raises(ValueError, match="num_trials"):
        Tuning(num_trials=0, rates=(0.1, 1.0))
    with pytest.raises(ValueError, match="lowest rate must be below"):
        Tuning(num_trials=2, rates=(0.1, 1.0), own_rates={"A": (1.0, 1.0)})
    with pytest.raises(ValueError, match=r"own_rates must be .*, as in \{'SSP': \(0.01, 1.0\)\}; got \(0.1, 1.0\)"):
        Tuning(num_trials=2, rates=(0.1, 1.0), own_rates=(0.1, 1.0))
