"""Errors say which macros and bindings gave the values that they are about."""

import pytest

from gcjax import config, progress

CONFIG = """
run.experiment = @compare
compare.schemes = {'first': @first/coded(), 'second': @second/coded()}
compare.stragglers = @exponential()
compare.study = @study()
study.task = @digits()
study.optimizer = @sgd()
study.num_workers = %workers
study.num_units = 8
study.target = 0.9
digits.num_chunks = 4
sgd.learning_rate = 0.1
first/coded.code = @first/ignore_stragglers()
second/coded.code = @second/ignore_stragglers()
first/ignore_stragglers.num_workers = %workers
second/ignore_stragglers.num_workers = %others
workers = 4
others = 4
"""


@pytest.fixture
def error(tmp_path):
    """The error of a run of the config above with some bindings."""
    (tmp_path / "two.gin").write_text(CONFIG)

    def message(*bindings):
        config.load(tmp_path / "two.gin", bindings)
        with pytest.raises(ValueError) as refusal:
            config.run_loaded(tmp_path, progress.silent())
        return str(refusal.value)

    return message


def test_a_code_for_other_workers_names_the_scheme_and_all_bindings(error):
    first, second = error("others = 6").splitlines()
    assert first.startswith("all schemes must have the num_workers of the study, 4; the code of scheme 'second' has 6.")
    assert second == (
        "  (in compare, with first/ignore_stragglers.num_workers = %workers, "
        "second/ignore_stragglers.num_workers = %others, study.num_workers = %workers)"
    )


def test_the_macros_of_what_is_called_are_named(error):
    message = error("others = 0")
    assert "num_workers must be" in message
    assert message.endswith("\n  (in second/ignore_stragglers, with num_workers = %others)")


def test_an_error_without_a_parameter_names_no_bindings(error):
    assert error("study.target = 2.0").endswith("\n  (in study)")
