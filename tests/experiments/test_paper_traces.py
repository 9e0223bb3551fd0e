"""The manuscript's numbers of measured traces, which are kept where nobody has the files."""

import json
import sys

import numpy as np
import pytest

from experiments.paper import __main__, generate, macros, measured, traces
from gcjax import stragglers
from gcjax.stragglers.traces.base import trace_of_array


def cost(value, low, high):
    return {"value": value, "low": low, "high": high}


def job(name, halves=None, **fields):
    chosen = {"trace_same": ("bsp", 0.0), "trace_all": ("asp_like", 0.014), "model_same": ("bsp", 0.0),
              "model_all": ("local_sgd (H=4)", 0.5)}  # fmt: skip
    models = {"scaled(markov(weibull))": 0.0, "scaled(markov(weibull)), no memory": 0.25, "exponential": 1.5}
    return {
        "job": name, "steps": 1200, "workers": 10, "kind": "passing", "sentence": "", "slowdown": 1.234,
        "explained": 0.5, "slow": 0.43, "slow_again": 0.951, "tail": 3.0, "correlation": 0.1, "persistent": 0.1,
        "shared": 0.2, "passing": 0.7, "changes": 3, "held_out": 90,
        "ranking": [{"model": model, "behind": behind, "is_behind": behind > 1} for model, behind in models.items()],
        "halves": {
            "schemes": 34, "block_steps": 24,
            "costs": {"first": cost(0.5, 0.45, 0.55), "second": cost(0.6, 0.5, 0.7), "model": cost(0.8, 0.7, 0.9)},
            "chosen": {key: {"scheme": scheme, "regret": regret} for key, (scheme, regret) in chosen.items()},
            "model_error": 0.4, "covered": [8, 33], **(halves or {}),
        }, **fields,
    }  # fmt: skip


RESULT = {
    "jobs": [
        job("Job & 1"),
        job("Job 2", {"covered": [33, 33], "schemes": 30, "model_error": 0.1,
            "costs": {"first": cost(0.5, 0.4, 0.65), "second": cost(0.6, 0.5, 0.7), "model": cost(0.7, 0.6, 0.8)}},
            slow_again=float("nan"),
            ranking=[{"model": model, "behind": behind, "is_behind": behind > 0} for model, behind in
                     (("weibull", 0.0), ("markov(pareto)", 0.1), ("markov(pareto), no memory", 0.2),
                      ("exponential", 0.7))]),
    ],
    "synthetic": {"independent": [18, 20], "spells": [17, 20]}, "synthetic_traces": 10, "synthetic_steps": 512,
    "num_bootstraps": 100,
}  # fmt: skip


def test_numbers_of_all_jobs():
    numbers, _ = traces.traces(RESULT)
    said = {name.removeprefix("Trace"): text for name, text in numbers.items()}
    assert (said["Jobs"], said["FewestSchemes"], said["MostSchemes"], said["Level"]) == ("2", "30", "34", "90")
    assert (said["Models"], said["MemoryFirst"], said["ExpLeast"], said["ExpMost"]) == ("4", "1", "0.7", "1.5")
    assert (said["MemoryLeast"], said["MemoryMost"]) == ("0.10", "0.25")
    assert (said["RegretSame"], said["RegretAll"], said["ModelRegretAll"]) == ("0.0", "1.4", "50.0")
    assert (said["ErrorLeast"], said["ErrorMost"], said["ModelCostLeast"], said["ModelCostMost"]) == (
        "10", "40", "70", "80"
    )  # fmt: skip
    assert (said["Covered"], said["Coverable"], said["CostCovered"]) == ("41", "66", "1")
    assert (said["CoverIndependent"], said["CoverSpells"], said["Drawn"]) == ("90", "85", "10")


def test_the_table_has_a_column_for_each_job():
    _, tables = traces.traces(RESULT)
    lines = [line for line in tables["traces"].splitlines() if "&" in line]
    assert lines[0] == r" & Job \& 1 & Job 2 \\" and all(line.count(" & ") == 2 for line in lines)
    assert r"Steps, workers & 1\,200, 10 & 1\,200, 10 \\" in lines
    assert any(line.endswith(r"& 0.43, 0.95 & 0.43, -- \\") for line in lines)
    assert any("weibull M W (+1) & weibull \\\\" in line for line in lines)
    assert any(r"asp\_like & asp\_like" in line for line in lines)
    assert "nan" not in tables["traces"]


@pytest.mark.slow
def test_a_job_that_is_too_short_for_halves_is_described_only():
    seconds = np.random.default_rng(0).gamma(20.0, 0.05, (44, 4))
    short_job = measured.of_job("Short", trace_of_array(seconds), measured.SIZES["quick"])
    assert short_job["halves"] is None and short_job["steps"] == 44
    numbers, tables = traces.traces({**RESULT, "jobs": [*RESULT["jobs"], short_job]})
    assert (numbers["TraceJobs"], numbers["TraceHalved"], numbers["TraceCoverable"]) == ("3", "2", "66")
    lines = tables["traces"].splitlines()
    assert sum(line.endswith(r"& -- \\") for line in lines) >= 9 and any("44, 4" in line for line in lines)


@pytest.fixture
def two_files(tmp_path):
    seconds = np.random.default_rng(0).gamma(20.0, 0.05, (64, 4))
    seconds[:, 1] *= 1.5
    for name in ("a", "b"):
        stragglers.write_trace(tmp_path / f"{name}.csv", seconds)
    return {"Job 1": str(tmp_path / "a.csv"), "Job 2": str(tmp_path / "b.csv")}


def test_results_are_computed_once_for_the_same_files_and_name_no_folder(tmp_path, two_files, monkeypatch):
    calls = []
    monkeypatch.setattr(measured, "results", lambda paths, size: calls.append(paths) or RESULT)
    for _ in range(2):
        path = measured.ensure("traces", two_files, tmp_path / "runs", "quick")
    assert len(calls) == 1 and str(tmp_path) not in path.read_text()
    facts = json.loads(path.read_text())["provenance"]
    assert facts["command"] == (
        "python -m experiments.paper --only traces --write --quick --traces 'Job 1=a.csv' 'Job 2=b.csv'"
    )
    assert facts["seed"] == 0 and set(facts["files"]) == set(two_files) and len(facts["files"]["Job 1"]) == 64
    stragglers.write_trace(two_files["Job 1"], np.ones((20, 2)))  # another file of the same name
    measured.ensure("traces", two_files, tmp_path / "runs", "quick")
    assert len(calls) == 2


@pytest.mark.slow
def test_a_job_is_described_fitted_and_judged(two_files):
    size = measured.Size(("bsp", "k_sync", "asp"), 20, (1, 64, 4))
    trace = stragglers.read_trace(two_files["Job 1"])
    facts = measured.of_job("Job 1", trace, size)
    halves = facts["halves"]
    assert halves["covered"][1] == 2 and halves["schemes"] == 3 and facts["steps"] == 64
    assert halves["chosen"]["trace_same"]["scheme"] == "bsp" and facts["kind"] == "persistent"
    numbers, tables = traces.traces({**RESULT, "jobs": [facts]})
    assert "nan" not in tables["traces"] + "".join(numbers.values())
    assert halves["costs"]["first"]["value"] == pytest.approx(1 / 3, abs=0.05)
    json.dumps(facts)
    assert trace_of_array(trace.compute).workers == trace.workers


@pytest.fixture
def generated(tmp_path, monkeypatch):
    """A folder of generated files of a computation and of measured traces."""
    monkeypatch.setattr(generate, "GROUPS_FROM_RUNS", {})
    monkeypatch.setattr(
        generate, "GROUPS_FROM_COMPUTATIONS", {"laws": lambda result: ({"LawStates": result["states"]}, {})}
    )
    monkeypatch.setattr(generate.provenance, "commit", lambda: "new")
    monkeypatch.setattr(generate.figures, "timelines", lambda path: path.write_text("drawn"))
    out = tmp_path / "generated"
    out.mkdir()
    groups = {"setup": {"GenDate": "old"}, "laws": {"LawStates": "1"}, "traces": {"TraceJobs": "3"}}
    (out / "numbers.tex").write_text(macros.text_of(groups, dict.fromkeys(groups, "said")))
    (out / "table_traces.tex").write_text("the old table")
    sources = {name: facts(name) for name in ("laws", "traces")}
    page = {"mode": "full", "sources": sources, "files": {"table_traces.tex": "traces", "numbers.tex": "all"}}
    (out / "provenance.json").write_text(json.dumps(page))
    for mode in ("full", "quick"):
        (tmp_path / "runs" / mode).mkdir(parents=True)
        result = {"provenance": {**facts("new laws"), "mode": mode}, "result": {"states": "2"}}
        (tmp_path / "runs" / mode / "laws.result.json").write_text(json.dumps(result))
    return out


def facts(command):
    return {
        "command": command, "mode": "full", "seed": 0, "date": "2030-01-02 03:04 UTC", "commit": "abc",
        "processor_seconds": 60.0, "load_average": [0.5, 1.5], "processor": "P", "cores": 2,
        "versions": {"gcjax": "1", "jax": "2", "python": "3"},
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["full", "quick"])
def test_without_the_files_what_is_of_traces_stays(tmp_path, generated, monkeypatch, mode):
    quick = ["--quick"] if mode == "quick" else []
    monkeypatch.setattr(__main__, "_NAMES", ["laws", "traces"])
    monkeypatch.setattr(sys, "argv", ["paper", *quick, "--runs", str(tmp_path / "runs"), "--out", str(generated)])
    __main__.main()
    groups = macros.groups_of((generated / "numbers.tex").read_text())
    assert groups["traces"] == {"TraceJobs": "3"} and groups["laws"] == {"LawStates": "2"}
    page = json.loads((generated / "provenance.json").read_text())
    assert page["mode"] == mode and page["sources"]["traces"]["command"] == "traces"
    assert page["files"]["table_traces.tex"] == "traces" and "figure_timelines.pdf" in page["files"]
    assert (generated / "table_traces.tex").read_text() == "the old table"


def test_with_the_files_only_traces_are_written_anew(tmp_path, generated, two_files, monkeypatch):
    monkeypatch.setattr(measured, "results", lambda paths, size: RESULT)
    words = ["--only", "traces", "--write", "--traces", *(f"{name}={file}" for name, file in two_files.items())]
    monkeypatch.setattr(
        sys, "argv", ["paper", *words, "--runs", str(tmp_path / "runs"), "--out", str(generated), "--docs", "none"]
    )
    __main__.main()
    text = (generated / "numbers.tex").read_text()
    assert macros.groups_of(text)["traces"]["TraceJobs"] == "2" and macros.groups_of(text)["laws"] == {"LawStates": "1"}
    assert "--traces 'Job 1=a.csv'" in text and str(tmp_path) not in text
    assert (generated / "table_traces.tex").read_text().startswith("% full mode; python -m experiments.paper --only tr")
    assert set(json.loads((generated / "provenance.json").read_text())["sources"]["traces"]["files"]) == set(two_files)


@pytest.mark.parametrize("words", [["--only", "traces"], ["--traces", "Job 1=nowhere.csv"], ["--traces", "job.csv"]])
def test_files_must_be_given_and_be_there(monkeypatch, capsys, words):
    monkeypatch.setattr(sys, "argv", ["paper", *words])
    with pytest.raises(SystemExit):
        __main__.main()
    assert "--traces" in capsys.readouterr().err
