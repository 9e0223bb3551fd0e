"""Damaged files of measured times and of results: read as what they say, or refused in words, whatever has happened."""

import json
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
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

OPERATIONS = {
    "dp_rank": [0, 0, 1, 1, 0, 1],
    "stage": [0, 0, 0, 0, 0, 0],
    "step": [3, 3, 3, 3, 9, 9],
    "optype": ["forward-compute", "grads-reduce", "forward-compute", "grads-reduce", "forward-compute", "optimizer"],
    "duration": [1.0, 0.5, 2.0, 0.25, 1.5, 2.5],
}


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
        parquet.write_table(pa.table(OPERATIONS), path, row_group_size=3)
        operations = path.read_bytes()
        with path.open("wb") as file:
            np.save(file, SECONDS)
        array = path.read_bytes()
    alibaba = b"worker,gpu,time,batch_time_norm\n" + b"".join(
        b"%d,0,%d,%d\n" % (i % 3, i // 3, 90 + i) for i in range(9)
    )
    return [ours, table, operations, array, alibaba, b"0,1,2\n1.0,2.0,3.0\n4.0,5.0,6.0\n"]


TRACES = st.sampled_from(trace_files())


def check_trace(data: bytes) -> None:
    """Seconds of a right form, or an error in words."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "trace"
        path.write_bytes(data)
        try:
            seconds = stragglers.read_trace(path).compute
        except ValueError as error:
            assert str(error) and len(str(error)) < 1500
            return
    assert seconds.dtype == np.float64 and seconds.ndim == 2 and seconds.size
    assert not (seconds < 0).any()


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
