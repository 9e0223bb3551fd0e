"""A Flax transformer that learns a text, trained with a gradient code on all devices: a training step of one's own.

gcjax run configs/transformer.gin [--distributed]
"""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import codes, config, engine, files, processes, stragglers
from gcjax.progress import Progress
from gcjax.tasks.models import Transformer


@config.experiment
def transformer(
    code: codes.GradientCode, *, model: stragglers.StragglerModel, deadline: float, text: str, width: int, depth: int,
    optimizer: optax.GradientTransformation, num_steps: int, seed: int, out: Path, progress: Progress,
) -> list[float]:  # fmt: skip
    """Trains with chunks of 4 × 64 bytes, under stragglers and a deadline a step; writes `losses.csv`, `summary.md`."""
    mesh, key = jax.make_mesh((jax.device_count(),), ("workers",)), config.key(seed=seed)
    net = Transformer(num_tokens=256, width=width, depth=depth)
    book = np.fromfile(Path(text), np.uint8).astype(np.int32)
    params = net.init(key, jnp.zeros((1, 64), jnp.int32))
    load, num_workers = code.assignment.load, code.assignment.num_workers
    durations = stragglers.sample_durations(model, key, num_steps * load, num_workers)
    finish = np.cumsum(durations.reshape(num_steps, load, num_workers), axis=1)
    done = np.sum(finish <= deadline, axis=1)  # [steps, W]: the chunks done in time
    step = _training_step(net, code, optimizer, mesh)
    (params, state), losses = engine.replicate((params, optimizer.init(params)), mesh), []
    for i in range(num_steps):
        starts = np.random.default_rng((seed, i)).integers(0, len(book) - 65, (code.assignment.num_chunks, 4, 1))
        batch = engine.shard_chunks(book[starts + np.arange(65)], code, mesh)
        params, state, value, info = step(params, state, batch, done[i])
        losses.append(float(value))
        progress.update("training", (i + 1) / num_steps, f"loss {value:.2f}, residual {info.residual:.2f}")
    outcome = f"loss {losses[0]:.3f} before, {np.mean(losses[-20:]):.3f} at the end"
    if processes.is_first():
        with files.atomic_write(out / "losses.csv") as part:
            np.savetxt(part, losses)
        files.write_text(out / "operative.gin", config.operative())
        files.write_text(out / "summary.md", f"# Transformer\n\n{num_steps} steps: {outcome}\n")
    progress.show(outcome)
    return losses


def _training_step(
    net: Transformer, code: codes.GradientCode, optimizer: optax.GradientTransformation, mesh: jax.sharding.Mesh
) -> Callable[..., tuple]:
    """A compiled function `(params, state, batch, done) -> (params, state, loss, info)`."""

    def loss(params: dict, chunk: jax.Array) -> jax.Array:  # of each example of a chunk int[B, 65]
        logits = net.apply(params, chunk[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, chunk[:, 1:]).mean(axis=1)

    coded_value_and_grad = engine.coded_value_and_grad(loss, code, mesh)

    @jax.jit
    def step(params: dict, state: optax.OptState, batch: jax.Array, done: jax.Array) -> tuple:
        value, gradient, info = coded_value_and_grad(params, batch, done)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value, info

    return step
