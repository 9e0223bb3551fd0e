"""What an advice says of times to a target, which were not computed here."""

import json

import numpy as np
import pytest

from gcjax.advice import page, targets, verdicts
from gcjax.analysis import paired
from tests.advice.by_hand import advice_of, scheme_advice

INF = float("inf")
TARGET = "accuracy >= 0.9"
FIRST = (10.0, 12.0, 14.0)


def trained_advice(**seconds_of_name):
    rows = [scheme_advice(name, seconds_to_target=seconds) for name, seconds in seconds_of_name.items()]
    return advice_of(*rows, target=TARGET)


def last_sentence(**seconds_of_name):
    """What the verdict says of trained schemes, behind what these are."""
    begin, sentence = verdicts.verdict(trained_advice(**seconds_of_name)).split("\n")[-1].split("on your task, ")
    assert begin == "Of BSP and the fastest scheme of each kind of gradient, trained "
    return sentence


def test_the_first_is_said_with_its_spread_and_others_by_how_much_they_are_later():
    later = tuple(2 * seconds + 0.1 * index for index, seconds in enumerate(FIRST))
    ratio = paired.times_as_long(np.array(FIRST), np.array(later))
    assert last_sentence(slow=later, fast=FIRST, other=None, same=(10.1, 11.9, 14.1)) == (
        f"fast reached {TARGET} first, after 12.0 ± 2.0 s; "
        "later, with 95 % intervals: slow by 12.1 s "
        f"({ratio.mean:.2f} times as long [{ratio.low:.2f}, {ratio.high:.2f}]); "
        "not told apart from it: same."
    )


def test_those_that_do_not_always_reach_it_come_last():
    assert last_sentence(sometimes=(1.0, INF, 1.0), never=(INF,) * 3, always=FIRST) == (
        f"always reached {TARGET} first, after 12.0 ± 2.0 s; in fewer seeds: sometimes (2 of 3), never (0 of 3)."
    )
    assert last_sentence(sometimes=(1.0, INF, 3.0), never=(INF,) * 3) == (
        f"sometimes reached {TARGET} first in 2 of 3 seeds, after 2.00 ± 1.41 s; in fewer seeds: never (0 of 3)."
    )
    assert last_sentence(never=(INF, INF)) == f"none reached {TARGET}."


def test_one_seed_has_no_spread_and_no_interval():
    assert last_sentence(slow=(20.0,), fast=(10.0,), same=(10.0,)) == (
        f"fast reached {TARGET} first, after 10.0 s; later: slow by 10.0 s; not told apart from it: same."
    )
    notes = page.notes(trained_advice(slow=(20.0,), fast=(10.0,)))
    assert "Target after: of one seed, which says nothing of the spread. Set study.num_seeds." in notes


@pytest.mark.parametrize(("cost", "begin"), [(0.001, "Nothing to win back"), (0.5, "Stragglers cost 50 %")])
def test_what_was_trained_is_said_whatever_stragglers_cost(cost, begin):
    advice = advice_of(scheme_advice("bsp", seconds_to_target=(1.0,)), cost=cost, target=TARGET)
    first, *_, last = verdicts.verdict(advice).split("\n")
    assert first.startswith(begin) and last.endswith(f"bsp reached {TARGET} first, after 1.00 s.")
    assert "trained" not in verdicts.verdict(advice_of(scheme_advice("bsp"), cost=cost))


def test_the_table_has_mean_and_spread_and_the_notes_say_what_they_are():
    advice = trained_advice(fast=FIRST, sometimes=(1.0, INF, 3.0), never=(INF,) * 3, other=None)
    assert page.heads(advice)[-1] == "Target after (s)"
    cells = [cells[-1] for cells in page.table_rows(advice)]
    assert cells == ["12.0 ± 2.0", "2.00 ± 1.41 (2 of 3 seeds)", "not reached (0 of 3 seeds)", "not trained"]
    notes = page.notes(advice._replace(left_out={"last": "why"}))
    assert notes[-2] == targets.LEARNING_RATE_SENTENCE and "have the learning rate of the study" in notes[-2]
    assert notes[-3].startswith("Target after: mean ± standard deviation over the seeds that reached it.")
    assert not any("learning rate" in note for note in page.notes(advice_of(scheme_advice("bsp"))))


def test_scripts_get_spread_and_differences():
    later = (20.0, 24.0, 28.0)
    advice = trained_advice(slow=later, fast=FIRST, never=(INF,) * 3, other=None)
    slow, fast, never, other = (row["to_target"] for row in json.loads(json.dumps(page.advice_json(advice)))["schemes"])
    assert fast == {"mean": 12.0, "std": 2.0, "reached": 3, "seconds_later": None, "times_as_long": None}
    assert (slow["mean"], slow["std"], slow["seconds_later"]) == (24.0, 4.0, 12.0)
    assert slow["times_as_long"] == pytest.approx({"low": 2, "mean": 2, "high": 2, "num_seeds": 3})
    assert never["reached"] == 0 and never["std"] is None and np.isnan(never["mean"]) and other is None
    assert page.advice_json(trained_advice(one=(3.0,)))["schemes"][0]["to_target"]["std"] is None
