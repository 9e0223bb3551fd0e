"""Tables of operations: sums of a part at a time are those of the whole table, and only what is needed is read."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest

from gcjax import stragglers
from gcjax.stragglers.traces import files, operations

NAMES = ["forward-compute", "backward-compute", "forward-send", "grads-reduce-scatter", "optimizer"]
COMMUNICATES = np.array([False, False, True, True, False])


def columns(rng, num_rows, *, ranks, steps, num_stages=2):
    return {
        "dp_rank": rng.choice(ranks, num_rows).astype(np.int8),
        "stage": (np.arange(num_rows) % num_stages + 1).astype(np.int8),
        "step": rng.choice(steps, num_rows).astype(np.int64),
        "optype": rng.integers(0, 5, num_rows),
        "duration": (rng.integers(1, 80, num_rows) / 8).astype(np.float32),
    }


def table(columns, *, is_dictionary=True):
    names = pa.DictionaryArray.from_arrays(columns["optype"].astype(np.int8), NAMES)
    return pa.table({**columns, "optype": names if is_dictionary else names.cast(pa.string())})


def expected(columns):
    """The seconds of each step and rank, computing and communicating, by a loop over all rows."""
    steps, ranks = np.unique(columns["step"]), np.unique(columns["dp_rank"])
    totals = np.zeros((2, len(steps), len(ranks)))
    stages_of_cell = {}
    names = (*operations.COLUMNS, operations.STAGE)
    for rank, step, kind, seconds, stage in zip(*(columns[name] for name in names), strict=True):
        cell = np.searchsorted(steps, step), np.searchsorted(ranks, rank)
        totals[(int(COMMUNICATES[kind]), *cell)] += seconds
        stages_of_cell.setdefault(cell, set()).add(stage)
    num_stages = np.full(totals.shape[1:], np.nan)  # of the cells with rows
    for cell, stages in stages_of_cell.items():
        num_stages[cell] = len(stages)
    return totals / num_stages


def assert_same(trace, columns):
    compute, communication = expected(columns)
    np.testing.assert_allclose(trace.compute, compute, rtol=1e-12)
    np.testing.assert_allclose(trace.communication, communication, rtol=1e-12)
    assert trace.workers == tuple(map(str, np.unique(columns["dp_rank"])))
    np.testing.assert_array_equal(trace.steps, np.unique(columns["step"]))
    assert trace.reading.num_rows == len(columns["step"]) and trace.reading.num_duplicates == 0


@pytest.mark.parametrize("rows_at_a_time", [1, 7, 100, 10**6])
@pytest.mark.parametrize("steps", [np.arange(12) + 1, np.array([-3, 5, 2**40, 2**50])], ids=["dense", "sparse"])
def test_parts_are_summed(tmp_path, monkeypatch, rows_at_a_time, steps):
    """Steps with numbers far apart need no array of all of them."""
    monkeypatch.setattr(files, "_ROWS_AT_A_TIME", rows_at_a_time)
    own = columns(np.random.default_rng(0), 300, ranks=[-100, 3, 4, 127], steps=steps)
    parquet.write_table(table(own), tmp_path / "job.parquet", row_group_size=50)
    assert_same(stragglers.read_trace(tmp_path / "job.parquet"), own)


def test_a_table_without_stages_or_a_dictionary(tmp_path):
    own = columns(np.random.default_rng(1), 40, ranks=[0, 1], steps=np.arange(4), num_stages=1)
    whole = table(own, is_dictionary=False)
    for name, write in (("job.parquet", parquet.write_table), ("job.csv", csv.write_csv)):
        for part in (whole, whole.drop_columns(["stage"])):
            write(part, tmp_path / name)
            assert_same(stragglers.read_trace(tmp_path / name), own)


def test_names_of_each_part_have_their_own_order(tmp_path, monkeypatch):
    """A dictionary of names counts for the rows that it is of."""
    monkeypatch.setattr(files, "_ROWS_AT_A_TIME", 2)
    own = {"dp_rank": [0, 0, 1, 1], "step": [1, 1, 1, 1], "duration": [1.0, 2.0, 4.0, 8.0]}
    names = ["optimizer", "all-gather", "all-gather", "optimizer"]
    parquet.write_table(pa.table({**own, "optype": names}), tmp_path / "job.parquet", row_group_size=2)
    trace = stragglers.read_trace(tmp_path / "job.parquet")
    np.testing.assert_array_equal(trace.compute, [[1, 8]])
    np.testing.assert_array_equal(trace.communication, [[2, 4]])


def test_columns_that_are_not_needed_are_not_read(tmp_path):
    """Bytes of another column may be damaged."""
    own = table(columns(np.random.default_rng(2), 5000, ranks=[0, 1], steps=np.arange(4)))
    start = np.random.default_rng(3).random(5000)
    for i, (name, is_read) in enumerate([("start_ts", False), ("duration", True)]):
        path = tmp_path / f"{i}.parquet"
        whole = pa.table({**{column: own[column] for column in own.column_names}, "start_ts": start})
        parquet.write_table(whole, path, use_dictionary=False, compression="zstd")
        metadata = parquet.ParquetFile(path).metadata.row_group(0)
        chunk = next(c for c in map(metadata.column, range(6)) if c.path_in_schema == name)
        data = bytearray(path.read_bytes())
        middle = chunk.data_page_offset + chunk.total_compressed_size // 2
        data[middle - 50 : middle + 50] = bytes(100)
        path.write_bytes(data)
        if is_read:
            with pytest.raises(ValueError, match=r"that can be read; got .*1\.parquet"):
                stragglers.read_trace(path)
        else:
            assert stragglers.read_trace(path).compute.shape == (4, 2)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"dp_rank": [0, 1, None, 1]}, "column dp_rank of a trace must hold whole numbers"),
        ({"dp_rank": [0, 1, 0.5, 1]}, "column dp_rank of a trace must hold whole numbers"),
        ({"step": [0, 1, 2, 2**60]}, "column step of a trace must hold whole numbers"),
        ({"optype": [["a"], ["b"], ["c"], ["d"]]}, "column optype of a trace must hold names"),
        ({"duration": ["a", "b", "c", "d"]}, "column duration of a trace must hold numbers"),
        ({"duration": [1.0, 2.0, -9.0, 1.0]}, "durations of at least 0; row 3 has -9"),
    ],
)
def test_values_that_no_trace_has_are_refused(tmp_path, change, match):
    own = {"dp_rank": [0, 1, 0, 1], "step": [0, 0, 1, 1], "optype": ["compute"] * 4, "duration": [1.0] * 4}
    parquet.write_table(pa.table({**own, **change}), tmp_path / "job.parquet")
    with pytest.raises(ValueError, match=match):
        stragglers.read_trace(tmp_path / "job.parquet")


def test_ranks_and_steps_that_are_too_many_are_refused(tmp_path):
    numbers = np.arange(2000)
    own = {"dp_rank": numbers, "step": numbers, "optype": ["compute"] * 2000, "duration": np.ones(2000)}
    parquet.write_table(pa.table(own), tmp_path / "job.parquet")
    with pytest.raises(ValueError, match="has 2000 operations, but 2000 steps of 2000 ranks"):
        stragglers.read_trace(tmp_path / "job.parquet")


def test_a_table_without_rows_is_refused(tmp_path):
    own = columns(np.random.default_rng(0), 5, ranks=[0], steps=[1])
    parquet.write_table(table(own).slice(0, 0), tmp_path / "job.parquet")
    with pytest.raises(ValueError, match="must have rows"):
        stragglers.read_trace(tmp_path / "job.parquet")


def test_a_duration_that_is_missing_makes_its_sum_unknown(tmp_path):
    own = {"dp_rank": [0, 0, 1], "step": [1, 1, 1], "optype": ["compute", "recv", "compute"], "duration": [1, None, 2]}
    parquet.write_table(pa.table(own), tmp_path / "job.parquet")
    trace = stragglers.read_trace(tmp_path / "job.parquet")
    np.testing.assert_array_equal(trace.compute, [[1, 2]])
    np.testing.assert_array_equal(trace.communication, [[np.nan, 0]])


def test_negative_durations_are_refused_also_where_the_sum_is_not(tmp_path):
    file = tmp_path / "job.csv"
    file.write_text("dp_rank,step,optype,duration\n0,0,forward,3\n0,0,backward,-2\n0,1,forward,1\n")
    with pytest.raises(ValueError, match="durations of at least 0; row 2 has -2"):
        stragglers.read_trace(file)
