"""Benchmarks for a GPU or a TPU; where there is none, one line says so.

A transformer in bfloat16, coded and uncoded; encode and decode against the memory's bandwidth; wavefronts; seeds by
`vmap`; the largest model that fits; and by itself, since it takes long, the whole test suite.
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.codes import roofline
from benchmarks.protocols import seeds
from benchmarks.timing import KEY, Row, alternate, ratio
from gcjax import codes, engine, memory, protocols, stragglers, tasks
from gcjax.codes import assignments
from gcjax.tasks.models import Transformer

PEAK_BF16_FLOPS = {
    "H200": 989e12, "H100": 989e12, "A100": 312e12, "V100": 125e12,
    "TPU v4": 275e12, "TPU v5 lite": 197e12, "TPU v5": 459e12, "TPU v6 lite": 918e12,
}  # fmt: skip
"""Dense operations a second of one device, from the vendors' data sheets; the first name that the device's kind has."""
NUM_TOKENS, HEAD_SIZE, NUM_WORKERS, LOAD = 256, 128, 8, 2


class Sizes(NamedTuple):
    """How large the benchmarks are.

    Attributes:
      width: of the transformer.
      depth: of it.
      context: tokens a window.
      windows: a chunk.
      repeats: of each step.
      wavefront_units: units of each of 64 workers; a twentieth of them with the larger network.
      largest_widths: of transformers of this depth, of which the largest that fits is looked for, with one window a
        chunk; in ascending order.
    """

    width: int = 1024
    depth: int = 12
    context: int = 512
    windows: int = 8
    repeats: int = 21
    wavefront_units: int = 100
    largest_widths: tuple[int, ...] = (2048, 2560, 3072, 3584, 4096, 5120, 6144)


class Step(NamedTuple):
    """A training step of a transformer, and the shapes of what it is called with.

    Attributes:
      function: `(params, state, batch, progress) -> (params, state)`, compiled; it gives up the first two arguments.
      num_params: of the model.
      shapes: of its arguments, with their shardings.
    """

    function: Any
    num_params: int
    shapes: tuple[Any, ...]


def accelerator(sizes: Sizes | None = None) -> list[Row]:
    """All of them, on the first device; one row that says so on a CPU, unless sizes are given."""
    if jax.default_backend() == "cpu" and sizes is None:
        return [_skipped("accelerator")]
    sizes_to_run = sizes or Sizes()
    rows = [*transformer_steps(sizes_to_run), *wavefronts(sizes_to_run), *largest_models(sizes_to_run)]
    return rows if sizes else [*roofline(), *seeds(), *rows]


def transformer_steps(sizes: Sizes) -> list[Row]:
    """Coded steps in bfloat16 over the uncoded step with as many chunk gradients, and their fraction of the peak."""
    uncoded = training_step(sizes, num_blocks=None)
    rows = []
    for num_blocks in (1, 2):
        coded = training_step(sizes, num_blocks)
        coded_seconds, uncoded_seconds = alternate(_repeated(coded), _repeated(uncoded), repeats=sizes.repeats)
        cost, seconds = 1 / ratio(coded_seconds, uncoded_seconds), statistics.median(coded_seconds)
        num_tokens = NUM_WORKERS * LOAD * sizes.windows * sizes.context
        flops = training_flops(coded.num_params, num_tokens, sizes)
        peak_flops = _peak_flops()
        share = f", {flops / seconds / peak_flops:.2f} of the peak" if peak_flops else ""
        note = f"{1e3 * seconds:.1f} ms; {num_tokens / seconds:,.0f} tokens/s{share}"
        what = f"transformer of {coded.num_params / 1e6:.0f} million, bf16: coded step over uncoded, L = {num_blocks}"
        rows.append(
            Row(
                what=what, value=f"{cost:.2f}", target="<= 1.25", met=cost <= 1.25, note=note,
                peer="the uncoded step with as many gradients",
            )
        )  # fmt: skip
    return rows


def training_flops(num_params: int, num_tokens: int, sizes: Sizes) -> float:
    """Of a training step: 6 a parameter and token, and 12 a layer, number of the width and token of the context.

    Source: Chowdhery et al. 2022 (PaLM), appendix B.
    """
    return num_tokens * (6.0 * num_params + 12.0 * sizes.depth * sizes.width * sizes.context)


def training_step(sizes: Sizes, num_blocks: int | None, *, accumulate: bool = False) -> Step:
    """A step with this many blocks a message, or without a code, on as many chunk gradients; parameters in float32.

    `accumulate`: as of `coded_value_and_grad`.
    """
    mesh = jax.make_mesh((1,), ("workers",), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:1])
    net = Transformer(NUM_TOKENS, sizes.width, sizes.depth, dtype=jnp.bfloat16, head_size=HEAD_SIZE)
    optimizer = optax.adam(1e-3)
    code = codes.partial(assignments.cyclic(NUM_WORKERS, load=LOAD), num_blocks=num_blocks or 1, rng_key=KEY)

    def losses(params: Any, windows: jax.Array) -> jax.Array:
        """float[B]: of windows int[B, context + 1]."""
        logits = net.apply(params, windows[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:]).mean(axis=1)

    coded = engine.coded_value_and_grad(losses, code, mesh, accumulate=accumulate)

    def gradient_of(params: Any, batch: jax.Array, progress: jax.Array) -> Any:
        """The mean gradient of all chunks, decoded if there is a code."""
        if num_blocks is None:
            windows = batch.reshape(-1, batch.shape[-1])
            return jax.grad(lambda params: losses(params, windows).mean())(params)
        return coded(params, batch, progress)[1]

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, state: Any, batch: jax.Array, progress: jax.Array) -> tuple[Any, Any]:
        """Parameters and optimizer state after a step."""
        updates, state = optimizer.update(gradient_of(params, batch, progress), state, params)
        return optax.apply_updates(params, updates), state

    params = jax.eval_shape(net.init, KEY, jnp.zeros((1, sizes.context), jnp.int32))
    batch = jax.ShapeDtypeStruct((NUM_WORKERS, LOAD, sizes.windows, sizes.context + 1), jnp.int32)
    progress = jax.ShapeDtypeStruct((NUM_WORKERS,), jnp.int32)
    shapes = params, jax.eval_shape(optimizer.init, params), batch, progress
    shardings = jax.tree.map(lambda _: jax.NamedSharding(mesh, jax.P()), shapes)
    shardings = (*shardings[:2], jax.NamedSharding(mesh, jax.P("workers")), shardings[3])
    placed_shapes = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)
    return Step(step, sum(x.size for x in jax.tree.leaves(params)), placed_shapes)


def _repeated(step: Step) -> Callable[[], Any]:
    """A function that takes one step after the other, with the last chunk of worker 0 missing."""
    rng = np.random.default_rng(0)

    def value_of(shape: jax.ShapeDtypeStruct) -> jax.Array:
        """An array of this shape: tokens, or small numbers."""
        is_token = shape.dtype == jnp.int32
        entries = rng.integers(0, NUM_TOKENS, shape.shape) if is_token else 0.02 * rng.normal(size=shape.shape)
        return jax.device_put(jnp.asarray(entries, shape.dtype), shape.sharding)

    params, state = jax.tree.map(value_of, step.shapes[0]), optax.tree.zeros_like(step.shapes[1])
    state = jax.tree.map(lambda x, shape: jax.device_put(x, shape.sharding), state, step.shapes[1])
    progress = jax.device_put(
        np.full(NUM_WORKERS, LOAD, np.int32) - (np.arange(NUM_WORKERS) == 0), step.shapes[3].sharding
    )
    state_of_step, batch = [params, state], value_of(step.shapes[2])

    def take_step() -> Any:
        """The parameters after one step more."""
        state_of_step[:] = step.function(*state_of_step, batch, progress)
        return state_of_step[0]

    return take_step


def wavefronts(sizes: Sizes) -> list[Row]:
    """ASP in wavefronts of 1, 8 and 64 commits over BSP, gradients a second; 64 workers, two networks, the digits."""
    return [*_wavefronts("mlp", sizes.wavefront_units), *_wavefronts("resnet20", -(-sizes.wavefront_units // 20))]


def _wavefronts(model: str, num_units: int) -> list[Row]:
    """The rows of one network; so many units of each worker."""
    num_workers = 64
    task, optimizer = tasks.digits(num_workers, batch_size=32, model=model), optax.sgd(0.1)
    durations = stragglers.sample_durations(stragglers.exponential(), KEY, num_units, num_workers)

    def run_with(protocol: Any, width: int | None) -> Callable[[], Any]:
        """A function that trains once."""
        run = partial(engine.run, rng_key=KEY, eval_every=10**6, wavefront_width=width)
        return lambda: run(task, protocol, optimizer, durations).params

    asp, bsp, widths = protocols.asp(), protocols.bsp(), (1, 8, 64)
    num_asp, num_bsp = (int(np.isfinite(protocol(durations).time).sum()) for protocol in (asp, bsp))
    bsp_seconds, *asp_seconds = alternate(
        run_with(bsp, width=None), *(run_with(asp, width) for width in widths), repeats=3
    )
    bsp_rate = num_workers * num_bsp / statistics.median(bsp_seconds)
    rates = [num_asp / statistics.median(seconds) for seconds in asp_seconds]
    return [
        Row(
            what=f"{model}: ASP in wavefronts of {width} over BSP, gradients a second",
            value=f"{rate / bsp_rate:.2g}",
            target="", met=True, note=f"{rate:,.0f} gradients/s; BSP {bsp_rate:,.0f}",
        )
        for width, rate in zip(widths, rates, strict=True)
    ]  # fmt: skip


def largest_models(sizes: Sizes) -> list[Row]:
    """The largest transformer whose step fits into the memory of one device by what the compiler says."""
    rows, available_bytes = [], device_bytes()
    for name, num_blocks in (("uncoded", None), ("coded, L = 1", 1), ("coded, L = 2", 2)):
        largest_step, num_bytes = _largest_step(sizes, num_blocks, available_bytes)
        num_params = 0 if largest_step is None else largest_step.num_params
        note = f"Adam, {num_bytes / 2**30:.1f} GiB of {available_bytes / 2**30:.1f}; {NUM_WORKERS} workers share it"
        value_text = f"{num_params / 1e6:,.0f} million parameters"
        rows.append(
            Row(what=f"largest transformer that fits, {name}", value=value_text, target="", met=True, note=note)
        )
    return rows


def _largest_step(sizes: Sizes, num_blocks: int | None, available_bytes: int) -> tuple[Step | None, int]:
    """The step of the largest width that fits, and its bytes, by bisection; (None, 0) if none does."""
    largest_step, largest_bytes, widths = None, 0, sizes.largest_widths
    while widths:
        middle = len(widths) // 2
        sizes_of_step = sizes._replace(width=widths[middle], windows=1)
        step = training_step(sizes_of_step, num_blocks, accumulate=num_blocks is not None and num_blocks > 1)
        num_bytes = step_bytes(step)
        fits = num_bytes <= available_bytes
        if fits:
            largest_step, largest_bytes = step, num_bytes
        widths = widths[middle + 1 :] if fits else widths[:middle]
    return largest_step, largest_bytes


def device_bytes() -> int:
    """The share of one device in the memory of all."""
    return memory.available_bytes() // jax.device_count()


def step_bytes(step: Step) -> int:
    """What a step takes in memory by the compiler's account; more than there is where it refuses to compile it.

    XLA does not look for what could be computed again to save memory, which takes it minutes for what does not fit, and
    tries no kernels out.
    """
    options = {"xla_disable_hlo_passes": "rematerialization", "xla_gpu_autotune_level": 0}
    try:
        account = step.function.lower(*step.shapes).compile(compiler_options=options).memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        if memory.is_exhausted(error):
            return device_bytes() + 1
        raise
    arguments_and_results = account.argument_size_in_bytes + account.output_size_in_bytes - account.alias_size_in_bytes
    return arguments_and_results + account.temp_size_in_bytes


def test_suite() -> list[Row]:
    """Whether the default tests pass on an accelerator, in processes of their own that leave memory to this one."""
    if jax.default_backend() == "cpu":
        return [_skipped("the default tests on an accelerator")]
    num_processes = max(1, (os.cpu_count() or 1) - 2)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(num_processes), "--dist", "loadfile", "tests"]
    root = Path(__file__).parents[1]
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    pytest_process = subprocess.run(
        ["env", *(f"{k}={v}" for k, v in environment.items()), *command], cwd=root, capture_output=True, text=True
    )
    last_line = ["", *pytest_process.stdout.strip().splitlines()][-1]
    passed = pytest_process.returncode == 0
    value_text = "pass" if passed else "fail"
    return [Row(what="the default tests", value=value_text, target="pass", met=passed, note=last_line)]


def _skipped(what: str) -> Row:
    """The row of a benchmark that needs an accelerator where there is none."""
    return Row(what=what, value="none", target="", met=True, note="skipped: JAX sees CPUs only")


def _peak_flops() -> float | None:
    """Of the first device; None if it is not in the table."""
    kind = jax.devices()[0].device_kind
    return next((flops for name, flops in PEAK_BF16_FLOPS.items() if name in kind), None)
