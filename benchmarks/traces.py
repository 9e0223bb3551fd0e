"""Benchmark of traces: describing a table of 10^7 operations, against a group-by of the same file with pandas.

Part of `benchmarks`; `python -m benchmarks traces` runs it. Each reading is in a process of its own, which says how
long it took, imports apart, and by how much its memory grew at most.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from benchmarks.timing import Row, json_of_child, peak_mebibytes, ratio

_NUM_RANKS, _NUM_STAGES, _NUM_STEPS = 64, 4, 500
_OPERATIONS = {"forward-compute": 20, "backward-compute": 20, "forward-send": 10, "forward-recv": 10,
               "backward-send": 8, "backward-recv": 8, "grads-reduce-scatter": 1, "params-all-gather": 1,
               "optimizer": 1}  # fmt: skip
"""Name -> how often in a step of a rank's stage; 79 in all, so 10,112,000 rows."""
_REPEATS = 5
_SLOW_RANK = 3


def traces() -> list[Row]:
    """Time and memory of describing, over those of the group-by: pandas reads the three columns that it needs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "operations.parquet"
        parquet.write_table(operations(), path)
        results = [
            {name: json_of_child("benchmarks.traces", name, str(path)) for name in ("describe", "pandas")}
            for _ in range(_REPEATS)
        ]
    return [
        _share_row("time", "seconds", "s", results),
        _share_row("processor time", "processor seconds", "s", results),
        _share_row("peak memory", "mebibytes", "MiB", results),
    ]


def _share_row(quantity: str, figure: str, unit: str, results: list[dict[str, Any]]) -> Row:
    """The median over repetitions of one figure of describing over that of the group-by."""
    describe_figures, pandas_figures = ([result[name][figure] for result in results] for name in ("describe", "pandas"))
    share = ratio(pandas_figures, describe_figures)
    return Row(
        what=f"describing 10^7 operations over a group-by, {quantity}",
        value=f"{share:.2f}",
        target="<= 1",
        met=share <= 1,
        note=f"{statistics.median(describe_figures):.3g} {unit}; pandas {statistics.median(pandas_figures):.3g} {unit}",
        peer=f"pandas {results[0]['pandas']['version']}",
    )


def operations() -> pa.Table:
    """A table of operations like that of ByteDance's traces, step by step; rank 3 takes 1.3 times as long."""
    rng = np.random.default_rng(0)
    operation_of_position = np.repeat(np.arange(len(_OPERATIONS)), list(_OPERATIONS.values()))
    shape = (_NUM_STEPS, _NUM_RANKS, _NUM_STAGES, len(operation_of_position))
    step, rank, stage, position = (index.ravel() for index in np.indices(shape, np.int16))
    slowdown = np.where(rank == _SLOW_RANK, 1.3, 1.0)
    duration = rng.lognormal(-3, 0.1, step.size) * slowdown
    operation = operation_of_position[position].astype(np.int8)
    return pa.table(
        {
            "dp_rank": rank.astype(np.int8),
            "stage": stage.astype(np.int8),
            "rank": (rank * _NUM_STAGES + stage).astype(np.int16),
            "step": step.astype(np.int64) * 7 + 16,
            "optype": pa.DictionaryArray.from_arrays(operation, list(_OPERATIONS)),
            "start_ts": np.cumsum(duration).astype(np.float32),
            "duration": duration.astype(np.float32),
            "seq_id": position.astype(np.int32),
            "mb_id": (position % 20).astype(np.int8),
        }
    )


def describe(path: str) -> str:
    """Describes the trace in the file; returns the version of NumPy."""
    from gcjax import stragglers

    description = stragglers.describe(stragglers.read_trace(path))
    assert description.verdict.workers == (_SLOW_RANK,), description.sentence
    return np.__version__


def group_by(path: str) -> str:
    """Sums the durations of each rank in each step; returns the version of pandas."""
    import pandas as pd

    table = pd.read_parquet(path, columns=["dp_rank", "step", "duration"])
    sums = table.groupby(["dp_rank", "step"])["duration"].sum()
    assert len(sums) == _NUM_RANKS * _NUM_STEPS
    return pd.__version__


def main() -> None:
    """Prints what one reading takes, as JSON, after one of a small file that has everything imported."""
    name, path = sys.argv[1:3]
    reading = {"describe": describe, "pandas": group_by}[name]
    _read_small_file(name)
    start_mebibytes, start_time, start_processor_time = peak_mebibytes(), time.perf_counter(), time.process_time()
    version = reading(path)
    result = {
        "seconds": time.perf_counter() - start_time,
        "processor seconds": time.process_time() - start_processor_time,
        "mebibytes": peak_mebibytes() - start_mebibytes,
        "version": version,
    }
    json.dump(result, sys.stdout)


def _read_small_file(name: str) -> None:
    """Imports what a reading needs, and reads a small file with it."""
    table = pa.table({"dp_rank": [0, 1], "step": [0, 0], "duration": [1.0, 1.0], "optype": ["compute", "compute"]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.parquet"
        parquet.write_table(table, path)
        if name == "pandas":
            import pandas as pd

            pd.read_parquet(path).groupby(["dp_rank", "step"])["duration"].sum()
        else:
            from gcjax import stragglers

            stragglers.describe(stragglers.read_trace(path))


if __name__ == "__main__":
    main()
