"""Protocols as rules of an event queue: what a message that arrives leads to, and who may go on.

All messages that arrive at one moment are dealt with before anybody begins at that moment, by the lowest worker first.
A turn begins by receiving the parameters if there is a newer version than the worker's, or if the rule says so.

Letters: T units sampled per worker, W workers, J turns of a worker, E commits.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from gcjax import _checks
from gcjax._together import most
from gcjax.protocols.base import Schedule
from gcjax.protocols.rules import Rule, View
from gcjax.protocols.turns import FLOATS, INTEGERS, Simulation, Turns, Work, commits_by_position
from gcjax.stragglers.network import Network
from gcjax.stragglers.transfers import shared_seconds

IDLE, RECEIVING, COMPUTING, ANSWERING, SENDING, ARRIVING = range(6)


class _State(NamedTuple):
    """The simulation at a moment; arrays [W] where nothing else is said."""

    view: View
    phase: jax.Array
    until: jax.Array  # when the phase ends; inf for a transfer on the shared link
    left: jax.Array  # of such a transfer, in full gradients
    turn: jax.Array  # the turns ended so far
    current: Turns  # the turn under way, or else the last one
    integers: jax.Array  # [J, W, fields], turns that have ended
    floats: jax.Array  # [J, W, fields]
    time: jax.Array  # [E]
    horizon: jax.Array
    going: jax.Array


def simulate(
    rule: Rule, work: Work, network: Network, *, num_turns: int | None = None, num_commits: int | None = None
) -> Simulation:
    """Runs the event queue of a rule.

    Args:
      rule: the protocol.
      work: the sampled units.
      network: the time of messages.
      num_turns: J, at least the turns that a worker can make of its units; T if None.
      num_commits: E, at least the commits that there can be; T * W if None.
    """
    queue = _Queue(rule, work, network)
    state = _begun(queue, num_turns or work.num_units, num_commits or work.num_units * work.num_workers)
    state = jax.lax.while_loop(lambda s: most(s.going.astype(jnp.int32)) > 0, queue.step, state)
    state = _written(state, state.phase != IDLE, jnp.arange(work.num_workers))
    turns = Turns(*jnp.moveaxis(state.integers, -1, 0), *jnp.moveaxis(state.floats, -1, 0))
    return Simulation(turns, state.time, state.horizon)


def event_schedule(
    rule: Rule,
    durations: jax.Array,
    network: Network,
    *,
    weight: float | jax.Array,
    num_contributions: int = 1,
    num_commits: int | None = None,
) -> Schedule:
    """The schedule of a rule, with one contribution for each message that a commit takes.

    Args:
      rule: the protocol.
      durations: float[T, W] seconds.
      network: the time of messages.
      weight: of a contribution.
      num_contributions: C, the most messages that a commit can take.
      num_commits: E, at least the commits that there can be; T * W if None, one for each unit. Where every commit takes
        K messages, T * W // K are enough, and the schedule is that much smaller.

    Raises:
      ValueError: if a commit takes more than C messages, or there are more than E commits (not under `jit`).
    """
    work = Work.of(durations)
    most = work.num_units * work.num_workers if num_commits is None else num_commits
    found = simulate(rule, work, network, num_commits=most + 1)  # one more, to see whether there was room
    _check_room(found, num_contributions)
    return commits_by_position(found._replace(time=found.time[:-1]), work, weight, num_contributions)


def _check_room(found: Simulation, num_contributions: int) -> None:
    if _checks.is_traced(found.time):
        return
    messages = int(jnp.max(jnp.where(found.turns.commit >= 0, found.turns.position, -1))) + 1
    if messages > num_contributions:
        raise ValueError(
            f"num_contributions must be the most messages that a commit takes; got {num_contributions}, and there are "
            f"{messages} for one."
        )
    if bool(jnp.isfinite(found.time[-1])):
        raise ValueError(f"num_commits must be at least the commits that there are; got {found.time.size - 1}.")


def _begun(queue: "_Queue", num_turns: int, num_commits: int) -> _State:
    work, dtype = queue.work, queue.work.durations.dtype
    count = work.num_workers
    none, never = jnp.zeros(count, jnp.int32), jnp.full(count, jnp.inf, dtype)
    memory = queue.rule.memory(count, dtype)
    zero = jnp.zeros((), jnp.int32)
    empty = {"first": work.num_units, "commit": -1, "version": -1}
    row = jnp.asarray([empty.get(name, 0) for name in INTEGERS], jnp.int32)
    return _State(
        view=View(jnp.zeros((), dtype), zero, none, none, none == 0, none - 1, memory),
        phase=none,
        until=never,
        left=jnp.zeros(count, dtype),
        turn=none,
        current=Turns(none, none, none, none, none - 1, none - 1, none, never, never, never, never, never),
        integers=jnp.broadcast_to(row, (num_turns, count, len(INTEGERS))),
        floats=jnp.full((num_turns, count, len(FLOATS)), jnp.inf, dtype),
        time=jnp.full(num_commits, jnp.inf, dtype),
        horizon=jnp.full((), jnp.inf, dtype),
        going=jnp.ones((), bool),
    )


def _written(state: _State, which: jax.Array, worker: jax.Array) -> _State:
    """With the current turns of some workers among those that have ended.

    Args:
      state: the simulation.
      which: bool, like `worker`.
      worker: int32[...].
    """
    number = state.integers.shape[0]
    place = jnp.where(which, state.turn[worker], number), worker  # out of bounds: dropped
    integers = jnp.stack([getattr(state.current, name)[worker] for name in INTEGERS], axis=-1)
    floats = jnp.stack([getattr(state.current, name)[worker] for name in FLOATS], axis=-1)
    return state._replace(
        integers=state.integers.at[place].set(integers, mode="drop"),
        floats=state.floats.at[place].set(floats, mode="drop"),
        turn=state.turn.at[worker].add(which.astype(jnp.int32)),
    )


class _Queue(NamedTuple):
    """The steps of the event queue: those who may begin, do; then the next event is dealt with."""

    rule: Rule
    work: Work
    network: Network

    @property
    def _shared(self) -> bool:
        return self.network.server is not None

    def step(self, state: _State) -> _State:
        state = self._start(state)
        coming = self._coming(state)
        event, worker = coming.min(), jnp.argmin(coming).astype(jnp.int32)
        going = state.going & jnp.isfinite(event) & (event <= state.horizon)
        if self.rule.everybody:
            lost = jnp.isinf(coming) & (state.current.compute_start < event) & ~state.view.idle
            going &= (event == state.view.now) | ~(lost & (state.view.since == 0)).any()
        now = jnp.where(going, event, state.view.now)
        if self._shared:
            state = self._transferred(state, now, worker, going)
        state = state._replace(going=going, view=state.view._replace(now=now))
        if not self._shared:
            return self._arrive(state, worker, going)
        arrives = going & (state.phase[worker] == ARRIVING)
        return self._arrive(self._go_on(state, worker, going & ~arrives), worker, arrives)

    def _start(self, state: _State) -> _State:
        """Idle workers begin, once all that arrives at this moment has been dealt with."""
        view = state.view
        quiet = self._coming(state).min() > view.now
        may = view.idle & quiet & state.going & self.rule.ready(view)
        out = may & (state.current.first + state.current.begun >= self.work.num_units)
        horizon = jnp.where(out.any(), jnp.minimum(state.horizon, view.now), state.horizon)
        view, state, may = view._replace(idle=view.idle & ~out), state._replace(horizon=horizon), may & ~out
        pulls = may & self.rule.pulls(view) if not self.rule.exchanges else jnp.zeros_like(may)
        first = state.current.first + state.current.begun
        current = state.current._replace(
            first=jnp.where(may, first, state.current.first),
            begun=jnp.where(may, 0, state.current.begun),
            work=jnp.where(may, 0, state.current.work),
            begin=jnp.where(may, view.now, state.current.begin),
            stop=jnp.where(may, jnp.inf, state.current.stop),
            compute_start=jnp.where(may, jnp.inf, state.current.compute_start),
            send_start=jnp.where(may, jnp.inf, state.current.send_start),
            arrive=jnp.where(may, jnp.inf, state.current.arrive),
            commit=jnp.where(may, -1, state.current.commit),
        )
        version = jnp.where(pulls, view.commits, view.version)
        current = current._replace(version=version)
        state = state._replace(current=current, view=view._replace(idle=view.idle & ~may, version=version))
        if not self._shared:
            return self._compute(
                state, may, jnp.where(pulls, view.now + self._alone(self.network.download), view.now), pulls
            )
        state = self._compute(state, may & ~pulls, jnp.broadcast_to(view.now, may.shape), pulls)
        return self._transfer(state, pulls, RECEIVING)

    def _compute(self, state: _State, may: jax.Array, ready: jax.Array, pulled: jax.Array) -> _State:
        """Workers that have their parameters at `ready float[W]` compute."""
        old = state.current
        part = self.rule.turn(self.work, old.first, ready, state.view.memory)
        short = may & (old.first + part.num_units > self.work.num_units)
        horizon = jnp.where(short.any(), jnp.minimum(state.horizon, state.view.now), state.horizon)
        does = may & ~short
        sent = jnp.where(jnp.isfinite(part.stop), part.send_start, jnp.inf)
        arrive = sent + self._alone(self.network.upload)
        if self.rule.exchanges:
            arrive += self._alone(self.network.download)
        new = old._replace(
            begin=jnp.minimum(old.begin, part.compute_start), begun=part.num_units, work=part.num_units,
            fresh=jnp.where(pulled, part.fresh, old.first), compute_start=part.compute_start, stop=part.stop,
            send_start=sent, arrive=arrive,
        )  # fmt: skip
        phase, until = (COMPUTING, sent) if self._shared else (ARRIVING, arrive)
        return state._replace(
            current=jax.tree.map(lambda a, b: jnp.where(does, a, b), new, old),
            horizon=horizon,
            phase=jnp.where(does, phase, jnp.where(short, IDLE, state.phase)),
            until=jnp.where(does, until, jnp.where(short, jnp.inf, state.until)),
        )

    def _arrive(self, state: _State, worker: jax.Array, arrives: jax.Array) -> _State:
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
        state = _written(state._replace(current=current), arrives, worker)
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

    def _take(self, state: _State, taken: jax.Array, commit: jax.Array) -> _State:
        """Marks the last message of some workers as part of a commit, one after the other."""
        everybody = jnp.arange(taken.size)
        position = jnp.cumsum(taken, dtype=jnp.int32) - 1
        place = jnp.where(taken, state.turn - 1, state.integers.shape[0]), everybody
        integers = state.integers.at[(*place, INTEGERS.index("commit"))].set(commit, mode="drop")
        integers = integers.at[(*place, INTEGERS.index("position"))].set(position, mode="drop")
        return state._replace(integers=integers)

    def _cut_off(self, state: _State, commits: jax.Array) -> _State:
        """Ends all turns under way, if there is a commit; their units are used up."""
        cut, now, old = commits & (state.phase != IDLE), state.view.now, state.current
        current = old._replace(
            begun=jnp.where(cut, 1, old.begun),
            work=jnp.where(cut, 0, old.work),
            compute_start=jnp.where(cut & (old.compute_start > now), jnp.inf, old.compute_start),
            stop=jnp.where(cut, jnp.minimum(old.stop, now), old.stop),
            send_start=jnp.where(cut, jnp.inf, old.send_start),
            arrive=jnp.where(cut, jnp.inf, old.arrive),
        )
        state = _written(state._replace(current=current), cut, jnp.arange(cut.size))
        return state._replace(
            phase=jnp.where(cut, IDLE, state.phase),
            until=jnp.where(cut, jnp.inf, state.until),
            view=state.view._replace(idle=state.view.idle | cut),
        )

    def _alone(self, link: Any) -> jax.Array:
        """float[W] or []: seconds of a message on a link of its own."""
        dtype = self.work.durations.dtype
        return jnp.asarray(self.network.latency, dtype) + jnp.asarray(link, dtype)

    # What follows is only there for a link that transfers share: then each is an event of its own.

    def _coming(self, state: _State) -> jax.Array:
        """float[W]: when the phase of each worker ends, if no transfer begins or ends before."""
        if not self._shared:
            return state.until
        moving = (state.phase == RECEIVING) | (state.phase == SENDING)
        return jnp.where(moving, state.view.now + state.left * self._seconds(state), state.until)

    def _seconds(self, state: _State) -> jax.Array:
        """float[W]: seconds that a full gradient takes at the rate of the moment, each in its direction."""
        dtype, shape = self.work.durations.dtype, state.phase.shape
        server = jnp.asarray(self.network.server, dtype)

        def of(phase: int, link: Any) -> jax.Array:
            own = jnp.broadcast_to(jnp.asarray(link, dtype), shape)
            return shared_seconds(state.phase == phase, own, server)

        received, sent = of(RECEIVING, self.network.download), of(SENDING, self.network.upload)
        return jnp.where(state.phase == RECEIVING, received, sent)

    def _transferred(self, state: _State, now: jax.Array, worker: jax.Array, going: jax.Array) -> _State:
        """With what has been transferred up to now taken off."""
        seconds = self._seconds(state)
        passed = jnp.where(seconds > 0, (now - state.view.now) / jnp.where(seconds > 0, seconds, 1), 0)
        left = jnp.maximum(state.left - passed.astype(state.left.dtype), jnp.finfo(state.left.dtype).tiny)
        return state._replace(left=jnp.where(going, left, state.left))

    def _transfer(self, state: _State, which: jax.Array, phase: int) -> _State:
        return state._replace(
            phase=jnp.where(which, phase, state.phase),
            until=jnp.where(which, jnp.inf, state.until),
            left=jnp.where(which, 1, state.left).astype(state.left.dtype),
        )

    def _go_on(self, state: _State, worker: jax.Array, active: jax.Array) -> _State:
        """The next phase of a worker."""
        me = (jnp.arange(state.phase.size, dtype=jnp.int32) == worker) & active
        phase, now = state.phase, state.view.now
        latency = jnp.broadcast_to(jnp.asarray(self.network.latency, now.dtype), phase.shape)
        computed, received, answers, sent = (me & (phase == p) for p in (COMPUTING, RECEIVING, ANSWERING, SENDING))
        arrive = jnp.where(sent, now + latency, state.current.arrive)
        state = state._replace(
            phase=jnp.where(sent, ARRIVING, phase),
            until=jnp.where(sent, arrive, state.until),
            current=state.current._replace(arrive=arrive),
        )
        if self.rule.exchanges:
            state = state._replace(
                phase=jnp.where(received, ANSWERING, state.phase), until=jnp.where(received, now + latency, state.until)
            )
            state = self._transfer(state, answers, SENDING)
            return self._transfer(state, computed, RECEIVING)
        state = self._transfer(state, computed, SENDING)
        return self._compute(state, received, now + latency, received)
