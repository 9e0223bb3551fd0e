"""What a config lacks is said at once, without what the command gives."""

import pytest

from gcjax import config, progress

CONFIG = """
run.experiment = @compare
compare.schemes = {'own': @own/coded(), 'coded': @coded()}
compare.study = @study()
coded.code = @cyclic_repetition()
study.task = @digits()
study.num_workers = 4
own/cyclic_repetition.num_stragglers = 1
"""


@pytest.fixture
def error(tmp_path):
    """The error of a run of a text as config."""

    def message(text):
        (tmp_path / "short.gin").write_text(text)
        config.load(tmp_path / "short.gin")
        with pytest.raises(ValueError) as refusal:
            config.run_loaded(tmp_path, progress.silent())
        return str(refusal.value)

    return message


def test_all_that_is_missing_is_named_once(error):
    assert error(CONFIG).partition(". Add")[0] == (
        "A config must bind all that is needed: missing 7 required arguments: compare.stragglers, study.optimizer, "
        "study.num_units, cyclic_repetition.num_workers, cyclic_repetition.rng_key, cyclic_repetition.num_stragglers, "
        "digits.num_chunks"
    )


def test_what_the_command_gives_is_not_missing(error):
    message = error("run.experiment = @compare")
    assert "missing 3 required arguments: compare.schemes, compare.study, compare.stragglers." in message
    assert "out" not in message and "progress" not in message


def test_what_the_command_gives_is_not_proposed(error):
    with pytest.raises(
        ValueError, match="has no parameter 'outt'. Known: absences, network, schemes, stragglers, study, "
    ):
        error("run.experiment = @compare\ncompare.outt = 1")


def test_a_function_that_is_passed_on_may_get_its_arguments_later(error):
    text = CONFIG + "compare.stragglers = @exponential()\ndigits.num_chunks = 4\nstudy.num_units = 9\n"
    text += "cyclic_repetition.num_workers = 4\ncyclic_repetition.rng_key = @key()\nstudy.optimizer = @chain()\n"
    text += "chain.args = [@sgd]\nkey.seed = 0\ncyclic_repetition.num_stragglers = 1\n"
    assert "chain.args" in error(text) and "required argument" not in error(text)
