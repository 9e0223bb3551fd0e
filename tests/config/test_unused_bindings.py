"""Bindings of the command line that nothing uses are refused; those that something uses are not."""

import pytest

from gcjax import config

CONFIG = """
run.experiment = @compare
compare.schemes = {'SSP': @ssp(), 'first': @first/coded(), 'second': @second/coded()}
compare.stragglers = @exponential()
compare.study = @study()
study.task = @digits()
study.optimizer = @sgd()
study.num_workers = %workers
study.num_units = 60
digits.num_chunks = 4
sgd.learning_rate = %rate
ssp.staleness = 3
coded.code = @cyclic_repetition()
first/coded.stop = @fastest()
first/fastest.wait_for = 3
second/coded.stop = @decodable()
cyclic_repetition.num_workers = %workers
cyclic_repetition.num_stragglers = 1
cyclic_repetition.rng_key = @key()
key.seed = 0
workers = 4
rate = 0.1
group_size = 2
psp.num_sampled = %group_size
"""


@pytest.fixture
def load(tmp_path):
    """Loads the config above with some bindings."""
    (tmp_path / "scoped.gin").write_text(CONFIG)
    return lambda *bindings: config.load(tmp_path / "scoped.gin", bindings)


@pytest.mark.parametrize(
    ("binding", "match"),
    [
        ("psp.num_sampled = 3", "uses psp. Name it in the config, as @psp.., or set a parameter .* coded, compare,"),
        ("group_size = 3", "uses %group_size. Set the parameter itself"),
        ("coded.stop = @fastest()", "from first/coded.stop and second/coded.stop. Write first/coded.stop or second"),
        ("fastest.wait_for = 2", "Write first/fastest.wait_for.$"),
        ("third/ssp.staleness = 2", "Write ssp.staleness.$"),
        ("first/coded:\n  code = @uncoded()\nsecond/ssp:\n  staleness = 2", "Write ssp.staleness.$"),
    ],
)
def test_a_binding_without_effect_is_refused(load, binding, match):
    with pytest.raises(ValueError, match=match) as refusal:
        load(binding)
    assert str(refusal.value).startswith(f"'{binding}' has no effect: ")


def test_bindings_with_an_effect_are_taken(load):
    load("ssp.staleness = 2", "workers = 6", "rate = 0.2", "first/coded.stop = @decodable()", "key.seed = 1")
    load("compare.schemes = {'PSP': @psp()}", "psp.num_sampled = 3")  # what a later binding brings in
    load("first/fastest.wait_for = 2", "first/cyclic_repetition.num_stragglers = 2")  # the inner scope wins
    load("sgd.learning_rate = @exponential_decay()", "exponential_decay.decay_rate = 0.9")


def test_the_last_of_two_bindings_of_one_parameter_counts(load):
    load("ssp.staleness = 2", "ssp.staleness = 4")
