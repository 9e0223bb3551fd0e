"""The words of a waiting rule: what it may look at, what it decides, and what a worker does in a turn.

Letters: T units sampled per worker, W workers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.turns import Work


class View(NamedTuple):
    """What a rule may look at.

    Attributes:
      now: float[] seconds.
      commits: int32[], the commits so far, which is the newest version.
      clock: int32[W], the messages of each worker that have arrived.
      num_uncommitted: int32[W], those that are not in a commit yet.
      idle: bool[W], who is between two turns.
      version: int32[W], the version that each worker has read last; -1 at first.
      memory: what the rule keeps in mind.
    """

    now: jax.Array
    commits: jax.Array
    clock: jax.Array
    num_uncommitted: jax.Array
    idle: jax.Array
    version: jax.Array
    memory: Any


class TurnPlan(NamedTuple):
    """What a worker does once it has the parameters; every array [W].

    Attributes:
      num_units: int32, the units of the turn.
      compute_start: float seconds, when the first one begins.
      stop: float, when the last one ends; inf if it never does.
      send_start: float, when sending begins, or receiving where parameters are exchanged.
      fresh: int32, the first unit that is computed on the parameters just received.
    """

    num_units: jax.Array
    compute_start: jax.Array
    stop: jax.Array
    send_start: jax.Array
    fresh: jax.Array


def turn_of(work: Work, first: jax.Array, ready: jax.Array, count: jax.Array | int) -> TurnPlan:
    """Turns of `count` units from unit `first int32[W]` on, which begin at `ready float[W]` and are then sent."""
    stop = ready + work.seconds(first, count)
    num_units = jnp.broadcast_to(jnp.asarray(count, first.dtype), first.shape)
    return TurnPlan(num_units=num_units, compute_start=ready, stop=stop, send_start=stop, fresh=first)


def units(count: int) -> Callable[[Work, jax.Array, jax.Array, Any], TurnPlan]:
    """The plan, see `Rule`, by which every turn has so many units."""
    return lambda work, first, ready, memory: turn_of(work, first, ready, count)


def _commit_on_each(view: View, worker: jax.Array) -> jax.Array:
    """True: each message brings a commit."""
    del view, worker
    return jnp.ones((), bool)


def _all_may_begin(view: View) -> jax.Array:
    """bool[W], true: every idle worker may begin a turn."""
    return jnp.ones_like(view.idle)


def _has_old_version(view: View) -> jax.Array:
    """bool[W]: whose version is not the newest one."""
    return view.version < view.commits


def _unchanged_memory(view: View, worker: jax.Array) -> Any:
    """The memory as it is: a message changes nothing in it."""
    del worker
    return view.memory


class Rule(NamedTuple):
    """A protocol's rule; all functions are pure.

    Attributes:
      commits: `(view, worker) -> bool[]`, whether the message of this worker, counted already, brings a commit; each
        does if it is not said.
      ready: `(view) -> bool[W]`, who may begin a turn; asked for idle workers only. Everybody if it is not said.
      takes: `(view, worker) -> bool[W]`, whose messages the commit takes; everybody's if None.
      pulls: `(view) -> bool[W]`, whose turn begins with receiving the parameters.
      plan: `(work, first, ready, memory) -> TurnPlan`, what a worker does that has the parameters at `ready float[W]`.
      memory: `(num_workers, dtype) -> memory`, what the rule keeps in mind at first.
      remember: `(view, worker) -> memory`, after a message; `view.commits` counts the commit that it brought.
      cancels: whether a commit cuts off all turns under way.
      exchanges: whether the parameters are received after computing and before sending, not before computing.
      everybody: whether each commit needs a message of everybody, so that there is none any more, and the run comes to
        a halt, once a worker that owes one never ends its unit.
    """

    commits: Callable[[View, jax.Array], jax.Array] = _commit_on_each
    ready: Callable[[View], jax.Array] = _all_may_begin
    takes: Callable[[View, jax.Array], jax.Array] | None = None
    pulls: Callable[[View], jax.Array] = _has_old_version
    plan: Callable[[Work, jax.Array, jax.Array, Any], TurnPlan] = units(1)
    memory: Callable[[int, Any], Any] = lambda num_workers, dtype: ()
    remember: Callable[[View, jax.Array], Any] = _unchanged_memory
    cancels: bool = False
    exchanges: bool = False
    everybody: bool = False
