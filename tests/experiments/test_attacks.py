"""configs/attacks.gin: workers that lie, in a config."""

import dataclasses
import json

import gin
import numpy as np
import pytest

from gcjax import analysis, cli, config
from gcjax.engine import wrong_messages
from tests.experiments.test_tuned_schemes import SETTING
from tests.experiments.test_worker_busy import CONFIGS

SMALL = ("study.num_seeds = 1", "study.num_units = 60", "study.seconds = 8.0", "study.num_evals = 4")
PAIR = (
    "compare.schemes = {'mean, 1 lies': @coded(), 'votes': @majority/coded(), 'votes, 1 lies': @majority/coded()}",
    "study.wrong_senders = {'mean, 1 lies': @wrong_senders(), 'votes, 1 lies': @wrong_senders()}",
)


def run(out, *bindings):
    given = [part for binding in (*SMALL, *bindings) for part in ("--set", binding)]
    return cli.main(["run", str(CONFIGS / "attacks.gin"), "--out", str(out), *given])


@pytest.mark.slow
def test_a_majority_does_not_notice_a_liar_and_the_mean_does(tmp_path):
    assert run(tmp_path / "out", *PAIR) == 0
    results = analysis.load(tmp_path / "out")
    losses = {name: results.seeds(name)[0]["train_loss"] for name in results.schemes}
    np.testing.assert_allclose(losses["votes, 1 lies"], losses["votes"], rtol=1e-5)
    assert losses["votes"][-1] < 0.5 * losses["votes"][0]
    assert not losses["mean, 1 lies"][-1] < 2 * losses["mean, 1 lies"][0]  # larger, or no number at all
    assert json.loads((tmp_path / "out" / "run.json").read_text())["num_workers"] == 15


@pytest.mark.slow
def test_each_code_bears_as_many_liars_as_it_is_made_for(tmp_path):
    assert run(tmp_path / "out", "study.seconds = 20.0", "study.num_units = 150") == 0
    results = analysis.load(tmp_path / "out")
    ends = {name: results.seeds(name)[0]["accuracy"][-1] for name in results.schemes}
    assert len(ends) == 10
    for name, end in ends.items():
        is_too_much = name in ("mean, 1 lies", "majority, a=1, 2 lie", "error correcting, a=1, 2 lie")
        assert end < 0.5 if is_too_much else end > 0.8, name


@pytest.mark.parametrize(
    ("bindings", "message"),
    [
        (["study.wrong_senders = {'nobody': @wrong_senders()}"], "wrong_senders must be those of schemes"),
        (["wrong_senders.num_wrong = 16"], "num_wrong must be at most the number of workers, 15; got 16"),
        (["wrong_senders.num_wrong = -1"], "num_wrong must be a whole number at least 0"),
        (
            [
                "compare.schemes = {'mean, 1 lies': @bsp()}",
                "study.wrong_senders = {'mean, 1 lies': @wrong_senders()}",
            ],
            "this protocol has no code",
        ),
    ],
)
def test_bad_attacks(tmp_path, capsys, bindings, message):
    assert run(tmp_path / "out", *PAIR, *bindings) == 2
    assert message in capsys.readouterr().err


def test_only_those_lie_of_whom_it_is_said():
    senders = wrong_messages.wrong_senders(num_wrong=1)
    study = dataclasses.replace(SETTING.study, wrong_senders={"A": senders})
    assert (study.wrong_senders_of("A"), study.wrong_senders_of("B")) == (senders, None)
    assert SETTING.study.wrong_senders_of("A") is None


def test_attacks_by_their_names():
    config.load(CONFIGS / "attacks.gin", ["wrong_senders.attack = @constant_message()", "constant_message.value = 3.0"])
    senders = gin.query_parameter("study.wrong_senders")["mean, 1 lies"].scoped_configurable_fn()
    assert senders == wrong_messages.wrong_senders(wrong_messages.constant_message(3.0), num_wrong=1)
    assert wrong_messages.wrong_senders(num_wrong=1).attack == wrong_messages.reversed_gradient(100.0)
