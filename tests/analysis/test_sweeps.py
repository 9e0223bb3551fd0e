"""The summary of a sweep made by hand: which combinations make pairs, and what is compared with what."""

import numpy as np
import pytest

from gcjax import analysis
from gcjax.analysis import paired, summary, sweep_summary, sweeps
from tests.analysis.results import results


def combination(value, delays, target=0.9):
    found = results(value=target)
    facts = {**found.facts, "delays_sha256": delays}
    return analysis.Combination(f"rate={value}", (value,), found._replace(facts=facts))


def sweep(*combinations):
    return analysis.Sweep(("rate",), combinations)


def section(page):
    lines = page.partition("seed by seed\n")[2].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_the_reference_is_the_best_of_all_with_the_same_delays_and_target():
    found = sweep(combination("1", "x"), combination("2", "x", 0.5), combination("3", "x"), combination("4", "y"))
    entries = sweep_summary.entries(found)
    references = sweep_summary.references(found)
    best = summary.rows(found.combinations[0].results)[0].scheme
    assert [each.combination.values for each in references] == [
        (value,) for value in ("1", "2", "1", "4") for _ in range(3)
    ]
    assert {each.scheme for each in references} == {best}
    heads, _, *rows = section(sweep_summary.markdown(found))
    assert heads == ["rate", "Scheme", "Later than", "Seconds later", "Times as long", "95 % interval", "Seeds"]
    assert len(rows) == len(entries) - 3
    (row,) = [row for row in rows if row[:2] == ["3", best]]  # the same times as those of the reference
    assert row[2:] == [f"{best}, rate = 1", "0.00", "1.00", "[1.00, 1.00]", "2 of 2"]


def test_the_numbers_are_those_of_a_comparison():
    found = sweep(combination("1", "x"))
    times = summary.times_best_first(found.combinations[0].results)
    _, _, *rows = section(sweep_summary.markdown(found))
    assert [[row[1], *row[3:]] for row in rows] == [list(row) for row in paired.rows(times)]


def test_a_named_reference_is_that_of_each_combination():
    found = sweep(combination("1", "x"), combination("2", "x", 0.5))
    references = sweep_summary.references(found, "ASP")
    assert [(each.combination.values[0], each.scheme) for each in references] == [("1", "ASP")] * 3 + [("2", "ASP")] * 3
    page = sweep_summary.markdown(found, against="ASP")
    heads, _, *rows = section(page)
    assert "## Later than ASP, seed by seed" in page and "Later than" not in heads
    assert [row[:2] for row in rows if row[1] == "ASP"] == [] and len(rows) == 4
    with pytest.raises(ValueError, match="against must be one of 'ASP', 'BSP', 'FRC'; got 'AS'. Did you mean 'ASP'"):
        sweep_summary.markdown(found, against="AS")


def test_combinations_of_which_the_delays_are_not_known_are_not_compared():
    found = sweep(combination("1", "x"), combination("2", "x"))
    for each in found.combinations:
        del each.results.facts["delays_sha256"]
    assert [each.combination.values[0] for each in sweep_summary.references(found)] == ["1"] * 3 + ["2"] * 3


def test_nothing_is_said_where_nothing_reached_the_target():
    found = sweep(combination("1", "x", 1.0))
    assert sweep_summary.references(found) == [None] * 3
    assert "seed by seed" not in sweep_summary.markdown(found)


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["10", "2"], [10, 2]),
        (["1", "2.5"], [1.0, 2.5]),
        (["'a'", "2"], ["'a'", "2"]),
        (["100000000000000000000", "2"], [1e20, 2.0]),
    ],
)
def test_parameters_are_numbers_if_all_values_are(texts, values):
    column = sweeps.as_numbers(np.array(texts, object))
    assert column.tolist() == values and [type(x) for x in column.tolist()] == [type(x) for x in values]
