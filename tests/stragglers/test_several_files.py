"""A trace of several files."""

import re

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import parquet

from gcjax import stragglers

NAN = np.nan
COLUMNS = {"step": "iter", "compute": "ms"}


def write(folder, **tables):
    """Writes a file a name, with rows like `0 1200`: a step and its milliseconds."""
    for name, rows in tables.items():
        lines = [f"{step},{milliseconds}\n" for step, milliseconds in (row.split() for row in rows)]
        (folder / f"{name}.csv").write_text("iter,ms\n" + "".join(lines))
    return [folder / f"{name}.csv" for name in tables]


def test_a_file_of_each_worker_is_named_after_it(tmp_path):
    files = write(tmp_path, host10=["0 1000", "1 1100"], host9=["1 900", "3 950"])
    trace = stragglers.read_trace(files, columns=COLUMNS, scale=1e-3)
    assert trace.workers == ("host9", "host10") and trace.steps.tolist() == [0, 1, 3]
    assert_array_equal(trace.compute, 1e-3 * np.array([[NAN, 1000], [900, 1100], [950, NAN]]))
    assert trace.communication is None and not trace.is_relative
    assert trace.reading == stragglers.Reading("named columns", 4, 0, 0, 1, (0,), (1,))


def test_it_is_the_trace_of_one_file_with_a_column_for_the_worker(tmp_path):
    rows = {str(worker): [f"{step} {7 * step + worker}" for step in range(worker, 19)] for worker in (2, 10, 1)}
    several = stragglers.read_trace(write(tmp_path, **rows), columns=COLUMNS)
    lines = [f"{worker},{row.replace(' ', ',')}\n" for worker, of_worker in rows.items() for row in of_worker]
    (tmp_path / "job.csv").write_text("worker,iter,ms\n" + "".join(lines))
    one = stragglers.read_trace(tmp_path / "job.csv", columns={"worker": "worker", **COLUMNS})
    assert several.workers == one.workers == ("1", "2", "10") and several.reading == one.reading
    assert_array_equal(several.compute, one.compute)
    assert_array_equal(several.steps, one.steps)


def test_files_of_one_name_are_known_by_their_paths(tmp_path):
    for host in "ab":
        (tmp_path / host).mkdir()
    files = [*write(tmp_path / "a", steps=["0 1"]), *write(tmp_path / "b", steps=["0 2"])]
    assert stragglers.read_trace(files, columns=COLUMNS).workers == tuple(map(str, files))
    with pytest.raises(ValueError, match=re.escape(f"{files[0]} is there twice")):
        stragglers.read_trace([*files, files[0]], columns=COLUMNS)
    files = [files[0].rename(tmp_path / "log.1"), files[1].rename(tmp_path / "log.2")]
    assert_array_equal(stragglers.read_trace(files, columns=COLUMNS).compute, [[1.0, 2.0]])


def test_a_later_file_goes_on_with_the_same_workers(tmp_path):
    names = {"worker": "host", "step": "iter", "compute": "ms", "communication": "wait"}
    table = {"host": ["x", "y", "x"], "iter": [0, 0, 1], "ms": [1.0, 2.0, 3.0], "wait": [0.1, 0.2, None]}
    parquet.write_table(pa.table(table), tmp_path / "1.parquet")
    table = {"host": ["y", "x", "x"], "iter": [1, 1, 1], "ms": [4.0, 5.0, None], "wait": [0.4, 0.5, 0.6]}
    parquet.write_table(pa.table(table), tmp_path / "2.parquet")
    trace = stragglers.read_trace([tmp_path / "1.parquet", tmp_path / "2.parquet"], columns=names)
    assert_array_equal(trace.compute, [[1.0, 2.0], [NAN, 4.0]])
    assert_array_equal(trace.communication, [[0.1, 0.2], [0.6, 0.4]])
    assert (trace.reading.num_rows, trace.reading.num_duplicates) == (6, 2)


def test_the_layout_of_write_trace(tmp_path):
    stragglers.write_trace(tmp_path / "a.csv", np.array([[1.0, 2.0]]))
    (tmp_path / "b.csv").write_text("worker,unit,seconds,communication\n2,0,3.0,0.5\n0,1,inf,\n")
    trace = stragglers.read_trace([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert trace.workers == ("0", "1", "2")
    assert_array_equal(trace.compute, [[1.0, 2.0, 3.0], [np.inf, NAN, NAN]])
    assert_array_equal(trace.communication, [[NAN, NAN, 0.5], [NAN, NAN, NAN]])


def test_what_cannot_be_one_trace_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    for paths, problem in (
        ([], "must have files; got none"),
        ([tmp_path / "a.npy"], r"a\.npy has the layout NumPy"),
        (write(tmp_path, a=["0 1"], b=["0 x"]), r"the column ms .*b\.csv has 'x' in row 1"),
        ([tmp_path / "a.csv", tmp_path / "no.csv"], r"There is no file .*no\.csv"),
    ):
        with pytest.raises(ValueError, match=problem):
            stragglers.read_trace(paths, columns=COLUMNS if paths and paths[0].suffix == ".csv" else None)


def test_one_file_must_say_who_the_worker_is(tmp_path):
    with pytest.raises(ValueError, match="of several files, each of one worker, worker may be left out"):
        stragglers.read_trace(write(tmp_path, a=["0 1"])[0], columns=COLUMNS)
