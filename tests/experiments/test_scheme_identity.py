"""What the kept rows of a scheme depend on: its own settings by value, and no others."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import tuned_schemes
from experiments.scheme_identity import scheme_identity, value_text
from gcjax import config, protocols, stragglers, tasks
from gcjax.study import Condition
from tests.experiments.test_tuned_schemes import SCHEMES, SETTING


def identity(schemes=SCHEMES, setting=SETTING):
    return scheme_identity("K-sync", (schemes, tuned_schemes.setting_of_variants("K-sync", schemes, setting)))


def adder(number):
    return lambda x: x + number


def test_equal_settings_made_twice_have_one_identity_and_the_config_does_not_count(monkeypatch):
    again = SETTING._replace(
        study=dataclasses.replace(
            SETTING.study,
            task=tasks.linear_regression(2, num_features=3, num_examples=64, batch_size=None, local_data=True),
        ),
        conditions={
            "even, free": Condition(stragglers.constant(seconds=1.0)),
            "slow, free": Condition(stragglers.constant(seconds=(1.0, 3.0))),
        },
    )
    monkeypatch.setattr(config, "text", lambda: pytest.fail("the settings can be told by their values"))
    assert identity() == identity({name: protocols.k_sync(num_contributions=int(name[-1])) for name in SCHEMES}, again)


def test_what_only_other_schemes_have_does_not_count():
    others = dataclasses.replace(
        SETTING.study, optimizers={"DiLoCo": SETTING.study.optimizer}, compressions={"BSP": object()}
    )
    own_rates = dataclasses.replace(SETTING.tuning, own_rates={"DiLoCo": (0.1, 0.2)})
    assert identity() == identity(setting=SETTING._replace(study=others, tuning=own_rates))


@pytest.mark.parametrize(
    "changed",
    [
        {"study": dataclasses.replace(SETTING.study, num_units=21)},
        {"study": dataclasses.replace(SETTING.study, optimizers={"K-sync, K=1": SETTING.study.optimizer})},
        {"study": dataclasses.replace(SETTING.study, task=tasks.linear_regression(2, num_features=3))},
        {"tuning": dataclasses.replace(SETTING.tuning, own_rates={"K-sync": (0.1, 0.2)})},
        {"conditions": {**SETTING.conditions, "slow, free": Condition(stragglers.constant(seconds=(1.0, 4.0)))}},
        {"groups": [["even, free"], ["slow, free"]]},
    ],
)
def test_what_the_rows_depend_on_counts(changed):
    assert identity() != identity(setting=SETTING._replace(**changed))


def test_another_variant_or_the_contents_of_a_trace_count(tmp_path):
    assert identity() != identity({"K-sync, K=2": protocols.k_sync(num_contributions=2)})
    texts = set()
    for seconds in (1.0, 2.0):
        np.save(tmp_path / "trace.npy", np.full((3, 2), seconds))
        trace = stragglers.read_trace(str(tmp_path / "trace.npy"))
        texts.add(value_text(stragglers.replay(trace=trace, workers="drawn")))
    assert len(texts) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0), (1, True), ("1", 1), (0.0, -0.0), ((1,), [1]), (None, "None"), (b"a", b"b"), ({"a": 1}, {"a": 2}),
        (np.zeros(2), np.zeros(3)), (np.zeros(2), np.zeros(2, np.float32)), (jnp.ones(2), jnp.zeros(2)),
        (jax.random.key(0), jax.random.key(1)), (adder(1), adder(2)), (adder(1), lambda x: x + 1), (jnp.add, jnp.sum),
        (functools.partial(value_text, 1), functools.partial(value_text, 2)), (lambda: 1, lambda: 2),
    ],
)  # fmt: skip
def test_different_values_have_different_texts(one, other):
    assert value_text(one) == value_text(one)
    assert value_text(one) != value_text(other)


def test_functions_made_anew_are_told_by_what_they_close_over():
    assert value_text(adder(1)) == value_text(adder(1))
    assert "0x" not in value_text((adder(1), SETTING.study.task.loss, SETTING.study.optimizer))


def test_where_a_value_cannot_be_told_the_config_counts(monkeypatch):
    with pytest.raises(TypeError, match="does not compare by its value"):
        value_text((1, object()))
    monkeypatch.setattr(config, "text", lambda: "config A")
    one = scheme_identity("BSP", object())
    monkeypatch.setattr(config, "text", lambda: "config B")
    assert one != scheme_identity("BSP", object())
    assert scheme_identity("BSP", 1) != scheme_identity("ASP", 1)
