"""eager-SGD (Li et al. 2020): partial all-reduces, for which nobody waits, or all who are there wait for one worker.

Times are left open: anybody may push next. Whether a push is the worker's next one after as many as there are commits,
or a late one, is left open, too, and shows in a run by the number of its unit.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, zeros
from gcjax.specifications.events import COMMIT, UNIT, Event
from gcjax.specifications.rounds import (
    adds_one_unit,
    after_commit,
    begin_action,
    commits_all_earlier_messages,
    counted_from_newest,
    is_commit,
)


class Eager(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      read: int[W], the version that each worker has read last; -1 at first.
      busy: int[W], whether each is between reading and pushing.
      pending_units: int[W], the gradients of each that are in no commit yet.
      is_ahead: int[W], whether each has pushed one gradient more than there are commits.
    """

    version: Numbers
    read: Numbers
    busy: Numbers
    pending_units: Numbers
    is_ahead: Numbers


@comparable
def eager_sgd(num_workers: int = 3, *, collective: str = "solo") -> Specification:
    """eager-SGD: a commit takes all gradients that have come, as soon as one worker is ahead of the commits.

    Nobody waits with "solo"; with "majority", whoever is ahead waits for the commit, which may come once somebody is.
    All begin with the newest version.

    Args:
      num_workers: W.
      collective: "solo" or "majority".
    """
    check_num_workers(num_workers)
    _validate.choice("collective", collective, ("solo", "majority"))
    program, zero = _Program(is_solo=collective == "solo"), zeros(num_workers)
    two_values = zero + 2
    actions = (
        begin_action("begin", program.begin, may_wait=not program.is_solo),
        Action("push", program.push_ahead, event=UNIT, matches=_is_push_ahead),
        Action("push, late", program.push_late, event=UNIT, matches=_is_late_push),
    )

    return Specification(
        f"eager_sgd({num_workers} workers, {collective})",
        num_workers,
        initial=Eager(np.int32(0), read=zero - 1, busy=zero, pending_units=zero, is_ahead=zero),
        # Values of canonical states: the version is 1, all else 0 or 1, gradients of a worker too.
        sizes=Eager(version=2, read=two_values, busy=two_values, pending_units=two_values, is_ahead=two_values),
        worker=Role.of_workers(Eager, num_workers, Eager._fields[1:], actions, program.worker_rule),
        claim="a commit takes all gradients that have come, when a worker has made one more than there are commits",
        server=Role.of_servers(
            Eager,
            ("version", "pending_units", "is_ahead"),
            (Action("commit", program.commit, event=COMMIT, matches=commits_all_earlier_messages),),
            program.server_rule,
        ),
        num_servers=1,
        invariant=program.invariant,
        step_property=program.step_property,
        canonicalise=_canonicalise,
    )


def _is_push_ahead(before: Eager, after: Eager, event: Event) -> jax.Array:
    """bool[]: whether the worker pushes the unit whose number is that of the commits."""
    return adds_one_unit(before, after, event) & (event.unit == before.version)


def _is_late_push(before: Eager, after: Eager, event: Event) -> jax.Array:
    """bool[]: whether the worker pushes a unit that comes behind."""
    return adds_one_unit(before, after, event) & (event.unit < before.version)


def _canonicalise(state: Eager) -> Eager:
    """The state as `counted_from_newest`, with the gradients of a worker as one."""
    return counted_from_newest(state)._replace(pending_units=jnp.minimum(state.pending_units, 1))


class _Program(NamedTuple):
    """Workers, and a server that commits all when somebody is ahead; `is_solo`: before anybody else pushes."""

    is_solo: bool

    def may_push(self, state: Eager, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker has begun, and no commit has to come first, as with "solo" if anybody is ahead."""
        return (state.busy[worker] == 1) & (~np.bool_(self.is_solo) | (state.is_ahead == 0).all())

    def begin(self, state: Eager, worker: jax.Array) -> tuple[Eager, jax.Array]:
        """The state in which the worker computes on the newest version; it may if idle, and not ahead."""
        after = state._replace(read=state.read.at[worker].set(state.version), busy=state.busy.at[worker].set(1))
        return after, (state.busy[worker] == 0) & (state.is_ahead[worker] == 0)

    def push_ahead(self, state: Eager, worker: jax.Array) -> tuple[Eager, jax.Array]:
        """The state in which the worker has pushed a gradient more than there are commits, and whether it may."""
        after, may_push = self.push_late(state, worker)
        return after._replace(is_ahead=state.is_ahead.at[worker].set(1)), may_push

    def push_late(self, state: Eager, worker: jax.Array) -> tuple[Eager, jax.Array]:
        """The state in which the worker has pushed a gradient, and whether it may."""
        after = state._replace(busy=state.busy.at[worker].set(0), pending_units=state.pending_units.at[worker].add(1))
        return after, self.may_push(state, worker)

    def worker_rule(self, before: Eager, after: Eager, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker begins with the newest version where it is not ahead, or pushes.

        `busy` and `is_ahead` (has made more gradients than there are commits) are 0 or 1.
        """
        num_new_units = after.pending_units[worker] - before.pending_units[worker]
        starts = (before.busy[worker] == 0) & (after.busy[worker] == 1)
        stops = (before.busy[worker] == 1) & (after.busy[worker] == 0)
        is_not_ahead = (before.is_ahead[worker] == 0) & (after.is_ahead[worker] == 0)
        begins = starts & is_not_ahead & (num_new_units == 0)
        same_read = after.read[worker] == before.read[worker]
        is_ahead_0_or_1 = (after.is_ahead[worker] >= 0) & (after.is_ahead[worker] <= 1)
        pushes = stops & (num_new_units == 1) & same_read & is_ahead_0_or_1 & self.may_push(before, worker)
        return (begins & (after.read[worker] == before.version)) | pushes

    def commit(self, state: Eager, server: jax.Array) -> tuple[Eager, jax.Array]:
        """The state after a commit of all gradients, and whether somebody has made more than there are commits."""
        return after_commit(state, is_ahead=jnp.zeros_like(state.is_ahead)), (state.is_ahead == 1).any()

    def server_rule(self, before: Eager, after: Eager, server: jax.Array) -> jax.Array:
        """bool[]: whether the server commits all, and somebody is ahead."""
        return is_commit(before, after) & (after.is_ahead == 0).all() & (before.is_ahead.sum() > 0)

    def invariant(self, state: Eager) -> jax.Array:
        """bool[]: whether who is ahead (has made more than there are commits) waits; with solo one at most is.

        It waits if it is not `busy`, and has a gradient in no commit yet. No version is read that is not there.
        """
        is_worker_ahead = state.is_ahead == 1
        waits = ~is_worker_ahead | ((state.busy == 0) & (state.pending_units > 0))
        return (
            waits.all() & (state.read <= state.version).all() & (~np.bool_(self.is_solo) | (is_worker_ahead.sum() <= 1))
        )

    def step_property(self, before: Eager, after: Eager, component: jax.Array) -> jax.Array:
        """bool[]: whether a commit takes all gradients, one of them ahead, and who begins reads the newest version.

        A step that makes no version is no commit; `busy` is 1 from begin to push.
        """
        is_commit = after.version > before.version
        takes_all = (before.pending_units > 0).any() & (before.is_ahead > 0).any() & (after.pending_units == 0).all()
        begins = after.busy > before.busy
        return (~is_commit | takes_all) & (~begins | (after.read == before.version)).all()
