"""What a comparison asks for, checked before anything is drawn or trained."""

import math
from collections.abc import Iterable
from typing import Any

import jax

from gcjax import _validate, memory
from gcjax.analysis.store import file_name
from gcjax.tasks import Task

_LONGEST_NAME = 200  # bytes, of a folder; file systems take 255
_LARGEST = 2**31 - 1  # of a count that JAX computes with


def check_schemes(schemes: Iterable[str], optimizers: Iterable[str] = ()) -> None:
    """Checks that there are schemes, that each can have a folder of its name, and that optimizers are those of schemes.

    Raises:
      ValueError: if not.
    """
    names = list(schemes)
    if not names:
        raise ValueError("schemes must have at least one scheme, as in {'BSP': @bsp()}; got none.")
    for name in names:
        if len(file_name(name)) > _LONGEST_NAME:
            raise ValueError(f"a scheme's name must fit into a file's name; got {name[:60]!r} and more. Shorten it.")
    for name in optimizers:
        if name not in names:
            raise ValueError(f"optimizers must be those of schemes, {', '.join(names)}; got one for '{name}'.")


def check_size(task: Task, *, num_seeds: int, num_units: int, num_workers: int) -> None:
    """Checks that what all seeds need at least fits into memory: durations, parameters, and a batch.

    A schedule has five times for each duration.

    Args:
      task: what is trained.
      num_seeds: S, or the runs in all.
      num_units: T.
      num_workers: W.

    Raises:
      ValueError: if a count is below one or too large, or something does not fit.
    """
    counts = {"num_seeds": num_seeds, "num_units": num_units, "num_workers": num_workers}
    for name, value in counts.items():
        _validate.integer(name, value, minimum=1, maximum=_LARGEST)
    times = f"durations and schedules of {num_units} units of {num_workers} workers for {num_seeds} seeds"
    memory.check(times, 6 * 4 * math.prod(counts.values()), "Lower num_units, num_workers or num_seeds.")
    key = jax.random.key(0)
    params = memory.size(jax.eval_shape(task.init, key))
    memory.check(f"parameters of {num_seeds} seeds", num_seeds * params, "Take a smaller model, or fewer seeds.")
    batch = memory.size(_batch(task, key))
    memory.check("batches of the task", batch, "Lower batch_size.")


def check_seconds(**seconds: float | None) -> None:
    """Checks that times, unless they are None, are above zero and finite.

    Raises:
      ValueError: naming the first that is not.
    """
    for name, value in seconds.items():
        if value is not None:
            _validate.number(name, value, above=True, finite=True)


def metrics(task: Task) -> list[str]:
    """The names of the metrics of a task; nothing is computed."""
    return list(jax.eval_shape(task.metrics, jax.eval_shape(task.init, jax.random.key(0)), task.data))


def _batch(task: Task, key: jax.Array) -> Any:
    """The shapes of a batch; its size may be beyond what JAX can index, which is no matter here."""
    return jax.eval_shape(task.unit_batch, task.data, key, 0, 0)
