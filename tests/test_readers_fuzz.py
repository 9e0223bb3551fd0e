"""Damaged files of measured times and of results: read as what they say, or refused in words, whatever has happened."""

import json
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gcjax import analysis, stragglers
from tests.analysis.results import results
from tests.mutations import damaged

FUZZ = int(os.environ.get("GCJAX_FUZZ", "1"))
quick = settings(max_examples=100, suppress_health_check=list(HealthCheck))
long = settings(max_examples=1000 * FUZZ, suppress_health_check=list(HealthCheck), derandomize=False, print_blob=True)

SECONDS = np.array([[1.0, 20.0, 3.5], [np.nan, 40.0, 0.25], [5.25, np.inf, 7.0], [1e-3, 1e6, 2.0]])


def trace_files() -> list[bytes]:
    """The same times in every layout."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        stragglers.write_trace(path, SECONDS)
        ours = path.read_bytes()
        unit, worker = np.indices(SECONDS.shape)
        columns = {"worker": worker.ravel(), "unit": unit.ravel(), "seconds": SECONDS.ravel()}
        parquet.write_table(pa.table(columns), path)
        table = path.read_bytes()
        with path.open("wb") as file:
            np.save(file, SECONDS)
        array = path.read_bytes()
        parquet.write_table(pa.table({str(worker): SECONDS[:, worker] for worker in range(3)}), path)
        wide = path.read_bytes()
        names = ["forward-compute", "forward-send", "backward-compute"] * 4
        operations = pa.table(
            {
                "dp_rank": worker.ravel(),
                "stage": [0, 1] * 6,
                "step": unit.ravel() + 7,
                "optype": pa.array(names).dictionary_encode(),
                "duration": SECONDS.ravel(),
            }
        )
        parquet.write_table(operations, path, row_group_size=5)
        of_operations = [path.read_bytes()]
        csv.write_csv(operations.set_column(3, "optype", pa.array(names)), path)
        of_operations.append(path.read_bytes())
    alibaba = b"worker,gpu,time,batch_time_norm\n" + b"".join(
        b"%d,0,%d,%d\n" % (i % 3, i // 3, 90 + i) for i in range(9)
    )
    return [ours, table, array, wide, *of_operations, alibaba, b"0,1,2\n1.0,2.0,3.0\n4.0,5.0,6.0\n"]


TRACES = st.sampled_from(trace_files())


NAMED = {"worker": "host", "step": "iteration", "compute": "seconds", "communication": "wait"}


def named_files() -> list[bytes]:
    """A table of another layout, as CSV and as Parquet."""
    columns = {"host": ["a", "b", "a", "b"], "iteration": [3, 3, 4, 4], "seconds": [1.0, 2.5, None, np.inf]}
    table = pa.table(columns | {"wait": [0.25, 1e6, 0.0, None]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        csv.write_csv(table, path)
        text = path.read_bytes()
        parquet.write_table(table, path)
        return [text, path.read_bytes()]


NAMED_TRACES = st.sampled_from(named_files())


def check_trace(data: bytes, columns: dict[str, str] | None = None) -> None:
    """Seconds of a right form, or an error in words."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "trace"
        path.write_bytes(data)
        try:
            trace = stragglers.read_trace(path, columns=columns)
        except ValueError as error:
            assert str(error) and len(str(error)) < 1500
            return
    tables = [trace.compute] + ([] if trace.communication is None else [trace.communication])
    for seconds in tables:
        assert seconds.dtype == np.float64 and seconds.size
        assert seconds.shape == (len(trace.steps), len(trace.workers))
        assert not (seconds < 0).any()
    assert (np.diff(trace.steps) > 0).all() and len(set(trace.workers)) == len(trace.workers)


@quick
@given(TRACES.flatmap(damaged))
@example(b"\x93NUMPY\x01\x00v\x00{'descr': '<f8'\x93NUMPY" + b" " * 110)  # a header that ends too early, in Python
def test_damaged_traces(data):
    check_trace(data)


@pytest.mark.slow
@long
@given(TRACES.flatmap(damaged))
def test_many_damaged_traces(data):
    check_trace(data)


@quick
@given(NAMED_TRACES.flatmap(damaged))
def test_damaged_traces_with_named_columns(data):
    check_trace(data, NAMED)


@pytest.mark.slow
@long
@given(NAMED_TRACES.flatmap(damaged))
def test_many_damaged_traces_with_named_columns(data):
    check_trace(data, NAMED)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    analysis.save(results(), folder)
    return folder


def check_results(folder: Path, draw: st.DataObject) -> None:
    """One damaged file of a sealed folder: refused by its name, unless it still says the same."""
    path = draw.draw(st.sampled_from(sorted(path for path in folder.iterdir() if path.suffix in {".json", ".parquet"})))
    whole = path.read_bytes()
    data = draw.draw(damaged(whole))
    path.write_bytes(data)
    try:
        analysis.load(folder)
    except ValueError as error:
        assert path.name in str(error)
    else:
        assert data == whole or (path.suffix == ".json" and json.loads(data) == json.loads(whole))  # other spaces
    finally:
        path.write_bytes(whole)


@quick
@given(st.data())
def test_damaged_results(run_folder, data):
    check_results(run_folder, data)


@pytest.mark.slow
@long
@given(st.data())
def test_many_damaged_results(run_folder, data):
    check_results(run_folder, data)
