"""Invariants 3, 5 (wavefront widths) and 6: the engine against plain loops, and against itself."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gcjax
from gcjax import codes, engine, protocols, stragglers, tasks
from gcjax.codes import assignments, stopping
from gcjax.engine import checkpoint_files, gradients
from tests.parameters import one_in, some
from tests.protocols.damage import with_versions

KEY = jax.random.key(5)
W = 6
SGD = optax.sgd(0.1, momentum=0.5)
ADAM = optax.adam(0.01)


@functools.cache
def _regression(x64):
    return tasks.linear_regression(num_chunks=W, num_examples=60, num_features=4)


def regression():
    """One task for each setting of 64 bits, so that its functions are the same in every test."""
    return _regression(jax.config.jax_enable_x64)


def durations(num_units=8, num_workers=W, key=KEY):
    return stragglers.sample_durations(stragglers.exponential(mean=1.0), key, num_units, num_workers)


PROTOCOLS = {
    "bsp": protocols.bsp(),
    "asp": protocols.asp(),
    "ssp": protocols.ssp(staleness=1),
    "frc": protocols.coded(codes.fractional_repetition(W, num_stragglers=1)),
    "partial L=2": protocols.coded(codes.partial(assignments.cyclic(W, load=3), num_blocks=2, rng_key=KEY)),
    "deadline": protocols.coded(codes.partial(assignments.cyclic(W, load=2)), stop=stopping.deadline(0.8)),
}


def plain_loop(task, schedule, optimizer, rng_key, code=None):
    """The run by its definition: all versions kept in a list, one commit after the other."""
    init_key, batch_key = jax.random.split(rng_key)
    params = task.init(init_key)
    versions, opt_state = [params], optimizer.init(params)
    gradient = jax.jit(jax.grad(task.loss))

    def fold(a, b):
        return jax.random.fold_in(jax.random.fold_in(batch_key, a), b)

    for e in range(int(np.isfinite(schedule.time).sum())):
        total = jax.tree.map(jnp.zeros_like, params)

        def add(weight, g):
            nonlocal total
            total = jax.tree.map(lambda t, x: t + weight * x, total, g)

        if code is None:
            for worker, unit, version, weight in zip(
                *(np.asarray(f[e]) for f in (schedule.worker, schedule.unit, schedule.version, schedule.weight)),
                strict=True,
            ):
                if worker >= 0:
                    batch = task.unit_batch(task.data, batch_key, worker, unit)
                    add(weight, gradient(versions[version], batch, fold(worker, unit)))
        else:
            coding = code.plan(schedule.work[e])
            flat, unravel = jax.flatten_util.ravel_pytree(params)
            grads = [
                jax.flatten_util.ravel_pytree(
                    gradient(params, task.chunk_batch(task.data, batch_key, c, e), fold(c, e))
                )[0]
                for c in range(code.assignment.num_chunks)
            ]
            padded = np.pad(np.stack(grads), ((0, 0), (0, -flat.size % code.num_blocks)))
            from tests.codes.helpers import alone, decoded

            estimate = decoded(code, alone(coding), padded)[0, : flat.size]
            add(1.0 / code.assignment.num_chunks, unravel(jnp.asarray(estimate)))
        updates, opt_state = optimizer.update(total, opt_state, params)
        params = optax.apply_updates(params, updates)
        versions.append(params)
    return params


def assert_close(one, other, tolerance=1e-9):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["asp", "frc", "partial L=2", "deadline"], ["bsp", "ssp"]))
def test_run_is_the_plain_loop(name, x64):
    task = regression()
    run = engine.run(task, PROTOCOLS[name], SGD, durations(), rng_key=KEY)
    assert_close(run.params, plain_loop(task, run.schedule, SGD, KEY, PROTOCOLS[name].code))


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["ssp"], ["asp", "bsp"]))
def test_a_run_in_which_workers_leave_and_join_is_the_plain_loop(name, x64):
    task, model = regression(), stragglers.random_absences(mean_present=2.0, mean_away=1.0, max_count=2)
    away = model.sample(KEY, W)
    run = engine.run(task, PROTOCOLS[name], SGD, durations(), rng_key=KEY, absences=away)
    is_lost = np.isfinite(run.schedule.start) & ~np.isfinite(run.schedule.finish)
    assert is_lost.any() and run.info.num_commits > 5
    assert_close(run.params, plain_loop(task, run.schedule, SGD, KEY))
    at_once = jax.jit(lambda d, a: engine.run(task, PROTOCOLS[name], SGD, d, rng_key=KEY, absences=a))(
        durations(), away
    )
    assert_close(at_once.params, run.params)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["asp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bsp", "frc", "partial L=2"))]
)
def test_dropout_follows_the_unit_or_the_chunk(name, x64):
    task = tasks.digits(num_chunks=W, batch_size=3, hidden=(5,), dropout=0.5)
    run = engine.run(task, PROTOCOLS[name], SGD, durations(3), rng_key=KEY)
    assert_close(run.params, plain_loop(task, run.schedule, SGD, KEY, PROTOCOLS[name].code))


@pytest.mark.slow
def test_more_chunks_than_workers(x64):
    protocol = protocols.coded(codes.uncoded(W // 2, load=2))
    run = engine.run(regression(), protocol, SGD, durations(8, W // 2), rng_key=KEY)
    assert_close(run.params, plain_loop(regression(), run.schedule, SGD, KEY, protocol.code))


@pytest.mark.slow("16-asp", "16-partial L=2", "16-ssp")
@pytest.mark.parametrize("name", some(["asp", "ssp", "partial L=2"], ["bsp", "frc", "deadline"]))
@pytest.mark.parametrize("width", one_in(2, [16, 2]))
def test_wavefront_widths_agree(name, width, x64):
    one = engine.run(regression(), PROTOCOLS[name], SGD, durations(), rng_key=KEY, eval_every=7)
    other = engine.run(
        regression(), PROTOCOLS[name], SGD, durations(), rng_key=KEY, eval_every=7, wavefront_width=width
    )
    assert_close(one.params, other.params)
    assert_close(one.trajectory, other.trajectory)
    assert_close(one.info.loss, other.info.loss)


@pytest.mark.slow
@pytest.mark.promotes
@pytest.mark.parametrize("name", ["asp", "partial L=2"])
def test_a_run_cut_anywhere_and_resumed_gives_the_same_bits(name):
    whole = engine.run(regression(), PROTOCOLS[name], ADAM, durations(), rng_key=KEY, eval_every=2)
    for cuts in ([0, 1, 2, 3, 100], [2]):
        run = None
        for num_evals in [*cuts, None]:
            before = [] if run is None else jax.tree.leaves(run.state)
            run = engine.run(
                regression(), PROTOCOLS[name], ADAM, durations(), rng_key=KEY, eval_every=2,
                resume=engine.Resume(run, num_evals),
            )  # fmt: skip
            assert all(x.is_deleted() for x in before)  # donated
            if num_evals is not None and num_evals < 4:
                assert int(run.state.commit) == min(2 * num_evals, int(run.info.num_commits))
        jax.tree.map(np.testing.assert_array_equal, jax.device_get(run), jax.device_get(whole))


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path):
    arguments = (regression(), PROTOCOLS["asp"], SGD, durations())
    whole = engine.run(*arguments, rng_key=KEY, eval_every=2)
    checkpoints = engine.Checkpoints(tmp_path, every=2)
    engine.run(*arguments, rng_key=KEY, eval_every=2, resume=engine.Resume(None, 3, checkpoints))
    checkpoints.close()
    leaves = checkpoint_files.read_record(tmp_path / str(checkpoints.on_disk()[-1]))["leaves"]
    assert {name.split(".")[1] for name in leaves} == {"state", "info", "trajectory"}  # the schedule is made anew
    with engine.Checkpoints(tmp_path, every=2) as reopened:
        again = engine.run(*arguments, rng_key=KEY, eval_every=2, resume=reopened)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(again), jax.device_get(whole))
    with engine.Checkpoints(tmp_path) as other, pytest.raises(ValueError, match="another run:(?s:.*)computation"):
        engine.run(*arguments[:2], optax.sgd(0.2), arguments[3], rng_key=KEY, eval_every=2, resume=other)
    for key, identity in ((jax.random.key(1), ""), (KEY, "learning_rate = 0.2")):
        with engine.Checkpoints(tmp_path) as other, pytest.raises(ValueError, match="belongs to another run:"):
            engine.run(
                *arguments, eval_every=2, rng_key=key, resume=engine.Resume(checkpoints=other, identity=identity)
            )
    with pytest.raises(ValueError, match="cannot be used under jit"):
        jax.jit(lambda d: engine.run(*arguments[:3], d, rng_key=KEY, resume=checkpoints))(durations())


def test_initial_parameters_may_be_given(x64):
    params = regression().init(jax.random.key(77))
    run = engine.run(
        regression(), PROTOCOLS["bsp"], SGD, durations(), rng_key=KEY, params=params, resume=engine.Resume(num_evals=0)
    )
    assert_close(run.params, params)


@pytest.mark.slow
def test_ssp_0_ends_every_round_like_bsp(x64):
    bsp = engine.run(regression(), protocols.bsp(), optax.sgd(0.1), durations(), rng_key=KEY, eval_every=1)
    ssp = engine.run(regression(), protocols.ssp(staleness=0), optax.sgd(0.1), durations(), rng_key=KEY, eval_every=W)
    assert_close(bsp.params, ssp.params)
    assert_close(bsp.trajectory.metrics, ssp.trajectory.metrics)
    assert_close(bsp.trajectory.time, ssp.trajectory.time)


@pytest.mark.slow("code0")
@pytest.mark.parametrize("code", some(
    [codes.cyclic_repetition(W, num_stragglers=2, rng_key=KEY), codes.partial(assignments.cyclic(W, load=3))],
    [codes.uncoded(W)],
))  # fmt: skip
def test_weighted_and_streamed_estimates_are_equal(code, x64):
    task = tasks.digits(num_chunks=W, batch_size=3)
    params = task.init(KEY)

    round_inputs = gradients.RoundInputs(task.data, KEY, jnp.asarray(0))
    weighted, streamed = (
        jax.jit(estimate(task, code)) for estimate in (gradients.weighted_estimate, gradients.streamed_estimate)
    )
    for progress in np.random.default_rng(0).integers(0, code.assignment.load + 1, (3, W)):
        coding = code.plan(jnp.asarray(progress, jnp.int32))
        assert_close(weighted(params, round_inputs, coding), streamed(params, round_inputs, coding))


@pytest.mark.slow
def test_merged_batches_and_separate_losses_are_equal(x64):
    task = tasks.digits(num_chunks=W, batch_size=4)
    apart = task._replace(mergeable=False)
    for name in ("bsp", "frc"):
        runs = [engine.run(t, PROTOCOLS[name], SGD, durations(), rng_key=KEY, num_commits=3) for t in (task, apart)]
        assert_close(runs[0].params, runs[1].params)
        assert_close(runs[0].info.loss, runs[1].info.loss)


@pytest.mark.slow
def test_several_versions_in_one_commit(x64):
    """Every contribution is computed on the version that it read."""
    asp = protocols.asp()

    def pairs(durations, network):
        s = asp.schedule(durations, network)
        used = np.isfinite(s.time).sum() // 2 * 2
        take = lambda x: jnp.asarray(x)[:used].reshape(-1, 2)  # noqa: E731
        version = jnp.minimum(take(s.version[:, 0]) // 2, jnp.arange(used // 2, dtype=jnp.int32)[:, None])
        s = s._replace(
            time=take(s.time)[:, 1], worker=take(s.worker[:, 0]), unit=take(s.unit[:, 0]),
            work=take(s.work[:, 0]), weight=take(s.weight[:, 0]),
        )  # fmt: skip
        return with_versions(s, version)

    schedule = pairs(durations(), protocols.base.Network())
    protocol = protocols.Protocol(lambda d, n: schedule, one_version=False)
    run = engine.run(regression(), protocol, SGD, durations(), rng_key=KEY)
    assert (schedule.version[:, 0] != schedule.version[:, 1]).any()
    assert_close(run.params, plain_loop(regression(), schedule, SGD, KEY))


@pytest.mark.slow
def test_padding_may_stand_in_any_column(x64):
    s = protocols.asp().schedule(durations(), protocols.base.Network())
    pad = lambda x: jnp.concatenate([jnp.full_like(x, -1), x], axis=1)  # noqa: E731
    fields = {name: pad(getattr(s, name)) for name in ("worker", "unit", "work", "weight")}
    padded = protocols.Protocol(lambda d, n: s._replace(**fields))
    runs = [engine.run(regression(), p, SGD, durations(), rng_key=KEY) for p in (protocols.asp(), padded)]
    assert_close(runs[0].params, runs[1].params)


@pytest.mark.slow("two halves")
@pytest.mark.parametrize(
    "code",
    some([codes.cyclic_mds(W, num_stragglers=2)], [codes.partial(assignments.cyclic(W, load=2))]),
    ids=["two halves", "whole gradients"],
)
def test_the_residual_is_that_of_the_coefficients_whatever_the_code_says(code, x64):
    """Decoding three times too much is a distance of 2 for every chunk; also where the gradient has two halves."""
    honest = code.plan

    def triple(progress):
        coding = honest(progress)
        return coding._replace(decode=3 * coding.decode)

    size = code.assignment.num_chunks * code.num_blocks
    for plan, expected in ((honest, 0.0), (triple, 2 * np.sqrt(size))):
        protocol = protocols.coded(code._replace(plan=plan), stop=stopping.all_workers())
        task = tasks.linear_regression(num_chunks=W, num_examples=40, num_features=4)
        run = engine.run(task, protocol, SGD, durations(), rng_key=KEY, num_commits=2)
        np.testing.assert_allclose(run.info.residual[:2], expected, atol=1e-9)


def test_mixed_versions_must_be_announced():
    s = protocols.bsp().schedule(durations(), protocols.base.Network())
    mixed = protocols.Protocol(lambda d, n: s._replace(read=s.read.at[3, 1].set(1)))
    with pytest.raises(ValueError, match="read different versions.*one_version=False"):
        engine.run(regression(), mixed, SGD, durations(), rng_key=KEY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "transform", [jax.jit, pytest.param(lambda f: lambda x: jax.vmap(f)(x[None])[0], marks=pytest.mark.slow)]
)
def test_parameters_of_optimizer_and_protocol_may_be_traced(transform):
    task, d = regression(), durations()
    code = codes.uncoded(W)

    def rate(x):
        return engine.run(task, PROTOCOLS["bsp"], optax.sgd(x), d, rng_key=KEY).info.loss[-1]

    def limit(x):
        protocol = protocols.coded(code, stop=stopping.deadline(x))
        return engine.run(task, protocol, SGD, d, rng_key=KEY).info.residual[0]

    for function in (rate, limit):
        value = jnp.asarray(0.3)
        np.testing.assert_allclose(transform(function)(value), function(0.3), rtol=1e-5)


@pytest.mark.slow
def test_training_loss_does_not_depend_on_the_number_of_blocks(x64):
    uneven = np.arange(W)[:, None] <= np.arange(W)[None] + 2
    assignment = assignments.from_matrix(uneven.astype(int))
    losses = []
    for num_blocks in (1, 2):
        protocol = protocols.coded(
            codes.partial(assignment, num_blocks=num_blocks, rng_key=KEY), stop=stopping.all_workers()
        )
        losses.append(engine.run(regression(), protocol, SGD, durations(W), rng_key=KEY).info.loss)
    assert_close(losses[0], losses[1])


@pytest.mark.promotes  # optax.adam does
def test_same_key_same_bits_and_another_key_other_bits():
    make = lambda key: engine.run(regression(), PROTOCOLS["asp"], ADAM, durations(), rng_key=key)  # noqa: E731
    one, same, other = make(jax.random.key(1)), make(jax.random.key(1)), make(jax.random.key(2))
    jax.tree.map(np.testing.assert_array_equal, one.params, same.params)
    jax.tree.map(np.testing.assert_array_equal, one.trajectory, same.trajectory)
    assert jax.tree.leaves(jax.tree.map(lambda a, b: np.abs(a - b).max(), one.params, other.params))[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["ssp", "partial L=2"], ["bsp", "asp", "frc", "deadline"]))
def test_vmap_over_seeds_and_straggler_parameters_is_the_loop(name, x64):
    keys, means = jax.random.split(KEY, 3), jnp.asarray([0.5, 1.0, 2.0])
    task = regression()

    def one(key, mean):
        d = stragglers.sample_durations(stragglers.exponential(mean=mean), key, 8, W)
        return engine.run(task, PROTOCOLS[name], SGD, d, rng_key=key, eval_every=5)

    batch = jax.jit(jax.vmap(one))(keys, means)
    engine.check(batch)
    for i in range(3):
        single = one(keys[i], means[i])
        assert_close(single.params, jax.tree.map(lambda x: x[i], batch.params))  # noqa: B023
        assert_close(single.trajectory, jax.tree.map(lambda x: x[i], batch.trajectory))  # noqa: B023
        assert_close(single.info, jax.tree.map(lambda x: x[i], batch.info))  # noqa: B023


@pytest.mark.slow
def test_under_vmap_a_run_with_fewer_commits_is_as_it_is_alone(x64):
    task, whole = regression(), durations(num_units=4)
    both = jnp.stack([whole, whole.at[1:, 0].set(jnp.inf)])  # a worker fails after its first unit

    def train(durations_of_run):
        return engine.run(task, PROTOCOLS["asp"], SGD, durations_of_run, rng_key=KEY, eval_every=3)

    batch = jax.jit(jax.vmap(train))(both)
    assert batch.state.commit[1] < batch.state.commit[0]
    for i in range(2):
        alone = train(both[i])
        assert alone.state.commit == batch.state.commit[i]
        assert_close(alone.info, jax.tree.map(lambda x: x[i], batch.info))  # noqa: B023
        assert_close(alone.params, jax.tree.map(lambda x: x[i], batch.params))  # noqa: B023


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["asp"], ["bsp"]))
def test_the_final_metric_is_that_of_the_last_parameters(name, x64):
    task = regression()

    def train(key):
        return engine.run(task, PROTOCOLS[name], SGD, durations(key=key), rng_key=key, eval_every=2)

    keys = jax.random.split(KEY, 3)
    batch = jax.jit(jax.vmap(train))(keys)
    finals = batch.final("train_loss")
    assert finals.shape == (3,) and np.isfinite(finals).all()
    if name == "asp":  # the trajectory has room for more evaluations
        assert np.isposinf(batch.trajectory.metrics["train_loss"][:, -1]).any()
    for key, value in zip(keys, finals, strict=True):
        run = train(key)
        assert_close(run.final("train_loss"), task.metrics(run.params, task.data)["train_loss"])
        assert_close(run.final("train_loss"), value)
    with pytest.raises(
        ValueError, match="metric must be one of 'distance', .*got 'train_los'. Did you mean 'train_loss'"
    ):
        run.final("train_los")


def test_no_recompilation_on_the_second_call():
    from jax._src import test_util

    first, second = durations(), durations(key=jax.random.key(8))
    engine.run(regression(), PROTOCOLS["ssp"], SGD, first, rng_key=KEY)
    with test_util.count_jit_and_pmap_lowerings() as count:
        engine.run(regression(), PROTOCOLS["ssp"], SGD, second, rng_key=KEY)
    assert count() == 0


FAST_DTYPES = [("asp", jnp.bfloat16), ("asp", jnp.float64), ("frc", jnp.bfloat16), ("partial L=2", jnp.float64)]
DTYPES = [(name, dtype) for name in ("asp", "frc", "partial L=2") for dtype in (jnp.bfloat16, jnp.float32, jnp.float64)]


@pytest.mark.slow
@pytest.mark.promotes  # parameters in one type, data in another
@pytest.mark.parametrize(("name", "dtype"), some(FAST_DTYPES, [x for x in DTYPES if x not in FAST_DTYPES]))
def test_parameters_keep_their_dtype(name, dtype):
    with jax.enable_x64(dtype == jnp.float64):
        task = regression()
        cast = functools.partial(jax.tree.map, lambda x: x.astype(dtype))
        run = engine.run(task._replace(init=lambda key: cast(task.init(key))), PROTOCOLS[name], SGD,
                         durations().astype(jnp.float32), rng_key=KEY, num_commits=2)  # fmt: skip
        assert {x.dtype for x in jax.tree.leaves(run.params)} == {jnp.dtype(dtype)}
        assert all(np.isfinite(x.astype(np.float32)).all() for x in jax.tree.leaves(run.params))


def test_trajectory_and_info_of_an_interrupted_run():
    late = durations().at[4:, 0].set(jnp.inf)
    run = engine.run(regression(), protocols.bsp(), SGD, late, rng_key=KEY, eval_every=3)
    np.testing.assert_array_equal(run.trajectory.commit, [0, 3, 4, -1])
    np.testing.assert_array_equal(np.isfinite(run.trajectory.time), [True, True, True, False])
    assert run.trajectory.time[0] == 0 and run.trajectory.time[2] == run.schedule.time[3]
    assert run.info.num_commits == 4 and run.info.versions_alive == 0 and run.state.ring is None
    np.testing.assert_array_equal(np.isfinite(run.info.loss), np.arange(8) < 4)
    np.testing.assert_array_equal(run.info.staleness, [0] * 4 + [-1] * 4)


def test_residual_is_reported_for_approximate_rounds():
    run = engine.run(regression(), PROTOCOLS["deadline"], SGD, durations(), rng_key=KEY)
    plan = jax.jit(PROTOCOLS["deadline"].code.plan)
    expected = [plan(work).residual for work in run.schedule.work]
    np.testing.assert_allclose(run.info.residual, expected, atol=1e-5)
    assert run.info.residual.max() > 0.5


def test_progress_is_told_at_every_evaluation():
    told = []
    engine.run(regression(), protocols.bsp(), SGD, durations(), rng_key=KEY, eval_every=3,
               progress=lambda done, total: told.append((int(done), int(total))))  # fmt: skip
    assert told == [(3, 8), (6, 8), (8, 8)]


def test_a_run_goes_on_with_the_ring_that_it_has():
    def run(**more):
        return engine.run(regression(), protocols.asp(), SGD, durations(), rng_key=KEY, **more)

    whole = run(ring_size=9)
    with pytest.raises(ValueError, match="same ring_size; it has 9, asked for is 7"):
        run(resume=run(ring_size=9, resume=engine.Resume(num_evals=1)), ring_size=7)
    rest = run(resume=run(ring_size=9, resume=engine.Resume(num_evals=1)))  # whatever the size would be by itself
    jax.tree.map(np.testing.assert_array_equal, rest.params, whole.params)


def test_a_run_that_was_evaluated_at_other_commits_does_not_go_on():
    def run(**more):
        return engine.run(regression(), protocols.bsp(), SGD, durations(), rng_key=KEY, **more)

    begun = run(eval_every=5, resume=engine.Resume(num_evals=1))
    with pytest.raises(ValueError, match=r"same eval_every; its evaluations .* \[0, 5\] commits.* after \[0, 7\]"):
        run(eval_every=7, resume=begun)
    with pytest.raises(ValueError, match="the same num_commits; it is one of 8 commits, this one of 6"):
        run(eval_every=5, num_commits=6, resume=begun)
    run(eval_every=5, resume=begun)


def test_ring_that_overflows_is_an_error_and_never_a_result():
    with pytest.raises(ValueError, match=r"keeps 2 past versions .* needs (\d+) at once. Pass ring_size=\1"):
        engine.run(regression(), PROTOCOLS["asp"], SGD, durations(), rng_key=KEY, ring_size=2)
    task = regression()
    jitted = jax.jit(lambda d: engine.run(task, PROTOCOLS["asp"], SGD, d, rng_key=KEY, ring_size=2))
    run = jitted(durations())
    assert all(np.isnan(x).all() for x in jax.tree.leaves(run.params))
    assert not any(np.isfinite(x).any() for x in run.trajectory.metrics.values())
    with pytest.raises(ValueError, match="keeps 2 past versions"):
        engine.check(run)
    enough = int(run.info.versions_alive)
    engine.run(regression(), PROTOCOLS["asp"], SGD, durations(), rng_key=KEY, ring_size=enough)


@pytest.mark.parametrize("wavefront_width", [1, 4])
def test_a_version_from_the_future_is_an_error_and_does_not_hang(wavefront_width):
    good = protocols.bsp().schedule(durations(), protocols.base.Network())
    protocol = protocols.Protocol(lambda d, n: good._replace(read=good.read + 1))
    with pytest.raises(ValueError, match="made later; commit e can read the versions 0 to e"):
        engine.run(regression(), protocol, SGD, durations(), rng_key=KEY, wavefront_width=wavefront_width)


def test_more_commits_than_sampled_is_an_error():
    with pytest.raises(ValueError, match="num_commits=20 .* 8 units a worker give only 8 commits.* Sample 20 units"):
        engine.run(regression(), protocols.bsp(), SGD, durations(), rng_key=KEY, num_commits=20)


def test_no_commit_at_all_is_an_error_unless_somebody_is_waited_for():
    task, protocol, d = regression(), protocols.anytime_minibatch(seconds=1000.0), durations()
    with pytest.raises(ValueError, match="some commit must happen; the 8 units .* Sample more units"):
        engine.run(task, protocol, SGD, d, rng_key=KEY)
    batch = jax.jit(jax.vmap(lambda d: engine.run(task, protocol, SGD, d, rng_key=KEY)))(jnp.stack([d, 1000 * d]))
    assert batch.info.num_commits.tolist() == [0, 2]
    with pytest.raises(ValueError, match="some commit must happen; the 8 units"):
        engine.check(batch)
    lost = engine.run(task, protocols.bsp(), SGD, d.at[0, 1].set(jnp.inf), rng_key=KEY)
    assert lost.info.num_commits == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"protocol": "bsp"}, "protocol must be a Protocol.*got .bsp."),
        ({"protocol": codes.uncoded(3)}, r"got a value of type GradientCode\.$"),
        ({"task": tasks.digits}, "task must be a Task, .*; got <function digits .*Was the factory called"),
        ({"task": protocols.bsp()}, "task must be a Task, .*; got"),
        ({"task": tasks.digits(4, local_data=True)}, "got 6 workers for 4 chunks. Make the task with num_chunks=6"),
        ({"num_commits": 2**31}, "num_commits must be a whole number between 1 and 2147483647; got 2147483648"),
        ({"num_commits": 0}, "num_commits must be a whole number at least 1; got 0"),
        ({"wavefront_width": 0}, "wavefront_width must be a whole number at least 1; got 0"),
        ({"network": protocols.base.Network(upload=np.ones(W + 1))}, r"upload must be .* 6 workers; got shape \(7,\)"),
        ({"network": stragglers.links(upload=(1.0, 2.0))}, r"upload must be .* 6 workers; got shape \(2,\)"),
        ({"network": (1.0, 2.0)}, r"network must be a Network; got \(1.0, 2.0\)"),
        ({"absences": (1.0, 2.0)}, r"absences must be Absences; got \(1.0, 2.0\)"),
        ({"durations": jnp.full((3, W), jnp.nan)}, "got nan for unit 0 of worker 0"),
        ({"protocol": protocols.coded(codes.uncoded(3))}, "the code has 3, the task 6"),
        ({"optimizer": 0.1}, r"optimizer must be an optax.GradientTransformation, .*sgd\(0.1\); got 0.1\.$"),
        ({"optimizer": optax.sgd}, "optimizer must be an optax.GradientTransformation.*Was the factory called"),
    ],
)
def test_bad_input(change, message):
    arguments = {
        "task": regression(),
        "protocol": protocols.bsp(),
        "optimizer": SGD,
        "durations": durations(),
    } | change
    with pytest.raises(ValueError, match=message):
        gcjax.engine.run(**arguments, rng_key=KEY)


@pytest.mark.slow("adacomm", "asp", "deadline")
@pytest.mark.promotes
@pytest.mark.parametrize("name", ["asp", "deadline", "adacomm"])
def test_a_run_has_no_numbers_that_a_check_for_nans_complains_of(name):
    """Not even for commits and evaluations that are not made."""
    protocol = PROTOCOLS.get(name) or protocols.adacomm(num_local_steps=2, seconds=2.0, num_windows=2)
    with jax.debug_nans(True):
        run = engine.run(regression(), protocol, SGD, durations(), rng_key=KEY, eval_every=3)
    assert np.isposinf(run.info.loss[int(run.info.num_commits) :]).all()


def scalar_task(**functions):
    """One number to be learned, from examples that are numbers."""

    def loss(params, batch, rng_key):
        return batch.mean((params["w"] - batch.targets) ** 2)

    task = tasks.task_of(
        lambda key: {"w": 0.5}, lambda p, e: (p["w"] - e[1]) ** 2, (np.ones(12), np.ones(12)), num_chunks=W
    )
    return task._replace(loss=loss, **functions)


@pytest.mark.parametrize("name", ["bsp", "asp"])
def test_parameters_may_be_numbers_of_python(name):
    run = engine.run(scalar_task(), PROTOCOLS[name], SGD, durations(), rng_key=KEY)
    assert abs(run.params["w"] - 1) < 0.3 and run.params["w"].shape == ()


def test_metrics_may_be_whole_numbers_and_booleans():
    def metrics(params, data):
        return {"big": params["w"] > 0.7, "tens": jnp.int32(10 * params["w"])}

    run = engine.run(scalar_task(metrics=metrics), PROTOCOLS["bsp"], SGD, durations(), rng_key=KEY)
    assert run.trajectory.metrics["big"].tolist()[0] == 0.0 and run.trajectory.metrics["tens"].tolist()[0] == 5.0
    assert run.final("big") == 1.0 and run.final("tens") > 6


BAD_FUNCTIONS = {
    "init": [
        (lambda key: {"w": jnp.arange(3)}, r"floating point numbers; got int32 in params\['w'\]"),
        (lambda key: {}, r"must have parameters, arrays in a pytree; got \{\}"),
    ],
    "metrics": [
        (lambda params, data: params["w"], "must be a dict"),
        (lambda params, data: {"w": jnp.ones(3)}, r"one number, float\[\]; 'w' is float32\[3\]"),
    ],
}


@pytest.mark.parametrize(
    ("name", "function", "match"), [(name, *case) for name, cases in BAD_FUNCTIONS.items() for case in cases]
)
def test_functions_that_cannot_be_trained(name, function, match):
    task = scalar_task(**{name: function})
    with pytest.raises(ValueError, match=match):
        engine.run(task, PROTOCOLS["asp"], SGD, durations(), rng_key=KEY)
