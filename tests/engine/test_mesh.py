"""Invariant 5 on meshes: the same results as on one device, the parameters where they should be."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from gcjax import engine, protocols, tasks
from tests.devices import devices, mesh
from tests.engine.test_run import KEY, PROTOCOLS, SGD, W, assert_close, durations, regression
from tests.parameters import some
from tests.protocols.damage import with_versions


@functools.cache
def one_device(name):
    return engine.run(regression(), PROTOCOLS[name], SGD, durations(), rng_key=KEY, eval_every=7)


@pytest.mark.slow("bsp-shape0", "bsp-shape3", "partial L=2-shape2")
@pytest.mark.parametrize(
    ("name", "shape"),
    some(
        [("bsp", (8,)), ("asp", (4, 2)), ("partial L=2", (4, 2)), ("bsp", (1,))],
        [
            ("frc", (8,)),
            ("deadline", (4,)),
            ("bsp", (4, 2)),
            ("asp", (8,)),
            ("frc", (4, 2)),
            ("partial L=2", (8,)),
            ("asp", (2,)),
            ("partial L=2", (2, 2)),
        ],
    ),
)
def test_a_mesh_gives_the_results_of_one_device(name, shape, x64):
    """Six workers, which four and eight devices do not divide."""
    run = engine.run(regression(), PROTOCOLS[name], SGD, durations(), rng_key=KEY, eval_every=7, mesh=mesh(*shape))
    one = one_device(name)
    assert_close(run.params, one.params)
    assert_close(run.trajectory, one.trajectory)
    assert_close(run.info, one.info)
    spec = P("model") if len(shape) == 2 else P()
    slices = P("workers") if name == "asp" and len(shape) == 1 else spec  # where a wavefront is committed in slices
    for tree, specs in ((run.params, {spec}), (run.state.opt_state, {spec, slices})):
        for x in jax.tree.leaves(tree):
            assert x.sharding.spec in specs and len(x.sharding.device_set) == np.prod(shape)


@pytest.mark.slow
def test_contributions_of_several_versions(x64):
    """A commit of two contributions, each at the version that it read: on six devices as on one."""
    asp = protocols.asp()

    def pairs(d, network):
        s = asp.schedule(d, network)
        used = int(np.isfinite(s.time).sum()) // 2 * 2
        take = lambda x: jnp.asarray(x)[:used].reshape(-1, 2)  # noqa: E731
        version = jnp.minimum(take(s.version[:, 0]) // 2, jnp.arange(used // 2, dtype=jnp.int32)[:, None])
        fields = {name: take(getattr(s, name)[:, 0]) for name in ("worker", "unit", "work", "weight")}
        return with_versions(s._replace(time=take(s.time)[:, 1], **fields), version)

    schedule = pairs(durations(), protocols.base.Network())
    protocol = protocols.Protocol(lambda d, n: schedule, one_version=False)
    runs = [
        engine.run(regression(), protocol, SGD, durations(), rng_key=KEY, mesh=on) for on in (None, mesh(4), mesh(2, 2))
    ]
    assert_close(runs[0].params, runs[1].params)
    assert_close(runs[0].params, runs[2].params)


@pytest.mark.promotes
def test_a_model_is_cut_over_the_second_axis():
    """Parameters, past versions and both moments of Adam: no device has more than its share of an array."""
    task = tasks.digits(num_chunks=W, batch_size=3, hidden=(8,))
    run = engine.run(task, PROTOCOLS["asp"], optax.adam(0.01), durations(3), rng_key=KEY, mesh=mesh(2, 4))
    wanted = {"kernel": P("model"), "bias": P("model")}  # 64×8, then 8×10: the larger dimension, if 4 divides it
    first, last = (run.params[layer] for layer in sorted(run.params))
    moments = optax.tree.get(run.state.opt_state, "mu")
    for layer in (first, moments[min(run.params)]):
        assert {name: x.sharding.spec for name, x in layer.items()} == wanted
        assert layer["kernel"].addressable_shards[0].data.shape == (16, 8)
    assert last["kernel"].sharding.spec == P("model") and last["bias"].sharding.spec == P()
    ring = run.state.ring[min(run.params)]["kernel"]
    assert ring.sharding.spec == P(None, "model") and ring.addressable_shards[0].data.shape[1:] == (16, 8)
    assert jax.tree.leaves(run.info)[0].sharding.spec == P()


@pytest.mark.slow
@pytest.mark.promotes
def test_the_user_may_say_how_parameters_are_cut():
    def specs(params):
        return jax.tree.map(lambda x: P(None, "model") if x.ndim == 2 and x.shape[1] == 8 else P(), params)

    task = tasks.digits(num_chunks=W, batch_size=3, hidden=(8,))
    arguments = (task, PROTOCOLS["bsp"], optax.adam(0.01), durations(2))
    run = engine.run(*arguments, rng_key=KEY, mesh=engine.MeshOptions(mesh(4, 2), param_specs=specs))
    shapes = {x.addressable_shards[0].data.shape for x in jax.tree.leaves(run.params)}
    assert shapes == {(64, 4), (8,), (8, 10), (10,)}
    assert_close(run.params, engine.run(*arguments, rng_key=KEY).params, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", some(["asp"], ["bsp"]))
def test_a_batch_of_runs_on_a_mesh(name, x64):
    keys = jax.random.split(KEY, 2)

    def one(key, on=None):
        return engine.run(regression(), PROTOCOLS[name], SGD, durations(4, key=key), rng_key=key, mesh=on)

    batch = jax.jit(jax.vmap(lambda key: one(key, mesh(4))))(keys)
    for i, key in enumerate(keys):
        assert_close(jax.tree.map(lambda x, i=i: x[i], batch.params), one(key).params)


@pytest.mark.parametrize("name", some(["bsp"], ["frc"]))
def test_a_commit_moves_one_gradient(name):
    """A BSP commit and a coded one sum the gradient over the devices."""
    task = tasks.digits(num_chunks=W, batch_size=3, hidden=(50,))
    size = sum(x.size for x in jax.tree.leaves(jax.eval_shape(task.init, KEY)))

    def run(data, d):
        return engine.run(task._replace(data=data), PROTOCOLS[name], SGD, d, rng_key=KEY, mesh=mesh(4)).params

    sent = engine.bytes_sent(jax.jit(run).lower(task.data, durations(4)).compile())
    assert sum(sent.values()) == pytest.approx(2 * 4 * size * 3 / 4, rel=0.02)
    assert sent["all-reduce"] > 0.995 * sum(sent.values())  # the rest are indices: only gradients are computed in parts


def test_a_wavefront_moves_slices():
    """Four versions and four gradients, each as slices on four devices; parameters whole for each evaluation alone."""
    task = tasks.digits(num_chunks=W, batch_size=3, hidden=(48,))
    size = sum(x.size for x in jax.tree.leaves(jax.eval_shape(task.init, KEY)))

    def run(data, d):
        on_data = task._replace(data=data)
        return engine.run(on_data, PROTOCOLS["asp"], SGD, d, rng_key=KEY, mesh=mesh(4)).params

    sent = engine.bytes_sent(jax.jit(run).lower(task.data, durations(4)).compile())
    assert sent["all-to-all"] == pytest.approx(2 * 4 * size * 3 / 4, rel=0.02)
    in_loop_and_at_the_end = 2
    assert sent["all-gather"] == pytest.approx(in_loop_and_at_the_end * 4 * size * 3 / 4, rel=0.05)


@pytest.mark.slow("clipped")
@pytest.mark.promotes
@pytest.mark.parametrize("name", some(["clipped"], ["adam", "adafactor"]))
def test_a_wavefront_is_right_with_any_optimizer(name, x64):
    """Also one that does not go entry by entry: on eight devices as on one."""
    optimizer = {
        "clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, momentum=0.9)),
        "adam": optax.adam(0.01),
        "adafactor": optax.adafactor(0.01, min_dim_size_to_factor=8),
    }[name]
    task = tasks.digits(num_chunks=W, batch_size=3, hidden=(16,))
    arguments = task, PROTOCOLS["asp"], optimizer, durations(4)
    one, eight = (engine.run(*arguments, rng_key=KEY, mesh=on) for on in (None, mesh(8)))
    assert_close(eight.params, one.params)
    assert_close(eight.info, one.info)
    shardings = {x.sharding.spec for x in jax.tree.leaves((eight.state.ring, eight.state.opt_state))}
    assert P(None, "workers") in shardings and {x.sharding.spec for x in jax.tree.leaves(eight.params)} == {P()}


def test_a_second_run_compiles_nothing():
    task, on, compiled = regression(), mesh(4), []
    engine.run(task, PROTOCOLS["asp"], SGD, durations(), rng_key=KEY, mesh=on)

    def listen(event, duration_secs, **kwargs):
        compiled.extend([event] if "backend_compile" in event else [])

    other = durations(key=jax.random.key(9))
    jax.block_until_ready(other)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        engine.run(task, PROTOCOLS["asp"], SGD, other, rng_key=jax.random.key(8), mesh=on)
    finally:
        forget = getattr(jax.monitoring, "unregister_event_duration_listener", None)  # JAX 0.8.0 has none
        if forget is not None:
            forget(listen)
    assert not compiled


def test_bad_input():
    arguments = (regression(), PROTOCOLS["bsp"], SGD, durations())
    with pytest.raises(ValueError, match=r"no axis 'workers', only 'rows'.*axis=\.\.\."):
        engine.run(*arguments, rng_key=KEY, mesh=jax.make_mesh((2,), ("rows",), devices=devices(2)))
    with pytest.raises(ValueError, match="must be a jax.sharding.Mesh"):
        engine.run(*arguments, rng_key=KEY, mesh=jax.devices())


@pytest.mark.slow
def test_a_run_is_gone_on_with_where_it_was_begun():
    def run(**changes):
        return engine.run(regression(), PROTOCOLS["bsp"], SGD, durations(), rng_key=KEY, **changes)

    begun = run(mesh=mesh(2), resume=engine.Resume(num_evals=1))
    with pytest.raises(ValueError, match="the same devices; it lies on 2 others, the mesh has 4"):
        run(mesh=mesh(4), resume=begun)
    with pytest.raises(ValueError, match="the same num_commits and eval_every; it has room for 9 .* this one for 3"):
        run(mesh=mesh(2), resume=begun, eval_every=4)
    for wrong in (-1, np.int64(-1), 2.5):
        with pytest.raises(ValueError, match=f"num_evals must be a whole number at least 0; got .*{wrong}"):
            run(resume=engine.Resume(num_evals=wrong))
    with pytest.raises(ValueError, match="resume must be a Run, Checkpoints, or gcjax.engine.Resume.*; got 3"):
        run(resume=3)


@pytest.mark.slow("masked", "multi_transform")
@pytest.mark.parametrize("optimizer", ["masked", "multi_transform"])
def test_optimizers_of_some_parameters_only(optimizer, x64):
    """Their state has no entry for the other parameters."""
    if optimizer == "masked":
        optimizer = optax.masked(SGD, lambda params: jax.tree.map(lambda x: x.ndim == 1, params))
    else:
        labels = {"inner": "slow", "outer": "frozen"}
        optimizer = optax.multi_transform({"slow": SGD, "frozen": optax.set_to_zero()}, labels)
    task = two_weights()
    one, spread = (
        engine.run(task, PROTOCOLS["bsp"], optimizer, durations(), rng_key=KEY, mesh=on) for on in (None, mesh(2, 2))
    )
    assert_close(spread.params, one.params)
    assert_close(spread.state.opt_state, one.state.opt_state)


@pytest.mark.slow
@pytest.mark.promotes  # optax.add_noise does
def test_optimizers_of_workers_with_random_keys(x64):
    """Six workers, which four devices do not divide."""
    optimizer = optax.chain(optax.add_noise(0.01, 0.5, jax.random.key(0)), optax.sgd(0.1))
    runs = [
        engine.run(regression(), protocols.local_sgd(num_local_steps=2), optimizer, durations(), rng_key=KEY, **kwargs)
        for kwargs in ({}, {"mesh": mesh(4)})
    ]
    assert_close(runs[1].params, runs[0].params)
    keys = [jax.random.key_data(jax.tree.leaves(run.state.local.opt_state)[1]) for run in runs]
    np.testing.assert_array_equal(*keys)


def two_weights():
    """Least squares with a weight for each feature and one for all."""
    inputs = np.linspace(-1, 1, 48).reshape(12, 4)

    def loss(params, examples):
        inputs, targets = examples
        return (inputs @ params["inner"] * params["outer"] - targets) ** 2

    def init(key):
        return {"inner": jax.random.normal(key, (4,)), "outer": jnp.ones(())}

    return tasks.task_of(init, loss, (inputs, inputs.sum(1)), num_chunks=W)


@pytest.mark.slow("bsp", "partial L=2")
@pytest.mark.parametrize("name", ["bsp", "partial L=2"])
def test_one_device_along_the_workers_and_two_along_the_model(name, x64):
    found = engine.run(regression(), PROTOCOLS[name], SGD, durations(), rng_key=KEY, eval_every=7, mesh=mesh(1, 2))
    assert_close(found.params, one_device(name).params)
