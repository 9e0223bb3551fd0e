"""The manuscript's numbers of live runs, and that they are written anew while the others stay as they are."""

import json
import math
import sys

import pytest

from experiments.paper import __main__, generate, live, live_tables, macros, provenance
from gcjax import files

FACTS = {
    "command": "gcjax run c.gin", "mode": "full", "seed": 0, "date": "2030-01-02 03:04 UTC", "commit": "abc",
    "processor_seconds": 60.0, "load_average": [0.5, 1.5], "versions": {"gcjax": "1", "jax": "2", "python": "3"},
    "processor": "P", "cores": 2, "platform": "hidden",
}  # fmt: skip
CONFIG = """num_workers = 4
live_protocols.seconds = 5.0
live_protocols.pace = 0.02
live_protocols.stop_seconds = 2.0
live_protocols.calibrated_by = 'ASP'
"""
GONE = {"predicted": math.nan, "error_mean": math.nan, "error_std": math.nan, "num_left": 1, "promise": "-"}


def row(scheme, scenario, reach, predicted, error, **fields):
    return {
        "scheme": scheme, "scenario": scenario, "num_commits": 1200, "seconds": 5.0, "reach": reach,
        "predicted": predicted, "error_mean": error, "error_std": 0.011, "promise": "kept", "conformance": "",
        "replay_difference": 2e-7, "num_left": 0, "service_seconds": 1e-3, "load": 3.14, **fields,
    }  # fmt: skip


ROWS = [
    row("ASP", "nobody slow", 1.0, 1.1, 0.5, load=0.5),  # predicted from itself: does not count
    row("BSP", "nobody slow", 2.0, 1.0, -0.3),
    row("K, K=2", "nobody slow", 3.0, 3.3, 0.1, promise="broken", replay_difference=0.0),
    row("ASP", "one killed", 4.0, **{k: v for k, v in GONE.items() if k == "predicted"}, error=math.nan, num_left=1),
    row("BSP", "one killed", math.inf, 2.0, 0.02, num_left=1, replay_difference=0.5, promise="-"),
    row("K, K=2", "one killed", 5.0, 6.0, -0.04, load=7.0),
]


def folder_of_run(path, rows):
    path.mkdir(parents=True)
    files.write_table(path / "results.parquet", {name: [each[name] for each in rows] for name in rows[0]})
    (path / "run.json").write_text(json.dumps({"target": 0.95, "metric": "accuracy", "cores": 2, "seed": 0}))
    (path / "operative.gin").write_text(CONFIG)
    (path.parent / f"{path.name}.json").write_text(json.dumps(FACTS))
    return path


def test_numbers_of_live_runs(tmp_path):
    numbers, _ = live.live(folder_of_run(tmp_path / "live", ROWS))
    said = {name.removeprefix("Live"): text for name, text in numbers.items()}
    assert (said["Runs"], said["Schemes"], said["Scenarios"], said["Workers"], said["Pace"]) == (
        "6",
        "3",
        "2",
        "4",
        "20",
    )
    assert (said["Held"], said["Kept"], said["Left"], said["LeftPredicted"]) == ("5", "4", "2", "1")
    assert said["ReplayLeft"] == "0.5" and said["ReplayWhole"] == r"\ensuremath{2\times 10^{-7}}"
    assert (said["Predicted"], said["OwnError"], said["MedianError"]) == ("4", "50.0", "7.0")
    assert (said["WorstError"], said["WorstScheme"]) == (r"\ensuremath{-}30.0", "BSP")
    assert said["WorstScenario"] == "nobody slow"
    assert (said["HardestScheme"], said["HardestError"]) == ("BSP", "16.0")  # of 30 and 2, of 10 and 4
    assert (said["Compared"], said["ReachMedian"], said["ReachWorst"]) == ("3", "20.0", "50.0")
    assert (said["Pairs"], said["InOrder"]) == ("1", "1")
    assert said["First"] == "ASP (nobody slow, 1.00~s); ASP (one killed, 4.00~s)"
    assert (said["LowLoad"], said["HighLoad"]) == ("0.5", "7.0")


def test_a_pair_in_the_wrong_order_is_counted(tmp_path):
    rows = [row("BSP", "a", 1.0, 2.0, 0.0), row("SSP", "a", 2.0, 1.0, 0.0), row("SSP", "b", 0.1, 9.0, 0.0)]
    numbers, _ = live.live(folder_of_run(tmp_path / "live", rows))
    assert (numbers["LivePairs"], numbers["LiveInOrder"]) == ("1", "0")


def test_runs_without_any_prediction_have_dashes(tmp_path):
    numbers, tables = live.live(folder_of_run(tmp_path / "live", [row("ASP", "a", math.inf, math.nan, math.nan)]))
    none = [name for name, text in numbers.items() if text == live_tables.NONE]
    assert {"LiveMedianError", "LiveWorstScheme", "LiveReachWorst", "LiveFirst", "LiveReplayLeft"} <= set(none)
    assert "nan" not in "".join(numbers.values()) + tables["live"] and "inf" not in tables["live"]


def test_the_table_has_all_schemes_and_scenarios(tmp_path):
    rows = [*ROWS, *(row("BSP", name, 1.0, 1.0, 0.0) for name in ("third", "fourth"))]
    _, tables = live.live(folder_of_run(tmp_path / "live", rows))
    lines = [line for line in tables["live"].splitlines() if "&" in line]
    assert lines[1].startswith(r"\emph{nobody slow}") and r"\emph{third}" in lines[1]
    assert r"BSP & 1\,200 & 2.00 & 1.00 & $-30.0\pm1.1$ & yes & 2e-7" in lines[3]
    assert r"BSP & 1\,200 & -- & 2.00 & $+2.0\pm1.1$ & -- & 5e-1" in tables["live"]
    assert r"3.30 & $+10.0\pm1.1$ & no & 0" in tables["live"]
    assert len(lines) == 1 + 8 and all(line.count("&") == lines[0].count("&") for line in lines)


def test_the_page_gets_the_table_between_its_marks(tmp_path):
    folder = folder_of_run(tmp_path / "live", ROWS)
    page = tmp_path / live_tables.PAGE
    page.parent.mkdir()
    page.write_text("before\n<!-- table live: gcjax run c.gin -->\nold\n<!-- end live -->\nafter\n")
    live_tables.write_page(folder, FACTS, tmp_path)
    text = page.read_text()
    live_tables.write_page(folder, FACTS, tmp_path)
    assert page.read_text() == text and text.startswith("before\n<!-- table live: gcjax run c.gin -->\n| scheme |")
    assert "| BSP | 2.00 (1.00) | - (2.00) |" in text and "| ASP | 1.00 (1.10) | 4.00 (-) |" in text
    assert "Measured on 2030-01-02 on 2 cores (P), gcjax 1 at abc" in text and "0.5 to 7.0" in text
    assert text.endswith("<!-- end live -->\nafter\n") and "old" not in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="it has them 0 times"):
        live_tables.write_page(folder, FACTS, tmp_path)


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["--only", "live"], None),
        (["--only", "live", "--write"], {"only": ["live"], "docs": provenance.ROOT / "docs"}),
        (["--only", "live", "--write", "--quick"], {"only": ["live"], "docs": None}),  # pages have full runs only
    ],
)
def test_what_is_run_is_written_if_asked_for(monkeypatch, tmp_path, words, written):
    done, calls, asked = [], [], []
    monkeypatch.setattr(generate, "results_to_keep", lambda *rest: asked.append(done[:]))
    monkeypatch.setattr(__main__.runs, "ensure", lambda name, *rest: done.append(name))
    monkeypatch.setattr(generate, "write", lambda *rest, **options: calls.append((rest, options)))
    monkeypatch.setattr(sys, "argv", ["paper", *words, "--runs", str(tmp_path), "--out", str(tmp_path / "out")])
    __main__.main()
    mode = "quick" if "--quick" in words else "full"
    assert done == ["live"] and asked == ([] if written is None else [[]])  # before anything is run
    assert calls == ([] if written is None else [((tmp_path, mode, tmp_path / "out"), written)])


@pytest.fixture
def generated(tmp_path, monkeypatch):
    """A folder of generated files of two experiments, of which `codes` has no run any more."""
    monkeypatch.setattr(generate, "GROUPS_FROM_RUNS", {"codes": None, "live": live.live})
    monkeypatch.setattr(generate, "GROUPS_FROM_COMPUTATIONS", {})
    monkeypatch.setattr(generate.provenance, "commit", lambda: "new")
    folder_of_run(tmp_path / "runs" / "full" / "live", ROWS)
    out = tmp_path / "generated"
    out.mkdir()
    groups = {"setup": {"GenDate": "old"}, "codes": {"CodesCount": r"\ensuremath{-}7"}, "live": {"LiveRuns": "99"}}
    (out / "numbers.tex").write_text(macros.text_of(groups, dict.fromkeys(groups, "said")))
    (out / "table_codes.tex").write_text("the old table")
    old = {**FACTS, "command": "gcjax run codes.gin", "date": "2029-01-01 00:00 UTC", "commit": "old", "cores": 4}
    page = {"mode": "full", "sources": {"codes": old}, "files": {"table_codes.tex": "codes", "numbers.tex": "all"}}
    (out / "provenance.json").write_text(json.dumps(page))
    return out


def test_one_experiment_is_written_anew_and_the_others_stay_with_their_origin(tmp_path, generated):
    generate.write(tmp_path / "runs", "full", generated, only=["live"])
    text = (generated / "numbers.tex").read_text()
    groups = macros.groups_of(text)
    assert groups["codes"] == {"CodesCount": r"\ensuremath{-}7"} and groups["live"]["LiveRuns"] == "6"
    assert "% codes: full mode; gcjax run codes.gin; seed 0; gcjax 1, commit old;" in text
    assert "% live: full mode; gcjax run c.gin;" in text and "commit abc" in text
    assert groups["setup"]["GenDate"] == "2029-01-01 to 2030-01-02" and groups["setup"]["GenCores"] == "2 and 4"
    assert groups["setup"]["GenCommit"] == r"\texttt{abc}, \texttt{old}" and groups["setup"]["GenMinutes"] == "2"
    assert (generated / "table_codes.tex").read_text() == "the old table"
    assert (generated / "table_live.tex").read_text().startswith("% full mode; gcjax run c.gin;")
    page = json.loads((generated / "provenance.json").read_text())
    assert page["sources"]["codes"]["commit"] == "old" and page["sources"]["live"]["commit"] == "abc"
    assert page["files"] == {"table_codes.tex": "codes", "table_live.tex": "live", "numbers.tex": "all"}
    assert "platform" not in page["sources"]["live"]


def test_full_and_quick_runs_are_not_mixed_and_nothing_is_left_out(tmp_path, generated):
    (tmp_path / "runs" / "full").rename(tmp_path / "runs" / "quick")
    before = (generated / "numbers.tex").read_text()
    for out in (generated, tmp_path / "empty"):
        with pytest.raises(ValueError, match="must be there, of quick runs; .* has none of codes"):
            generate.write(tmp_path / "runs", "quick", out, only=["live"])
    assert (generated / "numbers.tex").read_text() == before
