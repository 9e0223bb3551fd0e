"""Turns: what a worker does from one push to the next, and how they become a timeline and a list of commits.

A turn begins with asking for the parameters (or with the next unit, if the worker goes on with those it has), computes
one or several units, and ends when its message arrives, or when it is cut off.

Letters: T units sampled per worker, W workers, J turns of a worker, E commits, C contributions to a commit.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.base import Schedule
from gcjax.protocols.timing import Timeline, used_commits


class Turns(NamedTuple):
    """The turns of all workers; every array [J, W], or [W] for one turn each.

    Attributes:
      first: int32, the first unit; T where there is no such turn.
      begun: int32, how many units were begun in it.
      work: int32, how many of them the message stands for.
      fresh: int32, the first unit computed on the version read in this turn; earlier ones are on the one before.
      version: int32, the version read.
      commit: int32, the commit that the message belongs to; -1 if none.
      position: int32, the message's place among those of the commit.
      begin: float seconds, when the parameters are asked for.
      compute_start: float, when the first unit begins.
      stop: float, when computing ends or is cut off.
      send_start: float, when sending begins; inf if nothing is sent.
      arrive: float, when the message has arrived; inf if it never does.
    """

    first: jax.Array
    begun: jax.Array
    work: jax.Array
    fresh: jax.Array
    version: jax.Array
    commit: jax.Array
    position: jax.Array
    begin: jax.Array
    compute_start: jax.Array
    stop: jax.Array
    send_start: jax.Array
    arrive: jax.Array


INTEGERS = Turns._fields[:7]
FLOATS = Turns._fields[7:]


class Simulation(NamedTuple):
    """What a protocol makes of durations.

    Attributes:
      turns: [J, W].
      time: float[E] seconds, when the commits happen; inf for those that do not.
      horizon: float[] seconds, when the first worker would begin a unit that was not sampled.
    """

    turns: Turns
    time: jax.Array
    horizon: jax.Array


class Work(NamedTuple):
    """The sampled units, for looking up how long any stretch of them takes.

    A stretch is the sum of two entries of a table and never a difference of two sums, which would lose a short stretch
    behind a long unit, also one that was cut off. At level k >= 1 the units lie in blocks of `2**k`; an entry is the
    sum from its unit to the middle of its block, or from the middle to the unit. A stretch between two units that lie
    in two halves of a block is the sum of both their entries. Level 0 are the durations (a disjoint sparse table).

    Letters: K = 1 + the binary digits of T - 1, the levels.

    Attributes:
      durations: float[T, W] seconds.
      sums: float[K, T, W] seconds; inf where a unit never ends.
    """

    durations: jax.Array
    sums: jax.Array

    @classmethod
    def of(cls, durations: jax.Array) -> "Work":
        """The work of these durations."""
        num_units, num_workers = durations.shape
        levels = (num_units - 1).bit_length()
        behind = sofar = jnp.pad(durations, ((0, 2**levels - num_units), (0, 0)))
        sums = [behind]
        for level in range(levels):  # both are sums inside of blocks of 2**level: to the end, and from the beginning
            halves = behind.reshape(-1, 2, 2**level, num_workers), sofar.reshape(-1, 2, 2**level, num_workers)
            (left_behind, right_behind), (left_sofar, right_sofar) = ((x[:, 0], x[:, 1]) for x in halves)

            def whole(left: jax.Array, right: jax.Array) -> jax.Array:
                return jnp.stack([left, right], axis=1).reshape(-1, num_workers)

            sums.append(whole(left_behind, right_sofar))
            behind = whole(left_behind + right_behind[:, :1], right_behind)
            sofar = whole(left_sofar, left_sofar[:, -1:] + right_sofar)
        return cls(durations, jnp.stack(sums)[:, :num_units])

    @property
    def num_units(self) -> int:
        """T."""
        return int(self.durations.shape[0])

    @property
    def num_workers(self) -> int:
        """W."""
        return int(self.durations.shape[1])

    def seconds(self, first: jax.Array, count: jax.Array | int) -> jax.Array:
        """float[..., W]: how long so many units take from the first one on; inf if they are not all sampled."""
        last = first + count - 1
        begin, end = first.clip(0, self.num_units - 1), last.clip(0, self.num_units - 1)
        worker = jnp.broadcast_to(jnp.arange(self.num_workers, dtype=first.dtype), first.shape)
        if isinstance(count, int) and count == 1:
            total = self.durations[begin, worker]
        else:
            level = 32 - jax.lax.clz(begin ^ end)
            total = self.sums[level, begin, worker] + jnp.where(level > 0, self.sums[level, end, worker], 0)
            total = jnp.where(last < first, 0, total)
        return jnp.where(last >= self.num_units, jnp.inf, total)

    def done(self, first: jax.Array, end: jax.Array, begin: jax.Array | float = 0.0) -> jax.Array:
        """int32[W]: how many units from the first one on, which begins at `begin`, are done at `end`."""
        return self._most(first, lambda passed: (begin + passed <= end) & jnp.isfinite(passed))

    def until(self, first: jax.Array, seconds: jax.Array) -> jax.Array:
        """int32[W]: how many units from the first one on it takes, one at least, to fill so many seconds."""
        return (self._most(first, lambda passed: (passed < seconds) & jnp.isfinite(passed)) + 1).clip(1)

    def _most(self, first: jax.Array, fits: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """int32[W]: the most units from the first one on whose seconds fit, by bisection."""
        bits = self.num_units.bit_length()

        def step(i: jax.Array, count: jax.Array) -> jax.Array:
            more = count + jnp.left_shift(jnp.int32(1), bits - 1 - i)
            return jnp.where(fits(self.seconds(first, more)), more, count)

        return jax.lax.fori_loop(0, bits, step, jnp.zeros_like(first))


def timeline(found: Simulation, work: Work) -> Timeline:
    """The times of every unit, from those of the turns."""
    unit = jnp.arange(work.num_units, dtype=jnp.int32)

    def of_worker(turns: Turns) -> tuple[jax.Array, Turns]:
        index = jnp.searchsorted(turns.first, unit, side="right").astype(jnp.int32) - 1
        return index, Turns(*(x[index.clip(0)] for x in turns))

    index, turn = jax.vmap(of_worker, in_axes=1, out_axes=1)(found.turns)
    offset = unit[:, None] - turn.first
    real = (index >= 0) & (offset < turn.begun)
    last_begun, last_sent = offset == turn.begun - 1, offset == turn.work - 1
    compute_start = turn.compute_start + work.seconds(turn.first, offset)
    compute_end = jnp.where(last_begun, turn.stop, jnp.minimum(compute_start + work.durations, turn.stop))
    send_start = jnp.where(last_sent, turn.send_start, jnp.inf)
    finish = jnp.where(last_sent, turn.arrive, jnp.where(offset < turn.work, compute_end, jnp.inf))
    start = jnp.where(offset == 0, turn.begin, compute_start)
    times = Timeline(start, compute_start, compute_end, send_start, finish, found.horizon)
    return jax.tree.map(lambda x: jnp.where(real, x, jnp.inf), times)._replace(horizon=found.horizon)


def commits_by_position(
    found: Simulation, work: Work, weight: jax.Array | float, width: int, *, split: bool = False
) -> Schedule:
    """The schedule in which every message is a contribution, in the order in which they arrived.

    Args:
      found: what happened.
      work: the sampled units.
      weight: of a contribution, a number or float[E, 1].
      width: the messages in a commit.
      split: whether a message can stand for units on two versions; C is then twice the width, once the width otherwise.
    """
    turns, time = found.turns, found.time
    number = time.shape[0]
    if split:
        turns = _split(turns, width)
        width *= 2
    worker = jnp.broadcast_to(jnp.arange(work.num_workers, dtype=jnp.int32), turns.first.shape)
    counts = (turns.commit >= 0) & jnp.isfinite(jnp.append(time, jnp.inf)[turns.commit.clip(0, number)])
    row = jnp.where(counts, turns.commit, number)  # out of bounds: dropped
    place = row.ravel(), turns.position.ravel()

    def spread(values: jax.Array) -> jax.Array:
        return jnp.full((number, width), -1, jnp.int32).at[place].set(values.ravel(), mode="drop")

    fields = {"worker": worker, "unit": turns.first, "version": turns.version, "work": turns.work}
    rows = {name: spread(values) for name, values in fields.items()}
    weights = jnp.where(rows["worker"] >= 0, weight, 0)
    return used_commits(timeline(found, work), time=time, weight=weights, **rows)


def _split(turns: Turns, width: int) -> Turns:
    """[2 J, W]: the units on the version before, then those on the version just read, as messages of their own."""
    old = (turns.fresh - turns.first).clip(0, turns.work)
    before = jnp.concatenate([turns.version[:1], turns.version[:-1]])
    on_old = turns._replace(work=old, version=before, commit=jnp.where(old > 0, turns.commit, -1))
    rest = turns.work - old
    on_new = turns._replace(
        first=turns.first + old,
        work=rest,
        position=turns.position + width,
        commit=jnp.where(rest > 0, turns.commit, -1),
    )
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), on_old, on_new)


def commits_by_worker(found: Simulation, work: Work, weight: float, passes: int) -> Schedule:
    """The schedule in which all messages of a worker to one commit are one contribution, for each version.

    Args:
      found: what happened.
      work: the sampled units.
      weight: of a contribution.
      passes: the versions that a worker's messages to one commit can be based on; C = passes * W.
    """
    turns, time = found.turns, found.time
    number, num_units, num_workers = time.shape[0], work.num_units, work.num_workers
    commit, version = jax.vmap(_of_units, in_axes=(1, None), out_axes=1)(turns, num_units)
    later = jnp.isinf(jnp.append(time, jnp.inf)[commit.clip(0, number)])
    commit = jnp.where(later, -1, commit)
    before_commit, before_version = (jnp.roll(x, 1, axis=0).at[0].set(-2) for x in (commit, version))
    other = commit != before_commit
    new = other | (version != before_version)
    count = jnp.cumsum(new, axis=0, dtype=jnp.int32)
    pass_ = count - jax.lax.cummax(jnp.where(other, count, 0), axis=0)
    worker = jnp.broadcast_to(jnp.arange(num_workers, dtype=jnp.int32), commit.shape)
    place = jnp.where(commit >= 0, commit, number), jnp.minimum(pass_, passes - 1) * num_workers + worker
    unit = jnp.broadcast_to(jnp.arange(num_units, dtype=jnp.int32)[:, None], commit.shape)
    shape = (number, passes * num_workers)
    counts = jnp.zeros(shape, jnp.int32).at[place].add(1, mode="drop")
    first = jnp.full(shape, num_units, jnp.int32).at[place].min(unit, mode="drop")
    read = jnp.full(shape, -1, jnp.int32).at[place].max(version, mode="drop")
    used = counts > 0
    rows = {"worker": jnp.arange(shape[1]) % num_workers, "unit": first, "version": read, "work": counts}
    rows = {name: jnp.where(used, values, -1) for name, values in rows.items()}
    weights = jnp.where(used, weight, 0)
    return used_commits(timeline(found, work), time=time, weight=weights, **rows)


def _of_units(turns: Turns, num_units: int) -> tuple[jax.Array, jax.Array]:
    """int32[T] each: the commit of every unit of a worker (-1 if none), and the version that it is based on."""
    unit = jnp.arange(num_units, dtype=jnp.int32)
    index = jnp.searchsorted(turns.first, unit, side="right").astype(jnp.int32) - 1
    turn = Turns(*(x[index.clip(0)] for x in turns))
    there = (index >= 0) & (unit - turn.first < turn.work)
    before = jnp.where(index > 0, turns.version[(index - 1).clip(0)], turn.version)
    return jnp.where(there, turn.commit, -1), jnp.where(unit < turn.fresh, before, turn.version)
