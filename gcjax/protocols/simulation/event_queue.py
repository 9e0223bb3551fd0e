"""The event queue: messages that arrive are dealt with one after the other, and then workers begin.

All messages that arrive at one moment are dealt with before anybody begins at that moment, by the lowest worker first.
A turn begins by receiving the parameters if there is a newer version than the worker's, or if the rule says so.

Letters: T units sampled per worker, W workers, J turns of a worker, E commits.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from gcjax.protocols.simulation.rules import Rule, View
from gcjax.protocols.simulation.turns import FLOATS, INTEGERS, Turns, Work
from gcjax.stragglers.network import Network

IDLE, RECEIVING, COMPUTING, ANSWERING, SENDING, ARRIVING = range(6)

Fields = TypeVar("Fields", bound=Any)


class State(NamedTuple):
    """The simulation at a moment; arrays [W] where nothing else is said."""

    view: View
    phase: jax.Array
    until: jax.Array  # when the phase ends; inf for a transfer on the shared link
    left: jax.Array  # of such a transfer, in full gradients
    num_turns: jax.Array  # that have ended so far
    current: Turns  # the turn under way, or else the last one
    integers: jax.Array  # [J, W, fields], turns that have ended
    floats: jax.Array  # [J, W, fields]
    time: jax.Array  # [E]
    horizon: jax.Array
    going: jax.Array


def replace_where(fields: Fields, mask: jax.Array, **values: Any) -> Fields:
    """A NamedTuple of arrays with these values where the mask says so."""
    return fields._replace(**{name: jnp.where(mask, value, getattr(fields, name)) for name, value in values.items()})


def initial_state(queue: "Queue", num_turns: int, num_commits: int) -> State:
    """The state in which nobody has begun; J and E are given."""
    work, dtype = queue.work, queue.work.durations.dtype
    count = work.num_workers
    zeros, never = jnp.zeros(count, jnp.int32), jnp.full(count, jnp.inf, dtype)
    memory = queue.rule.memory(count, dtype)
    zero = jnp.zeros((), jnp.int32)
    empty = {"first": work.num_units, "commit": -1, "version": -1}
    row = jnp.asarray([empty.get(name, 0) for name in INTEGERS], jnp.int32)
    return State(
        view=View(
            now=jnp.zeros((), dtype),
            commits=zero,
            clock=zeros,
            since=zeros,
            idle=zeros == 0,
            version=zeros - 1,
            memory=memory,
        ),
        phase=zeros,
        until=never,
        left=jnp.zeros(count, dtype),
        num_turns=zeros,
        current=Turns(
            **{**dict.fromkeys(INTEGERS, zeros), "version": zeros - 1, "commit": zeros - 1},
            **dict.fromkeys(FLOATS, never),
        ),
        integers=jnp.broadcast_to(row, (num_turns, count, len(INTEGERS))),
        floats=jnp.full((num_turns, count, len(FLOATS)), jnp.inf, dtype),
        time=jnp.full(num_commits, jnp.inf, dtype),
        horizon=jnp.full((), jnp.inf, dtype),
        going=jnp.ones((), bool),
    )


def with_ended_turns(state: State, which: jax.Array, worker: jax.Array) -> State:
    """With the current turns of some workers among those that have ended.

    Args:
      state: the simulation.
      which: bool, like `worker`.
      worker: int32[...].
    """
    number = state.integers.shape[0]
    place = jnp.where(which, state.num_turns[worker], number), worker  # out of bounds: dropped
    integers = jnp.stack([getattr(state.current, name)[worker] for name in INTEGERS], axis=-1)
    floats = jnp.stack([getattr(state.current, name)[worker] for name in FLOATS], axis=-1)
    return state._replace(
        integers=state.integers.at[place].set(integers, mode="drop"),
        floats=state.floats.at[place].set(floats, mode="drop"),
        num_turns=state.num_turns.at[worker].add(which.astype(jnp.int32)),
    )


class Queue(NamedTuple):
    """The steps of the event queue, where every transfer has a link of its own: its length is known when it begins.

    Workers begin, if they may; then the next event is dealt with.
    """

    rule: Rule
    work: Work
    network: Network

    def step(self, state: State) -> State:
        """One event."""
        state = self._start(state)
        coming = self.coming(state)
        event, worker = coming.min(), jnp.argmin(coming).astype(jnp.int32)
        going = state.going & jnp.isfinite(event) & (event <= state.horizon)
        if self.rule.everybody:
            lost = jnp.isinf(coming) & (state.current.compute_start < event) & ~state.view.idle
            going &= (event == state.view.now) | ~(lost & (state.view.since == 0)).any()
        now = jnp.where(going, event, state.view.now)
        state, arrives = self.passed(state._replace(going=going), now, worker)
        return self._arrive(state, worker, arrives)

    def coming(self, state: State) -> jax.Array:
        """float[W]: when the phase of each worker ends."""
        return state.until

    def passed(self, state: State, now: jax.Array, worker: jax.Array) -> tuple[State, jax.Array]:
        """The state at the next event, which this worker has; and whether its message has arrived."""
        del worker
        return state._replace(view=state.view._replace(now=now)), state.going

    def ask(self, state: State, may: jax.Array, pulls: jax.Array) -> State:
        """These workers begin a turn, by receiving the parameters or by computing."""
        now = state.view.now
        return self.compute(state, may, jnp.where(pulls, now + self.alone(self.network.download), now), pulls)

    def sending(self, stop: jax.Array, send_start: jax.Array) -> tuple[int, jax.Array, jax.Array]:
        """The phase of those who compute until `stop` and then send; when it ends, and when the message arrives."""
        del stop
        arrive = send_start + self.alone(self.network.upload)
        if self.rule.exchanges:
            arrive += self.alone(self.network.download)
        return ARRIVING, arrive, arrive

    def alone(self, link: Any) -> jax.Array:
        """float[W] or []: seconds of a message on a link of its own."""
        dtype = self.work.durations.dtype
        return jnp.asarray(self.network.latency, dtype) + jnp.asarray(link, dtype)

    def _start(self, state: State) -> State:
        """Idle workers begin, once all that arrives at this moment has been dealt with."""
        view, current = state.view, state.current
        quiet = self.coming(state).min() > view.now
        may = view.idle & quiet & state.going & self.rule.ready(view)
        first = current.first + current.begun
        out = may & (first >= self.work.num_units)
        horizon = jnp.where(out.any(), jnp.minimum(state.horizon, view.now), state.horizon)
        view, may = view._replace(idle=view.idle & ~out), may & ~out
        pulls = may & self.rule.pulls(view) if not self.rule.exchanges else jnp.zeros_like(may)
        current = replace_where(
            current, may, first=first, begun=0, work=0, commit=-1,
            begin=view.now, compute_start=jnp.inf, stop=jnp.inf, send_start=jnp.inf, arrive=jnp.inf,
        )  # fmt: skip
        version = jnp.where(pulls, view.commits, view.version)
        view = view._replace(idle=view.idle & ~may, version=version)
        state = state._replace(horizon=horizon, current=current._replace(version=version), view=view)
        return self.ask(state, may, pulls)

    def compute(self, state: State, may: jax.Array, ready: jax.Array, pulled: jax.Array) -> State:
        """Workers that have their parameters at `ready float[W]` compute."""
        old = state.current
        plan = self.rule.plan(self.work, old.first, ready, state.view.memory)
        short = may & (old.first + plan.num_units > self.work.num_units)
        horizon = jnp.where(short.any(), jnp.minimum(state.horizon, state.view.now), state.horizon)
        does = may & ~short
        send_start = jnp.where(jnp.isfinite(plan.stop), plan.send_start, jnp.inf)
        phase, until, arrive = self.sending(plan.stop, send_start)
        current = replace_where(
            old, does, begun=plan.num_units, work=plan.num_units, fresh=jnp.where(pulled, plan.fresh, old.first),
            begin=jnp.minimum(old.begin, plan.compute_start), compute_start=plan.compute_start, stop=plan.stop,
            send_start=send_start, arrive=arrive,
        )  # fmt: skip
        state = replace_where(state, short, phase=IDLE, until=jnp.inf)
        return replace_where(state, does, phase=phase, until=until)._replace(current=current, horizon=horizon)

    def _arrive(self, state: State, worker: jax.Array, arrives: jax.Array) -> State:
        """A message has arrived: the rule says what it leads to."""
        view, one = state.view, arrives.astype(jnp.int32)
        position = view.since.sum(dtype=jnp.int32)
        view = view._replace(
            clock=view.clock.at[worker].add(one),
            since=view.since.at[worker].add(one),
            idle=view.idle.at[worker].set(view.idle[worker] | arrives),
        )
        commits = arrives & self.rule.commits(view, worker)
        current = state.current
        if self.rule.takes is None:
            current = current._replace(
                commit=current.commit.at[worker].set(jnp.where(arrives, view.commits, current.commit[worker])),
                position=current.position.at[worker].set(position),
            )
        state = with_ended_turns(state._replace(current=current), arrives, worker)
        state = state._replace(
            phase=state.phase.at[worker].set(jnp.where(arrives, IDLE, state.phase[worker])),
            until=state.until.at[worker].set(jnp.where(arrives, jnp.inf, state.until[worker])),
            time=state.time.at[jnp.where(commits, view.commits, state.time.size)].set(view.now, mode="drop"),
        )
        taken = jnp.ones_like(view.idle) if self.rule.takes is None else self.rule.takes(view, worker)
        taken = taken & commits
        if self.rule.takes is not None:
            state = self._take(state, taken, view.commits)
        after = view._replace(commits=view.commits + commits.astype(jnp.int32))
        memory = self.rule.remember(after, worker)
        memory = jax.tree.map(lambda new, old: jnp.where(arrives, new, old), memory, view.memory)
        view = after._replace(memory=memory, since=jnp.where(taken, 0, view.since))
        state = state._replace(view=view)
        return self._cut_off(state, commits) if self.rule.cancels else state

    def _take(self, state: State, taken: jax.Array, commit: jax.Array) -> State:
        """Marks the last message of some workers as part of a commit, one after the other."""
        everybody = jnp.arange(taken.size)
        position = jnp.cumsum(taken, dtype=jnp.int32) - 1
        place = jnp.where(taken, state.num_turns - 1, state.integers.shape[0]), everybody
        integers = state.integers.at[(*place, INTEGERS.index("commit"))].set(commit, mode="drop")
        integers = integers.at[(*place, INTEGERS.index("position"))].set(position, mode="drop")
        return state._replace(integers=integers)

    def _cut_off(self, state: State, commits: jax.Array) -> State:
        """Ends all turns under way, if there is a commit; their units are used up."""
        cut, now, old = commits & (state.phase != IDLE), state.view.now, state.current
        current = replace_where(
            old, cut, begun=1, work=0, compute_start=jnp.where(old.compute_start > now, jnp.inf, old.compute_start),
            stop=jnp.minimum(old.stop, now), send_start=jnp.inf, arrive=jnp.inf,
        )  # fmt: skip
        state = with_ended_turns(state._replace(current=current), cut, jnp.arange(cut.size))
        state = replace_where(state, cut, phase=IDLE, until=jnp.inf)
        return state._replace(view=state.view._replace(idle=state.view.idle | cut))
