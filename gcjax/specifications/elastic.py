"""Elastic averaging: workers on their own exchange parameters with the server every few steps (Zhang et al. 2015).

What a worker exchanges is an environment step to it, taken by a server of its own: it reads the newest version, and
then pushes the difference. Times are left open: any exchange may be next.

`pushes_of_others` counts the pushes of others since a worker has read; it is there to say what is promised: a push is
stale by at most these. Only the staleness less these matters, so that states are kept with none.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, is_own_entry, zeros
from gcjax.specifications.events import COMMIT, SEND, STEP, Event
from gcjax.specifications.rounds import adds_one_unit
from gcjax.wording import counted


class Exchanges(NamedTuple):
    """The state.

    Attributes:
      version: int[], the pushes so far.
      pending_units: int[W], the steps of each worker since its last push.
      read: int[W], the version that each has read last.
      pushes_of_others: int[W], the pushes of others since then.
      num_open_exchanges: int[W], 1 from a worker's read to its push.
    """

    version: Numbers
    pending_units: Numbers
    read: Numbers
    pushes_of_others: Numbers
    num_open_exchanges: Numbers


@comparable
def elastic_averaging(num_workers: int = 3, *, num_local_steps: int = 2) -> Specification:
    """EASGD: nobody waits, and a push is stale by at most the pushes of others during its exchange.

    After H steps a worker receives the server's parameters and pushes the difference (Zhang et al. 2015).

    Args:
      num_workers: W.
      num_local_steps: H.
    """
    check_num_workers(num_workers)
    steps = _validate.integer("num_local_steps", num_local_steps, minimum=1)
    zero, units = zeros(num_workers), counted(steps, "unit")
    one_value, two_values = zero + 1, zero + 2
    program = _Exchange(num_workers, steps)
    unit = Action("unit", program.unit, event=STEP, matches=adds_one_unit)
    return Specification(
        f"elastic_averaging({num_workers} workers" + (f", {steps} steps)" if steps > 1 else ")"),
        num_workers,
        initial=Exchanges(np.int32(0), zero, zero, zero, zero),
        sizes=Exchanges(  # values of canonical states: version 1, read 1, or 0 where a push is too stale
            version=2,
            pending_units=zero + steps + 1,
            read=two_values,
            pushes_of_others=one_value,
            num_open_exchanges=two_values,
        ),
        worker=Role.of_workers(Exchanges, num_workers, ("pending_units",), (unit,), program.unit_rule),
        claim=f"a push has {units} of each member in it, and is stale by at most the others' pushes since its read",
        server=Role.of_servers(Exchanges, Exchanges._fields, program.actions(), program.server_rule),
        num_servers=num_workers,
        step_property=program.push_property,
        canonicalise=_canonical_state,
    )


def _canonical_state(state: Exchanges) -> Exchanges:
    """The state with version 1 and no pushes of others, whose staleness less these is what it was."""
    read = 1 - (state.version - state.read - state.pushes_of_others)
    return state._replace(version=jnp.ones_like(state.version), read=read, pushes_of_others=0 * state.pushes_of_others)


def _own_state(state: Exchanges, worker: jax.Array) -> Exchanges:
    """The state of this worker alone: the entries of the arrays [W] that are its own."""
    return Exchanges(state.version, *(x[worker] for x in state[1:]))


class _Exchange(NamedTuple):
    """What workers and servers do; server W + w takes the steps of worker w's exchange."""

    num_workers: int
    num_local_steps: int

    def unit(self, state: Exchanges, worker: jax.Array) -> tuple[Exchanges, jax.Array]:
        """The state after a local step of the worker, and whether it may take one: at most H, none in an exchange."""
        enabled = (state.num_open_exchanges[worker] == 0) & (state.pending_units[worker] < self.num_local_steps)
        return state._replace(pending_units=state.pending_units.at[worker].add(1)), enabled

    def unit_rule(self, before: Exchanges, after: Exchanges, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker takes one step, at most H between two exchanges, none in an exchange.

        `pending_units int[W]` are the steps of each since its last push; in an exchange `num_open_exchanges` is 1.
        """
        pending_units = before.pending_units[worker]
        return (
            (after.pending_units[worker] == pending_units + 1)
            & (pending_units < self.num_local_steps)
            & (before.num_open_exchanges[worker] == 0)
        )

    def actions(self) -> tuple[Action, ...]:
        """The two steps of a worker's exchange, taken by its server: first "exchange", its read, and then "push"."""
        return (
            Action(
                name="push", move=self.push, event=COMMIT, matches=self._is_commit_of_event, actor=self._server_of_event
            ),
            Action(
                name="exchange", move=self.read, event=SEND, matches=self._is_read_of_event, actor=self._server_of_event
            ),
        )

    def _server_of_event(self, state: Exchanges, event: Event) -> jax.Array:
        """int[]: the server of the event's worker, as a component: servers are numbered behind the W workers."""
        return self.num_workers + event.worker

    def _is_commit_of_event(self, before: Exchanges, after: Exchanges, event: Event) -> jax.Array:
        """bool[]: whether the step makes the version that the event shows, of all `event.size` units of the worker."""
        return (after.version == event.commit + 1) & (before.pending_units[event.worker] == event.size)

    def _is_read_of_event(self, before: Exchanges, after: Exchanges, event: Event) -> jax.Array:
        """bool[]: whether the worker has read the version that the event shows, for a push of its own."""
        has_read = (after.num_open_exchanges[event.worker] == 1) & (after.read[event.worker] == event.version)
        is_alone_in_commit = event.group == event.worker  # the group is the lowest worker of the commit
        return has_read & is_alone_in_commit

    def push(self, state: Exchanges, server: jax.Array) -> tuple[Exchanges, jax.Array]:
        """The state after an exchange ends, by the push of server W + w for worker w; whether one is under way."""
        worker = server - self.num_workers  # negative if this is computed of a worker, which is not used
        version = state.version + 1
        pushes_of_others = state.pushes_of_others + (~is_own_entry(self.num_workers, worker)).astype(jnp.int32)
        after = state._replace(
            version=version,
            pushes_of_others=pushes_of_others,
            num_open_exchanges=state.num_open_exchanges.at[worker].set(0),
            pending_units=state.pending_units.at[worker].set(0),
        )
        did_all_steps = state.pending_units[worker] >= self.num_local_steps
        return after, did_all_steps & (state.num_open_exchanges[worker] == 1)

    def read(self, state: Exchanges, server: jax.Array) -> tuple[Exchanges, jax.Array]:
        """The state after the begin of an exchange, the read of server W + w for worker w, and whether it may begin.

        It may when the worker has done H steps since its last push. `num_open_exchanges` is 1 from read to push.
        """
        worker = server - self.num_workers
        after = state._replace(
            read=state.read.at[worker].set(state.version),
            pushes_of_others=state.pushes_of_others.at[worker].set(0),
            num_open_exchanges=state.num_open_exchanges.at[worker].set(1),
        )
        did_all_steps = state.pending_units[worker] >= self.num_local_steps
        return after, did_all_steps & (state.num_open_exchanges[worker] == 0)

    def server_rule(self, before: Exchanges, after: Exchanges, server: jax.Array) -> jax.Array:
        """bool[]: whether server W + w reads or pushes, in turn, for worker w.

        `num_open_exchanges` is 1 from read to push; `pushes_of_others int[W]` counts the versions that others have made
        since a worker's read.
        """
        worker = server - self.num_workers
        is_own_worker, pushes = is_own_entry(self.num_workers, worker), after.version == before.version + 1
        # Of other workers only `pushes_of_others` changes; the first array, the version, has no entries of workers.
        expected_after = before._replace(pushes_of_others=before.pushes_of_others + jnp.where(pushes, 1, 0))
        is_entry_as_expected = [x == y for x, y in zip(expected_after[1:], after[1:], strict=True)]
        others_as_expected = (reduce(jnp.logical_and, is_entry_as_expected) | is_own_worker).all()
        old, new = (_own_state(state, worker) for state in (before, after))
        is_complete = (
            (old.pending_units == self.num_local_steps)
            & (new.read == old.read)
            & (new.pushes_of_others == old.pushes_of_others)
        )
        may_push = pushes & (old.num_open_exchanges == 1) & is_complete & (new.pending_units == 0)
        has_newest = (
            (new.read == before.version) & (new.pushes_of_others == 0) & (new.pending_units == old.pending_units)
        )
        may_read = (after.version == before.version) & (old.num_open_exchanges == 0) & has_newest
        return others_as_expected & (new.num_open_exchanges == 1 - old.num_open_exchanges) & (may_push | may_read)

    def push_property(self, before: Exchanges, after: Exchanges, server: jax.Array) -> jax.Array:
        """bool[]: whether a push by server W + w has H units of worker w, and is stale by at most others' pushes.

        Those since its read; true for a step that is no push, which makes no version.
        """
        worker = server - self.num_workers
        staleness = before.version - before.read[worker]
        has_bounded_staleness = staleness <= before.pushes_of_others[worker]
        return (after.version == before.version) | (
            has_bounded_staleness & (before.pending_units[worker] == self.num_local_steps)
        )
