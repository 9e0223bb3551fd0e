"""A small language model on a text file. Letters: N data chunks, B examples of a batch."""

import functools
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gcjax import _validate
from gcjax._generators import generator_of_seed
from gcjax.tasks.base import Batch, Task, TaskFunctions
from gcjax.tasks.batches import sampling
from gcjax.tasks.chunks import Data, first_examples, split
from gcjax.tasks.evaluation import in_slices
from gcjax.tasks.models import Transformer

# Tokens of a slice of windows in the evaluation, so that attention and logits fit into memory.
_SLICE_TOKENS = 2**14


def text(
    num_chunks: int,
    *,
    path: str | Path,
    context: int = 64,
    width: int = 64,
    depth: int = 2,
    batch_size: int | None = 32,
    local_data: bool = False,
    test_fraction: float = 0.1,
    num_evaluated: int | None = 1000,
    seed: int = 0,
) -> Task:
    """A causal transformer that learns the bytes of a text file (Vaswani et al. 2017).

    The text is cut into windows of `context` + 1 bytes, of which the last is the first of the next; the network
    predicts each byte of a window but the first from those before. The loss is the mean cross entropy of a
    byte, in nats. Metrics: `train_loss`, and over the held-out last part of the text `test_loss`,
    `perplexity` (of a byte) and `bits_per_byte`.

    Args:
      num_chunks: N.
      path: the file, of any encoding. May be relative to the working directory, or start with `~`.
      context: tokens of a window that the network sees.
      width: of the residual stream; where it is above 32, a multiple of 32, the size of a head.
      depth: blocks of attention and MLP.
      batch_size: B windows, drawn with replacement; None takes the whole chunk, and needs `local_data`.
      local_data: whether worker w draws only from its own chunk, w % N, rather than from all data.
      test_fraction: the share of the windows that is held out, at the end of the text; at least one window.
      num_evaluated: the metrics use so many windows of the training data and so many held out; None uses all.
      seed: of the order of the training windows, and so of the chunks.

    Raises:
      ValueError: if there is no such file, the text is too short for the context or the chunks, or another
        value is out of its range.
    """
    context = _validate.integer("context", context, minimum=1)
    depth = _validate.integer("depth", depth, minimum=1)
    if _validate.integer("width", width, minimum=1) > 32 and width % 32:
        raise ValueError(f"width must be at most 32, or a multiple of 32, the size of a head; got {width}.")
    if num_evaluated is not None:
        num_evaluated = _validate.integer("num_evaluated", num_evaluated, minimum=1)
    _validate.single_number("test_fraction", test_fraction, above=True, maximum=0.9)
    train_windows, test_windows = _windows(Path(path).expanduser(), context, test_fraction)
    train_windows = generator_of_seed(seed).permutation(train_windows)
    chunks = split(train_windows[:, :-1], train_windows[:, 1:], num_chunks)
    functions = _task_functions(context, width, depth, chunks.relative_sizes.dtype, num_evaluated)
    batch_functions = sampling(len(train_windows), num_chunks, batch_size, local_data)
    data = Data(chunks, (jnp.asarray(test_windows[:, :-1]), jnp.asarray(test_windows[:, 1:])))
    return Task(data=data, **functions._asdict(), **batch_functions._asdict(), num_chunks=num_chunks, mergeable=True)


def _windows(path: Path, context: int, test_fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Training windows uint8[n, context + 1], bytes in the order of the text, and those held out, from its end."""
    if not path.is_file():
        raise ValueError(f"path must be a text file; there is none at {path.absolute()}.")
    text_bytes = np.frombuffer(path.read_bytes(), np.uint8)
    num_windows = (len(text_bytes) - 1) // context
    if num_windows < 2:
        raise ValueError(
            f"The text must have at least {2 * context + 1} bytes: two windows for context={context}, one to learn "
            f"and one held out; got {len(text_bytes)} bytes in {path}. Take a longer text or a smaller context."
        )
    # Windows share one byte: the last is the first of the next.
    windows = np.lib.stride_tricks.sliding_window_view(text_bytes, context + 1)[::context]  # [n, context + 1]
    num_test = min(max(1, round(test_fraction * num_windows)), num_windows - 1)
    return windows[: num_windows - num_test], windows[num_windows - num_test : num_windows]


@functools.lru_cache(maxsize=64)
def _task_functions(context: int, width: int, depth: int, dtype: Any, num_evaluated: int | None) -> TaskFunctions:
    """Initial parameters, loss and metrics of `text`; cached, so that equal settings give equal functions.

    Equal functions are compiled once. `context`: bytes of a window; `width`, `depth` and `dtype`: of the network.
    """
    module = Transformer(num_tokens=256, width=width, depth=depth, dtype=dtype, param_dtype=dtype)
    slice_size = max(1, _SLICE_TOKENS // context)  # windows, by their bytes

    def init(rng_key: jax.Array) -> Any:
        """The network's initial parameters."""
        return module.init(rng_key, jnp.zeros((1, context), jnp.int32))["params"]

    def losses(params: Any, inputs: jax.Array, targets: jax.Array) -> jax.Array:
        """float[B]: the mean cross entropy of a byte in each window, in nats; of inputs and targets int[B, context]."""
        logits: Any = module.apply({"params": params}, inputs.astype(jnp.int32))
        byte_losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets.astype(jnp.int32))
        return byte_losses.mean(axis=1)

    def loss(params: Any, batch: Batch, rng_key: jax.Array) -> jax.Array:
        """The mean cross entropy of a byte in the batch; the key is not used."""
        del rng_key
        return batch.mean(losses(params, batch.inputs, batch.targets))

    def losses_in_slices(params: Any, inputs: jax.Array, targets: jax.Array) -> jax.Array:
        """`losses` of many windows, in slices that fit into memory."""
        return in_slices(lambda examples: losses(params, *examples), (inputs, targets), slice_size)

    def metrics(params: Any, data: Data) -> dict[str, jax.Array]:
        """Losses of training and held-out windows (`num_evaluated` each; None: all), and two forms of the latter."""
        batch = first_examples(data.train, num_evaluated or data.train.targets.shape[0])
        train_losses = losses_in_slices(params, batch.inputs, batch.targets)
        test_loss = jnp.mean(losses_in_slices(params, *(x[:num_evaluated] for x in data.reference)))
        byte_metrics = {"perplexity": jnp.exp(test_loss), "bits_per_byte": test_loss / math.log(2)}
        return {"train_loss": batch.mean(train_losses), "test_loss": test_loss, **byte_metrics}

    return TaskFunctions(init, loss, metrics)
