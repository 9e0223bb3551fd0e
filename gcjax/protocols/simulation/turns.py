"""Turns: what a worker does from one push to the next, as simulators write it down, and how turns become a record.

A turn begins with asking for the parameters (or with the next unit, if the worker goes on with those it has), computes
one or several units, and ends when its message arrives, or when it is cut off.

Letters: T units sampled per worker, W workers, J turns of a worker, E commits, C contributions to a commit.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.schedule import Schedule, Timeline, record


class Turns(NamedTuple):
    """The turns of all workers; every array [J, W], or [W] for one turn each.

    Attributes:
      first: int32, the first unit; T where there is no such turn.
      num_begun: int32, how many units were begun in it.
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
    num_begun: jax.Array
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


class Work(NamedTuple):
    """The sampled units, for looking up how long any stretch of them takes.

    A stretch is the sum of two entries of a table and never a difference of two sums, which would lose a short stretch
    behind a long unit, also one that was cut off. At level k >= 1 the units lie in blocks of `2**k`; an entry is the
    sum from its unit to the middle of its block, or from the middle to the unit. A stretch between two units that lie
    in two halves of a block is the sum of both their entries. Level 0 are the durations (a disjoint sparse table).

    The levels are 1 + the binary digits of T - 1.

    Attributes:
      durations: float[T, W] seconds.
      sums: float[levels, T, W] seconds; inf where a unit never ends.
    """

    durations: jax.Array
    sums: jax.Array

    @classmethod
    def of(cls, durations: jax.Array) -> "Work":
        """The work of these durations."""
        num_units, num_workers = durations.shape
        levels = (num_units - 1).bit_length()
        # Sums inside of blocks of 2**level units: from each unit to the end, and from the beginning to each unit.
        to_end = from_begin = jnp.pad(durations, ((0, 2**levels - num_units), (0, 0)))
        sums = [to_end]
        for level in range(levels):
            blocks = (-1, 2, 2**level, num_workers)  # the two halves of each block of 2**(level + 1) units
            left_to_end, right_to_end = jnp.moveaxis(to_end.reshape(blocks), 1, 0)
            left_from_begin, right_from_begin = jnp.moveaxis(from_begin.reshape(blocks), 1, 0)

            def join(left: jax.Array, right: jax.Array) -> jax.Array:
                """[units, W], from the left and the right halves `[blocks, 2**level, W]` of all blocks."""
                return jnp.stack([left, right], axis=1).reshape(-1, num_workers)

            sums.append(join(left_to_end, right_from_begin))  # to the middle of the block, and from there
            to_end = join(left_to_end + right_to_end[:, :1], right_to_end)
            from_begin = join(left_from_begin, left_from_begin[:, -1:] + right_from_begin)
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
            seconds = self.durations[begin, worker]
        else:
            level = 32 - jax.lax.clz(begin ^ end)  # the first bit that differs: where the two are in two halves
            seconds = self.sums[level, begin, worker] + jnp.where(level > 0, self.sums[level, end, worker], 0)
            seconds = jnp.where(last < first, 0, seconds)
        return jnp.where(last >= self.num_units, jnp.inf, seconds)

    def done(self, first: jax.Array, end: jax.Array, begin: jax.Array | float = 0.0) -> jax.Array:
        """int32[W]: how many units from the first one on, which begins at `begin`, are done at `end`."""
        return self._max_count(first, lambda passed: (begin + passed <= end) & jnp.isfinite(passed))

    def until(self, first: jax.Array, seconds: jax.Array) -> jax.Array:
        """int32[W]: how many units from the first one on it takes, one at least, to fill so many seconds."""
        return (self._max_count(first, lambda passed: (passed < seconds) & jnp.isfinite(passed)) + 1).clip(1)

    def _max_count(self, first: jax.Array, fits: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """int32[W]: the most units from unit `first int32[W]` on whose seconds fit, by bisection.

        `fits`: from the seconds float[W] that units take to bool[W]; True for some units is True for fewer as well.
        """
        bits = self.num_units.bit_length()

        def step(i: jax.Array, count: jax.Array) -> jax.Array:
            """Sets the i-th bit of the count, from the highest on, if that many units still fit."""
            larger_count = count + jnp.left_shift(jnp.int32(1), bits - 1 - i)
            return jnp.where(fits(self.seconds(first, larger_count)), larger_count, count)

        return jax.lax.fori_loop(0, bits, step, jnp.zeros_like(first))


def turns_record(
    turns: Turns,
    work: Work,
    *,
    time: jax.Array,
    horizon: jax.Array,
    weight: jax.Array | float,
    num_contributions: int,
    split: bool = False,
    by_worker: bool = False,
) -> Schedule:
    """The record of turns: all units that are in one commit at the same place are one contribution.

    The place is that of the message among those of its commit, or that of the worker.

    Args:
      turns: [J, W], those of a worker in order.
      work: the sampled units.
      time: float[E] seconds, when the commits happen; inf for those that do not.
      horizon: float[] seconds, when the first worker would begin a unit that was not sampled.
      weight: of a contribution, a number or float[E, 1].
      num_contributions: C, the places that there are.
      split: whether units on the version before the one just read are a contribution of their own; those on the new one
        are then C / 2 places further on.
      by_worker: whether all messages of a worker to a commit are one contribution for each stretch of units that are
        based on one version, at the places w, W + w, ...
    """
    timeline, read, turn = units_of(turns, work, horizon)
    unit = jnp.arange(work.num_units, dtype=jnp.int32)[:, None]
    worker = jnp.broadcast_to(jnp.arange(work.num_workers, dtype=jnp.int32), read.shape)
    num_commits = time.shape[0]
    is_sent = (unit >= turn.first) & (unit < turn.first + turn.work)
    is_in_commit = is_sent & jnp.isfinite(jnp.append(time, jnp.inf)[turn.commit.clip(0, num_commits)])
    commit = jnp.where(is_in_commit, turn.commit, -1)
    if by_worker:
        passes = num_contributions // work.num_workers
        place = jnp.minimum(_stretch(commit, read), passes - 1) * work.num_workers + worker
    elif split:
        place = turn.position + jnp.where(unit < turn.fresh, 0, num_contributions // 2)
    else:
        place = turn.position
    shape = num_commits, num_contributions
    contribution = jnp.where(commit >= 0, commit, num_commits), place  # out of bounds: dropped
    first_unit = jnp.full(shape, work.num_units, jnp.int32)
    return record(
        timeline,
        time=time,
        worker=jnp.full(shape, -1, jnp.int32).at[contribution].set(worker, mode="drop"),
        unit=first_unit.at[contribution].min(jnp.broadcast_to(unit, read.shape), mode="drop"),
        work=jnp.zeros(shape, jnp.int32).at[contribution].add(1, mode="drop"),
        weight=weight,
        read=read,
    )


def units_of(turns: Turns, work: Work, horizon: jax.Array) -> tuple[Timeline, jax.Array, Turns]:
    """The times of every unit, the version that was read for it, and the turn that it belongs to; arrays [T, W].

    The turns of a worker are in order; turns that do not exist come last, with T as first unit. A unit that no turn has
    begun gets the turn before it, version -1, and times inf.
    """
    unit = jnp.arange(work.num_units, dtype=jnp.int32)

    def turn_of_units(turns: Turns) -> tuple[Turns, jax.Array]:
        """The turn of each unit of one worker, arrays [T], and the version read in the turn before it.

        `turns` are those of the worker, arrays [J]; `unit` are the numbers of all units, [T].
        """
        index = (jnp.searchsorted(turns.first, unit, side="right").astype(jnp.int32) - 1).clip(0)
        return Turns(*(x[index] for x in turns)), turns.version[(index - 1).clip(0)]

    turn, version_before = jax.vmap(turn_of_units, in_axes=1, out_axes=1)(turns)
    offset = unit[:, None] - turn.first  # the unit's place in its turn
    is_begun = (offset >= 0) & (offset < turn.num_begun)
    is_last_begun, is_last_sent = offset == turn.num_begun - 1, offset == turn.work - 1
    compute_start = turn.compute_start + work.seconds(turn.first, offset)
    compute_end = jnp.where(is_last_begun, turn.stop, jnp.minimum(compute_start + work.durations, turn.stop))
    send_start = jnp.where(is_last_sent, turn.send_start, jnp.inf)
    finish = jnp.where(is_last_sent, turn.arrive, jnp.where(offset < turn.work, compute_end, jnp.inf))
    start = jnp.where(offset == 0, turn.begin, compute_start)
    times = Timeline(
        start=start,
        compute_start=compute_start,
        compute_end=compute_end,
        send_start=send_start,
        finish=finish,
        horizon=horizon,
    )
    times = jax.tree.map(lambda x: jnp.where(is_begun, x, jnp.inf), times)._replace(horizon=horizon)
    read = jnp.where(is_begun, jnp.where(unit[:, None] < turn.fresh, version_before, turn.version), -1)
    return times, read, turn


def _stretch(commit: jax.Array, read: jax.Array) -> jax.Array:
    """int32[T, W]: the number of the stretch that a unit is in, 0, 1, ..., among its worker's units in the same commit.

    A stretch has units that follow each other and are based on one version. Between two of them can be a unit that was
    lost. The commits of a worker's units are in order.

    Args:
      commit: int32[T, W], that each unit is in; -1 for none.
      read: int32[T, W], the version that each is based on.
    """
    # Of the unit before; -2, which is no number of a commit or version, before the first.
    last_commit, last_read, newest_commit = (
        jnp.roll(x, 1, axis=0).at[0].set(-2) for x in (commit, read, jax.lax.cummax(commit, axis=0))
    )
    begins = (commit >= 0) & ((commit != last_commit) | (read != last_read))
    number = jnp.cumsum(begins, axis=0, dtype=jnp.int32)  # since the first unit
    is_first_of_commit = (commit >= 0) & (commit > newest_commit)
    return number - jax.lax.cummax(jnp.where(is_first_of_commit, number, 0), axis=0)
