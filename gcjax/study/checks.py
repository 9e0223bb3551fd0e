"""What is asked of the schemes and conditions of a study, before anything is drawn or trained."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax

from gcjax import memory
from gcjax.analysis import file_name
from gcjax.engine.validation import check_chunks, check_compression
from gcjax.protocols import Protocol
from gcjax.protocols.base import code_of_messages, workers_of
from gcjax.study.base import PARTS_OF_SCHEMES, Study
from gcjax.study.inputs import Condition

_MAX_NAME_BYTES = 200  # bytes, of a folder; file systems take 255
_ARRAYS_OF_UNITS = 6  # the durations and the five times of a schedule
_BYTES_OF_FLOAT = 4


def check_is_dict(schemes: Any) -> None:
    """Raises a `ValueError` unless the schemes are a dict, or another mapping."""
    if not isinstance(schemes, Mapping):
        raise ValueError(
            f"schemes must be a dict, from names to protocols, as in {{'BSP': gcjax.protocols.bsp()}}; got a "
            f"{type(schemes).__name__}."
        )


def check_schemes(study: Study, schemes: Iterable[str]) -> None:
    """Checks that there are schemes, each with a name for a folder, and that the study's own parts of schemes name one.

    Raises:
      ValueError: if not.
    """
    names = list(schemes)
    if not names:
        raise ValueError("schemes must have at least one scheme, as in {'BSP': @bsp()}; got none.")
    for name in names:
        if len(file_name(name)) > _MAX_NAME_BYTES:
            raise ValueError(f"a scheme's name must fit into a file's name; got {name[:60]!r} and more. Shorten it.")
    for kind in PARTS_OF_SCHEMES:
        for name in getattr(study, kind) or {}:
            if name not in names:
                raise ValueError(f"{kind} must be those of schemes, {', '.join(names)}; got one for '{name}'.")


def check_workers(study: Study, schemes: Mapping[str, Protocol]) -> None:
    """Raises `ValueError` if a scheme (name -> protocol) is none, or its code or compression is for other workers.

    Also if the task's chunks are not those of its code, or not its workers' own where they must be.
    """
    for name, protocol in schemes.items():
        if not isinstance(protocol, Protocol):
            raise ValueError(
                f"a scheme must be a Protocol, for example gcjax.protocols.bsp(); '{name}' is {protocol!r}."
            )
        num_workers = workers_of(protocol)
        if num_workers is not None and num_workers != study.num_workers:
            raise ValueError(
                f"all schemes must have the num_workers of the study, {study.num_workers}; the code of scheme '{name}' "
                f"has {num_workers}. Make them the same."
            )
        with scheme_name_in_errors(name):
            check_chunks(study.task, code_of_messages(protocol), study.num_workers)
            check_compression(study.compression_of(name), protocol, study.num_workers)


def check_conditions(conditions: Mapping[str, Condition]) -> None:
    """Raises a `ValueError` unless there are conditions (name -> condition), and nothing else."""
    if not conditions:
        raise ValueError("conditions must have at least one condition, as in {'even': Condition(model)}; got none.")
    for name, condition in conditions.items():
        if not isinstance(condition, Condition):
            raise ValueError(f"a condition must be a gcjax.study.Condition(model); '{name}' is {condition!r}.")


@contextmanager
def scheme_name_in_errors(scheme: str) -> Iterator[None]:
    """In this block, a `ValueError` that does not name the scheme gets its name in front.

    One of a subclass stays as it is.
    """
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError or f"'{scheme}'" in str(error):
            raise
        raise ValueError(f"scheme '{scheme}': {error}") from error


def check_size(study: Study, num_conditions: int) -> None:
    """Checks that what all runs need at least fits into memory: durations, schedules, parameters, and a batch.

    Raises:
      ValueError: if something does not fit.
    """
    num_runs = num_conditions * study.num_seeds  # each seed under each condition; errors call these seeds
    size_words = f"{study.num_units} units of {study.num_workers} workers for {num_runs} seeds"
    num_bytes = _ARRAYS_OF_UNITS * _BYTES_OF_FLOAT * math.prod((num_runs, study.num_units, study.num_workers))
    memory.check_fits(
        f"durations and schedules of {size_words}", num_bytes, "Lower num_units, num_workers or num_seeds."
    )
    key = jax.random.key(0)
    params_bytes = memory.bytes_of_arrays(jax.eval_shape(study.task.init, key))
    memory.check_fits(
        f"parameters of {num_runs} seeds", num_runs * params_bytes, "Take a smaller model, or fewer seeds."
    )
    # The batch of worker 0's unit 0, as large as any other; its shapes only, since it may be too large to compute.
    batch_shapes = jax.eval_shape(study.task.unit_batch, study.task.data, key, 0, 0)
    memory.check_fits("batches of the task", memory.bytes_of_arrays(batch_shapes), "Lower batch_size.")
