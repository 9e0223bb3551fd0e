"""Invariants 1 and 2: exactness on every mask, the residual, monotonicity, dtypes, no recompilation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gcjax import codes
from gcjax.codes import assignments, diagnostics
from gcjax.codes import chunk_systems as small_systems
from gcjax.codes.base import check_progress
from gcjax.testing import check_code
from tests.codes.helpers import KEY, all_or_nothing, distance, exact_codes, without
from tests.parameters import one_in, some

CODES = {name: (code, tolerated) for name, code, tolerated in exact_codes()}
EAGER = ("partial L=2", "multi-message")
# Further sizes and fields of codes that are there as well.
FURTHER = (
    "uncoded load 3", "frc 6 s=2", "crc 5 s=0", "crc 7 s=3", "partial L=3", "partial uneven", "optimal iterative",
    "two parts L=2", "cyclic MDS complex", "Reed-Solomon complex", "Ye-Abbe random", "tree", "whole uneven",
)  # fmt: skip


@pytest.mark.slow(
    "Reed-Solomon",
    "Ye-Abbe",
    "clustered",
    "crc 5 s=1",
    "cyclic MDS real",
    "frc by least squares",
    "multi-message",
    "partial L=2",
    "two parts",
    "uncoded",
)
@pytest.mark.parametrize("name", some([name for name in CODES if name not in FURTHER], FURTHER))
def test_the_contract(name):
    """Every mask decodes exactly or has its true residual; completion times, types, one program."""
    code, tolerated = CODES[name]
    check_code(code, tolerated=tolerated, quick=name not in EAGER)


@pytest.mark.slow
def test_the_whole_contract_of_a_code_of_codes():
    code, tolerated = CODES["clustered"]
    check_code(code, tolerated=tolerated)


@pytest.mark.slow(
    "Reed-Solomon complex",
    "Ye-Abbe random",
    "clustered",
    "crc 7 s=3",
    "frc 6 s=2",
    "optimal whole",
    "tree",
    "two parts L=2",
    "whole uneven",
)
@pytest.mark.parametrize("name", one_in(3, CODES))
def test_lists_and_masks_are_taken_and_nonsense_is_refused(name):
    code, _ = CODES[name]
    a = code.assignment
    mask = [w % 2 == 0 for w in range(a.num_workers)]
    counts = (np.array(mask) * a.loads).tolist()
    expected = code.sent(jnp.asarray(counts))
    for progress in (counts, tuple(counts), np.array(counts), mask, np.array(mask), jnp.asarray(mask)):
        np.testing.assert_array_equal(code.sent(progress), expected)
        assert jax.eval_shape(lambda p=progress: code.plan(p)).encode.shape[0] == a.num_workers
    assert jax.eval_shape(code.plan, counts).residual.shape == ()  # a list of traced values
    for rows in ([[1.0] * a.load] * a.num_workers, np.ones(a.chunks.shape, int)):
        assert jax.eval_shape(lambda rows=rows: code.completion(rows)).shape == ()
    for function in (code.plan, code.sent):
        for progress in ([0.5] * a.num_workers, counts[1:], 1, "all", None, [None] * a.num_workers):
            with pytest.raises(ValueError, match="progress must be"):
                function(progress)
    for finish in ([1.0] * a.num_workers, [[1.0], [1.0, 2.0]], 1.0, np.array(mask)):
        with pytest.raises(ValueError, match="finish must be"):
            code.completion(finish)


def test_a_mask_counts_whole_loads():
    """Eagerly, under jit, and with a mask that is not known yet."""
    code = all_or_nothing()
    np.testing.assert_array_equal(code.assignment.loads, [3, 2])
    for mask, loads in (([True, False], [3, 0]), ([False, True], [0, 2])):
        assert check_progress(code.assignment, mask).tolist() == loads
        assert check_progress(code.assignment, mask).dtype == jnp.int32
        done = jax.jit(lambda mask: check_progress(code.assignment, mask))
        assert done(jnp.asarray(mask)).tolist() == loads == done(mask).tolist()
        np.testing.assert_array_equal(code.plan(mask).encode, code.plan(loads).encode)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=8, deadline=None)
def test_partial_residual_counts_missing_holders_and_never_grows(data):
    num_blocks = data.draw(st.integers(1, 3))
    workers = data.draw(st.integers(4, 12))
    load = data.draw(st.integers(1, min(workers, 5)))
    assignment = assignments.random_order(
        assignments.cyclic(workers, load=load), rng_key=jax.random.key(data.draw(st.integers(0, 9)))
    )
    code = codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY)
    progress = np.array(data.draw(st.lists(st.integers(0, load), min_size=workers, max_size=workers)), np.int32)
    later = np.minimum(
        progress + np.array(data.draw(st.lists(st.integers(0, 2), min_size=workers, max_size=workers))), load
    )
    with jax.enable_x64(True):
        plan = jax.jit(code.plan)
        coding, further = plan(jnp.asarray(progress)), plan(jnp.asarray(later, jnp.int32))
    done = np.zeros(assignment.num_chunks, int)
    for w, p in enumerate(progress):
        done[assignment.chunks[w, :p]] += 1
    np.testing.assert_allclose(coding.residual, np.sqrt(np.maximum(0, num_blocks - done).sum()), atol=1e-7)
    np.testing.assert_allclose(coding.residual, distance(code, coding), atol=1e-7)
    assert float(further.residual) <= float(coding.residual) + 1e-9


@pytest.mark.slow
def test_random_masks_at_size_200_decode_exactly():
    assignment = assignments.order_chunks(assignments.random_regular(200, load=8, rng_key=KEY))
    rng = np.random.default_rng(0)
    for num_blocks in (1, 3):
        code = codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY)
        with jax.enable_x64(True):
            plan = jax.jit(code.plan)
            for _ in range(3):
                progress = np.full(200, 8, np.int32)
                progress[rng.choice(200, 8 - num_blocks, replace=False)] = 0
                coding = plan(jnp.asarray(progress))
                product = codes.chunk_coefficients(assignment, coding.encode, coding.decode)
                np.testing.assert_allclose(product, np.broadcast_to(np.eye(num_blocks), product.shape), atol=1e-9)


@pytest.mark.slow("2", "3", "8")
@pytest.mark.parametrize("num_blocks", [1, 2, 3, 8])
def test_direct_solver_agrees_with_the_table_and_with_lapack(num_blocks, monkeypatch):
    assignment = assignments.random_regular(20, load=9, rng_key=KEY)
    table = codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY)
    monkeypatch.setattr(small_systems, "MAX_TABLE_ENTRIES", 0)
    direct = codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY)
    progress = np.random.default_rng(0).integers(0, 10, (30, 20)).astype(np.int32)
    with jax.enable_x64(True):
        a, b = (jax.jit(jax.vmap(code.plan))(progress) for code in (table, direct))
        np.testing.assert_allclose(a.encode, b.encode, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(a.residual, b.residual, atol=1e-9)
        text = jax.jit(direct.plan).lower(progress[0]).as_text()
    assert "lapack" not in text and "custom_call" not in text


def test_plan_gradient_is_zero_sized_work_for_a_chunk_that_nobody_finished():
    code = codes.partial(assignments.cyclic(6, load=2))
    coding = code.plan(jnp.zeros(6, jnp.int32))
    assert not np.any(coding.encode) and not np.any(coding.decode)
    np.testing.assert_allclose(coding.residual, np.sqrt(6.0), rtol=1e-6)


def test_frc_uses_one_worker_a_group_and_ignore_scales():
    code = codes.fractional_repetition(6, num_stragglers=2)
    coding = jax.jit(code.plan)(jnp.asarray([0, 3, 3, 3, 3, 3], jnp.int32))
    np.testing.assert_array_equal(coding.decode[:, 0, 0], [0, 1, 0, 1, 0, 0])
    coding = jax.jit(codes.ignore_stragglers(4).plan)(jnp.asarray([1, 1, 0, 1], jnp.int32))
    np.testing.assert_allclose(coding.decode[:, 0, 0], [4 / 3, 4 / 3, 0, 4 / 3], rtol=1e-6)


@pytest.mark.parametrize(("num_stragglers", "bound"), [(2, 2e-4), (12, 2e-3)])
def test_crc_decodes_in_float32(num_stragglers, bound):
    code = codes.cyclic_repetition(24, num_stragglers=num_stragglers, rng_key=KEY)
    plan = jax.jit(code.plan)
    for seed in range(5):
        stragglers = np.random.default_rng(seed).choice(24, num_stragglers, replace=False)
        assert plan(without(code, stragglers)).residual < bound


MAKERS = {
    "partial": lambda: codes.partial(assignments.cyclic(4, load=2), num_blocks=2, rng_key=KEY),
    "block coordinate": lambda: codes.block_coordinate(4, redundancies=(0, 1), rng_key=KEY),
    "coded multi-message": lambda: codes.coded_multi_message(4, levels=(1, 2), rng_key=KEY),
    "graph": lambda: codes.graph_code(4, replication=2, rng_key=KEY),
    "regular": lambda: codes.partial(assignments.random_regular(4, load=2, rng_key=KEY)),
    "best order": lambda: codes.partial(assignments.order_chunks(assignments.cyclic(4, load=3))),
}


@pytest.mark.parametrize("name", MAKERS)
def test_codes_can_be_made_inside_jit(name):
    code = MAKERS[name]()
    residual = jax.jit(lambda progress: MAKERS[name]().plan(progress).residual)
    np.testing.assert_array_equal(residual(code.assignment.loads), jax.jit(code.plan)(code.assignment.loads).residual)


@pytest.mark.parametrize(
    "make",
    [
        lambda: codes.alternatives(3),
        lambda: codes.side_by_side(3),
        lambda: codes.clustered(3, num_clusters=2),
        lambda: codes.whole_workers(3),
        lambda: codes.two_part(3, num_uncoded=1),
        lambda: codes.tree_code(3, num_layers=2),
    ],
)
def test_what_is_no_code_is_refused(make):
    with pytest.raises(ValueError, match="needs a GradientCode, for example .*; got 3"):
        make()


@pytest.mark.parametrize("coefficients", ["x", [["x"] * 2] * 4, {"a": 1}])
def test_coefficients_that_are_no_numbers_are_refused(coefficients):
    with pytest.raises(ValueError, match=r"^coefficients must be numbers, float\[W, K\] or .*; got .*\."):
        codes.fixed_code(assignments.cyclic(4, load=2), coefficients)


@pytest.mark.parametrize(
    "make",
    [
        codes.partial,
        codes.one_step,
        codes.optimal_decoding,
        lambda value: codes.unbiased(value, straggler_probabilities=0.5),
        lambda value: codes.fixed_code(value, np.ones((2, 2))),
        lambda value: assignments.random_order(value, rng_key=KEY),
        lambda value: diagnostics.graph_error(value, [True]),
        lambda value: diagnostics.expander_bound(value, 1),
    ],
)
def test_what_is_no_assignment_is_refused(make):
    with pytest.raises(ValueError, match="who holds what must be an Assignment, .*; got 3"):
        make(3)


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([[-1, 0], [1, 2]], r"among 0, ..., 2, with -1 only behind .*; got \[-1, 0\] of worker 0"),
        ([[0, 1], [2, 3]], r"among 0, ..., 2, .*; got \[2, 3\] of worker 1"),
        ([[0, 1], [2, -2]], r"among 0, ..., 2, .*; got \[2, -2\] of worker 1"),
        ([[0.5, 1.0]], r"must be a NumPy array int\[W, K\]; got float64\[1, 2\]"),
        ([0, 1, 2], r"must be a NumPy array int\[W, K\]; got int64\[3\]"),
    ],
)
def test_chunks_that_are_not_as_they_should_be_are_refused(chunks, message):
    with pytest.raises(ValueError, match=message):
        codes.partial(codes.Assignment(np.array(chunks), 3))
    with pytest.raises(ValueError, match="must be a NumPy array .*; got a list"):
        codes.optimal_decoding(codes.Assignment(chunks, 3))


def test_a_chunk_twice_at_one_worker_cannot_be_two_blocks():
    twice = codes.Assignment(np.array([[0, 0], [1, 1]]), 2)
    with pytest.raises(ValueError, match=r"none may have it twice; worker 0 has \[0, 0\]"):
        codes.partial(twice, num_blocks=2, rng_key=KEY)
    assert codes.partial(twice).plan([2, 2]).residual < 1e-6


def test_equal_assignments_have_equal_hashes():
    one, other = (codes.Assignment(np.array([[0, 1]], dtype), 2) for dtype in (np.int32, np.int64))
    assert one == other and hash(one) == hash(other)


def test_same_key_same_code():
    make = lambda key: codes.cyclic_repetition(6, num_stragglers=2, rng_key=key)  # noqa: E731
    progress = jnp.full(6, 3)
    one, same, other = (jax.jit(make(jax.random.key(k)).plan)(progress).encode for k in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: assignments.cyclic(4, load=5), "load must be a whole number between 1 and 4; got 5"),
        (lambda: assignments.repetition(10, load=3), "divides the workers; got load=3, num_workers=10"),
        (lambda: codes.fractional_repetition(10, num_stragglers=2), "num_workers=9 or 12"),
        (lambda: codes.cyclic_repetition(4, num_stragglers=4, rng_key=KEY), "between 0 and 3; got 4"),
        (lambda: codes.ignore_stragglers(0), "num_workers must be a whole number at least 1; got 0"),
        (lambda: codes.block_coordinate(3, redundancies=1, rng_key=KEY), "redundancies must be a sequence"),
        (lambda: codes.coded_multi_message(3, levels=3, rng_key=KEY), "levels must be a sequence"),
        (lambda: codes.coded_multi_message("3", levels=(1, 3), rng_key=KEY), "num_workers must be a whole number"),
        (lambda: codes.completion_time(3, jnp.ones(3)), "completion_time needs a GradientCode"),
        (
            lambda: codes.batch_raptor(4, num_chunks=4, num_stragglers=1, error=5e-324, rng_key=KEY),
            "error must be at least 1e-06 and below 1/4",
        ),
        (lambda: assignments.from_matrix([[1, 0], [0, 0]]), "nobody holds chunk 1"),
        (lambda: assignments.from_matrix([[1, 2]]), "must be 0/1"),
        (lambda: assignments.from_graph([[0, 1], [0, 0]]), "square and symmetric"),
        (lambda: assignments.random_regular(5, load=3, rng_key=KEY), "num_workers \\* load even"),
        (lambda: codes.partial(assignments.cyclic(4, load=2), num_blocks=2), "needs rng_key"),
        (lambda: codes.partial(assignments.cyclic(4, load=2), num_blocks=0), "at least 1; got 0"),
        (lambda: codes.uncoded(3).plan(jnp.asarray([1, 2, 1])), "got 2 for worker 1, which holds 1"),
        (lambda: all_or_nothing().plan(jnp.asarray([3, 3])), "got 3 for worker 1, which holds 2"),
        (lambda: codes.uncoded(3).plan(jnp.asarray([1, 1])), "Was it made for another assignment"),
        (lambda: codes.uncoded(3).plan(jnp.ones(3, jnp.float32)), r"progress must be int\[3\].*float32\[3\]\.$"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_empty_slots_have_no_coefficients():
    ragged = assignments.from_matrix(np.array([[1, 1, 0], [1, 0, 1], [1, 1, 1]]))
    coding = codes.partial(ragged).plan(ragged.loads)
    is_empty = ragged.chunks < 0
    assert is_empty.any() and not np.asarray(coding.encode)[:, 0][is_empty].any()
