"""The studies of grouped servers, at a tiny size; their tables on made-up outcomes."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.grouped import claims, delays, figures, hybrid, report, training
from experiments.grouped.training import Case, Outcome, Scheme
from gcjax import analysis, cli, files, progress, protocols, stragglers, tasks
from gcjax.study import Study

CONFIGS = Path(__file__).parents[2] / "configs" / "grouped"
W, R = 4, 8
TINY = (
    "study.num_workers = 4",
    "group_delays.num_rounds = 8",
    "study.num_units = 20",
    "group_delays.num_groups = (1, 4)",
    "group_delays.delays = (0, 400)",
    "group_delays.delayed = {'one': (0,), 'two': (0, 1)}",
    "study.num_seeds = 2",
    "study.num_evals = 2",
    "digits.num_chunks = 4",
    "digits.hidden = (8,)",
)


def arguments(bindings):
    return [part for binding in bindings for part in ("--set", binding)]


PROGRESSIVE = "progressive_groups.num_rounds = 1"


def study(name, out, *bindings):
    assert cli.main(["run", str(CONFIGS / f"{name}.gin"), "--out", str(out), *arguments((*TINY, *bindings))]) == 0
    return out


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return study("delays", tmp_path_factory.mktemp("delays") / "out", "group_delays.progressive = None")


def finals(folder):
    """(groups, delayed, delay, seed) -> the last row of the run."""
    rows = pq.read_table(folder / "results.parquet").to_pylist()
    return {(row["groups"], row["delayed"], row["delay"], row["seed"]): row for row in rows}


@pytest.mark.slow
def test_everything_is_written(written, capsys):
    names = {"results.parquet", "summary.md", "groups.png", "run.json", "operative.gin"}
    assert {file.name for file in written.iterdir()} == names
    facts = json.loads((written / "run.json").read_text())
    assert facts["num_rounds"] == R and len(facts["summary"]) == 4
    assert cli.main(["report", str(written)]) == 0
    assert "Few stragglers have little effect" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_one_group_waits_for_the_delayed_node_and_single_workers_do_not(written):
    found = finals(written)
    assert len(found) == 2 * 3 * 2
    for seed in range(2):
        time = {key[:3]: row["time"] for key, row in found.items() if key[3] == seed}
        none = time[1, "none", 0.0]
        assert time[1, "two", 400.0] == pytest.approx(time[1, "one", 400.0], rel=0.1)
        assert 3.5 < time[1, "one", 400.0] / none < 5
        assert time[4, "one", 400.0] / none < 4 / (3 + 1 / 5) + 0.1 < time[4, "two", 400.0] / none
        assert found[1, "one", 400.0, seed]["accuracy"] == found[1, "none", 0.0, seed]["accuracy"]


@pytest.mark.slow
def test_progressive_grouping_pays_for_its_trials(tmp_path):
    found = finals(study("delays", tmp_path / "out", "group_delays.num_groups = (1,)", PROGRESSIVE))
    for seed in range(2):
        time = {key[:3]: row["time"] for key, row in found.items() if key[3] == seed}
        assert time[0, "none", 0.0] == pytest.approx(time[1, "none", 0.0], rel=1e-5)  # stays with one group
        assert time[1, "none", 0.0] < time[0, "one", 400.0] < time[1, "one", 400.0]
        assert found[0, "none", 0.0, seed]["accuracy"] == found[1, "none", 0.0, seed]["accuracy"]


@pytest.mark.slow
def test_merge_rules_are_only_a_config(tmp_path):
    rows = pq.read_table(study("merges", tmp_path / "out") / "results.parquet").to_pylist()
    final = {row["rule"]: row["accuracy"] for row in rows if row["groups"] == 4}
    assert list(final) == ["gradient", "change, 4 local rounds", "elastic, 4 local rounds"]
    assert len(set(final.values())) > 1


@pytest.mark.slow
def test_the_time_is_that_of_the_schedule(written):
    """Of the second seed, from its durations alone."""
    key, _, _ = jax.random.split(jax.random.split(jax.random.key(0), 2)[1], 3)
    model = stragglers.scaled(stragglers.shifted_exponential(shift=0.9, mean=0.1), factor=5.0, workers=(0,))
    durations = stragglers.sample_durations(model, key, 20, W)
    arrivals = np.sort(np.cumsum(np.asarray(durations) + 0.12, axis=0), axis=None)
    assert finals(written)[4, "one", 400.0, 1]["time"] == pytest.approx(arrivals[W * R - 1], rel=1e-5)


def steady(groups, local_rounds):
    """The schedules of 22 units of work and of all sampled ones, with one slow worker."""
    named = protocols.contiguous_groups(W, num_groups=groups)
    merge = "change" if local_rounds > 1 else "gradient"
    protocol = protocols.grouped(groups=named, num_local_steps=local_rounds, merge=merge)
    return jax.jit(lambda d: (training.until_work(protocol, 22)(d), protocol(d)))(jnp.ones((20, W)).at[:, 0].set(3.0))


@pytest.mark.slow("1-1")
@pytest.mark.parametrize(("groups", "local_rounds"), [(1, 1), (2, 2)])
def test_a_run_ends_with_the_commit_that_brings_all_of_the_work(groups, local_rounds):
    cut, whole = steady(groups, local_rounds)
    work = np.where(np.asarray(whole.worker) >= 0, np.asarray(whole.work), 0).sum(axis=1)
    number = 1 + np.flatnonzero(np.cumsum(work) >= 22)[0]
    assert np.isfinite(cut.time).sum() == number < np.isfinite(whole.time).sum()
    np.testing.assert_array_equal(cut.worker[:number], whole.worker[:number])
    assert (np.asarray(cut.worker[number:]) == -1).all() and not np.asarray(cut.weight[number:]).any()
    batch = jax.tree.map(lambda x: np.asarray(x)[None], cut)
    training.check_work("g", batch, 22, 20)
    with pytest.raises(
        ValueError, match="20 units a worker give 24 of 40 units of work in scheme 'g'. Sample about 37"
    ):
        training.check_work("g", batch, 40, 20)


def outcome(groups, time, accuracy, delayed, chosen=1):
    time, accuracy = np.array(time), np.array(accuracy)
    return Outcome(Scheme("g", groups), delayed, time, accuracy, 0 * time, np.full(time.size, chosen))


NONE, ONE, TWO = Case("none", 0.0, ()), Case("one", 400.0, (0,)), Case("two", 400.0, (0, 1))


def made_up(late=11.0, accuracy=0.9):
    """Two seeds: one group is slow with a delay, two are fast enough for one straggler, four for two of them."""
    return report.relative(
        [
            outcome(1, [10.0, 20.0], [0.9, 0.8], NONE),
            outcome(1, [50.0, 100.0], [0.9, 0.8], ONE),
            outcome(1, [50.0, 100.0], [0.9, 0.8], TWO),
            outcome(2, [11.0, 23.0], [0.88, 0.79], ONE),
            outcome(2, [16.0, 32.0], [0.9, 0.8], TWO),
            outcome(4, [10.0, 20.0], [accuracy, 0.8], ONE),
            outcome(4, [11.0, 22.0], [0.9, 0.8], TWO),
            outcome(0, [late, 22.0], [0.9, 0.78], ONE, chosen=2),
        ]
    )


def test_claims_are_judged_by_what_was_found():
    found = made_up()
    assert [c.holds for c in report.claims(found, 1.2, 2.5)] == [True, True, True, False, False, True]
    late, lossy = report.claims(made_up(late=16.0), 1.2, 2.5), report.claims(made_up(accuracy=0.8), 1.2, 2.5)
    assert late[0].ours == "1.35 times the time" and late[0].spread == "± 0.35" and not late[0].holds
    assert [c.holds for c in lossy[2:4]] == [False, True]  # 5 points on average are more than is permitted
    text = claims.markdown(report.claims(found, 1.2, 2.5))
    assert "2 of 6 claims do not hold" in text and "2 groups, enough for one straggler: 1.60 times the time" in text
    assert "All of these claims hold" in claims.markdown(report.claims(found, 1.2, 2.5)[:3])


def test_the_smallest_number_of_groups_needs_time_and_accuracy():
    ones = [r for r in made_up() if r.outcome.case.delayed == "one" and r.outcome.scheme.groups]
    assert report.smallest_number_of_groups(ones, 1.2, 2.5) == 2
    assert report.smallest_number_of_groups(ones, 1.2, 1.0) == 4
    assert report.smallest_number_of_groups(ones, 1.1, 2.5) == 4
    assert report.smallest_number_of_groups(ones, 0.9, 2.5) is None
    page = report.markdown(
        made_up(), [], {"factor": 1.2, "points": 2.5, "num_workers": 4, "num_rounds": 8, "num_seeds": 2}
    )
    assert "| one | 400 | g | some number within 1.2 times and 2.5 points | 2 | 2 | 1.12 | 1.50 |" in page
    assert "| one | 400 | 2 | ≤ 1.2 | 1.100 | ± 0.000 |" in page
    heads = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| delayed |")]
    assert len(heads) == 3 and all(len(set(heads_of_table)) == len(heads_of_table) for heads_of_table in heads)


def test_groups_at_the_end_are_those_of_the_last_commits():
    worker = np.array([[0, 1, 2, 3], [0, 1, -1, -1], [2, 3, -1, -1], [0, -1, -1, -1], [1, -1, -1, -1], [-1] * 4])
    assert training.num_final_groups(worker) == 3


def delay_study(out, **changes):
    shared = {"task": tasks.digits(W, hidden=(8,)), "optimizer": None, "num_workers": W, "num_units": 20}
    shared |= {name: changes.pop(name) for name in ("task", "seconds") if name in changes}
    settings = {
        "rules": {"gradient": protocols.grouped},
        "study": Study(**shared),
        "stragglers": stragglers.exponential(mean=1.0),
        "num_rounds": R,
        "delayed": {"one": (0,)},
        "delays": (400,),
        "num_groups": (1, 4),
        "progress": progress.silent(),
    }
    return delays.group_delays(**{**settings, **changes, "out": out})


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_groups": (2, 4)}, r"num_groups must have 1 in it.*got \[2, 4\]"),
        ({"delayed": {}}, "delayed must not be empty"),
        ({"delays": (-1,)}, "delays must be at least 0"),
        ({"delayed": {"one": (4,)}}, "between 0 and 3; got 4"),
        ({"task": tasks.linear_regression(W, num_features=2)}, "accuracy must be one of"),
        ({"factor": 0.9}, "factor must be at least 1"),
        ({"network": stragglers.constant_network(service=0.1)}, "network must have no time of service"),
        ({"seconds": 5.0}, "study.seconds must be None, since runs end with the work; got 5"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(tmp_path, changes, match):
    with pytest.raises(ValueError, match=match):
        delay_study(tmp_path, **changes)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_hybrid_config(tmp_path, capsys):
    tiny = (
        "compare.schemes = {'BSP': @bsp(), 'groups by speed': @speed/grouped()}",
        "hybrid_groups.others = ()",
        "study.num_seeds = 2",
        "study.num_evals = 5",
        "study.num_units = 30",
        "study.seconds = 25.0",
        "study.target = 0.2",
        "digits.hidden = (8,)",
    )
    out = tmp_path / "out"
    assert cli.main(["run", str(CONFIGS / "hybrid.gin"), "--out", str(out), *arguments(tiny)]) == 0
    assert {"claims.md", "summary.md", "metrics.parquet"} <= {file.name for file in out.iterdir()}
    text = (out / "claims.md").read_text()
    assert "| Less time to accuracy 0.2 than BSP | 0." in text and "no more waiting than BSP" in text
    assert "groups by speed" in capsys.readouterr().out


def compared(waiting):
    """Two seeds: the groups are twice as fast as BSP, and half a point less accurate."""
    time = np.tile([0.0, 5.0, 10.0], 4)
    accuracy = [0.1, 0.9, 0.97, 0.1, 0.9, 0.97, 0.1, 0.5, 0.975, 0.1, 0.5, 0.975]
    metrics = {
        "scheme": np.repeat(np.array(["groups", "BSP"], object), 6),
        "seed": np.tile(np.repeat([0, 1], 3), 2),
        "time": time,
        "accuracy": np.array(accuracy),
        "waiting": np.repeat([waiting, 0.4], 6),
    }
    target = {"metric": "accuracy", "value": 0.9, "higher_is_better": True}
    return analysis.Results(metrics, {}, {"target": target, "schemes": {"groups": {}, "BSP": {}}})


@pytest.mark.parametrize(("waiting", "points", "holds"), [(0.1, 2.5, [1, 1, 1]), (0.5, 0.2, [1, 0, 0])])
def test_hybrid_claims(tmp_path, waiting, points, holds):
    made = hybrid.hybrid_groups(
        lambda **given: compared(waiting), hybrid="groups", synchronous="BSP", others=(), points=points,
        out=tmp_path, progress=progress.silent(),
    )  # fmt: skip
    assert [claim.holds for claim in made] == list(map(bool, holds))
    assert made[0].ours == "0.50 times the time" and made[1].ours == "0.50 points less"
    assert f"| {100 * waiting:.0f} % against 40 % |" in (tmp_path / "claims.md").read_text()


def test_more_accuracy_is_not_called_less_than_none(tmp_path):
    made = hybrid.hybrid_groups(
        lambda **given: compared(0.1), hybrid="BSP", synchronous="groups", others=(), points=2.5, out=tmp_path,
        progress=progress.silent(),
    )  # fmt: skip
    assert made[1].ours == "0.50 points more" and made[1].holds


def test_the_figure_says_what_stars_and_dashed_lines_are(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(files, "write_figure", lambda path, figure: drawn.append(figure))
    figures.groups(made_up(), 1.2, 2.5, tmp_path / "groups.png")
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["chosen by progressive grouping", "limit"]


def test_hybrid_needs_schemes_that_are_compared(tmp_path):
    with pytest.raises(ValueError, match="must be one of 'BSP', 'groups'; got 'ASP'"):
        hybrid.hybrid_groups(
            lambda **given: compared(0.1), hybrid="groups", synchronous="ASP", others=(),
            out=tmp_path, progress=progress.silent(),
        )  # fmt: skip


def test_hybrid_refuses_a_loss_below_0_before_anything_is_compared(tmp_path):
    with pytest.raises(ValueError, match="points must be .*; got -1"):
        hybrid.hybrid_groups(
            lambda **given: pytest.fail("compared"), hybrid="groups", synchronous="BSP", others=(), points=-1,
            out=tmp_path, progress=progress.silent(),
        )  # fmt: skip


def test_hybrid_claims_without_a_time(monkeypatch):
    times = {"mine": np.array([1.0, np.inf]), "theirs": np.array([2.0, 3.0])}
    monkeypatch.setattr(hybrid.analysis, "reach_times", lambda _, name: times[name])

    class Results:
        facts = {"target": {"metric": "accuracy", "value": 0.9}}

    claim = hybrid._time_claim(Results(), "mine", "theirs")
    assert not claim.holds and claim.ours == "reached by 1 and 2 of 2 seeds"
    times["mine"][1] = 1.5
    assert hybrid._time_claim(Results(), "mine", "theirs").ours == "0.50 times the time"
