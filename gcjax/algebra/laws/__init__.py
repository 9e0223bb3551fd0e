"""The laws of the algebra as data, and what becomes of them on random instances."""

from gcjax.algebra.laws.meaning import OPERATORS, Instances
from gcjax.algebra.laws.page import counterexamples, markdown, table
from gcjax.algebra.laws.table import LAWS, Law
from gcjax.algebra.laws.trials import Counterexample, Result, check, check_all

__all__ = [
    "LAWS",
    "OPERATORS",
    "Counterexample",
    "Instances",
    "Law",
    "Result",
    "check",
    "check_all",
    "counterexamples",
    "markdown",
    "table",
]
