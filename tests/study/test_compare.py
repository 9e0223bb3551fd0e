"""The comparison experiment, at a small size."""

import dataclasses
import json
import re
import types
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow.parquet as pq
import pytest

from gcjax import analysis, codes, config, engine, locks, progress, protocols, stragglers, tasks
from gcjax.study import Condition, Study, compare, draw, runner, training
from gcjax.study.compare import _default_timeline_seconds, _delays_sha256

pytestmark = pytest.mark.usefixtures("without_drawing")

W = 4
FAILING = stragglers.failed_workers(stragglers.exponential(mean=1.0), workers=(1,), onset=20)


def small(out, **changes):
    """A comparison of three schemes that takes seconds."""
    settings = {
        "schemes": {
            "ASP": protocols.asp(),
            "BSP": protocols.bsp(),
            "FRC": protocols.coded(codes.fractional_repetition(W, num_stragglers=1)),
        },
        "stragglers": FAILING,
        "progress": progress.silent(),
    }
    shared = {
        "task": tasks.digits(W, hidden=(16,)),
        "optimizer": optax.sgd(0.3),
        "num_workers": W,
        "num_units": 120,
        "target": 0.8,
        "num_seeds": 2,
        "num_evals": 10,
        "seconds": 60.0,
    }
    own = {name: value for name, value in changes.items() if name in (*settings, "absences", "timeline_seconds")}
    shared |= {name: value for name, value in changes.items() if name not in own}
    return compare(study=Study(**shared), **{**settings, **own, "out": out})


@pytest.mark.slow
def test_a_folder_may_be_a_text_and_nobody_need_be_told(tmp_path):
    small(f"{tmp_path}/a folder", progress=None, seconds=9.0, num_seeds=1)
    assert (tmp_path / "a folder" / "summary.md").exists()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("compare")
    shown, steps = [], []
    picture = out / "timeline.png"
    report = progress.Progress(lambda label, share: steps.append((label, share, picture.exists())), shown.append)
    return out, small(out, progress=report), shown, steps


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """A scheme for the second time, and the same with an optimizer of its own that changes nothing.

    The target is one that nobody reaches.
    """
    out, shown = tmp_path_factory.mktemp("again"), []
    schemes = {"slow": protocols.bsp(), "BSP": protocols.bsp()}
    report = progress.silent()._replace(show=shown.append)
    results = small(out, schemes=schemes, optimizers={"slow": optax.sgd(0.0)}, target=1.0, progress=report)
    return out, results, shown


def test_a_finished_run_is_not_overwritten(written):
    out, results, _, _ = written
    with pytest.raises(ValueError, match="the run in .* is finished. Choose another one"):
        small(out, num_units=121)
    assert analysis.load(out).facts == results.facts


def test_everything_is_written(written):
    out, results, shown, _ = written
    names = {"operative.gin", "run.json", "metrics.parquet", "timeline.parquet", "commits.parquet", "summary.md"}
    assert names | {"loss_vs_time.png", "timeline.png"} == {file.name for file in out.iterdir()}
    assert len(shown) == 2
    facts = json.loads((out / "run.json").read_text())
    assert {"gcjax", "jax", "jaxlib", "flax", "optax", "numpy", "python"} <= set(facts["versions"])
    assert facts["seed"] == 0 and facts["distinct_durations"] == 2
    assert facts["schemes"]["BSP"] == {**facts["schemes"]["BSP"], "stalled": [True, True], "unused_workers": [0, 0]}
    assert facts["schemes"]["ASP"]["compile_seconds"] > 0
    columns = set(pq.read_table(out / "metrics.parquet").column_names)
    assert {"scheme", "seed", "commit", "time", "accuracy", "computing", "chunks", "numbers"} <= columns
    assert analysis.load(out).schemes == ["ASP", "BSP", "FRC"]
    assert results.schemes == ["ASP", "BSP", "FRC"]
    commits = analysis.load(out).commits
    assert set(commits["scheme"]) == {"ASP", "BSP", "FRC"} and commits["time"].max() < facts["timeline_seconds"]


@pytest.mark.slow("model1-1-All 2 seeds had the same durations")
@pytest.mark.parametrize(
    ("model", "distinct", "said"),
    [
        pytest.param(stragglers.exponential(), 2, None, marks=pytest.mark.slow),
        (stragglers.replay(trace=np.full((3, W), 1.5), workers="drawn"), 1, "All 2 seeds had the same durations"),
    ],
)
def test_whether_seeds_had_the_same_durations_is_said(model, distinct, said, tmp_path):
    results = small(tmp_path, schemes={"BSP": protocols.bsp()}, stragglers=model)
    assert results.facts["distinct_durations"] == distinct
    assert ("durations" in (tmp_path / "summary.md").read_text()) == (said is not None)
    if said:
        assert said in (tmp_path / "summary.md").read_text()


@pytest.mark.slow
def test_workers_whose_work_is_lost_are_said(tmp_path):
    model = stragglers.constant(seconds=1.0)
    small(tmp_path, schemes={"K-sync": protocols.k_sync(num_contributions=2)}, stragglers=model, seconds=9.0)
    assert (
        f"Of {W} workers some are in no commit, though they compute and do not fail: K-sync 2. "
        in (tmp_path / "summary.md").read_text()
    )


@pytest.mark.slow
def test_runs_with_the_same_delays_and_keys_are_known(written):
    model = stragglers.exponential()
    study = Study(task=tasks.digits(W, hidden=(4,)), optimizer=None, num_workers=W, num_units=3, num_seeds=2)
    conditions = {
        "same": (study, Condition(model)),
        "again": (dataclasses.replace(study, num_evals=7), Condition(model)),
        "another seed": (dataclasses.replace(study, seed=1), Condition(model)),
        "slower": (study, Condition(stragglers.exponential(mean=2.0))),
        "messages": (study, Condition(model, stragglers.Network(latency=0.5))),
        "server": (study, Condition(model, stragglers.Network(server=0.5))),
        "service": (study, Condition(model, stragglers.Network(service=0.5))),
        "absences": (study, Condition(model, absences=stragglers.Absences(jnp.ones((W, 1)), jnp.full((W, 1), 2.0)))),
    }
    digests = {name: _delays_sha256(draw(each, {"all": condition})) for name, (each, condition) in conditions.items()}
    assert digests["same"] == digests["again"] and len(set(digests.values())) == len(digests) - 1
    assert len(written[1].facts["delays_sha256"]) == 64


def test_bsp_stops_when_a_worker_fails(written):
    _, results, *_ = written
    table, _, differences = analysis.markdown(results).partition("## Later")
    assert table.count("| BSP |") == differences.count("| BSP |") == 1
    for seed in results.seeds("BSP"):
        assert seed["commit"].max() == 20
    for scheme in ("ASP", "FRC"):
        assert all(50 < seed["time"].max() <= 60 for seed in results.seeds(scheme))


def test_all_schemes_begin_with_the_same_parameters(written):
    _, results, *_ = written
    for seeds in zip(*(results.seeds(scheme) for scheme in results.schemes), strict=True):
        first = {float(seed["accuracy"][0]) for seed in seeds}
        assert len(first) == 1


@pytest.mark.slow
def test_seeds_differ_and_the_same_seed_repeats(written, again):
    (_, results, *_), (_, repeated, _) = written, again
    first, second = results.seeds("BSP")
    assert first["time"][-1] != second["time"][-1]
    for mine, other in zip(results.seeds("BSP"), repeated.seeds("BSP"), strict=True):
        for name in ("time", "accuracy", "train_loss"):
            np.testing.assert_array_equal(mine[name], other[name])


@pytest.mark.slow
def test_all_seeds_at_once_equal_a_loop(written):
    _, results, *_ = written
    task = tasks.digits(W, hidden=(16,))
    for key, seed in zip(jax.random.split(jax.random.key(0), 2), results.seeds("FRC"), strict=True):
        duration_key, init_key, batch_key = jax.random.split(key, 3)
        durations = stragglers.sample_durations(FAILING, duration_key, 120, W)
        params = task.init(init_key)
        run = engine.run(
            task._replace(init=lambda _, p=params: p),
            protocols.coded(codes.fractional_repetition(W, num_stragglers=1)),
            optax.sgd(0.3),
            durations,
            rng_key=batch_key,
            num_commits=int(seed["commit"][-1]),
            eval_every=1,
        )
        for name in ("accuracy", "train_loss"):
            found = np.asarray(run.trajectory.metrics[name])[seed["commit"]]
            np.testing.assert_allclose(found, seed[name], atol=1e-5)


@pytest.mark.slow
def test_an_interrupted_comparison_goes_on_and_ends_with_the_same_bits(written, tmp_path, monkeypatch):
    _, results, *_ = written
    save, saved = engine.Checkpoints.save, []

    def interrupted(self, step, *rest):
        if len(saved) == 5:  # in the middle of the second scheme
            raise KeyboardInterrupt
        saved.append(step)
        save(self, step, *rest)

    settings = {"schemes": {"ASP": protocols.asp(), "BSP": protocols.bsp()}, "checkpoint_every": 3}
    monkeypatch.setattr(engine.Checkpoints, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        small(tmp_path, **settings)
    assert saved == [3, 6, 9, 10, 3]
    monkeypatch.setattr(engine.Checkpoints, "save", lambda *given: saved.append(given[1]) or save(*given))
    again = small(tmp_path, **settings)
    assert saved[5:] == [6, 9, 10]
    for scheme in settings["schemes"]:
        for mine, other in zip(results.seeds(scheme), again.seeds(scheme), strict=True):
            jax.tree.map(np.testing.assert_array_equal, mine, other)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.slow
def test_a_mesh_gives_the_results_of_one_device(written, tmp_path):
    _, results, *_ = written
    on = config.mesh(axes=("workers", "model"), sizes=(-1, 2))
    assert dict(on.shape) == {"workers": 4, "model": 2}
    meshed = small(
        tmp_path, mesh=on, schemes={"FRC": protocols.coded(codes.fractional_repetition(W, num_stragglers=1))}
    )
    for one, other in zip(results.seeds("FRC"), meshed.seeds("FRC"), strict=True):
        np.testing.assert_allclose(one["train_loss"], other["train_loss"], atol=1e-5)
        np.testing.assert_array_equal(one["time"], other["time"])


def test_a_mesh_must_fit_the_devices():
    with pytest.raises(ValueError, match=f"product of {jax.device_count()}, the number of devices"):
        config.mesh(axes=("workers", "model"), sizes=(3, -1))


def test_progress_goes_from_nothing_to_all(written):
    *_, steps = written
    labels, shares, _ = zip(*steps, strict=True)
    assert labels[0] == "ASP" and set(labels) == {"ASP", "BSP", "FRC"}
    assert shares[0] == 0 and max(shares) == pytest.approx(1.0)


def test_the_timeline_is_drawn_before_anything_is_trained(written):
    *_, steps = written
    assert steps[0] == ("ASP", 0.0, False) and all(is_drawn for *_, is_drawn in steps[1:])


@pytest.mark.parametrize(("durations", "seconds"), [([1.0, 2.0, 3.0, np.inf], 24.0), ([np.inf, np.inf], 12.0)])
def test_the_timeline_goes_twelve_units_far_also_if_none_ends(durations, seconds):
    inputs = types.SimpleNamespace(durations=np.array(durations).reshape(1, -1, 1))
    assert _default_timeline_seconds(inputs) == seconds


def test_what_is_stopped_with_its_timeline_only_goes_on_in_its_folder(tmp_path, monkeypatch):
    def stopped(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "train", stopped)
        small(tmp_path / "new")
    assert (tmp_path / "new" / "timeline.png").exists() and not analysis.is_resumable(tmp_path / "new")
    assert analysis.resumable_or_new_folder(tmp_path / "new") == tmp_path / "new"


def test_a_folder_that_another_process_writes_to_is_refused(tmp_path, monkeypatch):
    """Before anything is trained there; a run that it has finished meanwhile is not overwritten either."""
    plan = runner.plan

    def planned_slowly(*arguments):
        (tmp_path / "run.json").write_text("{}")
        return plan(*arguments)

    with locks.lock(tmp_path), ThreadPoolExecutor(1) as other_thread:
        refused = other_thread.submit(small, tmp_path, num_units=20, num_seeds=1, seconds=4.0)
        assert isinstance(refused.exception(), locks.HeldError)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(runner, "plan", planned_slowly)
    with pytest.raises(ValueError, match="the run in .* is finished"):
        small(tmp_path, num_units=20, num_seeds=1, seconds=4.0)


def test_a_file_in_the_place_of_the_folder_is_refused_in_words(tmp_path):
    (tmp_path / "file").write_text("notes")
    with pytest.raises(ValueError, match="The output folder must be one that can be written; .*file cannot"):
        small(tmp_path / "file", num_units=20, num_seeds=1, seconds=4.0)


def test_a_comparison_whose_second_scheme_is_refused_leaves_nothing(tmp_path, monkeypatch):
    prepare = training.prepare

    def refusing(scheme, *arguments):
        if scheme == "BSP":
            raise ValueError("not this one")
        return prepare(scheme, *arguments)

    monkeypatch.setattr(training, "prepare", refusing)
    with pytest.raises(ValueError, match="not this one"):
        small(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_scheme_may_have_its_own_optimizer(again):
    _, results, _ = again
    slow, fast = (results.seeds(name)[0]["accuracy"] for name in ("slow", "BSP"))
    assert slow[-1] == slow[0] == fast[0]
    assert fast[-1] > 0.5


def test_a_target_that_nobody_reaches_is_a_result_and_a_line(again):
    out, _, shown = again
    assert re.match(r"No scheme reached the target accuracy 1; the best value was 0\.\d+, by 'BSP'", shown[-1])
    assert "not reached" in (out / "summary.md").read_text()


@pytest.mark.slow
def test_a_loss_that_became_nan_is_said(tmp_path):
    shown = []
    report = progress.Progress(update=lambda *arguments, **options: None, show=shown.append)
    schemes = {"ASP": protocols.asp(), "fast": protocols.bsp()}
    shared = {"metric": "train_loss", "target": 1e-9, "optimizers": {"fast": optax.sgd(1e9)}, "num_seeds": 1}
    small(tmp_path, schemes=schemes, progress=report, **shared)
    assert shown[-1].endswith("It became NaN under fast: lower the learning rate.")


@pytest.mark.slow("changes13-^scheme 'own': wait_for of fastest must be a whole number between 1 and 4; got 9")
@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"target": 1.5}, "can never be reached"),
        ({"target": None}, "target must be the value that accuracy is to reach; got None. Bind study.target"),
        ({"num_evals": 0}, "num_evals must be a whole number at least 1; got 0"),
        ({"metric": "acuracy"}, "Did you mean 'accuracy'"),
        (
            {"seconds": 1000.0},
            r"num_units must last for all of the 1000 seconds; 120 units .* Sample about \d+",
        ),
        (
            {"optimizers": {"SSP": optax.sgd(1.0)}},
            "must be those of schemes, ASP, BSP, FRC; got one for 'SSP'",
        ),
        ({"seconds": 1e-3}, r"seconds must last for a commit in every run; got 0.001, .*'ASP' takes up to 0\.\d+ s"),
        ({"seconds": 0.0}, "^seconds must be above 0 and finite; got 0"),
        ({"timeline_seconds": 0.0}, "timeline_seconds must be above 0 and finite; got 0"),
        ({"task": tasks.digits(3, local_data=True)}, "scheme 'ASP': .*; got 4 workers for 3 chunks"),
        (
            {"schemes": {"own": protocols.k_async(num_contributions=2).replace(one_version=True)}},
            "^scheme 'own': contributions to one commit of this schedule read different versions",
        ),
        ({"num_seeds": 0}, "num_seeds must be a whole number at least 1; got 0"),
        (
            {"num_workers": 5, "schemes": {"FRC": protocols.coded(codes.uncoded(W))}},
            "study, 5; the code of scheme 'FRC' has 4",
        ),
        (
            {
                "schemes": {
                    "BSP": protocols.bsp(),
                    "own": protocols.coded(codes.uncoded(W), stop=codes.stopping.fastest(9)),
                }
            },
            "^scheme 'own': wait_for of fastest must be a whole number between 1 and 4; got 9",
        ),
    ],
)
def test_bad_input_is_refused_before_anything_runs(tmp_path, changes, match):
    with pytest.raises(ValueError, match=match):
        small(tmp_path, **changes)
    assert not list(tmp_path.iterdir())


def test_a_scheme_that_is_not_simulated_with_absences_is_named(tmp_path):
    schemes = {"FRC": protocols.coded(codes.fractional_repetition(W, num_stragglers=1))}
    away = stragglers.absences(workers=(0,), leave=(5.0,))
    with pytest.raises(ValueError, match="'FRC'.*workers can only be away"):
        small(tmp_path, schemes=schemes, absences=away)


@pytest.mark.slow("None")
@pytest.mark.parametrize("axes", [None, pytest.param(("workers",), marks=pytest.mark.slow)])
def test_runs_with_absences_end_in_time_too(tmp_path, axes):
    mesh = axes and config.mesh(axes=axes, sizes=(-1,))
    away = stragglers.absences(workers=(0,), leave=(5.0,), join=(9.0,))
    markov = stragglers.markov(base=1.0, slowdown=9.0, probability=0.3, persistence=0.9)
    changes = {"schemes": {"ASP": protocols.asp()}, "stragglers": markov, "absences": away, "seconds": 20.0}
    results = small(tmp_path / "some", num_seeds=3, mesh=mesh, **changes)
    assert max(seed["time"][-1] for seed in results.seeds("ASP")) <= 20.0
    changes["absences"] = stragglers.absences(workers=range(4), leave=(0.01,) * 4)  # before the first commit
    results = small(tmp_path / "all", num_seeds=3, mesh=mesh, **changes)  # the programs of the first
    assert [seed["time"][-1] for seed in results.seeds("ASP")] == [0.0] * 3


def test_a_scheme_that_waits_for_ever_is_refused(tmp_path):
    rule = protocols.simulation.Rule(ready=lambda view: view.idle & (view.num_commits < 0))
    schemes = {"own": protocols.Protocol(lambda d, n: protocols.simulation.event_schedule(rule, d, n))}
    with pytest.raises(ValueError, match="nothing fails, and still the protocol waits for ever"):
        small(tmp_path, schemes=schemes, stragglers=stragglers.exponential(mean=1.0))
