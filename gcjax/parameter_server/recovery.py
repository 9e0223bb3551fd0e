"""A server that is killed and started again: its log, its checkpoints, and the parameters after the last commit.

A gradient depends on nothing but version, worker and unit, so the record of a run is enough to compute the parameters
again. A checkpoint saves the work up to its commit: a gradient that is in a later commit can have been computed on an
older version, so the versions that somebody was computing on are in the checkpoint, too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import files
from gcjax.parameter_server.setups import Setup
from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.schedule import Schedule

FOLDER = "checkpoints"


class Parameters(NamedTuple):
    """Attributes: params: of the model; opt_state: of the server's optimizer."""

    params: Any
    opt_state: Any


class SavedCheckpoints:
    """The parameters after some of the commits, in the folder of a run, which is only read."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of the run; there need be no checkpoints."""
        from gcjax.engine import checkpoint_files

        self._files, self._folder = checkpoint_files, folder / FOLDER

    @property
    def commits(self) -> list[int]:
        """The commits that have a checkpoint, the newest first."""
        names = [path.name for path in self._folder.iterdir()] if self._folder.is_dir() else []
        return sorted((int(name) for name in names if name.isdigit()), reverse=True)

    def read(self, commit: int, like: Parameters) -> "Checkpoint | None":
        """The checkpoint after `commit` commits, in the shapes of `like`; None if there is none, or it is damaged."""
        if commit not in self.commits:
            return None
        folder = self._folder.absolute() / str(commit)
        try:
            version_numbers = self._files.read_record(folder).get("versions", [])
            leaves, structure = jax.tree.flatten((like, [like.params] * len(version_numbers)))
            shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for x in map(jnp.asarray, leaves)]
            parameters, versions = jax.tree.unflatten(structure, self._files.read_arrays(folder, shapes))
        except self._files.DamagedError:
            return None
        return Checkpoint(commit, parameters, dict(zip(version_numbers, versions, strict=True)))


class Checkpoints(SavedCheckpoints):
    """The parameters after some of the commits, in a folder, to which more are written."""

    def __init__(self, folder: Path, commits_between: int) -> None:
        """`folder`: of the run, made if it is not there; `commits_between`: commits from one checkpoint to the next."""
        super().__init__(folder)
        self._commits_between = commits_between
        with files.os_errors_as_value_error("checkpoints must be a folder", self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        self._manager = self._files.open_manager(self._folder.absolute(), keep=2)

    def save(
        self, commit: int, parameters: Parameters, versions: Mapping[int, Any] | None = None, *, is_last: bool = False
    ) -> None:
        """Begins to write a checkpoint if it is time for one; the last one is there when this returns.

        Args:
          commit: the number of commits so far.
          parameters: those of the model and the optimizer's state, after them.
          versions: by their number, the parameters of earlier versions that later commits may have been computed on.
          is_last: whether no other one follows.

        Raises:
          OSError: if this one, or the one before, cannot be written, for example since the disk is full.
        """
        is_due = is_last or commit % self._commits_between == 0
        if commit == 0 or not is_due:
            return
        version_numbers = sorted(versions or {})
        arrays = jax.tree.leaves((parameters, [(versions or {})[number] for number in version_numbers]))
        try:
            self._manager.wait_until_finished()
            if commit != self._manager.latest_step():
                self._files.save(self._manager, commit, {"commit": commit, "versions": version_numbers}, arrays)
            if is_last:
                self._manager.wait_until_finished()
        except Exception as error:  # orbax raises errors of many types
            raise OSError(
                f"the checkpoint of commit {commit} must be written to {self._folder}, and cannot be: {error} What was "
                "committed is in the log: start the server again with the same folder once there is room."
            ) from error

    @property
    def commits(self) -> list[int]:
        """The commits that have a checkpoint, the newest first."""
        return sorted(self._manager.all_steps(), reverse=True)

    def delete_after(self, commit: int) -> None:
        """Deletes the checkpoints of later commits than this one, which a log that lost its end does not know."""
        for checkpoint_commit in self.commits:
            if checkpoint_commit > commit:
                self._manager.delete(checkpoint_commit)


class Checkpoint(NamedTuple):
    """What is in a checkpoint.

    Attributes:
      commit: the commits before it.
      parameters: after them.
      versions: by their number, the parameters of earlier versions that somebody was computing on.
    """

    commit: int
    parameters: Parameters
    versions: Mapping[int, Any]


def recovered(
    setup: Setup,
    checkpoints: SavedCheckpoints,
    schedule: Schedule,
    like: Parameters,
    memberships: Sequence[Membership],
) -> Parameters:
    """The parameters of the model, and the optimizer's state, after the last commit of a record.

    The engine computes the commits again that follow on the newest checkpoint that is whole and has, with its own, all
    versions that these commits read. If there is none, or workers keep parameters or optimizer states of their own, so
    that what they did before counts, it computes all commits.

    Args:
      setup: of the run.
      checkpoints: of the run.
      schedule: the record.
      like: parameters of the same shapes.
      memberships: who came and went.
    """
    num_commits = int(np.isfinite(np.asarray(schedule.time)).sum())
    for commit in checkpoints.commits:
        # A server may go on after its log was read.
        checkpoint = checkpoints.read(commit, like) if commit <= num_commits else None
        if checkpoint is not None and commit == num_commits:
            return checkpoint.parameters
        if checkpoint is not None and _can_go_on_from(setup, checkpoint, schedule):
            return replayed(setup, schedule, memberships, checkpoint)
    return replayed(setup, schedule, memberships)


def _can_go_on_from(setup: Setup, checkpoint: Checkpoint, schedule: Schedule) -> bool:
    """Whether the commits after a checkpoint can be computed from it: all versions that they read are in it.

    Where workers take steps of their own, they must also keep nothing from before they read, as it is not in there.
    """
    from gcjax.engine.local_state import keeps_nothing_on_reading
    from gcjax.engine.start import past_versions_read

    needed_versions = past_versions_read(schedule, checkpoint.commit)  # before its own
    local = setup.protocol.local
    if local is not None:
        return not needed_versions and keeps_nothing_on_reading(local, setup.optimizer, checkpoint.parameters.params)
    return set(needed_versions) <= set(checkpoint.versions)


def replayed(
    setup: Setup,
    schedule: Schedule,
    memberships: Sequence[Membership],
    checkpoint: Checkpoint | None = None,
) -> Parameters:
    """The parameters and the optimizer's state after the last commit of a record, by the engine.

    It computes the commits after `checkpoint`, or all if that is None.
    """
    from gcjax import engine

    start = None
    if checkpoint is not None:
        start = engine.Start(checkpoint.commit, *checkpoint.parameters, versions=checkpoint.versions)
    run = engine.replay(
        setup.task, setup.protocol, setup.optimizer, schedule, rng_key=setup.rng_key, memberships=memberships,
        start=start,
    )  # fmt: skip
    return Parameters(run.params, jax.tree.map(np.asarray, run.state.opt_state))
