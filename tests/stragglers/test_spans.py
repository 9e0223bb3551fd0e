"""Tables that say when steps began and ended, instead of how long they took."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from gcjax import stragglers

SPANS = {"worker": "host", "step": "iteration", "start": "begun", "end": "done"}


@pytest.mark.parametrize(
    ("spans", "scale"),
    [
        ([("10.25", "10.75"), ("11", "")], 1.0),
        ([("10250", "10750"), ("11000", "")], 1e-3),
        ([("1766000000250000001", "1766000000750000001"), ("1766000000250000001", "")], 1e-9),
        ([("2026-11-01T08:00:00.250", "2026-11-01T08:00:00.750"), ("2026-11-01T08:00:01.000", "")], 1.0),
        ([("2026-11-01 08:00:00.250Z", "2026-11-01 08:00:00.750Z"), ("2026-11-01 08:00:01Z", "")], 1.0),
    ],
)
def test_times_from_start_to_end(tmp_path, spans, scale):
    lines = [f"a,{step},{start},{end}\n" for step, (start, end) in enumerate(spans)]
    (tmp_path / "log.csv").write_text("host,iteration,begun,done\n" + "".join(lines))
    trace = stragglers.read_trace(tmp_path / "log.csv", columns=SPANS, scale=scale)
    np.testing.assert_array_equal(trace.compute, [[0.5], [np.nan]])


@pytest.mark.parametrize("write", [csv.write_csv, parquet.write_table])
def test_spans_that_are_none_are_refused(tmp_path, write):
    def read(starts, ends, columns=SPANS, scale=1.0):
        write(pa.table({"host": ["a", "a"], "iteration": [0, 1], "begun": starts, "done": ends}), tmp_path / "log")
        return stragglers.read_trace(tmp_path / "log", columns=columns, scale=scale)

    with pytest.raises(ValueError, match=r"the column done of a trace must not be before begun; .* in row 2"):
        read([1.0, 3.0], [2.0, 2.5])
    with pytest.raises(ValueError, match="the column done of a trace must hold numbers"):
        read([1.0, 3.0], ["x", "y"])
    dates = np.array(["2026-11-01T08:00:00", "2026-11-01T08:00:01"], "datetime64[ms]")
    with pytest.raises(ValueError, match="scale is for numbers; the column begun of .* has dates"):
        read(dates, dates, scale=1e-3)
    with pytest.raises(ValueError, match="columns must name worker, step and compute .or start and end"):
        read(dates, dates, SPANS | {"compute": "done"})
