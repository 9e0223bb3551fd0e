"""Checkpoints of live training: parameters, optimizer state, and the rounds so far, on which deadlines depend.

Letters: E rounds, K chunks a worker holds, W workers.
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
from gcjax.engine.checkpoint import Checkpoints
from gcjax.engine.identity import run_identity
from gcjax.engine.live.deadlines import DeadlineRule
from gcjax.engine.live.exchange import AXIS, own_copy
from gcjax.engine.live.round_records import Round
from gcjax.engine.program_digest import ADDRESS
from gcjax.equality import PureFunction

POLL_SECONDS = 0.05
VISIBLE_SECONDS = 10.0
"""Seconds in which a new file must be visible to all; file systems on a network keep old listings for a while."""


class Storage(NamedTuple):
    """Where and how a live run is saved.

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


def identity(
    text: str,
    *,
    code: GradientCode,
    num_rounds: int,
    rule: DeadlineRule,
    residual_bound: float,
    computation: str,
    data: Any,
    rng_key: jax.Array,
) -> str:
    """Text of what a live run depends on, a line for each thing; most arguments as in `gcjax.engine.live.train`.

    A round may stop at a residual up to `residual_bound`. `computation` is a digest of the traced programs.
    """
    return run_identity(
        text,
        computation=computation,
        deadline=_rule_text(rule),
        chunks=code.assignment.chunks,
        data=data,
        max_residual=residual_bound,
        num_blocks=code.num_blocks,
        num_rounds=num_rounds,
        num_workers=code.assignment.num_workers,
        rng_key=rng_key,
    )


def _rule_text(rule: DeadlineRule) -> str:
    """The name of a rule's factory with its arguments; of a rule that was made otherwise, that of its function."""
    function = rule.seconds
    if not isinstance(function, PureFunction):
        return f"{function.__module__}.{function.__qualname__}"
    factory_call_and_path: Any = function.compared_by
    (factory, arguments, _), _ = factory_call_and_path
    return f"{factory.__module__}.{factory.__qualname__} {ADDRESS.sub('', repr(arguments))}"


def check_processes_agree(checkpoints: Checkpoints, identity: str) -> None:
    """Checks that all processes would save and restore the same.

    Raises:
      ValueError: in every process, if one has another identity, or does not see the folder.
    """
    processes.agree("checkpoints", f"every {checkpoints.every} rounds, the last {checkpoints.keep}\n{identity}")
    if jax.process_count() > 1:
        _check_folder_is_shared(checkpoints.folder)


@contextmanager
def grace(storage: Storage) -> Iterator[None]:
    """A context for the rounds: SIGINT or SIGTERM ends the process only after they have saved a checkpoint (`save`)."""
    with interrupts.grace_period(interrupts.saving_seconds()):
        try:
            yield
        finally:
            storage.checkpoints.wait()  # also for what an error has left: its folder may be opened again
        if interrupts.stop_requested():
            storage.progress.record_stop()  # for the last line of the command: all rounds so far are saved


def save(storage: Storage, training: TrainingState, *, any_process_stops: bool) -> bool:
    """Starts to save the training, if a checkpoint is due, or a signal has come to one (`any_process_stops`).

    Every process must call it after each round, so that all save the same one.

    Returns:
      Whether this process got the signal, and is to stop. The others are ended when it does.
    """
    rounds_done = len(training.history)
    is_due = rounds_done == storage.num_rounds or rounds_done % storage.checkpoints.every == 0
    if any_process_stops or is_due:
        storage.progress.record_checkpoint(rounds_done)
        storage.checkpoints.save(rounds_done, _checkpoint_arrays(storage, training), storage.identity)
    this_process_stops = any_process_stops and interrupts.stop_requested()
    return this_process_stops


def restore(storage: Storage, initial: TrainingState) -> TrainingState:
    """The training of the newest checkpoint, or the initial one if there is none.

    Raises:
      ValueError: if the checkpoints are of another run, or all are damaged.
    """
    checkpoint = storage.checkpoints.restore(_checkpoint_arrays(storage, initial), storage.identity)
    storage.progress.record_checkpoint(0 if checkpoint is None else checkpoint.step)
    if checkpoint is None:
        return initial
    arrays, rounds_done = checkpoint.state, checkpoint.step
    # uint8[E, bytes] of all E rounds, and uint8[1, E, 8], this process's row; behind `rounds_done` all is zeros.
    round_bytes, seconds_bytes = np.asarray(own_copy(arrays["rounds"])), np.asarray(own_copy(arrays["seconds"]))
    rows_of_all_rounds = round_bytes.view(_round_dtype(storage.code))[:, 0]  # [E], from [E, 1]
    seconds_of_all_rounds = seconds_bytes.view(np.float64)[0, :, 0]  # [E], from [1, E, 1]
    seconds_and_rows = zip(seconds_of_all_rounds[:rounds_done], rows_of_all_rounds[:rounds_done], strict=True)
    history = [_round_of_row(seconds, row) for seconds, row in seconds_and_rows]
    return TrainingState(arrays["params"], arrays["opt_state"], history)


def _checkpoint_arrays(storage: Storage, training: TrainingState) -> dict[str, Any]:
    """The training as it is saved: arrays whose shapes do not depend on how many rounds there have been.

    Times have 64 bits, also where JAX has 32, so rounds are kept as bytes: `rounds` uint8[E, bytes], the same
    everywhere, and `seconds` uint8[W, E, 8], one row a process, since each has its own clock. Rounds to come are zeros.
    """
    last_axis_size = 1  # viewed as bytes, the last axis becomes theirs
    round_table = np.zeros((storage.num_rounds, last_axis_size), _round_dtype(storage.code))
    own_seconds = np.zeros((1, storage.num_rounds, last_axis_size), np.float64)
    for round_number, record in enumerate(training.history):
        own_seconds[0, round_number] = record.seconds
        for field in round_table.dtype.names or ():
            round_table[field][round_number, 0] = getattr(record, field)
    round_bytes, own_seconds_bytes = round_table.view(np.uint8), own_seconds.view(np.uint8)
    same_everywhere, one_row_a_process = PartitionSpec(), PartitionSpec(AXIS)
    return {
        "params": training.params,
        "opt_state": training.opt_state,
        "rounds": _global_array(round_bytes, storage.mesh, same_everywhere),
        "seconds": _global_array(own_seconds_bytes, storage.mesh, one_row_a_process),
    }


def _round_dtype(code: GradientCode) -> np.dtype:
    """The structured dtype of a round in a checkpoint, without its seconds, which each process has of its own."""
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


def _round_of_row(seconds: np.float64, row: np.void) -> Round:
    """The record of a round from its seconds and its row in a checkpoint, of `_round_dtype`."""
    return Round(
        seconds=float(seconds),
        deadline=float(row["deadline"]),
        extensions=int(row["extensions"]),
        progress=row["progress"],
        residual=float(row["residual"]),
        loss=float(row["loss"]),
        chunk_seconds=row["chunk_seconds"],
    )


def _global_array(array: np.ndarray, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    """A global array: the same `array` on every device, or, cut along the workers, one row [1, ...] a process.

    `spec` names the axis of the workers, or nothing.
    """
    shape = (mesh.size, *array.shape[1:]) if len(spec) else array.shape  # of all W processes, or as it is
    return jax.make_array_from_callback(shape, NamedSharding(mesh, spec), lambda index: array)


def _check_folder_is_shared(folder: Path) -> None:
    """Process 0 writes an empty file, and all wait for it; every process raises the error of one that misses it."""
    names_by_process = processes.share(lambda: _write_empty_file(folder) if processes.is_first() else None)
    name_of_first = names_by_process[0]
    try:
        processes.share(lambda: _wait_for_file(folder, name_of_first))
    finally:
        if processes.is_first():
            (folder / name_of_first).unlink(missing_ok=True)


def _write_empty_file(folder: Path) -> str:
    """Writes an empty file of a new name to the folder, and returns the name; makes the folder if it is missing."""
    name = f".seen-by-all-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    except OSError as error:
        raise ValueError(f"the folder of the checkpoints must be writable; {folder}: {error.strerror}.") from None
    return name


def _wait_for_file(folder: Path, name: str) -> None:
    """Returns once the file is in the folder; raises a `ValueError` if it is not within `VISIBLE_SECONDS`."""
    deadline = time.monotonic() + VISIBLE_SECONDS
    while not (folder.is_dir() and name in os.listdir(folder)):  # a listing asks the file server; `exists` may not
        if time.monotonic() > deadline:
            raise ValueError(
                f"all processes must see the output folder, where the checkpoints are; what process 0 wrote to it is "
                f"not in {folder} here. Choose a folder on a disk that all of them share."
            )
        time.sleep(POLL_SECONDS)
