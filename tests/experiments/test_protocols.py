"""The map of protocols: its claims, tables and figure on made-up rows, and a run at a tiny size."""

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments import protocol_claims, protocol_tables, protocols
from experiments.tuned_schemes import TunedSchemes
from gcjax import cli, files
from gcjax.stragglers import sample_durations
from tests.experiments.test_worker_busy import made_up, run

TINY = (
    "num_workers = 4",
    "study.num_units = 24",
    "study.seconds = None",
    "study.target = 0.3",
    "study.num_seeds = 2",
    "study.num_evals = 6",
    "tuning.num_trials = 4",
    "protocol_map.schemes = {'BSP': @bsp(), 'SSP, s=3': @ssp(), 'SSP, s=10': @s10/ssp(), 'frc': @frc/coded()}",
    "study.optimizers = {}",
    "tuning.own_rates = {}",
    "fractional_repetition.num_stragglers = 1",
    "digits.hidden = (8,)",
)
MAP = (*TINY, "protocol_map.regimes = {'persistent': @persistent/scaled()}", "persistent/scaled.workers = (3,)")
NEAR, FAR = [10.0, 20.0, 30.0], [15.0, 31.0, 44.0]  # 1.4 to 1.6 times as long, seed by seed


def verdict(**reach):
    rows = made_up({name: {"x, y": seconds} for name, seconds in reach.items()})
    return protocol_claims.claim(rows, "x", "y")


def test_a_scheme_that_is_later_with_every_seed_loses_whatever_the_seeds_do():
    claim = verdict(A=NEAR, B=FAR)
    assert (claim.first, claim.others, claim.verdict) == ("A", {}, "A wins")


def test_schemes_whose_ratio_may_be_1_are_indistinguishable():
    claim = verdict(B=[9.0, 24.0, 31.0], A=NEAR, C=FAR)
    assert claim.first == "A" and list(claim.others) == ["B"]
    assert claim.verdict == "indistinguishable from B (21.3 ± 11.2)"
    assert protocol_claims.cells([claim])[0] == ("x", "y", "A", "20.0 ± 10.0", claim.verdict)
    assert "indistinguishable from B" in protocol_claims.page([claim])


def test_equal_times_and_one_seed_are_indistinguishable():
    assert list(verdict(A=NEAR, B=NEAR).others) == ["B"]
    assert list(verdict(A=[1.0], B=[9.0]).others) == ["B"]


def test_who_missed_the_target_once_is_neither_first_nor_indistinguishable():
    claim = verdict(A=[1.0, 1.0, np.inf], B=NEAR, C=[9.0, 25.0, np.inf])
    assert (claim.first, claim.others) == ("B", {})
    nobody = verdict(A=[1.0, np.inf], B=[np.inf, 1.0])
    assert nobody.first is None and "nobody reached" in nobody.verdict
    assert protocol_claims.cells([nobody])[0][2:4] == ("-", "-")


def test_a_long_list_of_others_is_cut():
    claim = verdict(**{name: [10.0, 20.0] for name in "ABCDEFG"})
    assert claim.verdict.endswith("and 2 others") and len(claim.others) == 6


def test_cells_of_the_map():
    reach = {
        "A": {"x": [1.0, 3.0], "y": [np.inf, np.inf]},
        "B": {"x": [3.0, 3.1], "y": [5.0, 5.0]},
        "C": {"x": [20.0, 60.0], "y": [4.0, np.inf]},
    }
    found = made_up(reach)
    found["stalled"][(found["scheme"] == "C")] = False
    (_, ax, ay), (_, bx, by), (_, cx, cy) = protocol_tables._times_table(found, ["A", "B", "C"], ["x", "y"])
    assert (ax, ay) == ("**2.0 ± 1.4**", "never")
    assert bx in ("3.0 ± 0.1 *", "3.1 ± 0.1 *") and by == "**5.0 ± 0.0**"
    assert (cx, cy) == ("40.0 ± 28.3", "-")


def test_what_is_sent_is_said_for_workers_and_for_servers_of_groups():
    rows = made_up({"A": {"x": [1.0, 3.0]}}) | {
        "communicating": np.array([0.1, 0.3]), "waiting": np.array([0.3, 0.1]), "mean_staleness": np.array([1.0, 2.0]),
        "max_staleness": np.array([3.0, 4.0]), "end": np.array([10.0, 20.0]), "numbers": np.array([500.0, 3000.0]),
        "server_numbers": np.array([20.0, 120.0]),
    }  # fmt: skip
    (line,) = protocol_tables._costs_table(rows, ["A"])
    assert len(line) == len(protocol_tables.COST_HEADS) and line[-2:] == ("100", "4")


def test_what_was_chosen_says_variant_rate_and_edge():
    rows = {
        "scheme": ["SSP", "SSP", "BSP", "BSP"],
        "condition": ["a, free", "a, dear"] * 2,
        "variant": ["SSP, s=3", "SSP, s=10", "BSP", "BSP"],
        "rate": [0.2, 0.4, 0.1, 0.2],
    }
    trials = {
        "scheme": ["SSP"] * 6 + ["BSP"] * 3,
        "variant": ["SSP, s=3"] * 3 + ["SSP, s=10"] * 3 + ["BSP"] * 3,
        "rate": [0.1, 0.2, 0.4] * 3,
    }
    tuned = TunedSchemes(*({name: np.array(column) for name, column in part.items()} for part in (rows, trials)))
    lines = list(protocol_tables.chosen_table(tuned, ["free", "dear"]))
    assert lines == [("SSP", "s=3, 0.2", "s=10, 0.4, edge"), ("BSP", "0.1, edge", "0.2")]


@pytest.mark.parametrize("count", [1, 3, 28])
def test_the_label_of_the_colours_is_within_the_figure(count, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(files, "write_figure", lambda path, figure: drawn.append(figure))
    monkeypatch.setattr(
        protocol_tables, "mean_times", lambda rows, schemes, conditions: np.arange(1.0, count + 1)[:, None]
    )
    rows = {"scheme": np.array([f"scheme {i}" for i in range(count)])}
    protocol_tables.figure(rows, ["bursty"], ["free"], tmp_path / "map.png")
    figure = drawn[0]
    figure.canvas.draw()
    label = figure.axes[-1].yaxis.label.get_window_extent()
    assert label.y0 >= 0 and label.y1 <= figure.bbox.height


@pytest.mark.slow
def test_map_of_tuned_schemes(tmp_path):
    trace = tmp_path / "trace.npy"
    np.save(trace, np.random.default_rng(0).uniform(100.0, 200.0, size=(60, 3)))
    out = run("protocols.gin", tmp_path / "out", (*MAP, f"protocol_map.traces = {{'job': '{trace}'}}"))
    names = {"results.parquet", "trials.parquet", "claims.md", "summary.md", "map.png", "run.json", "operative.gin"}
    assert {file.name for file in out.iterdir()} == names
    rows = pq.read_table(out / "results.parquet").to_pylist()
    assert len(rows) == 3 * 2 * 3 * 2 and {row["condition"].split(", ")[0] for row in rows} == {"persistent", "job"}
    assert {row["scheme"] for row in rows} == {"BSP", "SSP", "frc"}
    trials = pq.read_table(out / "trials.parquet").to_pylist()
    assert {sum(row["scheme"] == name for row in trials) for name in ("BSP", "SSP", "frc")} == {4 * 6}
    assert len({row["rate"] for row in trials if row["variant"] == "SSP, s=3"}) == 2
    dear, free = (
        np.mean([r["communicating"] for r in rows if r["condition"] == f"persistent, {name}"])
        for name in ("dear", "free")
    )
    assert dear > free == 0
    end = [row["end"] for row in rows if row["condition"] == "job, free" and row["scheme"] == "BSP"]
    assert min(end) >= 24 and max(end) < 48  # 24 rounds of a second in the mean


def test_traces_alone_are_all_regimes_scaled_to_a_second_a_unit_and_tuned_for_each_cost(tmp_path, monkeypatch):
    settings, rng = [], np.random.default_rng(0)
    paths = {name: str(tmp_path / f"{name}.npy") for name in ("short", "long")}
    for name, seconds in (("short", 0.01), ("long", 50.0)):
        trace = rng.uniform(0.5, 1.5, size=(40, 3)) * seconds
        trace[:5, 1] = np.nan  # worker 1 joined late
        np.save(paths[name], trace)

    def keep(schemes, setting, *, out, progress):
        settings.append(setting)
        raise ValueError("enough")

    monkeypatch.setattr(protocols, "tuned_schemes", keep)
    given = [part for each in (*TINY, f"protocol_map.traces = {paths}") for part in ("--set", each)]
    assert cli.main(["run", "configs/protocols_traces.gin", "--out", str(tmp_path / "out"), *given]) == 2
    (setting,) = settings
    costs = ("free", "moderate", "dear")
    assert setting.groups == [[f"short, {cost}", f"long, {cost}"] for cost in costs]
    assert set(setting.conditions) == {name for group in setting.groups for name in group}
    for condition in setting.conditions.values():
        durations = np.asarray(sample_durations(condition.stragglers, jax.random.key(0), 40, 3))
        assert 0.95 < durations.mean() < 1.05 and durations.min() > 0.4


def test_without_a_file_the_config_of_traces_says_what_to_bind(tmp_path, capsys):
    assert cli.main(["run", "configs/protocols_traces.gin", "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert "regimes or traces must name one at least" in message and "traces = {'job': 'FILE'}" in message


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("protocol_map.networks = {}", "networks must name one at least"),
        ("study.target = None", "target must be the value"),
        ("tuning.seed = 0", "the trials must have another seed than the study"),
        ("tuning.num_trials = 3", "num_trials must be a multiple of the 2 variants of 'SSP'"),
        ("study.optimizers = {'nobody': @sgd()}", "optimizers must be those of schemes"),
        ("tuning.own_rates = {'nobody': (0.1, 1.0)}", "own_rates must be those of schemes, BSP, SSP, frc; got some"),
        ("protocol_map.traces = {'persistent': 'x.csv'}", "a trace and a regime must have different names"),
    ],
)
def test_bad_input(tmp_path, capsys, binding, message):
    given = [part for each in (*MAP, binding) for part in ("--set", each)]
    assert cli.main(["run", "configs/protocols.gin", "--out", str(tmp_path / "out"), *given]) == 2
    assert message in capsys.readouterr().err
