"""A Flax transformer that learns a text, trained with a gradient code on all devices: a training step of one's own.

gcjax run configs/transformer.gin [--distributed]
"""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import codes, config, engine, files, processes, register, stragglers
from gcjax.progress import Progress
from gcjax.tasks.models import Transformer

CONTEXT, WINDOWS_PER_CHUNK = 64, 4


@register("experiment")
def transformer(
    code: codes.GradientCode, *, model: stragglers.StragglerModel, deadline: float, text: str, width: int, depth: int,
    optimizer: optax.GradientTransformation, num_steps: int, seed: int, out: Path, progress: Progress,
) -> list[float]:  # fmt: skip
    """Trains with chunks of 4 × 64 bytes, under stragglers and a deadline (seconds) a step; returns the losses.

    `text`: the path of what is learnt. A step is a round, in which each worker has its K chunks in their order. Writes
    `losses.csv`, `operative.gin` and `summary.md`.
    """
    mesh, key = jax.make_mesh((jax.device_count(),), ("workers",)), config.key(seed=seed)
    net = Transformer(num_tokens=256, width=width, depth=depth)
    text_bytes = np.fromfile(Path(text), np.uint8).astype(np.int32)
    params = net.init(key, jnp.zeros((1, CONTEXT), jnp.int32))
    load, num_workers = code.assignment.load, code.assignment.num_workers
    durations = stragglers.sample_durations(model, key, num_steps * load, num_workers)
    chunk_finish_times = np.cumsum(durations.reshape(num_steps, load, num_workers), axis=1)  # [steps, K, W]
    chunks_done_in_time = np.sum(chunk_finish_times <= deadline, axis=1)  # [steps, W]
    training_step = _training_step(net, code, optimizer, mesh)
    (params, state), losses = engine.replicate((params, optimizer.init(params)), mesh), []
    for step in range(num_steps):
        chunks = _random_chunks(text_bytes, code.assignment.num_chunks, np.random.default_rng((seed, step)))
        batch = engine.shard_chunks(chunks, code, mesh)
        params, state, mean_loss, coding_info = training_step(params, state, batch, chunks_done_in_time[step])
        losses.append(float(mean_loss))
        progress.update(
            "training", (step + 1) / num_steps, f"loss {mean_loss:.2f}, residual {coding_info.residual:.2f}"
        )
    outcome = f"loss {losses[0]:.3f} before, {np.mean(losses[-20:]):.3f} at the end"
    if processes.is_first():
        with files.atomic_write(out / "losses.csv") as losses_file:
            np.savetxt(losses_file, losses)
        files.write_text(out / "operative.gin", config.operative())
        files.write_text(out / "summary.md", f"# Transformer\n\n{num_steps} steps: {outcome}\n")
    progress.show(outcome)
    return losses


def _random_chunks(text_bytes: np.ndarray, num_chunks: int, rng: np.random.Generator) -> np.ndarray:
    """int32[N, 4, 65]: four windows of the text for each chunk, and after each the byte that comes next."""
    window_bytes = CONTEXT + 1
    window_starts = rng.integers(0, len(text_bytes) - window_bytes, (num_chunks, WINDOWS_PER_CHUNK, 1))
    return text_bytes[window_starts + np.arange(window_bytes)]


def _training_step(
    net: Transformer, code: codes.GradientCode, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh
) -> Callable[..., tuple]:
    """A compiled function `(params, state, batch, chunks_done int[W]) -> (params, state, loss, coding_info)`.

    `chunks_done`: by each worker in time; `state`: the optimizer's; `coding_info`: how it is decoded.
    """

    def loss(params: dict, chunk: jax.Array) -> jax.Array:  # of each example of a chunk int[B, 65]
        logits = net.apply(params, chunk[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, chunk[:, 1:]).mean(axis=1)

    coded_value_and_grad = engine.coded_value_and_grad(loss, code, mesh)

    @jax.jit
    def step(params: dict, state: optax.OptState, batch: jax.Array, chunks_done: jax.Array) -> tuple:
        mean_loss, gradient, coding_info = coded_value_and_grad(params, batch, chunks_done)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, mean_loss, coding_info

    return step
