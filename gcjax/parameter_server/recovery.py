"""A server that is killed and started again: its log, its checkpoints, and the parameters after the last commit.

A gradient depends on nothing but version, worker and unit, so the record of a run is enough to compute the parameters
again. A checkpoint of the last commit saves that work.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.parameter_server.setups import Setup
from gcjax.protocols.conformance.memberships import Membership
from gcjax.protocols.schedule import Schedule

FOLDER = "checkpoints"


class Parameters(NamedTuple):
    """Attributes: params: of the model; opt_state: of the server's optimizer."""

    params: Any
    opt_state: Any


class Checkpoints:
    """The parameters after some of the commits, in a folder."""

    def __init__(self, folder: Path, every: int) -> None:
        """`every`: so many commits."""
        from gcjax.engine import checkpoint_files

        self._files, self._folder, self._every = checkpoint_files, folder / FOLDER, every
        self._folder.mkdir(parents=True, exist_ok=True)
        self._manager = checkpoint_files.open_manager(self._folder.absolute(), keep=2)

    def save(self, commit: int, parameters: Parameters, *, is_last: bool = False) -> None:
        """Begins to write a checkpoint if it is time for one; the last one is there when this returns.

        Raises:
          OSError: if this one, or the one before, cannot be written, for example since the disk is full.
        """
        if (commit % self._every and not is_last) or commit == 0:
            return
        try:
            self._manager.wait_until_finished()
            if commit != self._manager.latest_step():
                self._files.save(self._manager, commit, {"commit": commit}, jax.tree.leaves(parameters))
            if is_last:
                self._manager.wait_until_finished()
        except Exception as error:  # orbax raises errors of many types
            raise OSError(
                f"the checkpoint of commit {commit} must be written to {self._folder}, and cannot be: {error} What was "
                "committed is in the log: start the server again with the same folder once there is room."
            ) from error

    def read(self, commit: int, like: Parameters) -> Parameters | None:
        """The checkpoint of a commit, in the shapes of other parameters; None if there is none, or it is damaged."""
        if commit not in self._manager.all_steps():
            return None
        leaves, structure = jax.tree.flatten(like)
        targets = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding) for x in map(jnp.asarray, leaves)]
        try:
            arrays = self._files.read_arrays(self._folder.absolute() / str(commit), targets)
        except self._files.DamagedError:
            return None
        return jax.tree.unflatten(structure, arrays)


def replayed(setup: Setup, schedule: Schedule, memberships: Sequence[Membership] = ()) -> Parameters:
    """The parameters after the last commit of a record, by the engine."""
    from gcjax import engine

    run = engine.replay(
        setup.task, setup.protocol, setup.optimizer, schedule, rng_key=setup.rng_key, memberships=memberships
    )
    return Parameters(run.params, jax.tree.map(np.asarray, run.state.opt_state))
