"""Measured times in files: what is written is read, all layouts are understood, and what is cut is known as such."""

import os
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcjax import stragglers
from gcjax.stragglers.traces import base

NAN, INF = np.nan, np.inf
SECONDS = np.array([[1.0, 20.0], [NAN, 40.0], [5.25, INF]])


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_trace_is_read_as_it_was_written(tmp_path, dtype):
    seconds = np.random.default_rng(0).exponential(size=(7, 3)).astype(dtype)
    seconds[2, 1], seconds[5:, 2], seconds[6] = INF, NAN, NAN
    stragglers.write_trace(tmp_path / "trace.csv", seconds)
    read = stragglers.read_trace(tmp_path / "trace.csv").compute
    assert read.dtype == np.float64
    np.testing.assert_array_equal(read.astype(dtype), seconds)
    lines = (tmp_path / "trace.csv").read_text().replace('"', "").splitlines()
    assert lines[0] == "worker,unit,seconds,rows" and lines[-1] == "2,6,,21"


def test_a_file_of_our_own_is_refused_wherever_it_is_cut(tmp_path):
    """All but the line break at the end is needed."""
    stragglers.write_trace(tmp_path / "trace.csv", SECONDS)
    data = (tmp_path / "trace.csv").read_bytes()
    for end in range(len(data) - 1):
        (tmp_path / "cut.csv").write_bytes(data[:end])
        with pytest.raises(ValueError, match="trace|parse"):
            stragglers.read_trace(tmp_path / "cut.csv")
    (tmp_path / "cut.csv").write_bytes(data[:-1])
    np.testing.assert_array_equal(stragglers.read_trace(tmp_path / "cut.csv").compute, SECONDS)


def test_rows_that_are_missing_are_said(tmp_path):
    stragglers.write_trace(tmp_path / "trace.csv", SECONDS)
    lines = (tmp_path / "trace.csv").read_text().splitlines()
    (tmp_path / "cut.csv").write_text("\n".join(lines[:-2]) + "\n")
    with pytest.raises(ValueError, match="has 4 rows and says 6. Part of it is missing"):
        stragglers.read_trace(tmp_path / "cut.csv")


def test_a_last_line_that_does_not_end_is_warned_of(tmp_path):
    (tmp_path / "trace.csv").write_text("worker,unit,seconds\n0,0,1\n1,0,2.5")
    with pytest.warns(UserWarning, match="line 3, '1,0,2.5'. If the file was cut, its last number is too short"):
        assert stragglers.read_trace(tmp_path / "trace.csv").compute.shape == (1, 2)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_public_layout_of_alibaba(tmp_path, kind):
    """Steps are recorded every so often; ratios become multiples of their median; rows come in any order."""
    rows = ["0,7,50,11,600", "1,2,50,1,100", "2,7,50,1,200", "3,2,50,11,", "4,2,50,25,300", "5,7,50,25,900"]
    file = tmp_path / "job.csv"
    file.write_text("\n".join([",worker,gpu,time,batch_time_norm", *rows]) + "\n")
    if kind == "parquet":
        parquet.write_table(csv.read_csv(file), tmp_path / "job.parquet")
        file = tmp_path / "job.parquet"
    np.testing.assert_allclose(stragglers.read_trace(file).compute * 300, [[100, 200], [NAN, 600], [300, 900]])


def test_parquet_with_our_columns(tmp_path):
    stragglers.write_trace(tmp_path / "trace.csv", SECONDS)
    table = csv.read_csv(tmp_path / "trace.csv")
    for columns in (table, table.drop_columns(["rows"]).take([5, 2, 1, 0, 4, 3])):
        parquet.write_table(columns, tmp_path / "trace.parquet")
        np.testing.assert_array_equal(stragglers.read_trace(tmp_path / "trace.parquet").compute, SECONDS)
    parquet.write_table(table.slice(0, 4), tmp_path / "trace.parquet")
    with pytest.raises(ValueError, match="has 4 rows and says 6"):
        stragglers.read_trace(tmp_path / "trace.parquet")


def test_a_column_for_each_worker(tmp_path):
    """In the order of their numbers, which is not that of the alphabet."""
    seconds = np.random.default_rng(0).exponential(size=(3, 12))
    table = pa.table({str(w): seconds[:, w] for w in sorted(range(12), key=str)})
    parquet.write_table(table, tmp_path / "trace.parquet")
    csv.write_csv(table, tmp_path / "trace.csv")
    for name in ("trace.parquet", "trace.csv"):
        np.testing.assert_array_equal(stragglers.read_trace(tmp_path / name).compute, seconds)


def test_a_trace_with_steps_before_0_is_read_as_it_was_written(tmp_path):
    trace = base.trace_of_array(SECONDS)._replace(steps=np.arange(-2, len(SECONDS) - 2))
    stragglers.write_trace(tmp_path / "trace.csv", trace)
    assert stragglers.read_trace(tmp_path / "trace.csv").steps.tolist() == trace.steps.tolist()


def test_an_array_has_no_columns_to_name(tmp_path):
    np.save(tmp_path / "trace.npy", SECONDS)
    with pytest.raises(ValueError, match="columns must name those of a table; .*trace.npy is an array"):
        stragglers.read_trace(tmp_path / "trace.npy", columns={"worker": "a", "step": "b", "compute": "c"})


def test_an_array_of_numpy(tmp_path):
    np.save(tmp_path / "trace.npy", SECONDS.astype(np.float32))
    read = stragglers.read_trace(tmp_path / "trace.npy").compute
    assert read.dtype == np.float64
    np.testing.assert_array_equal(read, SECONDS)
    whole = (tmp_path / "trace.npy").read_bytes()
    (tmp_path / "trace.npy").write_bytes(whole[:-3])
    with pytest.raises(ValueError, match="can be read; got .*trace.npy"):
        stragglers.read_trace(tmp_path / "trace.npy")
    (tmp_path / "trace.npy").write_bytes(whole.replace(b"(3, 2), }" + 12 * b" ", b"(3000000000, 20000), }"))
    with pytest.raises(ValueError, match="can be read; got .*trace.npy"):
        stragglers.read_trace(tmp_path / "trace.npy")


@pytest.mark.parametrize("head", ["step,0,1,2", ",0,1,2", "2,index,0,1"])
def test_a_column_a_worker_may_have_one_for_the_steps(tmp_path, head):
    columns = {"2": ["5.5", "4.5", "6.5"], "0": ["1", "2", "3"], "1": ["0.5", "", "inf"]}
    names = head.split(",")
    cells = [columns.get(name, ["10", "14", "12"]) for name in names]
    lines = [",".join(column[row] for column in cells) for row in range(3)]
    (tmp_path / "trace.csv").write_text("\n".join([head, *lines, ""]))
    trace = stragglers.read_trace(tmp_path / "trace.csv")
    assert trace.steps.tolist() == [10, 12, 14] and trace.workers == ("0", "1", "2")
    np.testing.assert_array_equal(trace.compute, [[1, 0.5, 5.5], [3, np.inf, 6.5], [2, np.nan, 4.5]])


@pytest.mark.parametrize("prefix", ["w", "worker", "worker_", "rank-", "Worker "])
def test_columns_of_workers_may_have_the_same_letters_before_each_number(tmp_path, prefix):
    """In the order of their numbers, which is not that of the alphabet."""
    workers = sorted(range(12), key=str)
    lines = [["step", *(f"{prefix}{worker}" for worker in workers)], [5, *workers], [7, *workers]]
    (tmp_path / "trace.csv").write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    trace = stragglers.read_trace(tmp_path / "trace.csv")
    assert trace.workers == tuple(map(str, range(12))) and trace.steps.tolist() == [5, 7]
    np.testing.assert_array_equal(trace.compute, [np.arange(12.0)] * 2)


def test_errors_about_values_name_the_file_once(tmp_path):
    file = tmp_path / "wrong.csv"
    file.write_text("w0,w1\n1,2\n3,-1\n")
    np.save(tmp_path / "wrong.npy", np.array([[1.0, -1.0]]))
    rule = "a trace must hold seconds >= 0, inf for a failed worker, NaN for no measurement; got -1 for unit"
    for read in (stragglers.read_trace, lambda path: stragglers.replay(trace=path)):
        with pytest.raises(ValueError) as error:
            read(file)
        assert str(error.value) == f"{file}: {rule} 1 of worker 1."
        with pytest.raises(ValueError) as error:
            read(tmp_path / "wrong.npy")
        assert str(error.value) == f"{tmp_path / 'wrong.npy'}: {rule} 0 of worker 1."
    file.write_text("w0,w1\n1,\n3,\n")
    with pytest.raises(ValueError, match=r"wrong\.csv: to be replayed, .*; worker 1 has none"):
        stragglers.replay(trace=file)
    file.write_text("w0\n1\n")
    with pytest.raises(ValueError, match="^start must be one of"):
        stragglers.replay(trace=file, start="then")
    file.write_text("w0\nfast\n")
    with pytest.raises(ValueError) as error:
        stragglers.read_trace(file)
    assert str(error.value).count("wrong.csv") == 1


def test_a_column_a_worker_with_other_names_is_told_what_to_do(tmp_path):
    (tmp_path / "trace.csv").write_text("step,host-a,host-b\n0,1.0,1.5\n")
    with pytest.raises(ValueError, match="If each column is a worker, name them 0 to W-1, or save them as an array"):
        stragglers.read_trace(tmp_path / "trace.csv")


def test_an_array_of_objects_is_not_unpickled(tmp_path):
    np.save(tmp_path / "trace.npy", np.array([[1.0, None]], object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        stragglers.read_trace(tmp_path / "trace.npy")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "worker,seconds\n0,1\n",
            "columns worker, unit, seconds, or worker, time, batch_time_norm, or dp_rank.*'worker'",
        ),
        ("worker,unit,seconds\n", "must have rows"),
        ("worker,unit,seconds\n0,0,1\n0,1,-2\n", "seconds >= 0.*got -2 for unit 1 of worker 0"),
        ("worker,unit,seconds\n-1,0,1\n", "column worker of a trace must hold whole numbers"),
        ("worker,unit,seconds\n0,0.5,1\n", "column unit of a trace must hold whole numbers"),
        ("worker,unit,seconds\n0,,1\n", "column unit of a trace must hold whole numbers"),
        ("worker,unit,seconds\n0,0,fast\n", "column seconds of a trace must hold numbers"),
        ("worker,unit,seconds\n0,0,\n1,0,true\n", "column seconds of a trace must hold numbers; .* has True in row 2"),
        (
            "worker,unit,seconds\n0,false,1\n0,true,1\n",
            "column unit of a trace must hold numbers; .* has False in row 1",
        ),
        ("worker,unit,seconds\n0,0,1\n0,1\n", "Row #3: Expected 3 columns, got 2: 0,1"),
        ("worker,unit,seconds\n0,0,1\n0,1e300,1\n", "column unit of a trace must hold whole numbers"),
        ("worker,unit,seconds\n0,0,1\n0,inf,1\n", "column unit of a trace must hold whole numbers"),
        ("worker,unit,seconds,rows\n0,0,1,\n", "says nan"),
        ("worker,time,batch_time_norm\n0,0,inf\n0,1,inf\n0,2,1\n", "positive, finite median"),
        ("0,1,3\n1,2,3\n", "names 0 to W-1, .* '0', '1', '3'"),
        ("w0,w2\n1,2\n", "names 0 to W-1, .* 'w0', 'w2'"),
        ("w1,w2\n1,2\n", "names 0 to W-1, .* 'w1', 'w2'"),
        ("w0,v1\n1,2\n", "names 0 to W-1, .* 'w0', 'v1'"),
        ("step0,step1\n1,2\n", "names 0 to W-1, .* 'step0', 'step1'"),
        ("w0,1\n1,2\n", "names 0 to W-1, .* 'w0', '1'"),
        ("w00,w01\n1,2\n", "names 0 to W-1, .* 'w00', 'w01'"),
        ("w0,w1,host\n1,2,3\n", "names 0 to W-1, .* 'w0', 'w1', 'host'"),
        ("0,1,1\n1,2,3\n", "different names"),
        ("", "can be read"),
    ],
)
def test_a_file_that_is_not_a_trace_is_refused(tmp_path, text, match):
    (tmp_path / "trace.csv").write_text(text)
    with pytest.raises(ValueError, match=match):
        stragglers.read_trace(tmp_path / "trace.csv")


def test_parquet_that_is_not_a_trace_is_refused(tmp_path):
    table = pa.table({"rank": [0, 1], "duration": [1.0, 2.0]})
    parquet.write_table(table, tmp_path / "trace.parquet")
    with pytest.raises(ValueError, match="'rank', 'duration'. Of another table say which column is what"):
        stragglers.read_trace(tmp_path / "trace.parquet")
    data = (tmp_path / "trace.parquet").read_bytes()
    (tmp_path / "trace.parquet").write_bytes(data[:-5])
    with pytest.raises(ValueError, match="can be read; got .*trace.parquet"):
        stragglers.read_trace(tmp_path / "trace.parquet")
    parquet.write_table(pa.table({"0": [[1.0], [2.0]]}), tmp_path / "trace.parquet")
    with pytest.raises(ValueError, match="column 0 of a trace must hold numbers"):
        stragglers.read_trace(tmp_path / "trace.parquet")


def test_parquet_that_was_changed_is_refused_where_it_has_checksums(tmp_path):
    seconds = np.random.default_rng(0).uniform(1, 2, 1000)
    parquet.write_table(pa.table({"0": seconds}), tmp_path / "t.parquet", write_page_checksum=True)
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[2000] ^= 1
    (tmp_path / "t.parquet").write_bytes(data)
    with pytest.raises(ValueError, match="can be read; got .*t.parquet: .*[Cc][Rr][Cc]"):
        stragglers.read_trace(tmp_path / "t.parquet")


def test_bad_arrays_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="got int64"):
        stragglers.write_trace(tmp_path / "t.csv", np.ones((2, 2), int))
    with pytest.raises(ValueError, match=r"^There is no file .*nowhere\.csv\. A trace must be"):
        stragglers.read_trace(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match="can be read"):
        stragglers.read_trace(tmp_path)


def test_text_that_is_not_utf_8_is_refused_with_the_name_of_the_file(tmp_path):
    (tmp_path / "t.csv").write_text("worker,unit,seconds\n0,0,1", encoding="utf-16")
    with pytest.raises(ValueError, match="can be read; got .*t.csv: 'utf-8' codec"):
        stragglers.read_trace(tmp_path / "t.csv")


@pytest.mark.parametrize("dtype", [np.int64, np.uint16])
def test_arrays_of_whole_numbers(tmp_path, dtype):
    np.save(tmp_path / "t.npy", np.array([[1000, 1500], [2000, 250]], dtype))
    trace = stragglers.read_trace(tmp_path / "t.npy", scale=1e-3)
    np.testing.assert_array_equal(trace.compute, [[1.0, 1.5], [2.0, 0.25]])


@pytest.mark.parametrize("end", [".csv", ".npy", ".parquet"])
def test_pipes_can_be_read(tmp_path, end):
    seconds = np.array([[1.0, 1.5], [2.0, 0.25]])
    if end == ".csv":
        stragglers.write_trace(tmp_path / "t.csv", seconds)
    elif end == ".npy":
        np.save(tmp_path / "t.npy", seconds)
    else:
        parquet.write_table(pa.table({"0": seconds[:, 0], "1": seconds[:, 1]}), tmp_path / "t.parquet")
    reader, writer = os.pipe()
    os.write(writer, (tmp_path / f"t{end}").read_bytes())
    os.close(writer)
    np.testing.assert_array_equal(stragglers.read_trace(f"/dev/fd/{reader}").compute, seconds)
    os.close(reader)


def test_what_a_damaged_file_holds_does_not_reach_the_terminal_as_it_is(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\n\x1b[31m\x07red\n")
    with pytest.raises(ValueError, match="can be read") as error:
        stragglers.read_trace(tmp_path / "t.csv")
    assert "[31m" in str(error.value) and str(error.value).isprintable()


@pytest.mark.parametrize("name", ["trace.csv", "trace.parquet", "trace.npy"])
def test_an_empty_file_is_called_empty(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=f"can be read; got .*{name}: it is empty"):
        stragglers.read_trace(tmp_path / name)


def test_workers_of_a_file_can_have_names(tmp_path):
    path = tmp_path / "hosts.csv"
    path.write_text("worker,unit,seconds\nhost1,0,2.0\nhost0,0,1.0\nhost0,1,3.0\nhost1,1,4.0\n")
    trace = stragglers.read_trace(path)
    assert trace.workers == ("host0", "host1") and trace.compute.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    stragglers.write_trace(path, trace)
    again = stragglers.read_trace(path)
    assert again.workers == trace.workers and again.compute.tobytes() == trace.compute.tobytes()


def _check_round_trip(folder, names):
    """A trace whose workers have these names is read with the same names, order and bits, from CSV and from Parquet."""
    seconds = np.arange(3.0 * len(names)).reshape(3, -1)
    seconds[1, 0] = NAN
    trace = base.trace_of_array(seconds)._replace(workers=tuple(names))
    stragglers.write_trace(folder / "t.csv", trace)
    step, worker = np.indices(seconds.shape)
    columns = {"worker": np.array(names, object)[worker.ravel()], "unit": step.ravel(), "seconds": seconds.ravel()}
    parquet.write_table(pa.table({**columns, "rows": np.full(seconds.size, seconds.size)}), folder / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        read = stragglers.read_trace(folder / name)
        assert read.workers == trace.workers
        assert read.compute.tobytes() == seconds.tobytes()


@pytest.mark.parametrize(
    "names",
    [
        ("true", "false"), ("nan", "true"), ("b", "a"), ("01", "1"), ("007",), ("1e3", "100"), ("1.0", "2.0"), ("-1",),
        ("NA", "1"), ("null",), ("inf", "Infinity"), ("2026-01-01", "2025-01-01"), ("a b", " a b", "a b "), ("1", " 1"),
        ("a,b", 'c"d"', "'e'"), ("x\ny", "x\r\ny", "x\r"), ("Ж", "\u200b", "名"), ("10", "9"), ("12:30:00",), ("=1+1",),
        pytest.param(("x\n" * 300_000,), id="longer than a block of the reader"),
    ],
)  # fmt: skip
def test_names_of_workers_are_read_as_they_were_written(tmp_path, names):
    _check_round_trip(tmp_path, names)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=4, unique=True))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_names_of_workers_are_read_as_they_were_written(tmp_path_factory, names):
    _check_round_trip(tmp_path_factory.mktemp("names"), names)


@pytest.mark.parametrize("names", [("a", ""), ("a", "a")])
def test_workers_without_names_of_their_own_are_not_written(tmp_path, names):
    trace = base.trace_of_array(np.ones((2, 2)))._replace(workers=names)
    with pytest.raises(ValueError, match="workers must have different names, none of them empty"):
        stragglers.write_trace(tmp_path / "t.csv", trace)
    assert not (tmp_path / "t.csv").exists()


def test_names_may_be_categories(tmp_path):
    names = pa.array(["h1", "h0"]).dictionary_encode()
    parquet.write_table(pa.table({"worker": names, "unit": [0, 0], "seconds": [1.0, 2.0]}), tmp_path / "t.parquet")
    trace = stragglers.read_trace(tmp_path / "t.parquet")
    assert trace.workers == ("h0", "h1") and trace.compute.tolist() == [[2.0, 1.0]]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator(tmp_path, separator):
    path = tmp_path / "table.csv"
    path.write_text("worker;unit;seconds;of a, or b\n01;0;1.0;x\n".replace(";", separator).replace(",", ""))
    assert stragglers.read_trace(path).workers == ("01",)


def test_commas_come_first(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("worker,unit,seconds,of a; or b\n0,0,1.0,x\n")
    assert stragglers.read_trace(path).compute.tolist() == [[1.0]]
