"""Tables of operations and of named columns, and what is done about times that are missing or there twice."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gcjax import stragglers
from gcjax.stragglers.traces import base

NAN, INF = np.nan, np.inf
COLUMNS = {"worker": "host", "step": "iteration", "compute": "seconds"}
KINDS = pytest.mark.parametrize("kind", ["csv", "parquet"])


@pytest.fixture
def read(tmp_path):
    """The trace in a file with these columns."""

    def trace(content, kind="parquet", **options):
        path = tmp_path / f"trace.{kind}"
        table = pa.table(content)
        csv.write_csv(table, path) if kind == "csv" else parquet.write_table(table, path)
        return stragglers.read_trace(path, **options)

    return trace


def named(rows):
    """The columns of (host, iteration, seconds)."""
    host, iteration, seconds = zip(*rows, strict=True)
    return {"host": list(host), "iteration": list(iteration), "seconds": list(seconds)}


OPERATIONS = [  # dp_rank, stage, step, optype, duration
    (4, 0, 10, "forward-compute", 1.0),
    (4, 0, 10, "backward-compute", 2.0),
    (4, 1, 10, "forward-compute", 5.0),
    (4, 1, 10, "forward-send", 0.5),
    (4, 0, 10, "backward-recv", 0.25),
    (2, 0, 12, "forward-compute", 8.0),
    (2, 1, 12, "grads-reduce-scatter", 3.0),
    (2, 1, 12, "params-all-gather", 1.0),
    (4, 1, 12, "optimizer", 6.0),
]


def operations(rows=OPERATIONS, **more):
    names = ("dp_rank", "stage", "step", "optype", "duration")
    return {name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)} | more


@KINDS
def test_operations_are_summed_over_a_rank_and_meant_over_its_stages(read, kind):
    trace = read(operations(), kind)
    assert trace.workers == ("2", "4") and trace.steps.tolist() == [10, 12]
    np.testing.assert_array_equal(trace.compute, [[NAN, 4.0], [4.0, 6.0]])  # the last has one stage only
    np.testing.assert_array_equal(trace.communication, [[NAN, 0.375], [2.0, 0.0]])
    assert trace.reading == base.Reading(
        "operations", 9, 0, 0, 1, workers_joined_late=(0,), workers_left_early=(), num_incomplete=1
    )
    assert not trace.is_relative


def test_operations_without_stages_and_in_any_order(read):
    columns = operations()
    del columns["stage"]
    backwards = {name: values[::-1] for name, values in columns.items()}
    for trace in (
        read(columns),
        read(backwards),
        read(columns | {"optype": pa.array(columns["optype"]).dictionary_encode()}),
    ):
        np.testing.assert_array_equal(trace.compute, [[NAN, 8.0], [8.0, 6.0]])
        np.testing.assert_array_equal(trace.communication, [[NAN, 0.75], [4.0, 0.0]])


@pytest.mark.parametrize(
    "name",
    [
        "send",
        "forward-recv",
        "all-reduce",
        "reduce-scatter",
        "all-gather",
        "broadcast",
        "AllReduce",
        "ALL_GATHER",
        "ReduceScatter",
        "forward-recv ",
        "all-reduce-start",
        "all-to-all",
    ],
)
def test_what_communicates_ends_like_it(read, name):
    trace = read(operations([(0, 0, 0, name, 2.0), (0, 0, 0, f"{name}-compute", 3.0)]))
    assert (trace.compute.item(), trace.communication.item()) == (3.0, 2.0)


def test_kernels_of_nccl_communicate(read):
    assert read(operations([(0, 0, 0, "ncclDevKernel_AllReduce_Sum_f32", 2.0)])).communication.item() == 2.0


@KINDS
def test_the_mean_is_over_the_stages_that_there_are(read, kind):
    """Rank 1 lacks stages 1 and 2 in step 5, rank 2 stage 2 in step 6."""
    rows = [(rank, stage, step, "x", 1.0) for rank in range(3) for stage in range(3) for step in (5, 6)]
    left_out = {(1, 1, 5), (1, 2, 5), (2, 2, 6)}
    trace = read(operations([row for row in rows if row[:3] not in left_out]), kind)
    np.testing.assert_array_equal(trace.compute, np.ones((2, 3)))
    assert trace.reading.num_incomplete == 2
    assert "means are over the others: 2 steps of a worker." in str(stragglers.describe(trace))


def test_operations_that_are_wrong_are_refused_with_the_place(read):
    with pytest.raises(ValueError, match="column dp_rank of a trace must hold whole numbers; .* has 0.5 in row 3"):
        read(operations() | {"dp_rank": [0.0, 1.0, 0.5, *[2.0] * 6]})
    with pytest.raises(ValueError, match="column step of a trace must hold whole numbers; .* has nothing in row 2"):
        read(operations() | {"step": [10, None, *[11] * 7]})
    with pytest.raises(ValueError, match="column duration of a trace must hold numbers; .* has 'long' in row 9"):
        read(operations() | {"duration": [*["1.5"] * 8, "long"]}, "csv")
    with pytest.raises(ValueError, match="has 900 operations, but 900 steps of 900 ranks"):
        rows = [(10**4 * i, 0, 10**4 * i, "x", 1.0) for i in range(900)]
        read(operations(rows))


@KINDS
def test_named_columns(read, kind):
    rows = [("b", 7, 2.0), ("a", 5, 1.0), ("b", 5, 3.0), ("c", 7, INF)]
    trace = read(named(rows) | {"wait": [0.5, None, 0.25, 0.0]}, kind, columns=COLUMNS | {"communication": "wait"})
    assert trace.workers == ("a", "b", "c") and trace.steps.tolist() == [5, 7]
    np.testing.assert_array_equal(trace.compute, [[1.0, 3.0, NAN], [NAN, 2.0, INF]])
    np.testing.assert_array_equal(trace.communication, [[NAN, 0.25, NAN], [NAN, 0.5, 0.0]])
    assert trace.reading.layout == "named columns" and trace.reading.num_rows == 4
    assert read(named(rows), kind, columns=COLUMNS).communication is None


def test_an_empty_cell_is_no_worker(read):
    rows = named([("a", 0, 1.0), ("b", 0, 1.0), ("", 1, 2.0)])
    for kind in ("csv", "parquet"):
        with pytest.raises(ValueError, match="must have a worker in each row; .* has none in row 3"):
            read(rows, kind, columns=COLUMNS)


def test_workers_are_those_that_have_rows(read):
    table = {"worker": [70, 2, 10**9], "unit": [0, 0, 0], "seconds": [1.0, 2.0, 3.0]}
    trace = read(table)
    assert trace.workers == ("2", "70", str(10**9)) and trace.compute.tolist() == [[2.0, 1.0, 3.0]]


def test_numbers_of_workers_stay_in_a_file(tmp_path):
    for names in [("2", "70"), ("01", "1"), ("-1", "4"), ("70", "2")]:
        trace = base.trace_of_array(np.ones((2, 2)))._replace(workers=names)
        stragglers.write_trace(tmp_path / "trace.csv", trace)
        assert stragglers.read_trace(tmp_path / "trace.csv").workers == names


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("1", " 1"), ("1",)),
        (("1", "1.0"), ("1", "1.0")),
        (("01", "02"), ("01", "02")),
        (("0x10", "0x11"), ("0x10", "0x11")),
        (("1.5", "2.5"), ("1.5", "2.5")),
        (("1.0", "2.0"), ("1", "2")),
        (("1.10", "1.1", "1.2"), ("1.1", "1.10", "1.2")),
        (("1e2", "10e1"), ("10e1", "1e2")),
        (("true", "True", "1"), ("1", "True", "true")),
        (("10:00", "10:00:00"), ("10:00", "10:00:00")),
        (("+1", "1"), ("+1", "1")),
        ((str(2**63), str(2**63 + 3)), (str(2**63), str(2**63 + 3))),
        (("1.0", "0.0"), ("0", "1")),
        (("01", " 1"), ("01", "1")),
        (("3", "nan", "b"), ("3", "b", "nan")),
    ],
)
def test_names_in_csv(tmp_path, cells, expected):
    lines = [f"{cell},{step},1.5\n" for step, cell in enumerate(cells)]
    (tmp_path / "trace.csv").write_text("host,iteration,seconds\n" + "".join(lines))
    assert stragglers.read_trace(tmp_path / "trace.csv", columns=COLUMNS).workers == expected


def test_names_in_csv_of_the_own_layout(tmp_path):
    (tmp_path / "trace.csv").write_text("worker,unit,seconds\n01,0,1.5\n1,0,2.5\n2,0,3.5\n")
    trace = stragglers.read_trace(tmp_path / "trace.csv")
    assert trace.workers == ("01", "1", "2") and trace.compute.tolist() == [[1.5, 2.5, 3.5]]
    for wrong in ("0.5", "-1.5", "true"):
        (tmp_path / "trace.csv").write_text(f"worker,unit,seconds\n{wrong},0,1.5\n")
        with pytest.raises(ValueError, match="the column worker of a trace must hold (whole )?numbers"):
            stragglers.read_trace(tmp_path / "trace.csv")


def test_a_missing_worker_is_refused(tmp_path):
    (tmp_path / "trace.csv").write_text("host,iteration,seconds\n1,0,1.0\nNaN,1,2.0\n")
    with pytest.raises(ValueError, match="has none in row 2"):
        stragglers.read_trace(tmp_path / "trace.csv", columns=COLUMNS)


def test_names_of_digits_are_kept_apart(read):
    for kind in ("csv", "parquet"):
        trace = read(named([("01", 0, 1.0), ("1", 0, 2.0), ("10", 0, 3.0), ("2", 0, 4.0)]), kind, columns=COLUMNS)
        assert trace.workers == ("01", "1", "2", "10") and trace.compute.tolist() == [[1.0, 2.0, 4.0, 3.0]]


def test_workers_are_in_the_order_of_their_numbers_and_names(read):
    trace = read(named([(10, 0, 1.0), (9, 0, 2.0), (-1, 0, 3.0)]), columns=COLUMNS)
    assert trace.workers == ("-1", "9", "10") and trace.compute.tolist() == [[3.0, 2.0, 1.0]]
    trace = read(named([("w10", 0, 1.0), ("w9", 0, 2.0), ("v11", 0, 3.0), ("w", 0, 4.0)]), columns=COLUMNS)
    assert trace.workers == ("v11", "w", "w9", "w10") and trace.compute.tolist() == [[3.0, 4.0, 2.0, 1.0]]
    trace = read(named([("10.0.0.10", 0, 1.0), ("10.0.0.9", 0, 2.0), ("9" * 5000, 0, 3.0)]), columns=COLUMNS)
    assert trace.workers == ("10.0.0.9", "10.0.0.10", "9" * 5000)
    large = pa.array([2**64 - 1, 9, 2**63], pa.uint64())
    trace = read({"host": large, "iteration": [0, 0, 0], "seconds": [1.0, 2.0, 3.0]}, columns=COLUMNS)
    assert trace.workers == ("9", str(2**63), str(2**64 - 1)) and trace.compute.tolist() == [[2.0, 3.0, 1.0]]


def test_a_known_layout_can_be_read_by_the_names_of_its_columns(read):
    table = {"worker": [0, 1], "unit": [0, 0], "seconds": [1.0, 2.0], "other": [3.0, 4.0]}
    columns = {"worker": "worker", "step": "unit", "compute": "other"}
    assert read(table, columns=columns).compute.tolist() == [[3.0, 4.0]]
    assert read(table).compute.tolist() == [[1.0, 2.0]]


def test_times_in_other_units(read):
    columns = COLUMNS | {"communication": "wait"}
    rows = named([("a", 0, 1500.0), ("b", 0, INF)]) | {"wait": [250.0, 0.0]}
    trace = read(rows, columns=columns, scale=1e-3)
    assert trace.compute.tolist() == [[1.5, INF]] and trace.communication.tolist() == [[0.25, 0.0]]
    for scale in (0.0, -1.0, INF, NAN, "1", None):
        with pytest.raises(ValueError, match="scale must be (above 0 and finite|one number); got"):
            read(rows, columns=columns, scale=scale)


@pytest.mark.parametrize(
    ("rows", "columns", "match"),
    [
        ([("a", 0, 1.0)], {"worker": "host"}, "columns must name worker, step and compute"),
        ([("a", 0, 1.0)], COLUMNS | {"rank": "host"}, "columns must name .*'rank': 'host'"),
        ([("a", 0, 1.0)], COLUMNS | {"step": "iter"}, "has no column 'iter', but 'host', 'iteration', 'seconds'"),
        ([("a", 0, 1.0), (None, 1, 1.0)], COLUMNS, "must have a worker in each row; .* has none in row 2"),
        ([("a", 0, 1.0), ("a", 1, -1.0)], COLUMNS, "seconds >= 0.*got -1 for unit 1 of worker 0"),
        ([("a", 0, 1.0), ("a", 0.5, 1.0)], COLUMNS, "column iteration .* whole numbers; .* has 0.5 in row 2"),
        ([("a", 0, "1.0"), ("a", 1, "x" * 99)], COLUMNS, r"column seconds .* numbers; .* has 'xxx+\.\.\. in row 2"),
        ([("a", 0, [1.0])], COLUMNS, r"column seconds .* numbers; .* has \[1.0\] in row 1"),
        ([(["a"], 0, 1.0)], COLUMNS, "column host of a trace must hold numbers or text"),
    ],
)  # fmt: skip
def test_named_columns_that_are_wrong_are_refused_with_the_place(read, rows, columns, match):
    with pytest.raises(ValueError, match=match):
        read(named(rows), columns=columns)


def test_of_two_rows_for_a_cell_the_later_one_counts(read):
    rows = [("a", 0, 1.0), ("b", 0, 2.0), ("a", 0, 3.0), ("a", 1, 4.0), ("b", 1, NAN), ("a", 0, 5.0)]
    trace = read(named(rows), columns=COLUMNS)
    np.testing.assert_array_equal(trace.compute, [[5.0, 2.0], [4.0, NAN]])
    assert (trace.reading.num_rows, trace.reading.num_duplicates) == (6, 2)


def test_steps_that_no_row_has_get_no_row_and_are_counted(read):
    trace = read(named([("a", 3, 1.0), ("a", 10, 2.0), ("a", 4, 3.0)]), columns=COLUMNS)
    assert trace.steps.tolist() == [3, 4, 10] and trace.compute.tolist() == [[1.0], [3.0], [2.0]]
    assert trace.reading.num_missing_steps == 5


def test_gaps_and_workers_that_join_or_leave(read):
    present = {"stays": "11111", "gappy": "10101", "joins": "00111", "leaves": "11100", "visits": "01010"}
    rows = [(name, step, 1.0) for name, steps in present.items() for step in range(5) if steps[step] == "1"]
    trace = read(named(rows), columns=COLUMNS)
    assert trace.workers == ("gappy", "joins", "leaves", "stays", "visits")
    np.testing.assert_array_equal(~np.isnan(trace.compute.T), [[c == "1" for c in present[w]] for w in trace.workers])
    assert trace.reading.num_gaps == 2 + 1
    assert (trace.reading.workers_joined_late, trace.reading.workers_left_early) == ((1, 4), (2, 4))


def test_a_worker_without_a_time_neither_joins_nor_leaves(read):
    trace = read(named([("a", 0, 1.0), ("b", 0, NAN), ("a", 1, 1.0)]), columns=COLUMNS)
    assert (trace.reading.workers_joined_late, trace.reading.workers_left_early, trace.reading.num_gaps) == ((), (), 0)


def test_a_trace_of_hardly_any_cell_is_refused(read):
    rows = [(f"w{i}", i, 1.0) for i in range(102)]
    with pytest.raises(ValueError, match="at least one in 100 .* there are 102 steps and 102 workers, but 102 rows"):
        read(named(rows), columns=COLUMNS)
    assert read(named(rows[:100]), columns=COLUMNS).compute.shape == (100, 100)


def test_an_array_in_parquet(read):
    """A column a worker: what pandas writes of an array with numbered columns."""
    seconds = np.random.default_rng(0).exponential(size=(7, 12)).astype(np.float32)
    seconds[3, 4], seconds[5, 6] = NAN, INF
    trace = read({str(worker): seconds[:, worker] for worker in range(12)})
    np.testing.assert_array_equal(trace.compute, seconds)
    assert trace.reading == base.Reading("column a worker", 7, 0, 1, 0, (), ())
    with pytest.raises(ValueError, match="got -1 for unit 1 of worker 2"):
        read({str(worker): [1.0, -1.0 if worker == 2 else 1.0] for worker in range(3)})


SECONDS = st.one_of(st.floats(0, 1e300), st.sampled_from([NAN, INF, 0.0, 5e-324]))
TABLES = arrays.arrays(np.float64, arrays.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=SECONDS)


@given(TABLES, st.booleans(), st.integers(-20, 2**40))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_to_the_bit(tmp_path_factory, seconds, has_communication, first_step):
    path = tmp_path_factory.mktemp("round") / "trace.csv"
    trace = base.trace_of_array(seconds, seconds[::-1] if has_communication else None)
    trace = trace._replace(steps=trace.steps * 3 + first_step)
    stragglers.write_trace(path, trace)
    again = stragglers.read_trace(path)
    np.testing.assert_array_equal(again.compute.view(np.int64), trace.compute.view(np.int64))
    assert (again.communication is not None) == has_communication
    if has_communication:
        np.testing.assert_array_equal(again.communication, trace.communication)
    np.testing.assert_array_equal(again.steps, trace.steps)
    assert (again.reading.workers_joined_late, again.reading.workers_left_early) == (
        trace.reading.workers_joined_late,
        trace.reading.workers_left_early,
    )


@given(TABLES, st.randoms(use_true_random=False), st.sampled_from(["csv", "parquet"]))
@settings(max_examples=60, deadline=None)
def test_rows_in_any_order_are_one_trace(tmp_path_factory, seconds, random, kind):
    """Named columns, shuffled, where cells without a time may have no row; steps that nobody has are gone."""
    path = tmp_path_factory.mktemp("rows") / f"trace.{kind}"
    rows = [(f"w{w}", t, seconds[t, w]) for t, w in np.ndindex(*seconds.shape)]
    rows = [row for row in rows if not (np.isnan(row[2]) and random.random() < 0.5)]
    if not rows:
        return
    random.shuffle(rows)
    table = pa.table(named(rows))
    csv.write_csv(table, path) if kind == "csv" else parquet.write_table(table, path)
    trace = stragglers.read_trace(path, columns=COLUMNS)
    workers = [int(name[1:]) for name in trace.workers]
    np.testing.assert_array_equal(trace.compute, seconds[np.ix_(trace.steps, workers)])
    rest = np.delete(np.delete(seconds, trace.steps, axis=0), [], axis=1)
    assert np.isnan(rest).all()


def test_workers_with_fractions_are_in_the_order_of_their_numbers(read):
    trace = read(named([(10.5, 0, 1.0), (2.0, 0, 2.0)]), columns=COLUMNS)
    assert trace.workers == ("2", "10.5") and trace.compute.tolist() == [[2.0, 1.0]]
    with pytest.raises(ValueError, match="must have a worker in each row; .* has none in row 2"):
        read(named([(10.5, 0, 1.0), (NAN, 0, 2.0)]), columns=COLUMNS)


def test_numbers_that_no_float_is_are_rounded_and_other_types_are_refused(read):
    assert read(named([("a", 0, 2**53 + 1), ("b", 0, 1)]), columns=COLUMNS).compute.tolist() == [[2.0**53, 1.0]]
    nanoseconds = pa.array([1_500_000_001, 2], pa.duration("ns"))
    with pytest.raises(ValueError, match="column seconds of a trace must hold numbers; .* in row 1"):
        read({"host": ["a", "b"], "iteration": [0, 0], "seconds": nanoseconds}, columns=COLUMNS)


def test_an_operation_without_a_name_is_refused(read):
    names = [None, *[row[3] for row in OPERATIONS[1:]]]
    with pytest.raises(ValueError, match="column optype of a trace must have a name in each row"):
        read(operations() | {"optype": names})


def test_numbers_that_are_too_large_are_refused_with_the_largest(read):
    with pytest.raises(ValueError, match=r"whole numbers up to 2\^53, 9e\+15; .* has 1760000000000000000 in row 1"):
        read({"worker": [0], "unit": [1760000000000000000], "seconds": [1.0]})


def test_files_by_what_they_are(tmp_path):
    text = b"worker,unit,seconds\n0,0,1.5\n"
    (tmp_path / "trace.csv").write_bytes(gzip.compress(text))
    assert stragglers.read_trace(tmp_path / "trace.csv").compute.tolist() == [[1.5]]
    packed = gzip.compress(text)
    (tmp_path / "trace.csv").write_bytes(packed[:15] + b"\xff\xff\xff" + packed[18:])
    with pytest.raises(ValueError, match="file that can be read"):
        stragglers.read_trace(tmp_path / "trace.csv")
    np.savez(tmp_path / "trace.npz", a=np.ones((2, 2)))
    with pytest.raises(ValueError, match="is an Arrow or a zip file"):
        stragglers.read_trace(tmp_path / "trace.npz")
    for name, data in {"trace.parquet": b"\x00\x01,\n1", "trace.NPY": b"\x93NUMP"}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=rf"{name}: it does not begin as a \.{name[6:]} file does; it is damaged"):
            stragglers.read_trace(tmp_path / name)
