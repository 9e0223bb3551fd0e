"""The WBSP study at a tiny size; its tables on made-up rows."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments import worker_busy
from gcjax import cli, tasks
from gcjax.study import Study, plan

CONFIGS = Path(__file__).parents[2] / "configs"
WBSP = (
    "study.num_workers = 4",
    "study.num_units = 60",
    "study.seconds = None",
    "study.target = 0.3",
    "study.num_seeds = 2",
    "study.num_evals = 8",
    "worker_busy_claims.settings = {'H1': @h1/delayed(), 'H3': @h3/delayed()}",
    "worker_busy_claims.methods = {'WBSP': @committed/worker_busy(), 'WBSP overlap': @overlap/worker_busy()}",
    "worker_busy_claims.others = {'BSP': @bsp()}",
    "delayed.workers = (2, 3)",
    "digits.num_chunks = 4",
    "digits.hidden = (8,)",
)


def run(config, out, bindings):
    given = [part for binding in bindings for part in ("--set", binding)]
    assert cli.main(["run", str(CONFIGS / config), "--out", str(out), *given]) == 0
    return out


def made_up(reach):
    """Rows of two cells for schemes with these times, {scheme: {cell: [seed]}}."""
    rows = [(s, c, i, t) for s, each in reach.items() for c, times in each.items() for i, t in enumerate(times)]
    names = ("scheme", "condition", "seed", "reach")
    found = {name: np.array([row[k] for row in rows]) for k, name in enumerate(names)}
    return found | {"computing": np.full(len(rows), 0.6), "stalled": np.isinf(found["reach"])}


@pytest.fixture(scope="module")
def wbsp(tmp_path_factory):
    return run("worker_busy/digits.gin", tmp_path_factory.mktemp("wbsp") / "out", WBSP)


@pytest.mark.slow
def test_wbsp_writes_rows_claims_and_a_figure(wbsp, capsys):
    names = {"results.parquet", "summary.md", "time.png", "run.json", "operative.gin"}
    assert {file.name for file in wbsp.iterdir()} == names
    rows = pq.read_table(wbsp / "results.parquet").to_pylist()
    assert len(rows) == 3 * 2 * 2
    by = {(r["scheme"], r["condition"], r["seed"]): r for r in rows}
    for cell in ("H1", "H3"):
        assert by["WBSP overlap", cell, 0]["computing"] > by["WBSP", cell, 0]["computing"]
        assert by["WBSP", cell, 0]["computing"] > by["BSP", cell, 0]["computing"]
    assert by["BSP", "H3", 0]["computing"] < by["BSP", "H1", 0]["computing"]
    text = (wbsp / "summary.md").read_text()
    assert "up to 60 %" in text and "55 to 72 %" in text and "± " in text
    assert json.loads((wbsp / "run.json").read_text())["num_seeds"] == 2
    assert cli.main(["report", str(wbsp)]) == 0
    assert "Worker-busy" in capsys.readouterr().out


def test_claims_are_judged_seed_by_seed_against_the_fastest_other():
    reach = {"WBSP": {"H": [4.0, 4.0]}, "BSP": {"H": [10.0, 40.0]}, "ASP": {"H": [20.0, 10.0]}}
    first, shares, computing = worker_busy._claims(made_up(reach), "H", ["WBSP"], ["BSP", "ASP"])
    assert (first.ours, first.spread, first.holds) == ("60 %", "± 0.0", "yes")
    assert (shares.ours, shares.holds) == ("60 to 60 %", "yes")
    assert (computing.ours, computing.holds) == ("60 %", "no")
    reach["WBSP"]["H"] = [4.0, np.inf]
    never = worker_busy._claims(made_up(reach), "H", ["WBSP"], ["BSP", "ASP"])[0]
    assert (never.ours, never.holds) == ("target not reached", "no")


def test_bad_input(tmp_path):
    same = (*WBSP, "worker_busy_claims.others = {'WBSP': @bsp()}")
    given = [part for binding in same for part in ("--set", binding)]
    assert cli.main(["run", str(CONFIGS / "worker_busy/digits.gin"), "--out", str(tmp_path / "a"), *given]) == 2
    shared = Study(
        task=tasks.linear_regression(4, num_features=2),
        optimizer=None,
        optimizers={"nobody": None},
        num_workers=4,
        num_units=10,
    )
    with pytest.raises(ValueError, match="optimizers must be those of schemes"):
        plan(shared, {"BSP": None}, {})
