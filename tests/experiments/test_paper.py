"""What the manuscript's numbers are made by: macros, tables, wavefronts, identities, damage, and what is done once."""

import json

import jax
import numpy as np
import pytest

from experiments.paper import (
    checked,
    computed,
    generate,
    identities,
    macros,
    measured,
    promises,
    provenance,
    runs,
    trained,
)
from gcjax import protocols, stragglers
from gcjax.stragglers import Network

pytestmark = pytest.mark.promotes  # trace validation counts in Python


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (1234567, 0, r"1\,234\,567"),
        (0.471, 3, "0.471"),
        (-2.5, 1, r"\ensuremath{-}2.5"),
        (-0.001, 2, "0.00"),
        (3, 0, "3"),
    ],
)
def test_numbers_with_decimals(value, decimals, text):
    assert macros.fixed(value, decimals) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3370.4, r"3\,370"), (0.5, "0.5"), (36.54, "36.5"), (11456.2, r"\ensuremath{1.15\times 10^{4}}"), (0, "0"),
        (0.00012, r"\ensuremath{1.20\times 10^{-4}}"),
    ],
)  # fmt: skip
def test_numbers_with_digits(value, text):
    assert macros.significant(value) == text


def test_macros_are_defined_once_by_letters_and_read_back(tmp_path):
    text = macros.text_of({"a": {"One": "1"}, "b": {"Two": "2"}}, {"a": "of a", "b": "of b"})
    (tmp_path / "numbers.tex").write_text(text)
    assert [list(group) for group in macros.groups_of(text).values()] == [["One"], ["Two"]] and "% b: of b" in text
    for wrong in ({"a": {"One1": "1"}}, {"a": {"One": "1"}, "b": {"One": "2"}}):
        with pytest.raises(ValueError, match="letters only, and there once"):
            macros.text_of(wrong, {"a": "", "b": ""})


def test_values_of_configs_also_of_included_ones():
    configs = provenance.ROOT / "configs"
    assert macros.binding(configs / "codes.gin", "compare_codes.max_masks") == "560"
    assert macros.binding(configs / "worker_busy/digits.gin", "ssp.staleness") == "40"
    with pytest.raises(ValueError, match="must set nothing"):
        macros.binding(configs / "codes.gin", "nothing")


def naive_wavefronts(newest_read):
    """Grows a list of commits until one reads a version that a commit of the list makes."""
    waves, wave = 1, []
    for commit, version in enumerate(newest_read):
        if wave and version > wave[0]:
            waves, wave = waves + 1, []
        wave.append(commit)
    return waves


def test_wavefronts_are_counted_as_by_hand():
    assert identities.num_wavefronts(np.array([0, 0, 0, 1, 3, 3, 4])) == 3  # 0 1 2 | 3 4 5 | 6
    model = stragglers.exponential(mean=1.0)
    schedule = protocols.asp()(stragglers.sample_durations(model, jax.random.key(0), 20, 5))
    newest = np.asarray(schedule.version[np.isfinite(schedule.time)].max(axis=1))
    assert identities.num_wavefronts(newest) == naive_wavefronts(newest) < len(newest)


def test_schedules_are_the_same_or_not():
    durations = stragglers.sample_durations(stragglers.exponential(mean=1.0), jax.random.key(0), 10, 3)
    bsp, asp = (protocol.schedule(durations, Network()) for protocol in (protocols.bsp(), protocols.asp()))
    assert identities.difference(bsp, bsp) == 0.0
    assert identities.difference(asp, bsp) == np.inf
    assert identities.difference(bsp._replace(time=bsp.time * 1.5), bsp) > 0.3


def test_every_sort_of_damage_is_caught_and_the_record_itself_keeps_to_the_promise(monkeypatch):
    monkeypatch.setattr(promises, "RULES", {"ASP": protocols.asp})
    (row,) = promises.validated(num_units=8, num_damaged=3)["rows"]
    assert row["keeps"] and row["events"] > 50
    assert all(row[sort] == [3, 3] for sort in promises.DAMAGE)


def test_what_is_computed_is_computed_once_and_says_where_it_comes_from(tmp_path, monkeypatch):
    calls = []
    once = computed.Computation(lambda: calls.append("full") or {"x": 1}, lambda: calls.append("quick") or {"x": 2})
    monkeypatch.setitem(computed.COMPUTED, "laws", once)
    for mode in ("full", "full", "quick"):
        content = json.loads(computed.ensure("laws", tmp_path, mode).read_text())
    assert calls == ["full", "quick"] and content["result"] == {"x": 2}
    facts = content["provenance"]
    assert facts["command"] == "python -m experiments.paper --only laws --quick" and facts["mode"] == "quick"
    assert {"seed", "date", "versions", "commit", "processor", "cores", "load_average"} <= set(facts)


def test_a_run_is_made_once_and_again_if_its_command_changes(tmp_path, monkeypatch):
    calls = []

    def run(command, **options):
        calls.append(command)
        assert not (runs.folder_of("codes", tmp_path, "quick") / "run.json").exists()  # a finished run is not resumed
        folder = runs.folder_of("codes", tmp_path, "quick")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text('{"seed": 7}')

    monkeypatch.setattr(runs.subprocess, "run", run)
    monkeypatch.setattr(provenance, "commit", lambda: "abc")
    for _ in range(2):
        runs.ensure("codes", tmp_path, "quick")
    assert len(calls) == 1 and "--resume" in calls[0] and "compare_codes.num_trials = 50" in calls[0]
    facts = json.loads((tmp_path / "quick" / "codes.json").read_text())
    assert facts["seed"] == 7 and "configs/codes.gin" in facts["command"] and "--out" not in facts["command"]
    monkeypatch.setitem(runs.RUNS, "codes", runs.Run("codes.gin", ("compare_codes.num_trials = 60",)))
    runs.ensure("codes", tmp_path, "quick")
    assert len(calls) == 2 and calls[1][-1] == "--resume"


def test_the_commit_is_that_of_the_code_and_says_if_files_have_changed(monkeypatch):
    said = {"log": "abc", "status": ""}
    monkeypatch.setattr(provenance, "_git", lambda command, *words: said[command])
    assert provenance.commit() == "abc"
    said["status"] = " M gcjax/files.py"
    assert provenance.commit() == "abc-changed"
    monkeypatch.undo()
    monkeypatch.setattr(provenance.subprocess, "run", lambda *a, **b: (_ for _ in ()).throw(OSError))
    assert provenance.commit() == "unknown"


def test_all_runs_and_computations_are_read():
    assert set(generate.GROUPS_FROM_RUNS) == set(runs.RUNS) and set(generate.GROUPS_FROM_COMPUTATIONS) == set(
        computed.COMPUTED
    )
    assert set(generate.GROUPS_FROM_TRACES) == set(measured.MEASURED)


def test_schemes_are_sorted_by_how_often_and_how_fast_they_get_there():
    reach = {"slow": np.array([5.0, 6.0]), "fast": np.array([1.0, 2.0]), "never": np.full(2, np.inf)}
    reach["half"] = np.array([0.5, np.inf])
    assert sorted(reach, key=lambda name: trained._reach_order(reach[name])) == ["fast", "slow", "half", "never"]


def test_quick_mode_is_marked():
    facts = {
        "date": "2030-01-01 00:00 UTC", "commit": "abc", "processor_seconds": 90.0, "load_average": [0.5, 1.5],
        "versions": {"gcjax": "1", "jax": "2", "python": "3"}, "processor": "P", "cores": 2,
    }  # fmt: skip
    assert "Quick mode" in generate._setup({"a": facts}, "quick")["GenBanner"]
    full = generate._setup({"a": facts}, "full")
    assert full["GenBanner"] == "" and full["GenDate"] == "2030-01-01" and full["GenHighLoad"] == "1.5"


def test_the_tables_of_checks_count_what_failed():
    rows = [
        {"name": "a", "draws": 4, "held": 3, "largest": 1e-12},
        {"name": "b", "draws": 4, "held": 4, "largest": 0.0},
    ]
    numbers, tables = checked.identities({"workers": 2, "units": 3, "rows": rows})
    assert numbers["IdentityFailed"] == "1" and "3 of 4" in tables["identities"] and "$1e-12$" in tables["identities"]
