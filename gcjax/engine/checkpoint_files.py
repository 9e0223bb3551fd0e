"""What a checkpoint looks like on the disk: arrays written by orbax, and digests that say whether a file is as written.

A folder `STEP` holds `record/metadata`, the caller's JSON, and `arrays/`, the files of orbax with the SHA-256 of each
in `arrays/sha256.json`. Orbax writes a folder under another name and renames it when it is whole; the digests are taken
before that. Every file is checked before it is used: orbax notices most changed bytes of the arrays by itself, but with
many tracebacks and no word on the file.

Orbax is imported here, and this module by the first use of a checkpoint.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
import orbax.checkpoint as ocp

from gcjax import files

RECORD, ARRAYS, DIGESTS = "record", "arrays", "sha256.json"
REASON_BYTES = 400

T = TypeVar("T")


class DamagedError(Exception):
    """A checkpoint cannot be read, or is not what was saved."""


class _SealingHandler(ocp.StandardCheckpointHandler):
    """Writes arrays as orbax does, and the digests of the files, while the folder still has its temporary name."""

    def finalize(self, directory: Any) -> None:
        """Writes the SHA-256 of each file of the arrays; orbax calls it before it renames the folder."""
        super().finalize(directory)
        folder = Path(directory)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        digests = {str(path.relative_to(folder)): files.sha256(path) for path in paths}
        (folder / DIGESTS).write_text(json.dumps(files.with_digest(digests)))


def open_manager(folder: Path, keep: int) -> ocp.CheckpointManager:
    """The orbax manager of a folder, with the last `keep` checkpoints. Every process must call.

    Its first save deletes the temporary folders that a killed process has left.
    """
    registry = ocp.handlers.DefaultCheckpointHandlerRegistry()
    registry.add(ARRAYS, ocp.args.StandardSave, _SealingHandler())
    registry.add(RECORD, ocp.args.JsonSave, ocp.JsonCheckpointHandler())
    options = ocp.CheckpointManagerOptions(
        preservation_policy=ocp.checkpoint_managers.LatestN(keep),
        cleanup_tmp_directories=True,
        single_host_load_and_broadcast=True,  # all processes must see the same checkpoints
    )
    return ocp.CheckpointManager(folder, options=options, handler_registry=registry)


def save(manager: ocp.CheckpointManager, step: int, record: dict[str, Any], arrays: Sequence[jax.Array]) -> None:
    """Starts to write a checkpoint, JSON and arrays, in the background. Every process must call."""
    save_arguments = {RECORD: ocp.args.JsonSave(files.with_digest(record))}
    arrays_by_name = _nonempty_leaves(arrays)
    if arrays_by_name:
        save_arguments[ARRAYS] = ocp.args.StandardSave(arrays_by_name)
    manager.save(step, args=ocp.args.Composite(**save_arguments), force=True)  # whatever orbax thinks is due


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a checkpoint. Raises `DamagedError` on all processes if one of them cannot read it."""
    return _on_all_processes(lambda: _read_intact(folder / RECORD / "metadata"))


def read_arrays(folder: Path, targets: Sequence[jax.ShapeDtypeStruct]) -> list[jax.Array]:
    """The arrays of a checkpoint, in the shapes, dtypes and shardings of the targets; errors as in `read_record`."""
    targets_by_name = _nonempty_leaves(targets)
    arrays: dict[str, jax.Array] = {}
    if targets_by_name:
        _on_all_processes(lambda: _check_files(folder / ARRAYS))
        arrays = _on_all_processes(lambda: _restore_arrays(folder / ARRAYS, targets_by_name))
    return [arrays[_leaf_name(i)] if target.size else _empty_array(target) for i, target in enumerate(targets)]


def _nonempty_leaves(leaves: Sequence[Any]) -> dict[str, Any]:
    """Name in the checkpoint -> array or target, for orbax, which takes no arrays without entries."""
    return {_leaf_name(i): leaf for i, leaf in enumerate(leaves) if leaf.size}


def _leaf_name(index: int) -> str:
    """The name in the checkpoint of the leaf with this index."""
    return f"leaf_{index}"


def _restore_arrays(folder: Path, targets: dict[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
    """The arrays of a folder, of which this process reads its shards, without waiting for the other processes."""
    return jax.block_until_ready(_SealingHandler().restore(folder, args=ocp.args.StandardRestore(targets)))


def _empty_array(target: jax.ShapeDtypeStruct) -> jax.Array:
    """An array without entries, in the shape, dtype and sharding of the target."""
    host_array = np.zeros(target.shape, target.dtype)
    return jax.make_array_from_callback(target.shape, target.sharding, lambda index: host_array[index])


def _check_files(folder: Path) -> None:
    """Raises a `DamagedError` if a file of the folder is missing or differs from its digest.

    Each process checks some of the files.
    """
    digests = _read_intact(folder / DIGESTS)
    names_for_this_process = list(digests)[jax.process_index() :: jax.process_count()]
    for name in names_for_this_process:
        if not (folder / name).is_file():
            raise DamagedError(f"the file {folder / name} is missing")
        if files.sha256(folder / name) != digests[name]:
            raise DamagedError(f"the file {folder / name} has changed since it was written")


def _read_intact(file: Path) -> dict[str, Any]:
    """The JSON in a file that `with_digest` made. Raises `DamagedError` if the file is missing or was changed."""
    if not file.is_file():
        raise DamagedError(f"the file {file} is missing")
    body: dict[str, Any] | None = files.intact_body(file)
    if body is None:
        raise DamagedError(f"the file {file} has changed since it was written")
    return body


def _on_all_processes(function: Callable[[], T]) -> T:
    """The result of `function`, if it succeeds on every process; else all of them raise the same `DamagedError`.

    `function` must not wait for other processes, so that one that fails leaves no other waiting for it.
    """
    result, failure = None, b""  # the reason of a failure; empty for success
    try:
        result = function()
    except DamagedError as error:
        failure = str(error).encode()[:REASON_BYTES]
    except Exception as error:  # libraries raise errors of many types for files that they cannot read
        failure = " ".join(f"{type(error).__name__}: {error}".split()).encode()[:REASON_BYTES]
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        own_failure = np.frombuffer(failure.ljust(REASON_BYTES), np.uint8)  # with spaces: as long as everywhere
        failures = [row.tobytes().strip() for row in np.asarray(multihost_utils.process_allgather(own_failure))]
        failure = next((text for text in failures if text), b"")
    if failure:
        raise DamagedError(failure.decode(errors="replace"))
    return result  # type: ignore[return-value]
