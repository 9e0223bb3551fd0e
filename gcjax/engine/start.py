"""A state of a run in its midst, from which a replay of its record goes on.

Letters: E commits, C contributions to a commit.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.engine import version_ring as rings
from gcjax.engine.base import Run
from gcjax.engine.local_state import keeps_nothing_on_reading
from gcjax.engine.program import Program, ring_slots_of
from gcjax.engine.training_loop import evaluate
from gcjax.protocols.schedule import Schedule


class Start(NamedTuple):
    """What a run needs to go on.

    Attributes:
      commit: the commits that were made, one at least.
      params: the parameters after them.
      opt_state: of the server's optimizer.
      versions: the parameters of earlier versions, by their number, that later commits read.
    """

    commit: int
    params: Any
    opt_state: Any
    versions: Mapping[int, Any] = {}


def past_versions_read(schedule: Schedule, commit: int) -> list[int]:
    """The versions before `commit` that commits from it on read, in order."""
    is_contribution = np.asarray(schedule.worker)[commit:] >= 0  # bool[commits from it on, C]; -1 pads
    versions = np.unique(np.asarray(schedule.version)[commit:][is_contribution])
    return versions[versions < commit].tolist()


def run_at_start(program: Program, schedule: Schedule, data: Any, run: Run, start: Start) -> Run:
    """The run at a start, evaluated, from the one before its first commit; `data` are those of the task.

    Workers with parameters of their own begin with those that they read, so they must take them over as they are, keep
    no state of an optimizer, and read no version from before the start.

    Raises:
      ValueError: if the record has fewer commits than the start, the start lacks a version that later ones read, or
        workers keep something from before it.
    """
    needed_versions, local = past_versions_read(schedule, start.commit), program.protocol.local
    num_commits = int(run.info.num_commits)
    if start.commit > num_commits:
        raise ValueError(f"a replay must start after one of the {num_commits} commits; got {start.commit}.")
    if missing_versions := sorted(set(needed_versions) - set(start.versions)):
        raise ValueError(
            f"a replay that starts after commit {start.commit} needs the versions that later commits read; "
            f"{missing_versions} are not there. Start earlier, or at the beginning with start=None."
        )
    if local is not None and (needed_versions or not keeps_nothing_on_reading(local, program.optimizer, start.params)):
        raise ValueError(
            "a replay can start in the midst of a run only where workers keep nothing from before; the workers of this "
            "protocol have parameters, or optimizer states, of their own. Start at the beginning with start=None."
        )
    params, opt_state = jax.tree.map(jnp.array, (start.params, start.opt_state))  # copies, since the state is donated
    ring, slot_of_version = run.state.ring, ring_slots_of(program, schedule)
    if slot_of_version is not None:
        params_of_version = {version: start.versions[version] for version in needed_versions} | {start.commit: params}
        for version, version_params in params_of_version.items():
            ring = rings.write_slot(ring, slot_of_version[version], jax.tree.map(jnp.asarray, version_params))
    state = run.state._replace(
        commit=jnp.asarray(start.commit, jnp.int32),
        params=params,
        ring=ring,
        opt_state=opt_state,
    )
    evaluation = jnp.ones((), jnp.int32)  # the one after the initial one: there is one every `start.commit` commits
    return _evaluate(program, data, schedule, evaluation, run._replace(state=state))


_evaluate = jax.jit(evaluate, static_argnums=0)
