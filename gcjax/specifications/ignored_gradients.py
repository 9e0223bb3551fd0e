"""Rennala SGD (Tyurin, Richtárik 2023), Ringmaster ASGD (Maranjyan, Tyurin, Richtárik 2025): old gradients are ignored.

A gradient that is ignored, or cut off, leaves no trace but that its worker begins anew. Times are left open: anybody
may be next. Of the delays of Ringmaster only those up to R matter, so that its states are kept with version R.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Role, Specification, check_num_workers, zeros
from gcjax.specifications.events import COMMIT, UNIT
from gcjax.specifications.first_pushes import Arrivals
from gcjax.specifications.rounds import (
    adds_one_unit,
    after_commit,
    begin_action,
    commits_pending_units,
    is_commit,
    specification_of_rounds,
)


@comparable
def rennala(num_workers: int = 3, *, num_contributions: int = 2) -> Specification:
    """Rennala SGD: a commit takes B gradients, all on the version that it replaces.

    Args:
      num_workers: W.
      num_contributions: B.
    """
    num_contributions = _validate.integer("num_contributions", num_contributions, minimum=1)
    specification = specification_of_rounds(
        f"rennala({num_workers} workers, takes {num_contributions})",
        num_workers,
        max_pending_units=num_contributions,
        has_room=lambda state: state.pending_units.sum() < num_contributions,
        has_enough_to_commit=lambda state: state.pending_units.sum() == num_contributions,
        further_invariant=lambda state: state.pending_units.sum() <= num_contributions,
        claim=f"a commit takes {num_contributions} gradients, all on the version that it replaces",
        commit_matches=commits_pending_units,  # others are ignored
    )
    # No worker in particular is waited for, so it is the same whoever takes part.
    return specification._replace(members=lambda alive: specification)


@comparable
def ringmaster(num_workers: int = 3, *, delay_threshold: int = 2, cuts_off: bool = False) -> Specification:
    """Ringmaster ASGD: a commit takes one gradient, of a version that fewer than R commits have replaced.

    Args:
      num_workers: W.
      delay_threshold: R.
      cuts_off: whether workers are cut off whose gradient would be ignored; else nobody ever waits.
    """
    check_num_workers(num_workers)
    delay_threshold = _validate.integer("delay_threshold", delay_threshold, minimum=1)
    program, zero = _Program(delay_threshold), zeros(num_workers)
    begin = begin_action("begin", program.begin, "remaining_units", may_wait=cuts_off)
    push = Action("push", program.push, event=UNIT, matches=adds_one_unit)
    commit = Action("commit", program.commit, event=COMMIT, matches=commits_pending_units)
    specification = Specification(
        f"ringmaster({num_workers} workers, R = {delay_threshold}{', cuts off' * cuts_off})",
        num_workers,
        initial=Arrivals(version=np.int32(0), read=zero, remaining_units=zero, pending_units=zero),
        sizes=Arrivals(  # values of canonical states: version R, and delays of reads from 0 to R
            version=delay_threshold + 1,
            read=zero + delay_threshold + 1,
            remaining_units=zero + 2,
            pending_units=zero + 2,
        ),
        worker=Role.of_workers(Arrivals, num_workers, Arrivals._fields[1:], (begin, push), program.worker_rule),
        claim=f"a commit takes one gradient, of a version that fewer than {delay_threshold} commits have replaced",
        server=Role.of_servers(Arrivals, ("version", "pending_units"), (commit,), program.server_rule),
        num_servers=1,
        invariant=lambda state: (state.pending_units.sum() <= 1) & (state.read <= state.version).all(),
        step_property=program.step_property,
        canonicalise=program.canonicalise,
    )
    # Nobody is waited for, so it is the same whoever takes part.
    return specification._replace(members=lambda alive: specification)


class _Program(NamedTuple):
    """Workers, and a server that commits each push, whose delay is below `delay_threshold`."""

    delay_threshold: int

    def is_too_old(self, state: Arrivals) -> jax.Array:
        """bool[W]: whose version is R commits old, or more."""
        return state.version - state.read >= self.delay_threshold

    def begin(self, state: Arrivals, worker: jax.Array) -> tuple[Arrivals, jax.Array]:
        """The state in which the worker computes on the newest version; it may if idle, or if its delay is too long.

        `remaining_units` is 1 while it computes, `pending_units` until its push is in a commit. The delay is how many
        commits there were since the version that it has read.
        """
        after = state._replace(
            read=state.read.at[worker].set(state.version), remaining_units=state.remaining_units.at[worker].set(1)
        )
        is_idle = (state.remaining_units[worker] == 0) & (state.pending_units[worker] == 0)
        drops_gradient = (state.remaining_units[worker] == 1) & self.is_too_old(state)[worker]
        return after, is_idle | drops_gradient

    def push(self, state: Arrivals, worker: jax.Array) -> tuple[Arrivals, jax.Array]:
        """The state in which the worker's push waits for its commit (`pending_units`), and whether it may push.

        It must compute (`remaining_units` 1) on a version that is new enough, and no other push may wait.
        """
        after = state._replace(
            remaining_units=state.remaining_units.at[worker].set(0), pending_units=state.pending_units.at[worker].add(1)
        )
        is_new_enough = ~self.is_too_old(state)[worker]
        return after, (state.remaining_units[worker] == 1) & is_new_enough & (state.pending_units.sum() == 0)

    def worker_rule(self, before: Arrivals, after: Arrivals, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker pushes what is new enough, or begins with the newest version.

        `remaining_units` is 1 while it computes, `pending_units` are in no commit yet, one of all workers at most.
        Beginning again drops a gradient, which must be too old for that.
        """
        num_new_units = after.pending_units[worker] - before.pending_units[worker]
        delay = before.version - before.read[worker]
        stops = (before.remaining_units[worker] == 1) & (after.remaining_units[worker] == 0)
        same_read = after.read[worker] == before.read[worker]
        pushes = (
            stops
            & (num_new_units == 1)
            & same_read
            & (delay < self.delay_threshold)
            & (before.pending_units.sum() == 0)
        )
        reads_newest = (
            (after.remaining_units[worker] == 1) & (after.read[worker] == before.version) & (num_new_units == 0)
        )
        drops_no_new_gradient = (before.remaining_units[worker] == 0) | (delay >= self.delay_threshold)
        return pushes | (reads_newest & drops_no_new_gradient)

    def commit(self, state: Arrivals, server: jax.Array) -> tuple[Arrivals, jax.Array]:
        """The state after a commit of the push, and whether there is one."""
        return after_commit(state), state.pending_units.sum() == 1

    def server_rule(self, before: Arrivals, after: Arrivals, server: jax.Array) -> jax.Array:
        """bool[]: whether the server commits one push."""
        return is_commit(before, after) & (before.pending_units.sum() == 1)

    def step_property(self, before: Arrivals, after: Arrivals, component: jax.Array) -> jax.Array:
        """bool[]: whether a commit takes delays (in commits) below R only, and nobody drops such a gradient.

        Who computes (`remaining_units` 1) before and after, on another version, has dropped one.
        """
        has_push, delay = before.pending_units > 0, before.version - before.read
        takes_new = ~has_push | (delay < self.delay_threshold)
        is_commit = after.version > before.version
        begins_anew = (before.remaining_units == 1) & (after.remaining_units == 1) & (after.read != before.read)
        drops_old = ~begins_anew | (delay >= self.delay_threshold)
        return (~is_commit | takes_new.all()) & drops_old.all()

    def canonicalise(self, state: Arrivals) -> Arrivals:
        """The state with version R, and each worker's read with its delay, or R if that is longer."""
        delay = jnp.minimum(state.version - state.read, self.delay_threshold)
        newest = jnp.full_like(state.version, self.delay_threshold)
        return state._replace(version=newest, read=newest - delay)
