"""A grid of settings in one process."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from gcjax import analysis, cli, sweep
from tests.test_cli import CONFIG


def test_combinations_in_order():
    assert sweep.combinations(["ssp.staleness=0, 3", "s/digits.hidden=(8,), (8, 4)"]) == [
        ("ssp.staleness = 0", "s/digits.hidden = (8,)"),
        ("ssp.staleness = 0", "s/digits.hidden = (8, 4)"),
        ("ssp.staleness = 3", "s/digits.hidden = (8,)"),
        ("ssp.staleness = 3", "s/digits.hidden = (8, 4)"),
    ]
    assert sweep.combinations(["a.text='x,(y', 'z'"]) == [("a.text = 'x,(y'",), ("a.text = 'z'",)]


@pytest.mark.parametrize("text", ["ssp.staleness", "=1,2", "ssp.staleness=", "ssp.staleness=1,,2", "a.b=1,"])
def test_what_is_no_axis_is_refused(text):
    with pytest.raises(ValueError, match="--over needs PARAMETER=VALUE"):
        sweep.combinations([text])


def test_a_parameter_twice_is_refused():
    with pytest.raises(ValueError, match="each parameter once; got a.b twice"):
        sweep.combinations(["a.b=1", "a.b=2"])


@pytest.mark.parametrize(
    ("over", "match"),
    [("ssp.staleness=3,4,3", "each value once; got 'ssp.staleness=3' twice"), (f"a.b=1,'{'x' * 300}'", "200 bytes")],
)
def test_combinations_that_cannot_have_folders_are_refused(over, match):
    with pytest.raises(ValueError, match=match):
        sweep._check_folders([sweep.folder_name(combination) for combination in sweep.combinations([over])])


def test_a_misspelt_parameter_is_refused_before_anything_runs(tmp_path, capsys):
    config = tmp_path / "small.gin"
    config.write_text(CONFIG)
    out = tmp_path / "out"
    assert cli.main(["sweep", str(config), "--over", "sgd.learning_rat=0.1,0.2", "--out", str(out)]) == 2
    assert "learning_rate" in capsys.readouterr().err
    assert not list(out.iterdir())


def test_one_table_of_all_settings(tmp_path, capsys):
    config = tmp_path / "small.gin"
    config.write_text(CONFIG.replace("{'ASP': @asp(), 'partial': @coded()}", "{'ASP': @asp()}"))
    out = tmp_path / "out"
    over = ["--over", "compare.target=0.2,0.999999"]  # the second is never reached, which is a result, too
    assert cli.main(["sweep", str(config), *over, "--out", str(out)]) == 0, capsys.readouterr()
    table = pq.read_table(out / "sweep.parquet").to_pydict()
    assert table["compare.target"] == ["0.2", "0.2", "0.999999", "0.999999"]
    assert table["seed"] == [0, 1, 0, 1]
    assert np.isfinite(table["time_to_target"]).tolist() == [True, True, False, False]
    single = analysis.load(out / sweep.folder_name(("compare.target = 0.2",)))
    assert table["time_to_target"][:2] == analysis.reach_times(single, "ASP").tolist()
    rows = (out / "summary.md").read_text().splitlines()
    assert [row.split(" | ")[:2] for row in rows if row.startswith("| 0.")] == [["| 0.2", "ASP"], ["| 0.999999", "ASP"]]
