"""`--json`: one object on stdout and nothing else, with the fields that the page on the command line lists."""

import argparse
import json
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import gcjax
from gcjax import cli
from gcjax.cli import check_json, json_output, results_json
from gcjax.cli.check_schedules import ScheduleCheck
from tests import small_config
from tests.analysis.results import results

pytestmark = pytest.mark.usefixtures("without_drawing")

SMALL = small_config.SMALL.replace("@bsp()", "@bsp(), 'ASP': @asp()").replace("num_seeds = 1", "num_seeds = 2")


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """A command in this process: its status, and the object that is all that it writes to stdout."""
    monkeypatch.chdir(tmp_path)
    Path("small.gin").write_text(SMALL)

    def run(*arguments):
        status = cli.main([*arguments])
        out, _ = capsys.readouterr()
        assert out.count("\n") == 1, out
        return status, json.loads(out, parse_constant=pytest.fail)

    return run


@pytest.mark.slow
def test_a_run_in_which_no_scheme_reaches_the_target_has_its_results(command):
    status, run = command("run", "small.gin", "--set", "study.target = 0.0", "--out", "out", "--json")
    assert status == 0
    assert [scheme["time_to_target"] for scheme in run["schemes"]] == [[None, None], [None, None]]
    assert all(np.isfinite(scheme["final"]).all() for scheme in run["schemes"])
    times = [row["Time to ≤ 0 suboptimality (s)"] for row in run["tables"][0]]
    assert all(time.startswith("not reached by t=") for time in times)


def test_a_run_and_its_report_say_where_and_what(command):
    status, run = command("run", "small.gin", "--out", "out", "--json")
    assert status == 0 and (run["command"], run["gcjax"]) == ("run", gcjax.__version__)
    assert run["folder"] == str(Path("out").absolute())
    assert {"metrics.parquet", "summary.md", "run.json", "timeline.png"} <= set(run["files"])
    summary, differences = run["tables"]
    assert {row["Scheme"] for row in summary} == {"BSP", "ASP"}
    assert [set(row) for row in differences] == [{"Scheme", "Seconds later", "Times as long", "95 % interval", "Seeds"}]
    bsp, asp = run["schemes"]
    assert (bsp["scheme"], asp["scheme"]) == ("BSP", "ASP")
    assert bsp["target"] == {"metric": "suboptimality", "value": 1.0, "higher_is_better": False}
    assert len(bsp["time_to_target"]) == len(bsp["final"]) == len(bsp["stalled"]) == 2
    assert bsp["unused_workers"] == asp["unused_workers"] == [0, 0]
    assert bsp["computing"] + bsp["waiting"] == pytest.approx(1.0) and asp["chunks"] > 0
    status, report = command("report", "out", "--json")
    assert status == 0 and report == {**run, "command": "report"}


def test_what_is_no_comparison_has_tables_only(command):
    Path("study").mkdir()
    Path("study", "summary.md").write_text("# Codes\n\n| Code | Load |\n| --- | ---: |\n| **FRC** | 4 |\n\nText.\n")
    _, report = command("report", "study", "--json")
    assert report["tables"] == [[{"Code": "FRC", "Load": "4"}]] and report["schemes"] == []


def test_a_check_says_whether_it_holds(command):
    status, good = command("check", "ssp", "--num-workers", "2", "--staleness", "1", "--json")
    assert status == 0 and good["holds"] is True and good["specification"].startswith("ssp(2 workers")
    assert all(finding["counterexample"] is None for finding in good["findings"])
    status, bad = command("check", "--json", "worker_busy_eager")
    together = next(finding for finding in bad["findings"] if finding["part"] == "all together")
    assert status == 1 and bad["holds"] is False and together["holds"] is False
    assert together["counterexample"]["reason"] and len(together["counterexample"]["steps"]) == 4
    assert set(together["counterexample"]["steps"][0]) == {"who", "does", "state"}


@pytest.mark.slow
def test_a_check_of_schedules(command):
    status, checks = command("check", "--schedule", "small.gin", "--json")
    assert status == 0 and checks["holds"] is True
    assert [(check["scheme"], check["holds"]) for check in checks["schedules"]] == [("BSP", True), ("ASP", True)]
    assert all(check["steps"] > 0 and check["claim"] for check in checks["schedules"])


def test_a_schedule_of_which_nothing_is_promised_has_all_fields():
    (row,) = check_json.schedules_json([ScheduleCheck("own", "a, b", None)])["schedules"]
    assert row == {"scheme": "own", "setting": "a, b", "holds": None, "claim": None, "steps": None}


@pytest.mark.parametrize("arguments", [["list"], ["list", "ssp"], ["doctor"]], ids=" ".join)
def test_what_only_answers_prints_the_object_alone(capsys, arguments):
    cli.main([*arguments, "--json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["command"] == arguments[0] and err == ""


def test_the_list_has_every_parameter(command):
    _, everything = command("list", "--json")
    assert {"protocol", "code", "straggler", "study"} <= set(everything["kinds"])
    ssp = everything["kinds"]["protocol"]["ssp"]
    assert ssp["paper"] == "Ho et al. 2013" and ssp["module"] == "gcjax.protocols.ssp" and ssp["in_configs"] is True
    assert ssp["parameters"]["staleness"] == {"type": "float", "required": True, "default": None}
    _, one = command("list", "ssp", "--json")
    assert one["kinds"]["protocol"] == {"ssp": ssp} and set(one["kinds"]) == {"protocol", "specification"}
    _, kind = command("list", "protocol", "--json")
    assert kind["kinds"] == {"protocol": everything["kinds"]["protocol"]}


def test_what_is_refused_prints_no_object(capsys):
    assert cli.main(["list", "protocl", "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Did you mean protocol" in err


def test_numbers_that_json_lacks_are_null(capsys):
    result = {"time": np.array([np.inf, 1.5]), "count": np.int64(3), "nested": ({1: float("nan")},)}
    options = argparse.Namespace(json=True, name_of_command="run", result=result)
    with json_output.print_result_at_end(options):
        print("for a person")
    out, err = capsys.readouterr()
    assert err == "for a person\n" and sys.stdout is not sys.stderr
    printed = json.loads(out)
    assert (printed["time"], printed["count"], printed["nested"]) == ([None, 1.5], 3, [{"1": None}])


@pytest.mark.slow
def test_every_field_is_on_the_page(command, monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["jax"])  # whatever this environment lacks
    page = (Path(__file__).parents[2] / "docs" / "running" / "scripts.md").read_text()
    objects = [
        command(*arguments, "--json")[1]
        for arguments in (
            ("run", "small.gin", "--out", "out"), ("list", "ssp"), ("check", "worker_busy_eager"),
            ("check", "--schedule", "small.gin"), ("doctor",),
        )
    ]  # fmt: skip
    lists = [objects[0]["schemes"], objects[2]["findings"], objects[3]["schedules"]]
    lists += [objects[4]["packages"], objects[4]["devices"], [objects[4]["cache"]], [objects[4]["memory"]]]
    entry = objects[1]["kinds"]["protocol"]["ssp"]
    for fields in (*objects, *(each[0] for each in lists), entry, entry["parameters"]["staleness"]):
        assert [name for name in fields if f"`{name}`" not in page] == []


def test_a_seed_without_a_commit_has_no_staleness():
    """Whichever of the seeds it is: means and the largest are over the others."""
    found = results()
    for seed in (0, 1):
        is_without = (found.metrics["scheme"] == "ASP") & (found.metrics["seed"] == seed)
        columns = {
            name: np.where(is_without, np.nan, found.metrics[name]) for name in ("mean_staleness", "max_staleness")
        }
        row = results_json._scheme_json(found._replace(metrics={**found.metrics, **columns}), "ASP")
        others = [x for x in found.seeds("ASP") if x["seed"][0] != seed]
        assert row["mean_staleness"] == pytest.approx(np.mean([x["mean_staleness"][-1] for x in others]))
        assert row["max_staleness"] == max(x["max_staleness"][-1] for x in others)
