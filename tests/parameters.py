"""Parameters of tests, of which some are slow: the others stand for them in the default tests."""

import pytest


def some(fast, slow):
    """All parameters, those of `slow` marked; a tuple is one value for each argument."""
    return [parameter(values) for values in fast] + [parameter(values, pytest.mark.slow) for values in slow]


def one_in(step, values):
    """The values, all but every `step`-th of them marked as slow."""
    values = list(values)
    return some(values[::step], [value for number, value in enumerate(values) if number % step])


def parameter(values, marks=()):
    return pytest.param(*(values if type(values) is tuple else (values,)), marks=marks)
