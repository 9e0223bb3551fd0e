"""`gcjax trace describe`: the verdict first, all of it as JSON, a figure, and what cannot be read in words."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from gcjax import cli, stragglers


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job of which worker 2 becomes slow at step 60; a file of our own."""
    monkeypatch.chdir(tmp_path)
    seconds = np.ones((100, 5))
    seconds[60:, 2] = 1.5
    stragglers.write_trace("job.csv", seconds)
    return seconds


@pytest.fixture
def here(capsys, job):
    """A command in this process: its status, and what it writes to stdout and stderr."""

    def run(*arguments):
        return cli.main(["trace", "describe", *arguments]), *capsys.readouterr()

    return run


def test_the_verdict_comes_first(here):
    status, out, err = here("job.csv")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == (
        "Critical: worker 2 (1.5 times the median, since step 60) is persistently slow; this costs 33.3 % of the "
        "iteration while it lasts."
    )
    assert "Layout: gcjax, 500 rows." in lines
    figures = {cells[0].strip(): cells[1].strip() for line in lines if len(cells := line.split("│")) == 2}
    assert figures["slowdown S against everybody at the median"] == "1.2"
    assert figures["time lost: in slow spells, shared, passing"] == "100 %, 0 %, 0 %"
    assert figures["P(slow): over 1.5 times the step's median"] == "0"
    assert figures["median time"] == "1 s"
    changes = [line.split("│") for line in lines if line.startswith("60 ")]
    assert [cell.strip() for cell in changes[0]] == ["60", "2", "1", "1.5"]


def test_json_has_all_of_it(here):
    status, out, err = here("job.csv", "--json")
    assert (status, err) == (0, "") and out.count("\n") == 1
    result = json.loads(out, parse_constant=pytest.fail)
    assert (result["command"], result["files"]) == ("trace describe", ["job.csv"])
    verdict = result["verdict"]
    assert (verdict["severity"], verdict["kind"], verdict["workers"]) == ("critical", "persistent", ["2"])
    assert verdict["cost"] == pytest.approx(1 / 3) and verdict["sentence"].startswith("Critical: worker 2")
    assert (result["num_steps"], result["num_workers"], result["last_step"]) == (100, 5, 99)
    assert result["statistics"]["slow_again_probability"] is None
    assert result["slowdown"] == {
        "total_seconds": 120, "ideal_seconds": 100, "total_ratio": 1.2, "slowest": ["2"], "share_of_slowest": 1.0
    }  # fmt: skip
    lost = {"spell_share": 1.0, "shared_share": 0.0, "passing_share": 0.0, "lost_seconds": 20.0}
    assert result["decomposition"] == lost
    assert [worker["ratio_without_worker"] for worker in result["workers"]] == [1.2, 1.2, 1.0, 1.2, 1.2]
    assert result["workers"][2]["worker"] == "2" and result["workers"][2]["ratio_of_worker_alone"] == 1.2
    assert result["changes"] == [{"worker": "2", "step": 60, "ratio_before": 1.0, "ratio_after": 1.5}]
    spell = result["spells"][0]
    assert (spell["worker"], spell["first_step"], spell["last_step"], spell["is_slow_to_end"]) == ("2", 60, 99, True)
    assert result["communication"] is None and result["failures"] == []
    assert result["reading"]["num_rows"] == 500 and result["reading"]["sentences"] == ["Layout: gcjax, 500 rows."]


def test_every_field_is_on_the_page(here, job):
    np.save("job.npy", np.where(np.arange(5) == 4, np.inf, job))
    page = (Path(__file__).parents[2] / "docs" / "running" / "scripts.md").read_text()
    result = json.loads(here("job.npy", "--json")[1])
    result["communication"] = dict.fromkeys(("median", "share_of_time", "least_share_of_time"))  # this file has none

    def fields(value):
        if isinstance(value, dict):
            return {*value, *(name for item in value.values() for name in fields(item))}
        return {name for item in value for name in fields(item)} if isinstance(value, list) else set()

    assert len(result["failures"]) == len(result["changes"]) == len(result["spells"]) == 1
    assert {name for name in fields(result) if f"`{name}`" not in page} == set()


def test_columns_and_their_unit_are_said(here, job):
    step, worker = np.indices(job.shape)
    hosts = np.array(["ape", "bee", "cow", "dog", "eel"])[worker.ravel()]
    milliseconds = 1000 * job.ravel()
    table = pa.table({"host": hosts, "iteration": step.ravel(), "ms": milliseconds, "wait, ms": 3000 - milliseconds})
    csv.write_csv(table, "other.csv")
    columns = "worker=host,step=iteration,compute=ms"
    status, out, _ = here("other.csv", "--columns", columns, "--scale", "1e-3", "--json")
    result = json.loads(out)
    assert status == 0 and result["verdict"]["workers"] == ["cow"] and result["statistics"]["median"] == 1.0
    assert result["communication"] is None
    table = table.rename_columns(["host", "iteration", "ms", "wait"])
    csv.write_csv(table, "other.csv")
    status, out, _ = here("other.csv", "--columns", f"{columns},communication=wait", "--scale", "1e-3")
    assert status == 0 and "(33.3 % of its computing)" in out.splitlines()[0]
    assert any("median time of communicating and waiting" in line and "2 s" in line for line in out.splitlines())


def test_a_heat_map_is_drawn(here, tmp_path):
    status, out, _ = here("job.csv", "--heat-map", "map.png")
    assert out.endswith("\nFigure written to map.png\n")
    assert status == 0 and (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    status, _, err = here("job.csv", "--heat-map", "map.xyz")
    assert status == 2 and err == "gcjax: --heat-map must end in .png, .pdf or .svg; got map.xyz.\n"
    before = (tmp_path / "map.png").read_bytes()
    status, out, err = here("job.csv", "--heat-map", "map.png")
    assert (status, out) == (2, "") and "--heat-map must be a new file or an empty one; map.png has content" in err
    assert (tmp_path / "map.png").read_bytes() == before


def test_what_cannot_be_read_is_said_in_words(here, tmp_path):
    status, out, err = here("nowhere.csv")
    assert (status, out) == (2, "") and err.startswith("gcjax: There is no file nowhere.csv. A trace must be")
    (tmp_path / "other.csv").write_text("host,ms\na,1\n")
    status, _, err = here("other.csv")
    assert status == 2 and "has 'host', 'ms'. Of another table say which column is what" in err
    status, _, err = here("other.csv", "--columns", "worker=host,step=iteration,compute=ms")
    assert status == 2 and "other.csv has no column 'iteration', but 'host', 'ms'" in err
    status, _, err = here("job.csv", "--scale", "0")
    assert status == 2 and "scale must be above 0 and finite; got 0" in err


def test_columns_that_are_no_pairs_are_refused(here, capsys):
    with pytest.raises(SystemExit) as ended:
        here("job.csv", "--columns", "host")
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("usage: gcjax trace describe") and "must be like worker=host,step=iteration" in err
    with pytest.raises(SystemExit) as ended:
        here("job.csv", "--columns", "worker=host,worker=name,step=iteration,compute=ms")
    assert ended.value.code == 2 and "must name one column for each field" in capsys.readouterr().err


def test_long_tables_are_cut_where_it_is_said(here):
    seconds = np.ones((40, 30))
    seconds[20:] *= np.linspace(0.5, 2.0, 30)
    stragglers.write_trace("many.csv", seconds)
    status, out, _ = here("many.csv")
    assert status == 0 and "The slowest 20 of 30; --json has all." in out
    assert "The largest 20 of " in out
    workers, changes = out.partition("\nWorkers\n")[2].split("\nChanges\n")
    assert [sum("│" in line for line in text.splitlines()) for text in (workers, changes)] == [20, 20]


def test_a_warning_is_a_line(here):
    Path("cut.csv").write_text("worker,unit,seconds\n0,0,1.5\n0,1,1.5")
    status, _, err = here("cut.csv")
    assert status == 0 and err.startswith("gcjax: warning: The last line of cut.csv does not end")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value"), [("--columns", "worker=nonsense,step=x,compute=y"), ("--scale", "1e-3"), ("--scale", "nan")]
)
def test_the_folder_of_a_watched_job_has_columns_and_seconds_of_its_own(here, option, value):
    Path("watch").mkdir()
    Path("watch", "step.0.0.csv").write_text("".join(f"0,{step},0.5,,0.5,0,0\n" for step in range(20)))
    status, out, err = here("watch", option, value)
    assert (status, out) == (2, "") and f"{option} is for a file; watch is a folder, as gcjax.watch writes it" in err
    assert here("watch", "--scale", "1")[0] == 0


def test_a_table_of_other_names_is_told_the_option(here):
    Path("other.csv").write_text("host,iteration,ms\na,0,1.5\n")
    status, _, err = here("other.csv")
    assert status == 2 and "--columns worker=...,step=...,compute=..." in err


def test_what_is_not_known_is_a_dash(here):
    seconds = np.zeros((20, 3))
    seconds[3, 0] = 1.0
    stragglers.write_trace("zeros.csv", seconds)
    status, out, _ = here("zeros.csv")
    tails = next(line for line in out.splitlines() if "the step's median: 95 %, 99 %, largest" in line)
    assert status == 0 and tails.split("│")[1].strip() == "-, -, -" and "nan" not in out


def test_a_figure_that_cannot_be_written(here):
    status, _, err = here("job.csv", "--heat-map", "nowhere/h.png")
    assert status == 2 and err.startswith("gcjax: --heat-map must be a file in a folder that exists;")


def test_a_warm_up_is_left_out(here, job):
    job[:10] *= 50
    stragglers.write_trace("job.csv", job)
    status, out, _ = here("job.csv", "--steps", "10:50", "--json")
    result = json.loads(out)
    assert (status, result["first_step"], result["last_step"], result["num_steps"]) == (0, 10, 49, 40)
    assert result["verdict"]["kind"] == "nobody" and result["statistics"]["median"] == 1.0
    status, out, err = here("job.csv", "--steps", "100:")
    assert (status, out) == (2, "") and "the trace has no steps 100: (" in err and "its steps are 0 to 99." in err


@pytest.mark.parametrize("text", ["100", "1:2:3", "-5:", "a:b"])
def test_steps_that_are_no_slice_are_refused(here, capsys, text):
    with pytest.raises(SystemExit) as ended:
        here("job.csv", f"--steps={text}")
    assert (
        ended.value.code == 2
        and f"must be like 100:2000, where one of the numbers may be left out; got '{text}'"
        in (capsys.readouterr().err)
    )


def test_a_table_of_zeros_is_refused(here):
    stragglers.write_trace("zeros.csv", np.zeros((20, 3)))
    status, out, err = here("zeros.csv")
    assert (status, out) == (2, "") and "must have a time above 0 s; all times are 0 s." in err


def test_too_few_steps_for_a_verdict_come_with_a_caution(here, job):
    np.save("short.npy", job[-3:])
    lines = here("short.npy")[1].splitlines()
    assert lines[1] == (
        "Caution: 3 steps are too few to tell from chance which of 5 workers is slow; 9 are needed. Transpose the "
        "table if its rows are workers."
    )
    assert json.loads(here("short.npy", "--json")[1])["caution"] == lines[1].removeprefix("Caution: ")
    assert "Caution" not in here("job.csv")[1] and json.loads(here("job.csv", "--json")[1])["caution"] == ""
