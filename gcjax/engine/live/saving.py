"""Checkpoints of live training: parameters, optimizer state, and the rounds so far, on which deadlines depend.

Letters: E rounds, B bytes of a round, K chunks a worker holds, W workers.
"""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gcjax import interrupts, processes, saved_progress
from gcjax.codes.base import GradientCode
from gcjax.engine import pieces
from gcjax.engine.checkpoint import Checkpoints
from gcjax.engine.identity import run_identity
from gcjax.engine.live.exchange import AXIS, local
from gcjax.engine.live.round_records import Round

SEEN_WITHIN = 10.0
"""Seconds in which a file must be seen by all; file systems on a network keep old listings for a while."""


class Storage(NamedTuple):
    """Where a live run is kept.

    Attributes:
      checkpoints: the folder; one checkpoint every so many rounds.
      identity: what the run depends on.
      code: of the run.
      num_rounds: E, of the whole run.
      mesh: one device a worker.
      progress: what is kept of it, for the last line of a command that is ended early.
    """

    checkpoints: Checkpoints
    identity: str
    code: GradientCode
    num_rounds: int
    mesh: Mesh
    progress: saved_progress.SavedProgress


class TrainingState(NamedTuple):
    """What the next rounds depend on.

    Attributes:
      params: the same on all devices of the mesh.
      opt_state: likewise.
      history: all rounds so far.
    """

    params: Any
    opt_state: Any
    history: list[Round]


def identity(text: str, *, code: GradientCode, num_rounds: int, goal: float, data: Any, rng_key: jax.Array) -> str:
    """What a live run depends on, a line for each thing; arguments as in `gcjax.engine.live.train`."""
    return run_identity(
        text,
        chunks=code.assignment.chunks,
        data=data,
        max_residual=goal,
        num_blocks=code.num_blocks,
        num_rounds=num_rounds,
        num_workers=code.assignment.num_workers,
        rng_key=rng_key,
    )


def check_common(checkpoints: Checkpoints, identity: str) -> None:
    """Checks that all processes would save and restore the same.

    Raises:
      ValueError: in every process, if one has another identity, or does not see the folder.
    """
    processes.agree("checkpoints", f"every {checkpoints.every} rounds, the last {checkpoints.keep}\n{identity}")
    if jax.process_count() > 1:
        _check_seen(checkpoints.folder)


@contextmanager
def grace(storage: Storage) -> Iterator[None]:
    """For the rounds: a signal lets them save a checkpoint, see `save`, before it ends the process."""
    with interrupts.grace(interrupts.saving()):
        yield
        storage.checkpoints.wait()
        if interrupts.stop_requested():
            storage.progress.stopped()


def save(storage: Storage, training: TrainingState) -> bool:
    """Starts to save what there is, if a checkpoint is due, or a signal has come to any of the processes.

    Every process must call it after each round, so that all save the same one.

    Returns:
      Whether this process got the signal, and is to stop. The others are ended when it does.
    """
    round_number = len(training.history)
    asked = pieces.stop_requested(training.params)
    if asked or round_number == storage.num_rounds or round_number % storage.checkpoints.every == 0:
        storage.progress.saved(round_number)
        storage.checkpoints.save(round_number, _state(storage, training), storage.identity)
    return asked and interrupts.stop_requested()


def restore(storage: Storage, initial: TrainingState) -> TrainingState:
    """The newest checkpoint, or the initial state if there is none.

    Raises:
      ValueError: if the checkpoints are of another run, or all are damaged.
    """
    checkpoint = storage.checkpoints.restore(_state(storage, initial), storage.identity)
    storage.progress.saved(0 if checkpoint is None else checkpoint.step)
    if checkpoint is None:
        return initial
    saved = checkpoint.state
    table = np.asarray(local(saved["rounds"])).view(_row(storage.code))[: checkpoint.step, 0]
    seconds = np.asarray(local(saved["seconds"])).view(np.float64)[0, : checkpoint.step, 0]
    return TrainingState(
        saved["params"], saved["opt_state"], [_round(*pair) for pair in zip(seconds, table, strict=True)]
    )


def _state(storage: Storage, training: TrainingState) -> dict[str, Any]:
    """Arrays whose shapes do not depend on how many rounds there have been.

    Times have 64 bits, also where JAX has 32, so rounds are kept as bytes: `rounds` uint8[E, B], the same everywhere,
    and `seconds` uint8[W, E, 8], one row a process, since each has its own clock.
    """
    table = np.zeros((storage.num_rounds, 1), _row(storage.code))
    seconds = np.zeros((1, storage.num_rounds, 1), np.float64)
    for round_number, record in enumerate(training.history):
        seconds[0, round_number] = record.seconds
        for name in table.dtype.names or ():
            table[name][round_number, 0] = getattr(record, name)
    return {
        "params": training.params,
        "opt_state": training.opt_state,
        "rounds": _global(table.view(np.uint8), storage.mesh, PartitionSpec()),
        "seconds": _global(seconds.view(np.uint8), storage.mesh, PartitionSpec(AXIS)),
    }


def _row(code: GradientCode) -> np.dtype:
    """The bytes of a round, without its seconds."""
    num_workers, load = code.assignment.num_workers, code.assignment.load
    return np.dtype(
        [
            ("deadline", np.float64),
            ("extensions", np.int64),
            ("progress", np.int32, (num_workers,)),
            ("residual", np.float64),
            ("loss", np.float64),
            ("chunk_seconds", np.float32, (load, num_workers)),
        ]
    )


def _round(seconds: np.float64, row: np.void) -> Round:
    return Round(
        seconds=float(seconds),
        deadline=float(row["deadline"]),
        extensions=int(row["extensions"]),
        progress=row["progress"],
        residual=float(row["residual"]),
        loss=float(row["loss"]),
        chunk_seconds=row["chunk_seconds"],
    )


def _global(array: np.ndarray, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    """The array on every device of the mesh; cut along workers, it is one row, which each process has of its own."""
    shape = (mesh.size, *array.shape[1:]) if len(spec) else array.shape
    return jax.make_array_from_callback(shape, NamedSharding(mesh, spec), lambda index: array)


def _check_seen(folder: Path) -> None:
    """Process 0 writes an empty file, and all look for it."""
    name = processes.share(lambda: _written(folder) if processes.is_first() else None)[0]
    try:
        processes.share(lambda: _look_for(folder, name))
    finally:
        if processes.is_first():
            (folder / name).unlink(missing_ok=True)


def _written(folder: Path) -> str:
    name = f".seen-by-all-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    except OSError as error:
        raise ValueError(f"the folder of the checkpoints must be writable; {folder}: {error.strerror}.") from None
    return name


def _look_for(folder: Path, name: str) -> None:
    end = time.monotonic() + SEEN_WITHIN
    while not (folder.is_dir() and name in os.listdir(folder)):  # a listing asks the server anew
        if time.monotonic() > end:
            raise ValueError(
                f"all processes must see the output folder, where the checkpoints are; what process 0 wrote to it is "
                f"not in {folder} here. Choose a folder on a disk that all of them share."
            )
        time.sleep(0.05)
