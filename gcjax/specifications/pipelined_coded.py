"""Pipelined gradient coding (Su, Li 2026): messages of the version that a commit replaces, enough of them.

Times are left open: any worker that is not ahead may send next, and who is late goes on round by round. How far behind
it is is counted up to one round, as it may stay there for as long as it likes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.equality import comparable
from gcjax.specifications.base import Action, Numbers, Role, Specification, check_num_workers, zeros
from gcjax.specifications.decodable_rounds import Decodable
from gcjax.specifications.events import COMMIT, MESSAGE, Event
from gcjax.specifications.rounds import enough_at_commits


class Pipeline(NamedTuple):
    """The state.

    Attributes:
      version: int[], the commits so far.
      clock: int[W], the messages that each worker has sent.
      num_new: int[W], the gradients in each worker's next message that no commit has had, from 1 to K.
    """

    version: Numbers
    clock: Numbers
    num_new: Numbers


@comparable
def pipelined_coded(
    num_workers: int = 3, *, load: int = 2, wait_for: int | None = 2, decodable: Decodable | None = None
) -> Specification:
    """Pipelined gradient coding: a commit takes enough messages of the version that it replaces.

    A worker sends a message a round, one after the other, and none before the version of the round is there. A message
    has the gradients of the last K rounds, so none of them is more than K - 1 commits old.

    Args:
      num_workers: W.
      load: K, the chunks of a worker.
      wait_for: a commit takes so many messages at least; None if `decodable` says what is enough.
      decodable: whose messages decode; it is asked with the whole load of those who have sent.
    """
    check_num_workers(num_workers)
    load = _validate.integer("load", load, minimum=1)
    if (wait_for is None) == (decodable is None):
        raise ValueError(
            f"pipelined_coded needs wait_for or decodable, and not both; got wait_for={wait_for}, "
            f"decodable={decodable}."
        )
    if wait_for is not None:
        wait_for = _validate.integer("wait_for", wait_for, minimum=1, maximum=num_workers)
    program = _Program(load, wait_for, decodable)
    send = Action("message", program.send, event=MESSAGE, matches=_message_agrees_with_event)
    commit = Action("commit", program.commit, event=COMMIT, matches=_commit_agrees_with_event)
    return Specification(
        f"pipelined_coded({num_workers} workers, load {load})",
        num_workers,
        initial=Pipeline(version=np.int32(0), clock=zeros(num_workers), num_new=zeros(num_workers) + load),
        # Values of canonical states: version 1, clocks 0 (late) to 2 (in time), K new gradients at most.
        sizes=Pipeline(version=2, clock=zeros(num_workers) + 3, num_new=zeros(num_workers) + load + 1),
        worker=Role.of_workers(Pipeline, num_workers, ("clock",), (send,), program.worker_rule),
        claim=(
            "a commit takes enough messages of the version that it replaces; no gradient in them is more than "
            f"{load - 1} commits old"
        ),
        server=Role.of_servers(Pipeline, ("version", "num_new"), (commit,), program.server_rule),
        num_servers=1,
        invariant=program.invariant,
        step_property=enough_at_commits(program.has_enough),
        canonicalise=_counted_from_version_1,
    )


def _is_in_time(state: Pipeline) -> jax.Array:
    """bool[W]: whose message of the newest version has arrived."""
    return state.clock == state.version + 1


def _message_agrees_with_event(before: Pipeline, after: Pipeline, event: Event) -> jax.Array:
    """bool[]: whether it is the worker's next message, and in the commit of its version exactly if it is in time.

    A worker's message n is of round n, and of the version with this number. One in time brings all units that are new
    in it, the last ones up to its own.
    """
    round_number = before.clock[event.worker]
    is_in_time = round_number == before.version
    is_in_own_commit = event.commit == event.version
    brings_new_units = ~is_in_time | (event.size == before.num_new[event.worker])
    return (event.version == round_number) & (is_in_own_commit == is_in_time) & brings_new_units


def _commit_agrees_with_event(before: Pipeline, after: Pipeline, event: Event) -> jax.Array:
    """bool[]: whether a commit takes what is new in the messages in time, as many units as the event shows."""
    num_units = jnp.where(_is_in_time(before), before.num_new, 0).sum()
    return (after.version == event.commit + 1) & (num_units == event.size)


def _counted_from_version_1(state: Pipeline) -> Pipeline:
    """The state with version 1, and with workers that are behind by one round at most."""
    ahead = jnp.clip(state.clock - state.version, -1, 1)
    return state._replace(version=jnp.ones_like(state.version), clock=1 + ahead)


class _Program(NamedTuple):
    """What workers and the server do; the arguments of `pipelined_coded`."""

    load: int
    wait_for: int | None
    decodable: Decodable | None

    def has_enough(self, state: Pipeline) -> jax.Array:
        """bool[]: whether the messages of the newest version are enough: `wait_for`, or what decodes if None."""
        if self.wait_for is not None:
            return _is_in_time(state).sum() >= self.wait_for
        assert self.decodable is not None
        return self.decodable.is_decodable(jnp.where(_is_in_time(state), self.load, 0))

    def send(self, state: Pipeline, worker: jax.Array) -> tuple[Pipeline, jax.Array]:
        """The state with a message more of the worker (`clock`), and whether the version for it is there."""
        return state._replace(clock=state.clock.at[worker].add(1)), state.clock[worker] <= state.version

    def worker_rule(self, before: Pipeline, after: Pipeline, worker: jax.Array) -> jax.Array:
        """bool[]: whether the worker sends one message, of a version that is there."""
        return (after.clock[worker] == before.clock[worker] + 1) & (after.clock[worker] <= before.version + 1)

    def num_new_after(self, state: Pipeline) -> jax.Array:
        """int[W]: new gradients in each next message: 1 for who was in the commit; else one more, at most K."""
        return jnp.where(_is_in_time(state), 1, jnp.minimum(state.num_new + 1, self.load))

    def commit(self, state: Pipeline, server: jax.Array) -> tuple[Pipeline, jax.Array]:
        """The state after a commit of the messages that are in time, and whether they are enough."""
        after = state._replace(version=state.version + 1, num_new=self.num_new_after(state))
        return after, self.has_enough(state)

    def server_rule(self, before: Pipeline, after: Pipeline, server: jax.Array) -> jax.Array:
        """bool[]: whether the server commits when there is enough, and counts what is new in each next message."""
        has_counted = (after.num_new == self.num_new_after(before)).all()
        return (after.version == before.version + 1) & has_counted & self.has_enough(before)

    def invariant(self, state: Pipeline) -> jax.Array:
        """bool[]: whether nobody is ahead, and messages have from 1 to K new gradients."""
        is_new = (state.num_new >= 1) & (state.num_new <= self.load)
        return (state.clock <= state.version + 1).all() & is_new.all()
