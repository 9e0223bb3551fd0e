"""What a server decides by a rule: the same steps in virtual time and on the real clock.

A worker leaves or joins, or a message arrives and is counted; it may bring a commit, which takes messages; the rule
remembers; then idle workers may begin.

Letters: W workers.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.rules import Counts, Rule, View, counts_of, slowest_clock
from gcjax.protocols.simulation.worker_selection import with_entry


class Commit(NamedTuple):
    """Attributes: happens: bool[], whether there is a commit; is_committed: bool[W], whose messages it takes."""

    happens: jax.Array
    is_committed: jax.Array


def with_membership(view: View, worker: jax.Array, leaves: jax.Array, joins: jax.Array) -> View:
    """The view in which the worker has left, or joined: as slow as the slowest of the others, if it has not done more.

    That is by the clock, the number of its messages. If there are no others, it is as fast as the fastest that has
    left: none of these then has to wait for it. Who has left has no version any more (-1).

    Args:
      view: before.
      worker: int32[].
      leaves: bool[], whether it leaves.
      joins: bool[], whether it joins; nothing changes if it does neither.
    """
    clock_if_slowest = jnp.maximum(view.clock[worker], slowest_clock(view))
    clock_if_joined = jnp.where(view.alive.any(), clock_if_slowest, view.clock.max())

    def changed_for_worker(values: jax.Array, if_left: Any, if_joined: Any) -> jax.Array:
        """[W]: the values, another one for this worker if it has left or joined."""
        worker_value = jnp.where(leaves, if_left, jnp.where(joins, if_joined, values[worker]))
        return values.at[worker].set(worker_value.astype(values.dtype))

    view = view._replace(
        alive=changed_for_worker(view.alive, if_left=False, if_joined=True),
        idle=changed_for_worker(view.idle, if_left=False, if_joined=True),
        clock=changed_for_worker(view.clock, if_left=view.clock[worker], if_joined=clock_if_joined),
        version=changed_for_worker(view.version, if_left=-1, if_joined=view.version[worker]),
    )
    view = _with_counts(view)  # since another number of workers is alive
    if view.progress is None:  # the server stops no turns
        return view
    return view._replace(
        progress=changed_for_worker(view.progress, if_left=0, if_joined=0),
        stopped=changed_for_worker(view.stopped, if_left=False, if_joined=False),
    )


def accepts(rule: Rule, view: View, worker: jax.Array, arrives: jax.Array) -> jax.Array:
    """bool[]: whether a message of the worker arrives, if `arrives bool[]`, that the rule does not ignore."""
    return arrives & rule.accepts(view, worker)


def with_message(view: View, worker: jax.Array, arrives: jax.Array, is_accepted: jax.Array) -> View:
    """The view in which a message of the worker is counted (its clock), and it is idle (again), if `arrives bool[]`.

    One that is not accepted, `is_accepted bool[]`, waits for no commit.
    """
    return view._replace(
        clock=with_entry(view.clock, worker, view.clock[worker] + arrives.astype(jnp.int32)),
        num_uncommitted=with_entry(
            view.num_uncommitted, worker, view.num_uncommitted[worker] + is_accepted.astype(jnp.int32)
        ),
        idle=with_entry(view.idle, worker, view.idle[worker] | arrives),
    )


def counts_with_message(view: View, worker: jax.Array, is_accepted: jax.Array) -> Counts:
    """The counts after a message of the worker, which is not in the view yet, if `is_accepted bool[]`.

    `messages` are those in no commit; `silent` is how many who are alive have none of them.
    """
    counts = counts_of(view) if view.counts is None else view.counts
    was_silent = view.alive[worker] & (view.num_uncommitted[worker] == 0)
    no_longer_silent = is_accepted & was_silent
    return Counts(
        messages=counts.messages + is_accepted.astype(jnp.int32),
        silent=counts.silent - no_longer_silent.astype(jnp.int32),
    )


def commit_of(rule: Rule, view: View, worker: jax.Array, may_commit: jax.Array) -> Commit:
    """The commit that the worker's last event brings, a message or its leaving; none unless `may_commit bool[]`."""
    happens = may_commit & rule.commits(view, worker)
    is_committed = jnp.ones_like(view.idle) if rule.takes is None else rule.takes(view, worker)
    return Commit(happens, is_committed & happens)


def with_commit(rule: Rule, view: View, worker: jax.Array, arrives: jax.Array, commit: Commit) -> View:
    """The view after the commit, in which the rule has remembered the message, if `arrives bool[]`."""
    return without_messages(with_memory(rule, view, worker, arrives, commit.happens), commit.is_committed)


def with_memory(rule: Rule, view: View, worker: jax.Array, arrives: jax.Array, happens: jax.Array) -> View:
    """The view in which the commit is counted, if it `happens bool[]`, and the message remembered, if it arrives.

    So is a commit that no message brings, if the rule says so.
    """
    view = view._replace(num_commits=view.num_commits + happens.astype(jnp.int32))
    remembers, remembered = arrives | happens if rule.remembers_commits else arrives, rule.remember(view, worker)
    return view._replace(memory=jax.tree.map(lambda new, old: jnp.where(remembers, new, old), remembered, view.memory))


def without_messages(view: View, is_committed: jax.Array) -> View:
    """The view in which the messages of the workers of `is_committed bool[W]` wait for no commit any more."""
    return _with_counts(view._replace(num_uncommitted=jnp.where(is_committed, 0, view.num_uncommitted)))


def without_own_messages(view: View, worker: jax.Array, are_committed: jax.Array) -> View:
    """The view in which the messages of the worker wait for no commit any more, if they `are_committed bool[]`.

    They are the only ones that wait for one, and everybody is alive: then all are silent, that is without messages.
    """
    assert view.counts is not None
    num_own = jnp.where(are_committed, 0, view.num_uncommitted[worker])
    all_silent = Counts(jnp.zeros((), jnp.int32), jnp.full((), view.idle.size, jnp.int32))
    counts = jax.tree.map(lambda after, before: jnp.where(are_committed, after, before), all_silent, view.counts)
    return view._replace(num_uncommitted=with_entry(view.num_uncommitted, worker, num_own), counts=counts)


def _with_counts(view: View) -> View:
    """The view with its counts added up anew, if somebody keeps them."""
    return view if view.counts is None else view._replace(counts=counts_of(view))


def may_begin(rule: Rule, view: View) -> jax.Array:
    """bool[W]: who begins a turn now."""
    return view.idle & view.alive & rule.ready(view)


def pulls(rule: Rule, view: View, begins: jax.Array) -> jax.Array:
    """bool[W]: who of those that begin receives the parameters first; nobody where they are exchanged at the end."""
    return jnp.zeros_like(begins) if rule.pulls_before_push else begins & rule.pulls(view)
