"""Schemes under several conditions, on one device and on a mesh."""

import dataclasses
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from gcjax import compression, config, engine, memory, progress, protocols, stragglers, tasks
from gcjax.study import Condition, Study, final_rows, plan, run, seed_values
from gcjax.study.compiled_ahead import one_ahead

W = 4
SLOW = stragglers.shifted_exponential(shift=1.0, mean=0.1)
CONDITIONS = {
    "even": Condition(SLOW),
    "one is slow": Condition(
        stragglers.scaled(SLOW, factor=5.0, workers=(0,)), stragglers.constant_network(upload=0.5)
    ),
}
SCHEMES = {"BSP": protocols.bsp(), "ASP": protocols.asp()}
STUDY = Study(
    task=tasks.linear_regression(W, num_features=2, num_examples=16), optimizer=optax.sgd(0.05), num_workers=W,
    num_units=6, num_seeds=2, num_evals=3, target=0.5, metric="suboptimality", checkpoint_every=1,
)  # fmt: skip


PROGRAMS = ("jit(_schedules_of_runs)", "jit(_begin_runs)", "jit(_advance_runs)")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run(plan(STUDY, SCHEMES, CONDITIONS), out=tmp_path_factory.mktemp("study"), progress=progress.silent())


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """Results, the programs that were compiled and whether in this thread, and the looks at the memory."""
    compiled, looks, study = [], [], dataclasses.replace(STUDY, num_evals=2, num_units=7)

    def listen(event, duration_secs, fun_name=None, **kwargs):
        if "backend_compile" in event and fun_name in PROGRAMS:
            compiled.append((fun_name, threading.current_thread() is threading.main_thread()))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory, "forget_programs", lambda: looks.append(True))
            out = tmp_path_factory.mktemp("watched")
            results = run(plan(study, SCHEMES, CONDITIONS), out=out, progress=progress.silent())
    finally:
        forget = getattr(jax.monitoring, "unregister_event_duration_listener", None)  # JAX 0.8.0 has none
        if forget is not None:
            forget(listen)
    return results, compiled, looks


def test_programs_are_compiled_by_other_threads_and_once(watched):
    """Of each scheme one for its schedules, one to begin and one to go on: what is compiled ahead is what is called."""
    _, compiled, _ = watched
    assert sorted(compiled) == sorted((name, False) for name in PROGRAMS for _ in SCHEMES)


def test_the_memory_is_looked_at_behind_each_scheme(watched):
    *_, looks = watched
    assert len(looks) == 2


def test_an_item_is_made_before_the_one_in_front_of_it_is_given():
    made = []
    given = [(item, list(made)) for item in one_ahead(made.append(i) or i for i in range(3))]
    assert given == [(0, [0, 1]), (1, [0, 1, 2]), (2, [0, 1, 2])]
    assert list(one_ahead("a")) == ["a"] and not list(one_ahead(()))


@pytest.mark.slow
def test_every_row_is_of_its_condition_and_seed(results):
    rows = final_rows(results)
    labels = list(zip(rows["scheme"], rows["condition"], rows["seed"], strict=True))
    assert labels == [(s, c, i) for s in SCHEMES for c in CONDITIONS for i in range(2)]
    slow, even = (seed_values(rows, "BSP", name, "end") for name in ("one is slow", "even"))
    assert (slow > 3 * even).all()
    assert not seed_values(rows, "ASP", "even", "communicating").any()
    assert (seed_values(rows, "ASP", "one is slow", "communicating") > 0.1).all()


def test_without_a_target_there_is_no_time_to_it(watched):
    results, *_ = watched
    untargeted = results.plan._replace(study=dataclasses.replace(results.plan.study, target=None))
    rows = final_rows(results._replace(plan=untargeted))
    assert set(final_rows(results)) - set(rows) == {"reach"}


def test_states_of_all_runs_at_once_must_fit_into_memory(tmp_path, monkeypatch):
    """The ring of a run has W + 2 versions of the model, and the run is one of four."""
    task = STUDY.task._replace(
        init=lambda key: jnp.ones(4000),
        loss=lambda params, batch, key: (params**2).sum(),
        metrics=lambda params, data: {"suboptimality": (params**2).sum()},
    )
    drawn = plan(dataclasses.replace(STUDY, task=task), {"ASP": protocols.asp()}, CONDITIONS)
    bytes_of_run = 4 * 4000 * (1 + W + 2)
    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * bytes_of_run - 1)
    with pytest.raises(ValueError, match="states and evaluations of 4 runs of 'ASP', .* at least 443 KiB, .* 437 KiB."):
        run(drawn, out=tmp_path, progress=progress.silent())


@pytest.mark.slow
def test_a_mesh_gives_the_rows_of_one_device(results, tmp_path):
    study = dataclasses.replace(STUDY, mesh=config.mesh(axes=("workers", "model"), sizes=(-1, 2)))
    meshed = final_rows(run(plan(study, SCHEMES, CONDITIONS), out=tmp_path, progress=progress.silent()))
    for name, column in final_rows(results).items():
        if column.dtype.kind == "f":
            np.testing.assert_allclose(meshed[name], column, rtol=1e-4, atol=1e-6)
        else:
            np.testing.assert_array_equal(meshed[name], column)


@pytest.mark.slow
def test_a_study_that_was_broken_off_goes_on_with_the_same_bits(results, tmp_path, monkeypatch):
    save, saved = engine.Checkpoints.save, []

    def interrupted(self, step, *rest):
        if len(saved) == 4:  # in the second scheme
            raise KeyboardInterrupt
        saved.append(step)
        save(self, step, *rest)

    monkeypatch.setattr(engine.Checkpoints, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(plan(STUDY, SCHEMES, CONDITIONS), out=tmp_path, progress=progress.silent())
    monkeypatch.setattr(engine.Checkpoints, "save", lambda *given: saved.append(given[1]) or save(*given))
    rows = final_rows(run(plan(STUDY, SCHEMES, CONDITIONS), out=tmp_path, progress=progress.silent()))
    assert saved == [1, 2, 3, 1, 2, 3]
    for name, column in final_rows(results).items():
        np.testing.assert_array_equal(rows[name], column)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A folder with a study of BSP that ends at 3 s; a worker fails later. Its messages are compressed to 5/8."""
    out = tmp_path_factory.mktemp("short")
    return out, run(*_short_study(0.05), out=out, progress=progress.silent())


def _short_study(learning_rate):
    """The plan of it, in a list."""
    compressions = {"BSP": compression.error_feedback(compression.sign())}
    study = dataclasses.replace(STUDY, optimizer=optax.sgd(learning_rate), seconds=3.0, compressions=compressions)
    failing = stragglers.failed_workers(stragglers.constant(seconds=1.0), workers=(0,), onset=4)
    return [plan(study, {"BSP": protocols.bsp()}, {"all": Condition(failing)})]


@pytest.mark.slow
def test_a_run_that_ends_before_a_worker_fails_has_not_come_to_a_halt(short):
    assert short[1].runs["BSP"].stalled == [False, False]


def test_numbers_sent_are_those_of_compressed_messages(short):
    rows = final_rows(short[1])
    np.testing.assert_allclose(rows["numbers"], rows["commits"] * 2 * 5 / 8)  # a model of two numbers


def test_checkpoints_of_another_optimizer_are_refused(short):
    with pytest.raises(ValueError, match="'BSP': .*another run:(?s:.*)computation = "):
        run(*_short_study(0.001), out=short[0], progress=progress.silent())


@pytest.mark.slow
def test_who_is_away_makes_no_commits_and_each_scheme_says_if_it_cannot_be_simulated(tmp_path):
    away = stragglers.absences(workers=(0, 1), leave=(1.5, 2.5))
    conditions = {"all stay": Condition(SLOW), "two leave": Condition(SLOW, absences=away)}
    results = run(plan(STUDY, {"ASP": protocols.asp()}, conditions), out=tmp_path, progress=progress.silent())
    rows = final_rows(results)
    stay, leave = (seed_values(rows, "ASP", name, "commits") for name in conditions)
    assert (leave < stay).all() and (leave >= 14).all()
    with pytest.raises(ValueError, match=r"'deadlines'.*workers can only be away .*stopped by the server"):
        plan(STUDY, {"deadlines": protocols.anytime_minibatch(seconds=2.0)}, conditions)


@pytest.mark.slow
def test_a_group_whose_member_comes_back_with_a_newer_version_is_trained(tmp_path):
    slow_group = stragglers.scaled(SLOW, factor=3.0, workers=(0, 1))
    away = stragglers.absences(workers=(0,), leave=(1.2,), join=(1.5,))
    conditions = {"away": Condition(slow_group, stragglers.constant_network(), away)}
    groups = {"groups": protocols.grouped(groups=((0, 1), (2, 3)))}
    results = run(plan(STUDY, groups, conditions), out=tmp_path / "study", progress=progress.silent())
    assert np.isfinite(final_rows(results)["suboptimality"]).all()


def test_what_is_no_scheme_or_condition_is_refused():
    for schemes, conditions, words in (
        ([protocols.bsp()], CONDITIONS, r"schemes must be a dict, from names to protocols, as in .*; got a list\."),
        (protocols.bsp(), CONDITIONS, r"schemes must be a dict, .*; got a Protocol\."),
        ({"BSP": protocols.bsp}, CONDITIONS, "a scheme must be a Protocol, .*'BSP' is <function"),
        (SCHEMES, {"even": stragglers.constant(seconds=1.0)}, r"a condition must be a .*Condition\(model\); 'even' is"),
        (SCHEMES, {}, "at least one condition"),
    ):
        with pytest.raises(ValueError, match=words):
            plan(STUDY, schemes, conditions)


@pytest.mark.parametrize("name", ["seconds", "target"])
def test_a_number_of_a_study_is_one(name):
    with pytest.raises(ValueError, match=f"{name} must be one number"):
        dataclasses.replace(STUDY, **{name: (1.0, 2.0)})
