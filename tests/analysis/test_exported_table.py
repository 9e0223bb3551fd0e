"""The main table as CSV and in LaTeX: the numbers of the summary, and what is missing."""

import io

import numpy as np
import pyarrow.csv
import pytest

from gcjax import analysis
from gcjax.analysis import exported_table, paired, summary, sweeps
from tests.analysis.results import S, renamed, results
from tests.analysis.test_sweeps import combination, sweep


def rows_of(text):
    table = pyarrow.csv.read_csv(io.BytesIO(text.encode()))
    return {row["scheme"]: row for row in table.to_pylist()}


def comparison(**options):
    return sweeps.of_comparison(results(**options))


def test_a_comparison_as_numbers():
    found = results()
    rows = rows_of(exported_table.csv(comparison(), against="BSP"))
    assert list(rows) == [row.scheme for row in summary.rows(found)]
    times = {name: analysis.reach_times(found, name) for name in rows}
    asp, bsp = rows["ASP"], rows["BSP"]
    assert asp["time_to_target_mean_s"] == pytest.approx(times["ASP"].mean())
    assert asp["time_to_target_std_s"] == pytest.approx(times["ASP"].std(ddof=1))
    finals = [seed["accuracy"][-1] for seed in found.seeds("ASP")]
    assert (asp["final_mean"], asp["final_std"]) == pytest.approx((np.mean(finals), np.std(finals, ddof=1)))
    assert (asp["metric"], asp["target"], asp["seeds"], asp["seeds_at_target"]) == ("accuracy", 0.9, S, S)
    ratio = paired.times_as_long(times["BSP"], times["ASP"])
    assert (asp["against"], asp["pairs"]) == ("BSP", S)
    assert asp["later_mean_s"] == pytest.approx((times["ASP"] - times["BSP"]).mean())
    assert [asp[f"times_as_long{end}"] for end in ("", "_low_95", "_high_95")] == pytest.approx(
        [ratio.mean, ratio.low, ratio.high]
    )
    assert bsp["times_as_long"] is None and bsp["pairs"] is None
    assert asp["computing_share"] + asp["communicating_share"] + asp["waiting_share"] == pytest.approx(1.0)


def test_what_was_not_reached_is_empty():
    text = exported_table.csv(comparison(failed=[0], value=0.999))
    rows = rows_of(text)
    assert "nan" not in text and "inf" not in text
    assert rows["BSP"]["seeds_at_target"] == 0
    empty = ("time_to_target_mean_s", "time_to_target_std_s", "chunks_to_target_per_worker", "times_as_long", "pairs")
    assert [rows["BSP"][name] for name in empty] == [None] * len(empty)


def test_a_final_value_that_diverged_is_empty():
    found = results()
    diverged = np.where(found.metrics["scheme"] == "ASP", np.inf, found.metrics["accuracy"])
    found = found._replace(metrics={**found.metrics, "accuracy": diverged})
    assert rows_of(exported_table.csv(sweeps.of_comparison(found)))["ASP"]["final_mean"] is None


def test_a_sweep_has_columns_of_its_values():
    text = exported_table.csv(sweep(combination("1", "x"), combination("2", "x")))
    table = pyarrow.csv.read_csv(io.BytesIO(text.encode()))
    assert table.column_names[:2] == ["rate", "scheme"]
    assert table["rate"].to_pylist() == [1, 1, 1, 2, 2, 2]
    assert set(table["against"].to_pylist()) == {f"{summary.rows(results())[0].scheme}, rate = 1"}


def test_a_parameter_with_the_name_of_another_column_stays_one():
    found = sweep(combination("1", "x"))._replace(parameters=("seeds",))
    table = exported_table.columns(found)
    assert (table["seeds (parameter)"].tolist(), table["seeds"].tolist()) == ([1] * 3, [S] * 3)


def test_curves_have_all_evaluations_of_all_combinations():
    found = sweep(combination("1", "x"), combination("2", "x"))._replace(parameters=("time",))
    table = pyarrow.csv.read_csv(io.BytesIO(exported_table.curves(found).encode()))
    metrics = found.combinations[0].results.metrics
    num_rows = len(metrics["time"])
    assert table.column_names == ["time (parameter)", *metrics]
    assert table["time (parameter)"].to_pylist() == [1] * num_rows + [2] * num_rows
    assert table["scheme"].to_pylist() == 2 * metrics["scheme"].tolist()
    np.testing.assert_array_equal(table["train_loss"], np.tile(metrics["train_loss"], 2))


def test_curves_of_combinations_with_other_metrics():
    first, second = combination("1", "x"), combination("2", "x")
    metrics = {name: column for name, column in second.results.metrics.items() if name != "train_loss"}
    metrics["perplexity"] = np.arange(metrics["time"].size)
    found = sweep(first, second._replace(results=second.results._replace(metrics=metrics)))
    table = pyarrow.csv.read_csv(io.BytesIO(exported_table.curves(found).encode()))
    assert set(table["perplexity"].to_pylist()) == {None, *range(metrics["time"].size)}
    text = exported_table.curves(found._replace(parameters=("perplexity",)))
    with_parameter = pyarrow.csv.read_csv(io.BytesIO(text.encode()))
    assert with_parameter["perplexity"] == table["perplexity"]
    assert set(with_parameter["perplexity (parameter)"].to_pylist()) == {1, 2}


def test_a_table_in_latex():
    found = sweeps.of_comparison(renamed(results(), "ASP", "A_SP & co"))
    lines = exported_table.latex(found, against="BSP").splitlines()
    assert lines[:3] == [
        r"\begin{tabular}{@{}lrrrrr@{}}",
        r"\toprule",
        r"Scheme & Time to 0.9 accuracy (s) & Final accuracy & Seeds & Times as long as BSP & 95 \% interval \\",
    ]
    (row,) = [line for line in lines if line.startswith(r"A\_SP \& co & ")]
    summary_row = next(row for row in summary.rows(found.combinations[0].results) if row.scheme == "A_SP & co")
    times = [analysis.reach_times(found.combinations[0].results, name) for name in ("BSP", "A_SP & co")]
    ratio = paired.times_as_long(*times)
    time_and_final = [cell.replace("±", r"$\pm$") for cell in (summary_row.time_to_target, summary_row.final_value)]
    assert row.removesuffix(r" \\").split(" & ")[1:] == [
        *time_and_final, str(S), f"{ratio.mean:.2f}", f"[{ratio.low:.2f}, {ratio.high:.2f}]",
    ]  # fmt: skip
    assert next(line for line in lines if line.startswith("BSP & ")).endswith(r" & - & - \\")


def test_several_references_have_a_column():
    text = exported_table.latex(sweep(combination("1", "x"), combination("2", "y")))
    assert r"rate & Scheme & " in text and r"& Seeds & Later than & Times as long & 95 \% interval \\" in text
    best = summary.rows(results())[0].scheme
    assert f"& {best}, rate = 1 &" in text and f"& {best}, rate = 2 &" in text
