"""The partial-straggler paper: its numbers, the kernels behind them against plain numpy, the command end to end."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.partial_stragglers import approximate, exact, published, report, simulate, systems
from experiments.partial_stragglers.assignments import balanced
from experiments.partial_stragglers.optimal_decoding import optimal_errors
from gcjax import cli, codes, files, progress, stragglers
from gcjax.codes import assignments, diagnostics
from tests.parameters import some

CONFIGS = Path(__file__).parents[2] / "configs" / "partial_stragglers"
KEY = jax.random.key(3)
SPEEDS = stragglers.worker_speeds(stragglers.exponential(mean=1.0))


def dense(assignment, coefficients):
    """float64[N·L, W]: what each worker sends, as a column."""
    matrix = np.zeros((assignment.num_workers, assignment.num_chunks, coefficients.shape[2]))
    for w, k in zip(*np.nonzero(assignment.chunks >= 0), strict=True):
        matrix[w, assignment.chunks[w, k]] = coefficients[w, k]
    return matrix.reshape(assignment.num_workers, -1).T


def least_error(matrix, chosen, num_blocks):
    """The least residual, by numpy."""
    wanted = np.tile(np.eye(num_blocks), (len(matrix) // num_blocks, 1))
    if not len(chosen):
        return np.linalg.norm(wanted)
    weights = np.linalg.lstsq(matrix[:, chosen], wanted, rcond=None)[0]
    return np.linalg.norm(matrix[:, chosen] @ weights - wanted)


def uneven():
    return balanced(num_workers=20, num_chunks=23, loads=(2, 5, 8), rng_key=KEY)


@pytest.mark.parametrize(
    ("assignment", "num_blocks"),
    [
        (assignments.random_regular(36, load=4, rng_key=KEY), 1),
        (uneven(), 3),
        (assignments.repetition(20, load=4), 1),  # messages that depend on each other
        (assignments.cyclic(64, load=4), 1),  # a singular circulant
        (
            codes.Assignment(np.array([[0, 1, 2, 3], [0, -1, -1, -1], [1, -1, -1, -1], [2, -1, -1, -1]]), 4),
            1,
        ),  # one does
    ],
)
def test_decoding_after_every_arrival_is_that_of_lstsq(assignment, num_blocks):
    rng = np.random.default_rng(0)
    coefficients = rng.normal(size=(*assignment.chunks.shape, num_blocks)) if num_blocks > 1 else np.ones((1, 1, 1))
    coefficients = np.broadcast_to(coefficients, (*assignment.chunks.shape, num_blocks))
    num_workers = assignment.num_workers
    order = np.stack([rng.permutation(num_workers) for _ in range(3)])
    counts = np.tile(np.arange(num_workers + 1), (3, 1))
    errors = optimal_errors(assignment, coefficients)(order, counts)
    coefficients = np.where((assignment.chunks >= 0)[..., None], coefficients, 0)
    matrix = dense(assignment, coefficients)
    for s in range(3):
        for d in range(num_workers + 1):
            np.testing.assert_allclose(errors[s, d], least_error(matrix, order[s, :d], num_blocks), atol=1e-9)


def test_moments_may_come_in_any_order():
    assignment = assignments.random_regular(18, load=4, rng_key=KEY)
    errors = optimal_errors(assignment, np.ones((18, 4, 1)))
    order = np.arange(18)[None]
    in_order = errors(order, np.array([[2, 9, 16, 18]]))
    shuffled = errors(order, np.array([[18, 2, 16, 9]]))
    np.testing.assert_allclose(shuffled[0], in_order[0, [3, 0, 2, 1]], atol=1e-12)


@pytest.mark.parametrize(
    ("coefficients", "order", "counts", "match"),
    [
        (np.ones((5, 3, 1)), np.zeros((1, 6), int), np.ones((1, 1), int), r"float\[W, K, L\] with W=6 and K=3"),
        (np.ones((6, 3, 1)), np.zeros((1, 5), int), np.ones((1, 1), int), r"order must be int\[S, 6\]"),
        (np.ones((6, 3, 1)), np.zeros((2, 6), int), np.ones((1, 1), int), r"order must be int\[S, 6\]"),
        (np.ones((6, 3, 1)), np.zeros((1, 6), int), np.full((1, 1), 7), "between 0 and 6"),
    ],
)
def test_arrivals_that_do_not_fit_are_refused(coefficients, order, counts, match):
    with pytest.raises(ValueError, match=match):
        optimal_errors(assignments.cyclic(6, load=3), coefficients)(order, counts)


def finish_of(assignment, num_trials=4, num_failed=2):
    drawn = simulate.draw(SPEEDS, KEY, assignment.load, assignment.num_workers, num_trials)
    return simulate.with_failures(drawn, num_failed)


@pytest.mark.slow("True-1")
@pytest.mark.parametrize("num_blocks", [1, 2, 3])
@pytest.mark.parametrize("by_table", [True, False])
def test_partial_errors_are_those_of_pinv(x64, monkeypatch, num_blocks, by_table):
    assignment, deadlines = uneven(), (0.5, 2.0, 6.0, 30.0)
    if not by_table:
        monkeypatch.setattr(systems, "MAX_TABLE_SETS", 0)
    code = codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY)
    finish = finish_of(assignment)
    found = simulate.partial_errors(code, deadlines)(finish)
    estimate = simulate.estimate(code, deadlines)(finish)
    rows = np.asarray(jax.jit(code.plan)(jnp.asarray(assignment.loads)).decode)[:, 0]
    times = np.asarray(finish)
    for s in range(times.shape[2]):
        for d, deadline in enumerate(deadlines):
            total = 0.0
            for chunk in range(assignment.num_chunks):
                workers, slots = np.nonzero(assignment.chunks == chunk)
                mine = rows[workers[times[slots, workers, s] <= deadline]]
                total += ((mine.T @ np.linalg.pinv(mine.T) - np.eye(num_blocks)) ** 2).sum()
            np.testing.assert_allclose(found[s, d], np.sqrt(total), atol=1e-9)
            np.testing.assert_allclose(estimate[s, d], np.sqrt(total), atol=1e-9)


@pytest.mark.parametrize("num_blocks", some([2], [1, 3]))
def test_partial_errors_of_every_set_of_holders_are_those_of_lstsq(x64, num_blocks):
    """Trial s: of each chunk those holders have finished that the bits of s say. Some have rows nearly dependent."""
    graph = assignments.random_regular(100, load=8, rng_key=jax.random.key(0))
    code = codes.partial(graph, num_blocks=num_blocks, rng_key=jax.random.key(1))
    rows = np.asarray(jax.jit(code.plan)(jnp.full(100, 8)).decode)[:, 0]
    held, sets = codes.holders(graph), np.arange(256)[:, None] >> np.arange(8) & 1 == 1
    finish, squares, worst = np.zeros((8, 100, 256)), np.zeros(256), 0.0
    for workers, slots in zip(held.workers, held.slots, strict=True):
        finish[slots, workers] = np.where(sets.T, 0.0, np.inf)
        for s, done in enumerate(sets):
            matrix = rows[workers[done]].T
            solution, _, _, values = np.linalg.lstsq(matrix, np.eye(num_blocks), rcond=None)
            squares[s] += ((matrix @ solution - np.eye(num_blocks)) ** 2).sum()
            worst = max(worst, values[0] / values[-1]) if done.any() else worst
    found = simulate.partial_errors(code, (1.0,))(jnp.asarray(finish))[:, 0]
    np.testing.assert_allclose(found, np.sqrt(squares), atol=1e-9, rtol=1e-9)
    assert found[-1] < 1e-9 and (num_blocks == 1 or worst > 1e4)


def adjacency(graph):
    """float64[W, N], 1 where a worker holds a chunk."""
    matrix = np.zeros((graph.num_workers, graph.num_chunks))
    np.put_along_axis(matrix, graph.chunks, 1.0, axis=1)
    return matrix


def test_original_error_is_a_quadratic_form_of_the_unfinished_workers(x64):
    """`error² = 1ᵀ [(A⁻²)_SS]⁻¹ 1 / K²` for the unfinished workers S of a graph with an invertible adjacency A."""
    graph = assignments.random_regular(60, load=4, rng_key=KEY)
    code = codes.partial(assignments.order_chunks(graph), rng_key=KEY)
    finish, deadlines = approximate.trials(graph, SPEEDS, 20, 3, KEY), (2.0, 6.0, 12.0, 24.0)
    found = simulate.original_errors(code)(*simulate.arrivals(code.assignment, finish, deadlines))
    square = np.linalg.matrix_power(np.linalg.inv(adjacency(graph)), 2)
    last = np.asarray(finish)[3]
    for s, d in np.ndindex(found.shape):
        unfinished = last[:, s] > deadlines[d]
        ones = np.ones(unfinished.sum())
        error = np.sqrt(ones @ np.linalg.solve(square[np.ix_(unfinished, unfinished)], ones)) / 4
        np.testing.assert_allclose(found[s, d], error, atol=1e-7)


def test_original_errors_count_whole_workers_only(x64):
    assignment, deadlines = uneven(), (4.0, 20.0)
    code = codes.partial(assignment, num_blocks=2, rng_key=KEY)
    finish = finish_of(assignment)
    found = simulate.original_errors(code)(*simulate.arrivals(assignment, finish, deadlines))
    matrix = dense(assignment, np.asarray(jax.jit(code.plan)(jnp.asarray(assignment.loads)).encode)[:, 0])
    for s in range(4):
        last = np.asarray(finish)[assignment.loads - 1, np.arange(20), s]
        for d, deadline in enumerate(deadlines):
            least = least_error(matrix, np.flatnonzero(last <= deadline), 2)
            np.testing.assert_allclose(found[s, d], least, atol=1e-9)


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_completion_is_the_first_whole_unit_at_which_all_is_there(x64, num_blocks):
    assignment = uneven()
    finish = finish_of(assignment, num_failed=1)
    code = codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY)
    found = simulate.completion(assignment, num_blocks, whole_workers=False)(finish)
    whole = simulate.completion(assignment, num_blocks, whole_workers=True)(finish)
    for s in range(4):
        times = np.asarray(finish)[:, :, s].T
        np.testing.assert_array_equal(found[s], np.ceil(code.completion(jnp.asarray(times))))
        last = times[np.arange(20), assignment.loads - 1]
        needed = max(np.sort(last[(assignment.chunks == c).any(axis=1)])[num_blocks - 1] for c in range(23))
        assert whole[s] == np.ceil(needed) >= found[s]


def test_trials_are_the_papers(x64):
    drawn = simulate.draw(SPEEDS, KEY, 3, 6, 200)
    np.testing.assert_allclose(drawn.finish[2], 3 * drawn.finish[0], rtol=1e-12)
    assert drawn.finish.dtype == jnp.float64
    assert abs(float(drawn.finish[0].mean()) - 1) < 0.15
    failed = np.isinf(simulate.with_failures(drawn, 2)[0])
    assert (failed.sum(axis=0) == 2).all()
    assert (failed.sum(axis=1) > 40).all()
    np.testing.assert_array_equal(drawn.finish, simulate.draw(SPEEDS, KEY, 3, 6, 200).finish)


def test_the_random_order_is_the_best_of_those_drawn():
    assignment = assignments.cyclic(20, load=4)
    drawn = [assignments.random_order(assignment, rng_key=key) for key in jax.random.split(KEY, 9)]
    chosen = simulate.random_order(assignment, num_draws=9, rng_key=KEY)
    assert diagnostics.q_max(chosen) == min(map(diagnostics.q_max, drawn)) < max(map(diagnostics.q_max, drawn))


def run(function, out, **changes):
    graph = assignments.random_regular(200, load=8, rng_key=jax.random.key(0))
    settings = {
        "assignments": {"G1": graph},
        "stragglers": SPEEDS,
        "num_trials": 100,
        "num_draws": 20,
        "compare_published": True,
        "progress": progress.silent(),
        **({"deadlines": (3, 18, 24), "blocks": (1,)} if function is approximate.approximate else {"blocks": (1,)}),
    }
    with pytest.MonkeyPatch.context() as patch:
        if function is exact.exact:  # its figure is drawn in the test of the command
            patch.setattr(files, "write_figure", lambda path, figure: None)
        return function(**{**settings, **changes, "out": out})


def agrees(row):
    # What happens in one trial of hundreds may happen in none of ours, which then have no standard error.
    rare = row.ours < report.ZERO and row.published < 0.04
    return rare or abs(row.difference) < 4


def test_reproduction_of_the_published_errors(tmp_path):
    compared = [row for row in run(approximate.approximate, tmp_path) if np.isfinite(row.published)]
    assert len(compared) == 9
    for row in compared:
        assert agrees(row), row
    assert {row.deadline for row in compared if row.scheme == "original"} == {3.0, 18.0, 24.0}


def test_reproduction_of_the_published_errors_with_two_blocks(x64):
    graph = assignments.random_regular(200, load=8, rng_key=jax.random.key(0))
    finish = approximate.trials(graph, SPEEDS, 100, 7, KEY)
    orders = assignments.order_chunks(graph), simulate.random_order(graph, num_draws=20, rng_key=KEY)
    for scheme, order in zip(simulate.SCHEMES[1:], orders, strict=True):
        code = codes.partial(order, num_blocks=2, rng_key=KEY)
        errors = np.asarray(simulate.partial_errors(code, (3, 6, 9))(finish))
        rows = report.rows({("G1", 2, scheme): errors}, (3.0, 6.0, 9.0), published.error)
        assert rows[0].published > 1
        for row in rows:
            assert agrees(row), row


def test_reproduction_of_the_published_completion_times(tmp_path):
    compared = run(exact.exact, tmp_path)
    assert [row.published for row in compared] == [6.61, 2.86, 3.44]
    for row in compared:
        assert abs(row.difference) < 4, row


def test_a_row_counts_the_errors_of_both_means():
    values = np.repeat([1.0, 3.0], published.NUM_TRIALS // 2)
    found = {("G", 1, "original"): values, ("G", 2, "original"): np.array([np.inf, 1.0, 2.0])}
    first, second = report.rows(found, (), lambda setting, blocks, scheme: 1.9)
    assert first.standard_error == pytest.approx(values.std(ddof=1) / np.sqrt(values.size))
    assert first.difference == pytest.approx(0.1 / (np.sqrt(2) * first.standard_error))
    assert (second.ours, second.never) == (1.5, pytest.approx(1 / 3))


def test_with_several_graphs_what_differs_between_them_counts():
    values = np.repeat([1.0, 3.0], 50)
    key, shifts = ("G", 1, "original"), (0.0, 0.5, 1.0)
    others = {key: [values + shift for shift in shifts[1:]]}
    (row,) = report.rows({key: values}, (), lambda setting, blocks, scheme: 1.9, others)
    assert (row.num_graphs, row.ours, row.over_graphs) == (3, 2.0, 2.5)
    assert row.between_graphs == pytest.approx(0.5)
    trials = values.std(ddof=1) / 10
    assert row.trials_error == pytest.approx(trials)
    assert row.difference == pytest.approx(0.6 / np.sqrt(0.25 * (1 + 1 / 3) + trials**2 * (1 + 100 / 1000)))


@pytest.mark.slow
def test_graphs_differ_and_see_the_same_trials(tmp_path):
    def draw(*, rng_key):
        return assignments.random_regular(40, load=4, rng_key=rng_key)

    settings = {"assignments": {"G1": draw(rng_key=KEY)}, "num_failed": 3, "num_trials": 20, "num_draws": 2}
    settings |= {"compare_published": False, "deadlines": (6.0, 24.0)}
    one = run(approximate.approximate, tmp_path, **settings)
    rows = run(approximate.approximate, tmp_path, **settings, redraw={"G1": draw}, num_graphs=3)
    assert [(row.ours, row.standard_error) for row in rows] == [(row.ours, row.standard_error) for row in one]
    assert {row.num_graphs for row in rows} == {3} and rows[0].between_graphs > 0
    assert "| mean over graphs | sd between graphs |" in (tmp_path / "summary.md").read_text()
    same = settings["assignments"]["G1"]
    fixed = run(approximate.approximate, tmp_path, **settings, redraw={"G1": lambda *, rng_key: same}, num_graphs=3)
    assert fixed[0].scheme == "original" and fixed[0].between_graphs < 1e-9  # the same graph, the same trials


def test_orders_of_one_graph_and_failures_by_name(tmp_path):
    graph = assignments.random_regular(40, load=4, rng_key=KEY)
    settings = {"assignments": {"G1": graph, "whole": graph}, "num_failed": {"whole": 0}, "num_trials": 20}
    settings |= {"redraw": {"G1": lambda *, rng_key: graph}, "num_orders": 3, "order_draws": (1, 2, 9)}
    rows = run(exact.exact, tmp_path, **settings, compare_published=False)
    page, facts = (tmp_path / "summary.md").read_text(), json.loads((tmp_path / "run.json").read_text())
    assert "| G1 | 1 | better of 2 (released notebook) |" in page and "| G1 | 1 | best of 9 |" in page
    assert [(o["setting"], o["draws"], len(o["means"])) for o in facts["orders"]] == [("G1", n, 3) for n in (1, 2, 9)]
    assert rows[0].setting == "G1" and rows[0].ours > next(row.ours for row in rows if row.setting == "whole")
    with pytest.raises(ValueError, match="redraw must name settings, G1, whole; got 'G2'"):
        run(exact.exact, tmp_path, **{**settings, "redraw": {"G2": lambda *, rng_key: graph}})


def test_better_of_two_and_best_of_all_begin_with_the_same_draws():
    assignment = assignments.cyclic(20, load=4)
    kept = simulate.random_orders(assignment, draws=(1, 2, 9), rng_key=KEY)
    assert diagnostics.q_max(kept[1]) >= diagnostics.q_max(kept[2]) >= diagnostics.q_max(kept[9])
    np.testing.assert_array_equal(kept[9].chunks, simulate.random_order(assignment, num_draws=9, rng_key=KEY).chunks)
    drawn = [assignments.random_order(assignment, rng_key=key) for key in jax.random.split(KEY, 9)]
    np.testing.assert_array_equal(kept[2].chunks, min(drawn[:2], key=diagnostics.q_max).chunks)


TINY = {
    "approximate": ("approximate.deadlines = (2, 6)", "approximate.blocks = (2,)", "approximate.num_failed = 1"),
    "exact": ("exact.blocks = (2,)", "exact.num_orders = 2", "exact.order_draws = (1, 2)"),
}


@pytest.mark.parametrize("name", some(["exact"], ["approximate"]))
def test_the_command_writes_everything_and_the_same_seed_the_same_bits(tmp_path, capsys, name):
    tiny = (f"{name}.num_trials = 5", f"{name}.num_graphs = 2", "random_regular.load = 4", *TINY[name])
    sizes = ("g1/random_regular.num_workers = 12", "g2/random_regular.num_workers = 12")
    sizes = sizes if name == "approximate" else ("random_regular.num_workers = 12", "cyclic.num_workers = 12")
    arguments = [part for binding in (*tiny, *sizes) for part in ("--set", binding)]
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        assert cli.main(["run", str(CONFIGS / f"{name}.gin"), "--out", str(folder), *arguments]) == 0
    figure = "error.png" if name == "approximate" else "completion.png"
    files = {"results.parquet", "summary.md", "run.json", "operative.gin", figure}
    assert {file.name for file in folders[0].iterdir()} == files
    facts = json.loads((folders[0] / "run.json").read_text())
    assert facts["num_trials"] == 5
    assert {row["scheme"] for row in facts["summary"]} == set(simulate.SCHEMES)
    assert "| G1 | 2 | partial, random order |" in (folders[0] / "summary.md").read_text()
    assert "partial, random order" in capsys.readouterr().out
    first, second = (pq.read_table(folder / "results.parquet") for folder in folders)
    for column in first.column_names:
        np.testing.assert_array_equal(first[column], second[column])
    assert first.num_rows == 3 * 5 * (2 * 2 if name == "approximate" else 3)


@pytest.mark.parametrize("config", some(["markov"], ["pareto", "bimodal", "more_chunks", "heterogeneous"]))
def test_other_settings_are_only_configs(tmp_path, config):
    arguments = ["--set", "run.experiment = @exact", "--set", "exact.num_trials = 3", "--set", "exact.num_draws = 1"]
    arguments += ["--set", "exact.blocks = (2,)"]
    assert cli.main(["run", str(CONFIGS / f"{config}.gin"), "--out", str(tmp_path / "out"), *arguments]) == 0
    rows = pq.read_table(tmp_path / "out" / "results.parquet").to_pydict()
    times = {scheme: np.array(rows["value"]).reshape(3, 3)[i] for i, scheme in enumerate(simulate.SCHEMES)}
    assert (times["partial"] <= times["original"]).all()
    assert (times["partial"] > 0).all()


@pytest.mark.parametrize(
    ("function", "changes", "match"),
    [
        (approximate.approximate, {"blocks": (9,)}, "between 1 and 8, the fewest holders of a chunk of 'G1'; got 9"),
        (approximate.approximate, {"num_failed": 200}, "between 0 and 199 for 'G1'"),
        (approximate.approximate, {"deadlines": (0.0,)}, "deadlines must be above 0"),
        (approximate.approximate, {"deadlines": ()}, "must not be empty"),
        (approximate.approximate, {"num_trials": 1}, "num_trials must be a whole number at least 2; got 1"),
        (exact.exact, {"num_draws": 0}, "num_draws must be a whole number at least 1"),
        (exact.exact, {"assignments": {}}, "must not be empty"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(tmp_path, function, changes, match):
    with pytest.raises(ValueError, match=match):
        run(function, tmp_path, **changes)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"loads": (2,)}, "add up to at least num_chunks=23"),
        ({"loads": (24,)}, "between 1 and 23"),
    ],
)
def test_balanced_assignments_refuse_what_cannot_be(changes, match):
    with pytest.raises(ValueError, match=match):
        balanced(**{"num_workers": 10, "num_chunks": 23, "rng_key": KEY, "loads": (5,), **changes})


def test_balanced_assignments_are_balanced():
    assignment = uneven()
    counts = codes.holders(assignment).counts
    assert counts.max() - counts.min() <= 1
    assert sorted(set(assignment.loads.tolist())) == [2, 5, 8]
