"""`coded_value_and_grad` against `jax.value_and_grad` of the same mean loss, and what it sends."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from gcjax import codes, engine
from gcjax.codes import assignments
from tests.devices import devices, mesh
from tests.parameters import some

KEY = jax.random.key(3)
B, FEATURES = 5, 7


def data(num_chunks, dtype=None):
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(num_chunks, B, FEATURES)).astype(dtype or jnp.result_type(float))
    return inputs, generator.normal(size=(num_chunks, B)).astype(inputs.dtype)


def params(dtype=None):
    dtype = dtype or jnp.result_type(float)
    return {"w": jnp.linspace(-1, 1, 4 * FEATURES, dtype=dtype).reshape(FEATURES, 4), "b": jnp.ones(4, dtype)}


def each(p, chunk):
    """The losses of the examples, float[B]."""
    x, y = chunk
    return (jnp.tanh(x @ p["w"] + p["b"][None]).sum(axis=1) - y) ** 2


def chunk_mean(p, chunk):
    return each(p, chunk).mean()


def uncoded(p, chunks, coefficients=None, loss=chunk_mean):
    """Value and gradient of the mean of the chunk losses, each multiplied by its coefficient."""
    n = chunks[0].shape[0]
    c = jnp.ones(n, chunks[0].dtype) if coefficients is None else coefficients

    def total(p):
        each = [loss(p, jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), chunks)) for i in range(n)]
        return sum(c[i] * value for i, value in enumerate(each)) / n

    return jax.value_and_grad(total)(p)


def assert_close(one, other, tolerance=1e-9):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), one, other)


CODES = {
    "uncoded": codes.uncoded(8),
    "frc": codes.fractional_repetition(6, num_stragglers=2),
    "crc": codes.cyclic_repetition(8, num_stragglers=2, rng_key=KEY),
    "partial": codes.partial(assignments.cyclic(16, load=3)),
    "partial L=2": codes.partial(assignments.cyclic(8, load=4), num_blocks=2, rng_key=KEY),
    "partial L=3, 6 workers": codes.partial(assignments.cyclic(6, load=4), num_blocks=3, rng_key=KEY),
    "partial L=2, 16 workers": codes.partial(assignments.cyclic(16, load=3), num_blocks=2, rng_key=KEY),
}


@pytest.mark.slow("partial L=3, 6 workers-each", "uncoded-each")
@pytest.mark.parametrize("loss", some([each], [chunk_mean]))
@pytest.mark.parametrize("name", CODES)
def test_full_progress_gives_the_gradient(name, loss, x64):
    code, on = CODES[name], mesh(4)
    chunks = data(code.assignment.num_chunks)
    step = engine.coded_value_and_grad(loss, code, on)
    value, gradient, info = step(params(), engine.shard_chunks(chunks, code, on), code.assignment.loads)
    assert_close((value, gradient), uncoded(params(), chunks))
    assert float(info.residual) < 1e-9 and info.contributed.shape == (code.assignment.num_workers,)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["partial", "partial L=2"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("num_devices", some([8], [1]))
def test_partial_progress_gives_what_the_plan_says(name, accumulate, num_devices, x64):
    code, on = CODES[name], mesh(num_devices)
    chunks = data(code.assignment.num_chunks)
    step = engine.coded_value_and_grad(each, code, on, accumulate=accumulate)
    batch = engine.shard_chunks(chunks, code, on)
    for seed in range(3):
        progress = np.random.default_rng(seed).integers(0, code.assignment.load + 1, code.assignment.num_workers)
        progress[seed] = 0  # nothing from this one
        coding = jax.jit(code.plan)(progress)
        matrices = codes.chunk_coefficients(code.assignment, coding.encode, coding.decode)
        _, gradient, info = step(params(), batch, progress)
        assert_close(gradient, _estimate(matrices, chunks))
        assert not info.contributed[seed] and np.array_equal(info.contributed, progress > 0)
        assert_close(info.residual, coding.residual)


def test_accumulating_needs_the_memory_of_one_chunk_gradient():
    """Also where workers share a device, which keeps their messages."""
    code, on = CODES["partial L=2"], mesh(1)
    weights = jnp.ones(2**14)
    batch = jnp.arange(8 * 4 * 16.0).reshape(8, 4, 16)
    results, temporary_bytes = [], []
    for accumulate in (False, True):
        step = engine.coded_value_and_grad(
            lambda params, x: jnp.sin(params * x.mean()).sum(), code, on, accumulate=accumulate
        )
        program = jax.jit(step).lower(weights, batch, np.full(8, 3)).compile()
        results.append(program(weights, batch, np.full(8, 3)))
        temporary_bytes.append(program.memory_analysis().temp_size_in_bytes)
    assert_close(*results)
    at_once, one_by_one = temporary_bytes
    assert at_once - one_by_one > 3 * weights.nbytes


def _estimate(matrices, chunks):
    """Blocks of the chunk gradients, array by array, combined by the L×L matrix of each chunk."""
    n, num_blocks = matrices.shape[:2]

    def combined(gradients):
        """The estimate of one array, from its gradient on each chunk, [n, ...]."""
        size = gradients[0].size
        padded = np.pad(np.reshape(gradients, (n, size)), ((0, 0), (0, -size % num_blocks)))
        blocks = padded.reshape(n, num_blocks, -1)
        return (matrices @ blocks).sum(axis=0).reshape(-1)[:size].reshape(gradients.shape[1:]) / n

    return jax.tree.map(combined, jax.vmap(jax.grad(chunk_mean), (None, 0))(params(), chunks))


@pytest.mark.slow("False-crc", "False-partial L=2")
@pytest.mark.parametrize("name", ["partial", "partial L=2", "crc"])
@pytest.mark.parametrize("per_example", some([False], [True]))
def test_aux_is_averaged_as_the_value_is(name, per_example, x64):
    """Leaves of any shape; here aux has the loss itself, and where the inputs of the chunk lie."""
    code, on = CODES[name], mesh(4)
    chunks = data(code.assignment.num_chunks)

    def loss(p, chunk):
        aux = {"loss": each(p, chunk), "inputs": chunk[0].astype(jnp.float32)}
        return (each(p, chunk), aux) if per_example else jax.tree.map(lambda x: x.mean(axis=0), (aux["loss"], aux))

    step = engine.coded_value_and_grad(loss, code, on, has_aux=True)
    plain = engine.coded_value_and_grad(each, code, on)
    batch = engine.shard_chunks(chunks, code, on)
    progress = np.where(code.only_whole_loads, code.assignment.loads, 2).astype(np.int32)
    progress[1] = 0
    for done in (code.assignment.loads, progress):
        (value, aux), gradient, info = step(params(), batch, done)
        assert_close((value, gradient, info), plain(params(), batch, done))
        assert_close(aux["loss"], value)
        coding = jax.jit(code.plan)(done)
        matrices = codes.chunk_coefficients(code.assignment, coding.encode, coding.decode)
        weights = np.einsum("caa->c", matrices)
        mean = (weights[:, None] * chunks[0].mean(axis=1)).sum(axis=0) / weights.sum()
        np.testing.assert_allclose(aux["inputs"], mean, rtol=1e-4, atol=1e-5)
        assert aux["inputs"].dtype == jnp.float32 and aux["inputs"].shape == (FEATURES,)


@pytest.mark.parametrize("name", ["partial", "partial L=2"])
def test_losses_that_return_something_else_are_refused(name):
    code, on = CODES[name], mesh(4)
    batch = engine.shard_chunks(data(code.assignment.num_chunks), code, on)

    def refuse(match, loss, **options):
        with pytest.raises(ValueError, match=match):
            engine.coded_value_and_grad(loss, code, on, **options)(params(), batch, code.assignment.loads)

    refuse("got a tuple. If it returns .loss, aux., pass has_aux=True", lambda p, c: (chunk_mean(p, c), p))
    refuse("the loss must be an array .*; got a float", lambda p, c: 1.0)
    refuse(r"must be float\[\] or float\[B\]; got int32\[\]", lambda p, c: each(p, c).sum().astype(jnp.int32))
    refuse(r"float\[\] or float\[B\]; got int32\[5\]", lambda p, c: (each(p, c) > 0).astype(jnp.int32))
    refuse(r"float\[\] or float\[B\]; got bool\[5\]", lambda p, c: (each(p, c) > 0, each(p, c)), has_aux=True)
    refuse("must return .loss, aux.; got an array", chunk_mean, has_aux=True)
    refuse("must be floats; got int32.. for aux.'n'.", lambda p, c: (chunk_mean(p, c), {"n": 3}), has_aux=True)
    refuse(r"float\[5, ...\].*got float32\[7, 4\]", lambda p, c: (each(p, c), p["w"]), has_aux=True)


@pytest.mark.parametrize("name", ["partial", "partial L=2"])
def test_progress_may_be_a_list_or_a_mask(name):
    code, on = CODES[name], mesh(4)
    batch = engine.shard_chunks(data(code.assignment.num_chunks), code, on)
    step = engine.coded_value_and_grad(each, code, on)
    mask = np.arange(code.assignment.num_workers) % 3 > 0
    counts = (mask * code.assignment.load).tolist()
    expected = step(params(), batch, jnp.asarray(counts))
    for progress in (counts, mask, mask.tolist()):
        jax.tree.map(np.testing.assert_array_equal, step(params(), batch, progress), expected)
    np.testing.assert_array_equal(expected[2].contributed, mask)


def test_a_second_axis_may_shard_the_parameters(x64):
    on = mesh(4, 2)
    sharding = {"w": PartitionSpec(None, "model"), "b": PartitionSpec("model")}
    sharded = jax.tree.map(lambda x, spec: jax.device_put(x, NamedSharding(_auto(on), spec)), params(), sharding)
    for name in ("partial", "partial L=2"):
        code = CODES[name]
        chunks = data(code.assignment.num_chunks)
        step = engine.coded_value_and_grad(each, code, on)
        value, gradient, _ = step(sharded, engine.shard_chunks(chunks, code, on), code.assignment.loads)
        assert_close((value, gradient), uncoded(params(), chunks))
        if name == "partial":
            assert {k: g.sharding.spec for k, g in gradient.items()} == sharding


def _auto(on):
    return jax.sharding.Mesh(on.devices, on.axis_names, axis_types=(AxisType.Auto,) * len(on.axis_names))


@pytest.mark.slow
@pytest.mark.promotes
@pytest.mark.parametrize("axis_type", some([AxisType.Explicit], [AxisType.Auto]))
def test_inside_a_training_step(axis_type, x64):
    """Jitted, with optax, several steps, and either kind of mesh axis; nothing compiles after the first step."""
    on = jax.make_mesh((8,), ("workers",), devices=devices(8), axis_types=(axis_type,))
    code, optimizer = CODES["partial"], optax.MultiSteps(optax.adam(0.01), every_k_schedule=2)
    chunks = data(16)
    gradient_of = engine.coded_value_and_grad(each, code, on)

    @jax.jit
    def step(p, state, batch, progress):
        value, gradient, _ = gradient_of(p, batch, progress)
        updates, state = optimizer.update(gradient, state, p)
        return optax.apply_updates(p, updates), state, value

    p, state, batch = params(), optimizer.init(params()), engine.shard_chunks(chunks, code, on)
    q, other = p, state
    for i in range(4):
        progress = jnp.full(16, 3).at[i].set(1)  # another worker is slow in each step; still decodable
        p, state, value = step(p, state, batch, progress)
        reference, gradient = uncoded(q, chunks)
        updates, other = optimizer.update(gradient, other, q)
        q = optax.apply_updates(q, updates)
        assert_close(value, reference)
        if i == 1:
            size = step._cache_size()
    assert_close(p, q)
    assert step._cache_size() == size


@pytest.mark.promotes
def test_flax_linen_and_nnx_and_checkpoint():
    code, on = CODES["partial"], mesh(8)
    inputs, targets = data(16, np.float32)
    batch = engine.shard_chunks((inputs, targets), code, on)
    progress = code.assignment.loads

    module = nn.Dense(1)
    variables = module.init(KEY, inputs[0])
    model = nnx.Linear(FEATURES, 1, rngs=nnx.Rngs(0))
    graph, state = nnx.split(model)

    def linen_loss(p, chunk):
        return ((module.apply(p, chunk[0])[:, 0] - chunk[1]) ** 2).mean()

    def nnx_loss(p, chunk):
        return ((nnx.merge(graph, p)(chunk[0])[:, 0] - chunk[1]) ** 2).mean()

    for loss, p in ((linen_loss, variables), (jax.checkpoint(linen_loss), variables), (nnx_loss, state)):
        value, gradient, _ = jax.jit(engine.coded_value_and_grad(loss, code, on))(p, batch, progress)
        assert jax.tree.structure(gradient) == jax.tree.structure(p)
        assert_close((value, gradient), uncoded(p, (inputs, targets), loss=loss), 1e-5)


@pytest.mark.slow("bfloat16-partial")
@pytest.mark.parametrize("name", ["partial", "partial L=2"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_dtypes_are_kept_and_sums_are_wide(name, dtype):
    code, on = CODES[name], mesh(8)
    chunks = data(code.assignment.num_chunks, np.float32)
    step = engine.coded_value_and_grad(
        lambda p, c: chunk_mean(jax.tree.map(lambda x: x.astype(jnp.float32), p), c), code, on,
        message_dtype=jnp.bfloat16,
    )  # fmt: skip
    value, gradient, _ = step(params(dtype), engine.shard_chunks(chunks, code, on), code.assignment.loads)
    assert all(g.dtype == dtype for g in jax.tree.leaves(gradient)) and value.dtype == jnp.float32
    reference = uncoded(jax.tree.map(lambda x: x.astype(jnp.float32), params(dtype)), chunks)[1]
    scale = max(np.abs(g).max() for g in jax.tree.leaves(reference))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.03 * scale), gradient, reference)


def test_messages_in_bfloat16_are_added_up_in_float32():
    """Added up in bfloat16, the many small messages would vanish beside the large one."""
    code, on = codes.uncoded(8), mesh(8)
    chunks = np.array([256.0] + [0.5] * 7, np.float32)[:, None]
    step = engine.coded_value_and_grad(lambda p, c: (p * c).sum(), code, on, message_dtype=jnp.bfloat16)
    _, gradient, _ = step(jnp.zeros((), jnp.float32), engine.shard_chunks(chunks, code, on), code.assignment.loads)
    assert float(gradient) == float(jnp.bfloat16((256 + 3.5) / 8)) == 32.5


@pytest.mark.parametrize(
    ("num_blocks", "dtype", "share"),
    [(1, None, 2), (2, None, 1.5), (4, None, 1.25), (1, jnp.bfloat16, 1), (4, jnp.bfloat16, 0.625)],
)
def test_no_more_is_sent_than_the_code_needs(num_blocks, dtype, share):
    """With d float32 parameters on 8 devices: `share` times 4d bytes a device, and little besides."""
    code, on = codes.partial(assignments.cyclic(8, load=4), num_blocks=num_blocks, rng_key=KEY), mesh(8)
    p = {"w": jnp.zeros((FEATURES, 4096)), "b": jnp.zeros(4096)}
    size = (FEATURES + 1) * 4096
    step = engine.coded_value_and_grad(each, code, on, message_dtype=dtype)
    batch = engine.shard_chunks(data(8, np.float32), code, on)
    sent = engine.bytes_sent(jax.jit(step).lower(p, batch, code.assignment.loads).compile())
    assert sum(sent.values()) == pytest.approx(share * 4 * size * 7 / 8, rel=0.01)


def test_several_workers_on_a_device_share_one_sum():
    """With four workers a device and L = 2, decoding first moves less than exchanging messages."""
    code, on = codes.partial(assignments.cyclic(16, load=3), num_blocks=2, rng_key=KEY), mesh(4)
    p = {"w": jnp.zeros((FEATURES, 4096)), "b": jnp.zeros(4096)}
    batch = engine.shard_chunks(data(16, np.float32), code, on)
    step = engine.coded_value_and_grad(each, code, on)
    sent = engine.bytes_sent(jax.jit(step).lower(p, batch, code.assignment.loads).compile())
    assert set(sent) == {"all-reduce"}
    assert sent["all-reduce"] == pytest.approx(2 * 4 * (FEATURES + 1) * 4096 * 3 / 4, rel=0.01)


def test_traffic_reads_every_way_of_writing_groups():
    class Program:
        def __init__(self, text):
            self.text = text

        def as_text(self):
            return self.text

    line = "%x = (f32[10]{0}, /*index=1*/bf16[2,3]{1,0}) all-reduce(%a, %b), replica_groups="
    for groups, size in (
        ("{{0,1},{2,3}}", 2), ("[2,4]<=[8]", 4), ("[1,8]<=[4,2]T(1,0)", 8), ("mesh['a'=4,'b'=2] {'b'}", 2),
    ):  # fmt: skip
        assert engine.bytes_sent(Program(line + groups)) == {"all-reduce": 2 * 52 * (size - 1) / size}
    gather = "%y = u16[64]{0} all-gather-start(%a), replica_groups={{0,1,2,3}}"
    scatter = "%z = f32[4]{0} reduce-scatter(%a), replica_groups={{0,1,2,3}}"
    assert engine.bytes_sent(Program(gather + "\n" + scatter)) == {"all-gather": 96.0, "reduce-scatter": 48.0}
    for start, sent in (
        ("(u16[16]{0}, u16[64]{0}) all-gather-start", {"all-gather": 96.0}),
        ("((f32[2,2]{1,0}, s8[4]{0}), (f32[8,2]{1,0}, s8[16]{0})) all-gather-start", {"all-gather": 60.0}),
        ("((f32[16]{0}), f32[4]{0}, u32[]) reduce-scatter-start", {"reduce-scatter": 48.0}),
        ("(f32[3]{0}, s8[4]{0}) all-reduce-start", {"all-reduce": 24.0}),
        ("(f32[6]{0}, f32[6]{0}, u32[], u32[]) collective-permute-start", {"collective-permute": 24.0}),
    ):
        assert engine.bytes_sent(Program(f"%y = {start}(%a), replica_groups={{{{0,1,2,3}}}}")) == sent
    header = "HloModule jit_f, replica_count=1, num_partitions=8\n"
    permutation = "%p = f32[6]{0} collective-permute(%a), source_target_pairs={{0,1},{1,0}}"
    everybody = header + line + "{}\n" + permutation
    assert engine.bytes_sent(Program(everybody)) == {"all-reduce": 2 * 52 * 7 / 8, "collective-permute": 24.0}
    with pytest.raises(ValueError, match="does not say which devices"):
        engine.bytes_sent(Program("%x = f32[1] all-reduce(%a)"))


def test_bad_input():
    code, on = CODES["partial"], mesh(8)
    chunks = data(16, np.float32)
    with pytest.raises(ValueError, match="no axis 'rows', only 'workers'"):
        engine.coded_value_and_grad(each, code, on, axis="rows")
    with pytest.raises(ValueError, match=r"must be a jax.sharding.Mesh"):
        engine.coded_value_and_grad(each, code, 8)
    with pytest.raises(ValueError, match="needs a GradientCode"):
        engine.coded_value_and_grad(each, assignments.cyclic(8, load=2), on)
    step = engine.coded_value_and_grad(each, code, on)
    batch = engine.shard_chunks(chunks, code, on)
    with pytest.raises(ValueError, match="each of the 16 chunks .* got shape .8, 5, 7"):
        engine.shard_chunks(data(8), code, on)
    with pytest.raises(ValueError, match=r"batch\[0\] of shape \(16, 5, 7\). Make it with gcjax.engine.shard_chunks"):
        step(params(), jax.tree.map(jnp.asarray, chunks), code.assignment.loads)
    alone = jax.tree.map(lambda x: jax.device_put(np.asarray(x), jax.devices()[0]), batch)
    with pytest.raises(ValueError, match="must be sharded over the mesh axis 'workers'"):
        step(params(), alone, code.assignment.loads)
    step_of_three = engine.coded_value_and_grad(each, code, mesh(3))  # which do not divide 16 workers
    with pytest.raises(ValueError, match="must be sharded over the mesh axis 'workers'"):
        step_of_three(params(), alone, code.assignment.loads)
    with pytest.raises(ValueError, match=r"progress must be int\[16\].*another assignment"):
        step(params(), batch, jnp.full(8, 2))
    with pytest.raises(ValueError, match="between 0 and the worker's load; got 4"):
        step(params(), batch, jnp.full(16, 4))
    with pytest.raises(ValueError, match=r"float\[B\] for the B examples of a chunk; got shape \(5, 4\)"):
        engine.coded_value_and_grad(lambda p, c: c[0] @ p["w"], code, on)(params(), batch, code.assignment.loads)
    with pytest.raises(ValueError, match=r"of one chunk it is float\[5\], and of 6 chunks .* float\[5\] instead of"):
        engine.coded_value_and_grad(lambda p, c: each(p, c)[:B], code, on)(params(), batch, code.assignment.loads)
    for message_dtype in (jnp.int8, "nonsense", jnp.complex64, jnp.float4_e2m1fn, jnp.float8_e8m0fnu):
        with pytest.raises(ValueError, match="message_dtype must be a type of floats"):
            engine.coded_value_and_grad(each, code, on, message_dtype=message_dtype)
    with pytest.raises(ValueError, match="the loss must be a function"):
        engine.coded_value_and_grad("loss", code, on)
    with pytest.raises(ValueError, match=r"got batch\[0\]\[0\] of shape \(\)"):
        step(params(), [[1.0] * 3] * 16, code.assignment.loads)
    with pytest.raises(ValueError, match="shard_chunks needs a GradientCode"):
        engine.shard_chunks(chunks, None, on)


def test_a_step_inside_of_a_shard_map_over_the_workers_is_refused_in_words():
    code, mesh = CODES["partial"], jax.make_mesh((8,), ("workers",), axis_types=(AxisType.Auto,))
    step = engine.coded_value_and_grad(each, code, mesh)
    batch, progress = engine.shard_chunks(data(16, np.float32), code, mesh), np.full(code.assignment.num_workers, 2)
    specs = PartitionSpec(), PartitionSpec("workers")
    inside = jax.shard_map(lambda params, batch: step(params, batch, progress)[1], mesh=mesh, in_specs=specs,
                           out_specs=PartitionSpec())  # fmt: skip
    with pytest.raises(ValueError, match=r"must be called outside of a jax.shard_map .* code.plan\(progress\)"):
        inside(params(), batch)


def test_arrays_of_explicit_sharding_are_refused_in_words():
    """As those are that are put onto a mesh of JAX's default; a step on the mesh itself is not."""
    code, explicit = CODES["partial"], jax.make_mesh((8,), ("workers",), axis_types=(AxisType.Explicit,))
    step = engine.coded_value_and_grad(each, code, explicit)
    batch = engine.shard_chunks(data(16, np.float32), code, explicit)
    step(params(), batch, code.assignment.loads)
    sharded = jax.device_put(params(), NamedSharding(explicit, PartitionSpec()))
    for call in (step, jax.jit(step)):
        with pytest.raises(ValueError, match="explicit sharding: 'workers'. Make the mesh with axis_types="):
            call(sharded, batch, code.assignment.loads)
    with jax.set_mesh(explicit), pytest.raises(ValueError, match="explicit sharding: 'workers'"):
        step(params(), batch, code.assignment.loads)
