"""Cells of the tables of the pages, computed anew: `(label of the row, head of the column) -> value`.

`CELLS` are few and cheap, by the same functions as the commands; `WHOLE` are all, from runs of the commands.
"""

import json
from collections.abc import Callable
from pathlib import Path

import gin
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow.parquet as pq

from experiments.codes import _round_completion_times, _sample_rounds
from experiments.conditioning import FAMILIES, interpolation_errors
from experiments.grouped.training import Case, conditions, until_work
from experiments.partial_stragglers import exact, graphs, report, simulate
from gcjax import cli, codes, config, protocols, stragglers, study, tasks
from gcjax.codes import assignments, diagnostics
from gcjax.codes.diagnostics.rounding import straggler_masks
from tests.docs.tables import Table, table

CONFIGS = Path(__file__).parents[2] / "configs"
SPEEDS = stragglers.worker_speeds(stragglers.exponential(mean=1.0))

Cells = dict[tuple[str, str], float | str]


def code_cells() -> Cells:
    """Load and numbers sent of all codes; error and a time of some."""
    config.load(CONFIGS / "codes.gin")
    made = {name: factory.scoped_configurable_fn() for name, factory in _bound("codes").items()}
    cells: Cells = {}
    for name, code in made.items():
        a = code.assignment
        sent = np.asarray(code.sent(jnp.asarray(a.loads))).sum(axis=1).max() / code.num_blocks
        cells |= {(name, "Load"): float(a.loads.sum() / a.num_chunks), (name, "Sent"): float(sent)}
    mask_key, _, time_key = jax.random.split(jax.random.key(0), 3)
    masks, _ = straggler_masks(16, 3, max_masks=560, rng_key=mask_key)
    for name in ("BIBD, affine plane", "expander", "FRC"):
        a = made[name].assignment
        done = jnp.asarray(np.where(masks, 0, a.loads), jnp.int32)
        errors = np.asarray(jax.jit(jax.vmap(lambda p, plan=made[name].plan: plan(p).residual))(done))
        errors = errors / np.sqrt(a.num_chunks * made[name].num_blocks)
        cells |= {(name, "Error"): float(errors.mean()), (name, "largest"): float(errors.max())}
    speeds = _bound("stragglers")
    head = next(iter(speeds))
    rounds = _sample_rounds(speeds[head].scoped_configurable_fn(), jax.random.fold_in(time_key, 0), 1000, 4, 16)
    for name in ("FRC", "cyclic MDS", "Reed-Solomon"):
        cells[name, head] = float(_round_completion_times(made[name], rounds).mean())
    return cells


def _bound(name: str) -> dict:
    return gin.config.get_bindings("compare_codes", resolve_references=False)[name]


def condition_cells() -> Cells:
    """The condition numbers of one code."""
    key = jax.random.key(0)
    found = diagnostics.conditioning(FAMILIES["CRC"](16, 2, 1, key), num_stragglers=2, rng_key=key, max_masks=256)
    return {
        ("CRC | 16 | 2 | 1", "Condition"): found.median_condition_number,
        ("CRC | 16 | 2 | 1", "worst"): found.worst_condition_number,
    }


def interpolation_cells() -> Cells:
    """The whole table."""
    digits, errors = interpolation_errors((20, 25, 30), 200, 0)
    return {(name, str(d)): float(e) for name, curve in errors.items() for d, e in zip(digits, curve, strict=True)}


def _completion_times(name: str, index: int, num_failed: int | None) -> dict[str, np.ndarray]:
    """Scheme -> float[S], L = 1, as `exact.gin` has them for one of its settings."""
    assignment = _assignment(name)  # as for a command, whose config is read before 64 bits are switched on
    with jax.enable_x64(True):
        keys = report.keys(0, index)
        found = exact.prepared(assignment, (1,), num_failed, 2, keys[0])(simulate.draw(SPEEDS, keys[2], 8, 200, 1000))
        return {scheme: np.asarray(times) for (_, scheme), times in found.items()}


def _assignment(name: str) -> codes.Assignment:
    return (
        assignments.cyclic(200, load=8)
        if name == "cyclic"
        else assignments.random_regular(200, load=8, rng_key=jax.random.key(0))
    )


def reproduction_cells() -> Cells:
    """The completion times of the first graph."""
    cells: Cells = {}
    for scheme, times in _completion_times("G1", 1, None).items():
        mean, error = report.mean_and_error(times)
        what = f"completion time, L=1, {scheme}"
        cells |= {(what, "ours"): mean, (what, "standard error"): error}
    return cells


def cyclic_cells() -> Cells:
    """L = 1."""
    cells: Cells = {}
    for head, index, failed in (("8 - L workers fail", 0, None), ("nobody fails", 2, 0)):
        for scheme, times in _completion_times("cyclic", index, failed).items():
            cells[f"{scheme} | 1", head] = float(times.mean())
    return cells


def order_cells() -> Cells:
    """L = 1, one draw and the better of two."""
    graph = _assignment("G1")
    with jax.enable_x64(True):
        keys = report.keys(0, 1)
        finish = exact.failing(graph, simulate.draw(SPEEDS, keys[2], 8, 200, 1000), (1,), None)
        made = graphs.orders("G1", graph, finish, num_orders=30, draws=(1, 2), rng_key=keys[1])
    return _orders(graphs.orders_page(made))


def _orders(page: str) -> Cells:
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return {(where.removeprefix("G1 | "), head): text for (where, head), text in table("\n".join(lines), 3).items()}


def group_cells() -> Cells:
    """Relative times without training: one node delayed by 0 and 400 %, with 1 and 4 groups."""
    cases = [Case("none", 0.0, ()), Case("one node", 400.0, (0,))]
    model = stragglers.shifted_exponential(shift=0.9, mean=0.1)
    network = stragglers.constant_network(latency=0.01, upload=0.05, download=0.05)
    grouped = {
        head: protocols.grouped(groups=protocols.contiguous_groups(16, num_groups=number), merge="gradient")
        for number, head in ((1, "1 group"), (4, "4"))
    }
    shared = study.Study(
        task=tasks.digits(16, batch_size=32), optimizer=optax.sgd(0.1), num_workers=16, num_units=620, num_seeds=5
    )
    schemes = {head: until_work(protocol, 4800) for head, protocol in grouped.items()}
    plan = study.plan(shared, schemes, conditions(cases, model, network))
    ends = {}
    for head, schedule in plan.schedules.items():
        time = schedule.time
        ends[head] = np.where(np.isfinite(time), time, 0).max(axis=1).reshape(2, 5)
    return {
        (label, head): float((end[i] / ends["1 group"][0]).mean())
        for head, end in ends.items()
        for i, label in enumerate(("0 %", "400 %"))
    }


def _run(file: str, out: Path, *bindings: str) -> Path:
    assert cli.main(["run", str(CONFIGS / file), "--out", str(out), *(x for b in bindings for x in ("--set", b))]) == 0
    return out


def _section(folder: Path, number: int, num_labels: int) -> Table:
    """A table of a summary."""
    blocks = (folder / "summary.md").read_text().split("\n\n")
    return table([block for block in blocks if block.startswith("|")][number], num_labels)


def code_table(folder: Path) -> Table:
    """All rows."""
    return _section(_run("codes.gin", folder / "codes"), 0, 1)


def condition_table(folder: Path) -> Table:
    """All rows of the numbers of workers that the page shows; the rows of a number do not depend on the others."""
    return _section(_run("conditioning.gin", folder / "conditioning", "conditioning.num_workers = (16, 32)"), 0, 4)


def _rows(folder: Path) -> list[report.Row]:
    rows = json.loads((folder / "run.json").read_text())["summary"]
    return [report.Row(**{name: np.nan if value is None else value for name, value in row.items()}) for row in rows]


def reproduction_table(folder: Path) -> Cells:
    """With 30 graphs."""
    bindings = ("num_graphs = 30", "assignments = {'G1': @g1/random_regular()}", "blocks = (1, 2)")
    errors = _run("partial_stragglers/approximate.gin", folder / "errors", *(f"approximate.{b}" for b in bindings))
    times = _run("partial_stragglers/exact.gin", folder / "times", "exact.num_graphs = 30", "exact.num_orders = 0")
    return reproduction_of(errors, times)


def reproduction_of(errors: Path, times: Path) -> Cells:
    """From the folders of both runs."""
    cells: Cells = {}
    for kind, rows in (("error", _rows(errors)), ("completion time", _rows(times))):
        for row in (row for row in rows if row.setting == "G1"):
            what = f"{kind}, L={row.num_blocks}, {row.scheme}"
            what += "" if np.isnan(row.deadline) else f", deadline {row.deadline:g}"
            cells |= {(what, "published"): row.published, (what, "ours"): row.ours, (what, "z"): row.difference}
            cells |= {(what, "standard error"): row.standard_error, (what, "mean over graphs"): row.over_graphs}
            cells[what, "sd between graphs"] = row.between_graphs
    return cells


def order_table(folder: Path) -> Cells:
    """All of them."""
    page = _run("partial_stragglers/exact.gin", folder / "exact", "exact.num_graphs = 1") / "summary.md"
    return _orders(page.read_text().split("## Completion time")[1].split("\n- ")[0])


def cyclic_table(folder: Path) -> Cells:
    """All of them."""
    folder = _run("partial_stragglers/exact.gin", folder / "exact", "exact.num_graphs = 1", "exact.num_orders = 0")
    heads = {"cyclic": "8 - L workers fail", "cyclic, nobody fails": "nobody fails"}
    rows = [row for row in _rows(folder) if row.setting in heads]
    return {(f"{row.scheme} | {row.num_blocks}", heads[row.setting]): row.ours for row in rows}


def group_table(folder: Path) -> Cells:
    """All delays and numbers of groups."""
    grid = _section(_run("grouped/delays.gin", folder / "delays"), 3, 4)
    times = {where: text for (where, head), text in grid.items() if head == "ours: time"}
    return {_group_cell(where): float(text) for where, text in times.items()}


def _group_cell(where: str) -> tuple[str, str]:
    _, delay, _, groups = where.split(" | ")
    return f"{delay} %", "1 group" if groups == "1" else groups


def adaptive_table(folder: Path) -> Table:
    """All rows."""
    return _section(_run("adaptive.gin", folder / "adaptive"), 0, 2)


def worker_busy_table(folder: Path) -> Cells:
    """Mean times to the target of the first row."""
    run = _run("worker_busy/digits.gin", folder / "digits", "worker_busy_claims.settings = {'H1': @h1/delayed()}")
    rows = pq.read_table(run / "results.parquet").to_pydict()
    heads = {"WBSP overlap": "overlap", "WBSP eager": "eager", "WBSP eager overlap": "eager, overlap"}
    reach: dict[tuple[str, str], list[float]] = {}
    for condition, scheme, seconds in zip(rows["condition"], rows["scheme"], rows["reach"], strict=True):
        reach.setdefault((condition, heads.get(scheme, scheme)), []).append(seconds)
    return {where: float(np.mean(seconds)) for where, seconds in reach.items()}


CELLS: dict[str, Callable[[], Cells]] = {
    "codes": code_cells,
    "conditioning": condition_cells,
    "interpolation": interpolation_cells,
    "reproduction": reproduction_cells,
    "orders": order_cells,
    "cyclic": cyclic_cells,
    "groups": group_cells,
}

WHOLE: dict[str, Callable[[Path], Cells]] = {
    "codes": code_table,
    "conditioning": condition_table,
    "reproduction": reproduction_table,
    "orders": order_table,
    "cyclic": cyclic_table,
    "groups": group_table,
    "adaptive": adaptive_table,
    "worker busy": worker_busy_table,
}
