"""What a comparison is to reach."""

import pytest

from gcjax import analysis


@pytest.mark.parametrize("name", ["accuracy", "test_accuracy"])
def test_accuracies_rise_and_are_shares(name):
    assert analysis.target(name, 0.9, [name]).higher_is_better
    with pytest.raises(ValueError, match="between 0 and 1; got 1.5"):
        analysis.target(name, 1.5, [name])


def test_others_fall_unless_they_are_said_to_rise():
    assert not analysis.target("loss", 0.1, ["loss"]).higher_is_better
    assert analysis.target("reward", -3.0, ["reward"], higher_is_better=True).higher_is_better
    assert not analysis.target("accuracy", 0.1, ["accuracy"], higher_is_better=False).higher_is_better
