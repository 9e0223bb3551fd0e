"""Fragments that are pushed every so many steps and merged some steps later (Douillard et al. 2025).

The state is the steps that each worker has done. Messages take no time: while they do, nobody may do more. Steps are
counted from those that are in commits.
"""

from typing import NamedTuple

import jax
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, zeros
from gcjax.specifications.events import COMMIT, STEP, Event
from gcjax.specifications.rounds import enough_at_commits


class Streams(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      clock: int[W], the steps of each worker.
    """

    version: Numbers
    clock: Numbers


@comparable
def streaming_diloco(
    num_workers: int = 3, *, num_local_steps: int = 4, num_fragments: int = 2, overlap_steps: int = 1
) -> Specification:
    """Streaming DiLoCo: a commit takes H/P steps of everybody, and nobody is more than H/P + τ steps ahead of anybody.

    A worker takes the step τ steps after a push when what came of the push is committed (Douillard et al. 2025). What
    the optimizers do, and to which fragment, is left out: commit e is of fragment `e % P`.

    Args:
      num_workers: W.
      num_local_steps: H.
      num_fragments: P.
      overlap_steps: τ.
    """
    check_num_workers(num_workers)
    num_fragments = _validate.integer("num_fragments", num_fragments, minimum=1)
    num_local_steps = _validate.integer("num_local_steps", num_local_steps, minimum=num_fragments)
    overlap_steps = _validate.integer("overlap_steps", overlap_steps, maximum=num_local_steps - 1)
    program = _Streaming(num_workers, num_local_steps // num_fragments, overlap_steps)
    farthest = program.num_steps + overlap_steps
    step = Action("step", program.step, STEP, program.is_step)
    commit = Action("commit", program.commit, COMMIT, program.is_commit)
    return Specification(
        f"streaming_diloco({num_workers} workers, {num_local_steps} steps, {num_fragments} fragments, "
        f"overlap {overlap_steps})",
        num_workers,
        initial=Streams(version=np.int32(0), clock=zeros(num_workers)),
        # Values of canonical states: version 0, and steps beyond those in commits.
        sizes=Streams(version=1, clock=zeros(num_workers) + farthest + 1),
        worker=Role.of_workers(Streams, num_workers, ("clock",), (step,), program.step_rule),
        claim=f"a commit takes {program.num_steps} steps of everybody; nobody is more than {farthest} ahead of anybody",
        server=Role.of_servers(Streams, ("version",), (commit,), program.commit_rule),
        num_servers=1,
        invariant=lambda state: state.clock.max() - state.clock.min() <= farthest,
        step_property=enough_at_commits(program.has_enough),
        canonicalise=lambda state: Streams(0 * state.version, state.clock - program.num_steps * state.version),
    )


class _Streaming(NamedTuple):
    """What workers and the server do; `num_steps` is H/P, `overlap_steps` τ."""

    num_workers: int
    num_steps: int
    overlap_steps: int

    def step(self, state: Streams, worker: jax.Array) -> tuple[Streams, jax.Array]:
        """The state with one step more of the worker, and whether the version that is due at it has been committed.

        `clock int[W]` are the steps that each has taken, so it is the number of its next one.
        """
        due = self._version_at(state.clock[worker])
        return state._replace(clock=state.clock.at[worker].add(1)), due <= state.version

    def _version_at(self, step: jax.Array) -> jax.Array:
        """int[]: the version that a worker has merged at its step of this number."""
        return ((step - self.overlap_steps) // self.num_steps).clip(0)

    def is_step(self, before: Streams, after: Streams, event: Event) -> jax.Array:
        """bool[]: whether the event and the step are of the worker's next step, with the version that is due at it."""
        number = before.clock[event.worker]
        has_read = event.version == self._version_at(number)
        return (event.unit == number) & has_read & (after.clock[event.worker] == number + 1)

    def step_rule(self, before: Streams, after: Streams, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker takes one step, less than H/P + τ beyond what is committed.

        `clock int[W]` are the steps of each; a commit takes H/P of everybody.
        """
        beyond_commits = before.clock[worker] - self.num_steps * before.version
        return (after.clock[worker] == before.clock[worker] + 1) & (
            beyond_commits < self.num_steps + self.overlap_steps
        )

    def commit(self, state: Streams, server: jax.Array) -> tuple[Streams, jax.Array]:
        """The state after a commit, and whether everybody has taken the steps for it."""
        return state._replace(version=state.version + 1), self.has_enough(state)

    def has_enough(self, state: Streams) -> jax.Array:
        """bool[]: whether everybody has taken the steps of the next commit."""
        return (state.clock >= self.num_steps * (state.version + 1)).all()

    def is_commit(self, before: Streams, after: Streams, event: Event) -> jax.Array:
        """bool[]: whether it makes the version that the event shows, of H/P steps of everybody."""
        return (after.version == event.commit + 1) & (event.size == self.num_workers * self.num_steps)

    def commit_rule(self, before: Streams, after: Streams, server: jax.Array) -> jax.Array:
        """bool[]: whether the server commits when there is enough."""
        return (after.version == before.version + 1) & self.has_enough(before)
