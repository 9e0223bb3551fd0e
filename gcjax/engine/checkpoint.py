"""Checkpoints of a run: kept in a folder, written in the background, checked when they are read.

A process killed at any moment leaves a whole checkpoint or none. With the arrays is kept what the bits of the run
depend on, the identity, so that no run goes on from the checkpoint of another one.
"""

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax

from gcjax import _validate
from gcjax._keys import is_key, without_key_type
from gcjax.text_differences import differing_lines

FORMAT = 1
BEFORE_FIRST_STEP = -1
ORBAX_METADATA_FILE = "_CHECKPOINT_METADATA"


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint on the disk is damaged and not used."""


class Restored(NamedTuple):
    """A checkpoint as `Checkpoints.restore` returns it.

    Attributes:
      step: the step it was saved with.
      state: its arrays, in the tree and on the devices that were asked for.
    """

    step: int
    state: Any


class Checkpoints:
    """The last checkpoints of one run, in a folder of their own.

    Use it as a context manager, or call `close` at the end. With several processes (`jax.distributed`) all of them
    make one, on a folder that they share, and all call the same methods in the same order.

    Attributes:
      folder: where they are; it is made if it is missing.
      every: the evaluations of a run, or the rounds of live training, from one checkpoint to the next.
      keep: the checkpoints kept; older ones are deleted.
      label: what a person calls the run.
    """

    def __init__(self, folder: str | os.PathLike, *, every: int = 10, keep: int = 3, label: str = "the run") -> None:
        """Checkpoints in `folder`; touches nothing on the disk yet.

        Args:
          folder: a path; with several processes, on a disk that all of them see.
          every: for the caller of `save`: how many evaluations lie between two calls.
          keep: the checkpoints kept. With 1, nothing is left to fall back on when the last one is damaged.
          label: what a person calls the run, for the last line of a command that is ended early.

        Raises:
          ValueError: if a number is below 1, or the folder is a file.
        """
        self.folder = Path(folder).absolute()
        self.every = _validate.integer("every", every, minimum=1)
        self.keep = _validate.integer("keep", keep, minimum=1)
        self.label = label
        if self.folder.is_file():
            raise ValueError(f"the folder of the checkpoints must be a folder; {self.folder} is a file.")
        self._open_manager: Any = None
        self._latest_step: int | None = None  # of this run, BEFORE_FIRST_STEP for a new one; None until it is known

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def save(self, step: int, state: Any, identity: str) -> None:
        """Starts to save a state, and returns as soon as the arrays may change; first ends the save before.

        Args:
          step: counts up from one save to the next; a restored run goes on from the step it was given.
          state: a pytree of arrays, typed random keys among them. With several processes every array must be
            global, that is sharded or replicated over a mesh of all devices.
          identity: text of all that the bits of the run depend on; `restore` compares it line by line.

        Raises:
          ValueError: if the folder holds checkpoints that were not restored, the step does not count up, or a leaf is
            no array.
          OSError: if the save before failed, for example since the disk is full.
        """
        from gcjax.engine import checkpoint_files

        step = _validate.integer("step", step)
        arrays = [_array_without_key_type(name, leaf) for name, leaf in _leaves_by_name(state).items()]
        record = {"format": FORMAT, "step": step, "identity": identity, "leaves": leaf_types(state)}
        self._delete_newer_than_latest(step)
        checkpoint_files.save(self._manager, step, record, arrays)
        self._latest_step = step

    def restore(self, like: Any, identity: str) -> Restored | None:
        """Reads the newest checkpoint that is not damaged.

        Args:
          like: a pytree as it was saved, of arrays or `jax.ShapeDtypeStruct`; its shardings say where the restored
            arrays go, on as many devices or processes as there are now.
          identity: as in `save`.

        Returns:
          The step and the state with the same bits as saved, or None if there is no checkpoint.

        Raises:
          ValueError: if the identity or the shapes differ from what was saved, or every checkpoint is damaged.

        Warns:
          DamagedCheckpointWarning: for every damaged checkpoint, which is left out for the one before. The next `save`
            deletes it.
        """
        from gcjax.engine.checkpoint_files import DamagedError, read_arrays

        targets = [_restore_target(name, leaf) for name, leaf in _leaves_by_name(like).items()]
        self.wait()
        steps = self._saved_steps()
        for step in reversed(steps):
            path = self.folder / str(step)
            try:
                record = self._read_record(step)
                _compare_identity(path, record, identity)
                _compare_leaves(path, record["leaves"], leaf_types(like))
                arrays = read_arrays(path, targets)
            except DamagedError as damage:
                _warn_of_damage(f"the checkpoint {path} is damaged and not used: {damage}")
                continue
            self._latest_step = step
            leaves = [_with_key_type(array, leaf) for array, leaf in zip(arrays, jax.tree.leaves(like), strict=True)]
            return Restored(step, jax.tree.unflatten(jax.tree.structure(like), leaves))
        if steps:
            raise ValueError(
                f"all {len(steps)} checkpoints in {self.folder} are damaged, so there is nothing to go on from. "
                "Restore the folder from a copy, or delete it and start the run again."
            )
        self._latest_step = BEFORE_FIRST_STEP
        return None

    def wait(self) -> None:
        """Blocks until what was saved is on the disk.

        Raises:
          OSError: if the save failed.
        """
        if self._open_manager is not None:
            self._open_manager.wait_until_finished()

    def on_disk(self) -> list[int]:
        """The steps of which a whole checkpoint is on the disk; nothing is imported or waited for."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        step_names = [name for name in names if name.isdigit()]
        whole_steps = [name for name in step_names if (self.folder / name / ORBAX_METADATA_FILE).exists()]
        return sorted(int(name) for name in whole_steps)

    def close(self) -> None:
        """Waits for what is being saved, and lets go of threads and the folder. A closed object may be used again."""
        manager, self._open_manager, self._latest_step = self._open_manager, None, None
        if manager is not None:
            manager.close()

    @property
    def _manager(self) -> Any:
        """The orbax manager of the folder, opened when it is first needed."""
        from gcjax.engine import checkpoint_files

        if self._open_manager is None:
            self._open_manager = checkpoint_files.open_manager(self.folder, self.keep)
        return self._open_manager

    def _saved_steps(self) -> list[int]:
        """The steps of all checkpoints, damaged ones among them; with several processes orbax gives numpy integers."""
        return sorted(int(step) for step in self._manager.all_steps())

    def _delete_newer_than_latest(self, step: int) -> None:
        """Before a save of `step`: deletes the damaged checkpoints after the one that was restored or saved last.

        `_latest_step` is that one; None before any, and `BEFORE_FIRST_STEP`, -1, if there was none to restore.

        Raises:
          ValueError: if the folder holds checkpoints that were not restored, or `step` does not count up.
        """
        steps = self._saved_steps()
        if self._latest_step is None and steps:
            raise ValueError(
                f"the folder {self.folder} already holds checkpoints, at the steps {steps}. Restore first to "
                "go on from them, or choose another folder."
            )
        latest_step = BEFORE_FIRST_STEP if self._latest_step is None else self._latest_step
        if step <= latest_step:
            raise ValueError(f"the steps of a run must count up; got step {step} after {latest_step}.")
        damaged_steps = [saved_step for saved_step in steps if saved_step > latest_step]
        for damaged_step in damaged_steps:
            self._manager.delete(damaged_step)

    def _read_record(self, step: int) -> dict[str, Any]:
        """The JSON that was saved with a step: the format, the step, the run's identity, and the types of leaves.

        Raises:
          DamagedError: if it cannot be read, or belongs to another step.
        """
        from gcjax.engine import checkpoint_files

        record = checkpoint_files.read_record(self.folder / str(step))
        if record["step"] != step:
            raise checkpoint_files.DamagedError(f"it was saved as step {record['step']}")
        return record


def _leaves_by_name(tree: Any) -> dict[str, Any]:
    """Path in the tree, as text, -> leaf."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path) or "the state": leaf for path, leaf in leaves}


def leaf_types(tree: Any) -> dict[str, str]:
    """Path in the tree -> dtype and shape of the leaf, as text."""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in _leaves_by_name(tree).items()}


def _array_without_key_type(name: str, leaf: Any) -> jax.Array:
    """The leaf as it is saved: an array of random keys as the integers behind them; `name` is for the error."""
    if not isinstance(leaf, jax.Array):
        raise ValueError(f"a state must consist of jax.Arrays; {name} is {leaf!r}. Convert it with jnp.asarray.")
    return without_key_type(leaf)


def _with_key_type(array: jax.Array, like: Any) -> jax.Array:
    """A saved array as it was before: random keys of the same implementation where `like` has keys."""
    if not is_key(like):
        return array
    key_impls: list[Any] = []  # key_impl takes arrays and traced values, but no jax.ShapeDtypeStruct
    jax.eval_shape(lambda key: key_impls.append(jax.random.key_impl(key)), like)
    return jax.random.wrap_key_data(array, impl=key_impls[0])


def _restore_target(name: str, leaf: Any) -> jax.ShapeDtypeStruct:
    """The shape, dtype and sharding in which the saved array of this leaf (keys as integers) is to be read.

    Without a sharding it goes to the first device.
    """
    if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        raise ValueError(f"restore needs arrays or jax.ShapeDtypeStructs; {name} is {leaf!r}.")
    sharding = leaf.sharding
    if sharding is None:
        if jax.process_count() > 1:
            raise ValueError(f"with several processes restore needs to know where arrays go; {name} has no sharding.")
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    saved_leaf = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    if is_key(leaf):
        saved_leaf = jax.eval_shape(jax.random.key_data, saved_leaf)
    sharding.shard_shape(saved_leaf.shape)  # raises JAX's error if the array cannot be cut like that
    return jax.ShapeDtypeStruct(saved_leaf.shape, saved_leaf.dtype, sharding=sharding)


def _compare_identity(path: Path, record: dict[str, Any], identity: str) -> None:
    """Raises a `ValueError` with the lines that differ unless the record's identity is this one."""
    if record["format"] != FORMAT:
        raise ValueError(
            f"the checkpoint {path} has format {record['format']}, and this version of gcjax reads format {FORMAT}. "
            "Use the version that wrote it."
        )
    saved_identity = record["identity"]
    if saved_identity == identity:
        return
    difference_text = "\n".join(differing_lines(saved_identity, identity, "checkpoint", "now"))
    raise ValueError(
        f"the checkpoint {path} belongs to another run:\n{difference_text}\n"
        "Go on with what it was made with, or choose another folder."
    )


def _compare_leaves(path: Path, saved_types: dict[str, str], expected_types: dict[str, str]) -> None:
    """Raises a `ValueError` unless saved and expected leaves (name -> dtype and shape) are the same, in order."""
    if list(saved_types.items()) == list(expected_types.items()):
        return
    names = saved_types | expected_types
    differing_names = [name for name in names if saved_types.get(name) != expected_types.get(name)]
    if differing_names:
        saved_type, expected_type = (
            types.get(differing_names[0], "missing") for types in (saved_types, expected_types)
        )
        difference = (
            f"{differing_names[0]} is {saved_type} there and {expected_type} here ({len(differing_names)} such leaves)"
        )
    else:
        difference = "its leaves have another order"
    raise ValueError(f"the checkpoint {path} holds another state: {difference}. Make the state as it was when saved.")


def _warn_of_damage(message: str) -> None:
    """Warns of a damaged checkpoint; of several processes only the first does."""
    if jax.process_index() == 0:
        warnings.warn(message, DamagedCheckpointWarning, stacklevel=3)
