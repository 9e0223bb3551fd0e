"""Who waits for whom on the real clock: a protocol's rule, asked event by event.

Letters: W workers.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax.protocols.simulation import decisions
from gcjax.protocols.simulation.rules import Rule, View

MESSAGE, LEAVE, JOIN, LOOK = range(4)
"""What happens: a push of a worker arrives, the worker leaves, it joins, or nobody does anything."""


class Decision(NamedTuple):
    """What follows from an event; NumPy arrays.

    Attributes:
      commits: bool[], whether there is a commit.
      taken: bool[W], whose messages it takes.
      cut: bool[W], whose turns under way it cuts off.
      begins: bool[W], who begins a turn.
      pulls: bool[W], who of these gets the parameters first.
      version: int32[W], the version that each has read last, or reads now.
      num_units: int32[W], the units of a turn that begins.
      alive: bool[W], who takes part now.
      idle: bool[W], who is between two turns now.
    """

    commits: np.ndarray
    taken: np.ndarray
    cut: np.ndarray
    begins: np.ndarray
    pulls: np.ndarray
    version: np.ndarray
    num_units: np.ndarray
    alive: np.ndarray
    idle: np.ndarray


class Waiting:
    """What the server knows of its workers, and what the rule decides."""

    def __init__(self, rule: Rule, num_workers: int) -> None:
        """Nobody has joined yet."""
        self.view = first_view(rule, num_workers)
        self.alive = self.idle = np.zeros(num_workers, bool)
        self._decide = jax.jit(partial(_decide, rule))

    def decide(self, kind: int, worker: int, now: float) -> Decision:
        """What follows from an event of a worker; `kind` is `MESSAGE`, `LEAVE`, `JOIN` or `LOOK`, `now` seconds."""
        self.view, rows = self._decide(self.view, np.int32(kind), np.int32(worker), self.view.now.dtype.type(now))
        decision = _unpacked(np.asarray(rows))
        self.alive, self.idle = decision.alive, decision.idle
        return decision

    def warm_up(self) -> None:
        """Compiles what is asked at each event."""
        jax.block_until_ready(self._decide(self.view, np.int32(LOOK), np.int32(0), self.view.now.dtype.type(0)))

    def make_idle(self, worker: int) -> None:
        """Ends the turn of a worker from which nothing will arrive."""
        self.view = self.view._replace(idle=self.view.idle.at[worker].set(True))

    def remember(self, memory: Any) -> None:
        """Gives the rule another memory."""
        self.view = self.view._replace(memory=memory)


def first_view(rule: Rule, num_workers: int) -> View:
    """The view before anybody has joined."""
    dtype, zeros = jnp.result_type(float), jnp.zeros(num_workers, jnp.int32)
    return View(
        now=jnp.zeros((), dtype),
        commits=jnp.zeros((), jnp.int32),
        clock=zeros,
        num_uncommitted=zeros,
        idle=zeros > 0,
        alive=zeros > 0,
        version=zeros - 1,
        memory=rule.memory(num_workers, dtype),
    )


def _decide(rule: Rule, view: View, kind: jax.Array, worker: jax.Array, now: jax.Array) -> tuple[View, jax.Array]:
    """The view after an event of the worker, and the fields of the `Decision` as the rows of int32[fields, W]."""
    view = _with_membership(view._replace(now=now), kind, worker)
    arrives = kind == MESSAGE
    view = decisions.with_message(view, worker, arrives)
    asked = arrives | ((kind != JOIN) & (view.num_uncommitted > 0).any())
    commit = decisions.commit_of(rule, view, worker, asked)
    view = decisions.with_commit(rule, view, worker, arrives, commit)
    cut = jnp.zeros_like(view.idle)
    if rule.cuts is not None:
        cut = commit.happens & rule.cuts(view, worker) & view.alive & ~view.idle
    view = view._replace(idle=view.idle | cut)
    begins = decisions.may_begin(rule, view)
    pulls = decisions.pulls(rule, view, begins)
    num_units = jnp.broadcast_to(jnp.asarray(rule.units_of(view), jnp.int32), begins.shape)
    view = view._replace(idle=view.idle & ~begins, version=jnp.where(pulls, view.commits, view.version))
    decision = commit.happens, commit.taken, cut, begins, pulls, view.version, num_units, view.alive, view.idle
    # One array, since each that is read by the host costs a transfer of its own.
    return view, jnp.stack([jnp.broadcast_to(x, begins.shape).astype(jnp.int32) for x in decision])


def _unpacked(rows: np.ndarray) -> Decision:
    """The decision from its rows, int32[fields, W]."""
    fields = Decision(*rows)
    is_true = Decision(*(rows != 0))
    return is_true._replace(commits=is_true.commits[0], version=fields.version, num_units=fields.num_units)


def _with_membership(view: View, kind: jax.Array, worker: jax.Array) -> View:
    """The view in which the worker has left, or joined: as slow as the slowest of the others, with no version."""
    leaves, joins = kind == LEAVE, kind == JOIN
    slowest = jnp.min(jnp.where(view.alive, view.clock, jnp.iinfo(jnp.int32).max))
    clock = jnp.where(view.alive.any(), jnp.maximum(view.clock[worker], slowest), view.clock[worker])

    def of_worker(values: jax.Array, if_left: Any, if_joined: Any) -> jax.Array:
        """[W]: the values, another one for this worker if it has left or joined."""
        value = jnp.where(leaves, if_left, jnp.where(joins, if_joined, values[worker]))
        return values.at[worker].set(value.astype(values.dtype))

    return view._replace(
        alive=of_worker(view.alive, False, True),
        idle=of_worker(view.idle, False, True),
        clock=of_worker(view.clock, view.clock[worker], clock),
        version=of_worker(view.version, view.version[worker], -1),
    )
