"""What the eager variant of worker-busy synchronous parallel does promise (Yang et al. 2024, the released code)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, zeros
from gcjax.specifications.events import COMMIT, Event
from gcjax.specifications.rounds import begin_action


class Pushes(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      read: int[W], the version that each has read last.
      busy: int[W], whether each is in a local step.
      next_read: int[W], the newest version when each began last, if communication and computing overlap; otherwise 0.
    """

    version: Numbers
    read: Numbers
    busy: Numbers
    next_read: Numbers


@comparable
def worker_busy_pushes(num_workers: int = 3, *, overlap: bool = False) -> Specification:
    """Eager WBSP: every push is a commit at once, and whoever reads, reads the newest version.

    Who reads when is left open, and with it whether workers agree: they need not (`worker_busy_eager`). If
    communication and computing overlap, the version is still on its way while a step is taken, so that it may be an
    older one than the newest, but none from before what was read last. States are finite since only it counts whether a
    version is the newest.

    Args:
      num_workers: W.
      overlap: whether communication and computing overlap.
    """
    check_num_workers(num_workers)
    program, zero, zero_per_worker = _Program(overlap), np.int32(0), zeros(num_workers)
    two_values = zero_per_worker + 2
    move_of_begin = {"pull": program.pull, "go on": program.go_on}
    if overlap:
        move_of_begin["go on with what was pulled"] = program.begin_with_next_read
    push = Action("push", program.push, event=COMMIT, matches=program.commits)
    begin_actions = [begin_action(name, move) for name, move in move_of_begin.items()]
    own_fields = "read", "busy", *("next_read",) * overlap
    return Specification(
        f"worker_busy_pushes({num_workers} workers{', overlap' * overlap})",
        num_workers,
        initial=Pushes(version=zero, read=zero_per_worker, busy=zero_per_worker, next_read=zero_per_worker),
        # Values of canonical states: the version is 1, what was read 1 (newest) or 0.
        sizes=Pushes(version=2, read=two_values, busy=two_values, next_read=zero_per_worker + 1 + overlap),
        worker=Role.of_workers(
            Pushes, num_workers, own_fields, (push, *begin_actions), program.rule, shared=("version",)
        ),
        claim="every push is a commit at once" + ", and whoever reads, reads the newest version" * (not overlap),
        step_property=program.step_property,
        canonicalise=program.canonicalise,
    )


class _Program(NamedTuple):
    """What workers do; with overlap, a version that was pulled may arrive a step later."""

    overlap: bool

    def push(self, state: Pushes, worker: jax.Array) -> tuple[Pushes, jax.Array]:
        """The state after the worker's push, which is a commit, and whether it is in a step."""
        after = state._replace(version=state.version + 1, busy=state.busy.at[worker].set(0))
        return after, state.busy[worker] == 1

    def pull(self, state: Pushes, worker: jax.Array) -> tuple[Pushes, jax.Array]:
        """The state in which the worker begins a step with the newest version, and whether it is idle."""
        return self._begin(state, worker, state.version)

    def go_on(self, state: Pushes, worker: jax.Array) -> tuple[Pushes, jax.Array]:
        """The state in which the worker begins a step with what it has read last, and whether it is idle."""
        return self._begin(state, worker, state.read[worker])

    def begin_with_next_read(self, state: Pushes, worker: jax.Array) -> tuple[Pushes, jax.Array]:
        """The state in which the worker begins a step with what it read during its last one, and whether it is idle."""
        return self._begin(state, worker, state.next_read[worker])

    def _begin(self, state: Pushes, worker: jax.Array, version: jax.Array) -> tuple[Pushes, jax.Array]:
        """The state in which the worker is in a step (`busy` 1) with this version, and whether it was idle (0).

        With overlap it begins to read the newest version meanwhile, which is `next_read` when it begins again.
        """
        newest_version = state.version
        next_read = state.next_read.at[worker].set(newest_version) if self.overlap else state.next_read
        read = state.read.at[worker].set(version)
        return Pushes(state.version, read, state.busy.at[worker].set(1), next_read), state.busy[worker] == 0

    def rule(self, before: Pushes, after: Pushes, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker pushes, which is a commit, or begins with a version that it may have.

        That is the newest, the one that it has read last, or, with overlap, `next_read`, the newest when it began last;
        without overlap `next_read` never changes.
        """
        busy_before, busy_after, read = before.busy[worker], after.busy[worker], after.read[worker]
        same_read = (read == before.read[worker]) & (after.next_read[worker] == before.next_read[worker])
        pushes = (busy_before == 1) & (busy_after == 0) & (after.version == before.version + 1) & same_read
        may_read = (
            (read == before.version)
            | (read == before.read[worker])
            | (self.overlap & (read == before.next_read[worker]))
        )
        next_read = after.next_read[worker]
        has_expected_next_read = next_read == (before.version if self.overlap else before.next_read[worker])
        begins = (
            (busy_before == 0)
            & (busy_after == 1)
            & (after.version == before.version)
            & may_read
            & has_expected_next_read
        )
        return pushes | begins

    def step_property(self, before: Pushes, after: Pushes, component: jax.Array) -> jax.Array:
        """bool[]: whether each push is a commit, and reads are of the newest version, except with overlap."""
        num_pushes = ((before.busy == 1) & (after.busy == 0)).sum()
        may_read = (after.read == before.read) | (after.read == before.version) | self.overlap
        return (after.version == before.version + num_pushes) & may_read.all()

    def commits(self, before: Pushes, after: Pushes, event: Event) -> jax.Array:
        """bool[]: whether the step makes the version that the event shows, of one unit; with overlap, of several.

        No message is left out that has arrived before, nor one that the worker has sent before.
        """
        has_units = (self.overlap | (event.size == 1)) & (event.num_skipped_messages == 0) & ~event.leaves_out_messages
        return (after.version == event.commit + 1) & has_units

    def canonicalise(self, state: Pushes) -> Pushes:
        """The state with version 1, and versions that were read as newest (1) or older (0)."""
        read, next_read = ((version == state.version).astype(jnp.int32) for version in (state.read, state.next_read))
        return Pushes(jnp.ones_like(state.version), read, state.busy, next_read * self.overlap)
