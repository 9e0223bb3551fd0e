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
      first_unit: int32, the first unit; T where there is no such turn.
      num_begun: int32, how many units were begun in it.
      num_sent_units: int32, how many of them the message stands for.
      first_unit_on_version: int32, the first unit on the version read in this turn; earlier ones are on the one before.
      version: int32, the version read.
      commit: int32, the commit that the message belongs to; -1 if none.
      position: int32, the message's place among those of the commit.
      begin: float seconds, when the parameters are asked for.
      compute_start: float, when the first unit begins.
      stop: float, when computing ends or is cut off.
      send_start: float, when sending begins; inf if nothing is sent.
      arrive: float, when the message has arrived; inf if it never does.
    """

    first_unit: jax.Array
    num_begun: jax.Array
    num_sent_units: jax.Array
    first_unit_on_version: jax.Array
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
_INT32_BITS = 32
_NO_NUMBER = -2
"""Where there is no unit before: no number of a commit or version, nor -1 for none."""


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
      sums_from_unit_0: float[T + 1, W] seconds, of the first 0, ..., T units.
      worker: int32[m], whose units are looked up; everybody's if None.
    """

    durations: jax.Array
    sums: jax.Array
    sums_from_unit_0: jax.Array
    worker: jax.Array | None = None

    @classmethod
    def of(cls, durations: jax.Array) -> "Work":
        """The work of these durations [T, W] seconds, with sums by which any stretch of units is two look-ups."""
        num_units, num_workers = durations.shape
        num_levels = (num_units - 1).bit_length()
        # Sums inside of blocks of 2**level units: from each unit to the end, and from the beginning to each unit. Both
        # are [2**num_levels, W], with units of no length behind the last one.
        sum_to_block_end = sum_from_block_begin = jnp.pad(durations, ((0, 2**num_levels - num_units), (0, 0)))
        sums_by_level = [sum_to_block_end]
        for level in range(num_levels):
            halves_shape = (-1, 2, 2**level, num_workers)  # the two halves of each block of 2**(level + 1) units
            left_to_end, right_to_end = jnp.moveaxis(sum_to_block_end.reshape(halves_shape), 1, 0)
            left_from_begin, right_from_begin = jnp.moveaxis(sum_from_block_begin.reshape(halves_shape), 1, 0)

            def interleaved_halves(left: jax.Array, right: jax.Array) -> jax.Array:
                """[units, W], from the left and the right halves `[blocks, 2**level, W]` of all blocks."""
                return jnp.stack([left, right], axis=1).reshape(-1, num_workers)

            sums_to_and_from_middle = interleaved_halves(left_to_end, right_from_begin)
            sums_by_level.append(sums_to_and_from_middle)
            right_total = right_to_end[:, :1]
            sum_to_block_end = interleaved_halves(left_to_end + right_total, right_to_end)
            left_total = left_from_begin[:, -1:]
            sum_from_block_begin = interleaved_halves(left_from_begin, left_total + right_from_begin)
        sums = jnp.stack(sums_by_level)[:, :num_units]
        row = jnp.arange(num_units, dtype=jnp.int32)
        level_of_row = _INT32_BITS - jax.lax.clz(row)  # where unit 0 and this one are in the two halves of a block
        sums_of_first = sums[level_of_row, 0] + jnp.where(row[:, None] > 0, sums[level_of_row, row], 0)
        return cls(durations, sums, sums_from_unit_0=jnp.pad(sums_of_first, ((1, 0), (0, 0))))

    @property
    def num_units(self) -> int:
        """T."""
        return int(self.durations.shape[0])

    @property
    def num_workers(self) -> int:
        """W."""
        return int(self.durations.shape[1])

    def seconds(self, first_unit: jax.Array, count: jax.Array | int) -> jax.Array:
        """float[..., W]: how long so many units take from the first one on; 0 for none, inf if not all are sampled.

        The last axis is of the workers `self.worker int32[m]`, [..., m], where these are said.
        """
        last_unit = first_unit + count - 1
        # In range, also where the result is 0 or inf without being looked up.
        first_row, last_row = first_unit.clip(0, self.num_units - 1), last_unit.clip(0, self.num_units - 1)
        all_workers = jnp.arange(self.num_workers, dtype=first_unit.dtype)
        worker = jnp.broadcast_to(all_workers if self.worker is None else self.worker, first_unit.shape)
        if isinstance(count, int) and count == 1:
            seconds = self.durations[first_row, worker]
        else:
            differing_bits = first_row ^ last_row
            level = _INT32_BITS - jax.lax.clz(differing_bits)  # where the two rows are in the two halves of a block
            seconds_to_middle = self.sums[level, first_row, worker]
            seconds = seconds_to_middle + jnp.where(level > 0, self.sums[level, last_row, worker], 0)
            has_no_unit = last_unit < first_unit
            seconds = jnp.where(has_no_unit, 0, seconds)
        is_not_sampled = last_unit >= self.num_units
        return jnp.where(is_not_sampled, jnp.inf, seconds)

    def seconds_of_first(self, count: jax.Array) -> jax.Array:
        """float[W]: `seconds` of the first `count int32[W]` units, a single look-up for each."""
        all_workers = jnp.arange(self.num_workers, dtype=count.dtype)
        worker = jnp.broadcast_to(all_workers if self.worker is None else self.worker, count.shape)
        seconds = self.sums_from_unit_0[count.clip(0, self.num_units), worker]
        return jnp.where(count > self.num_units, jnp.inf, seconds)

    def num_of_first_done(self, end: jax.Array, begin: jax.Array | float = 0.0) -> jax.Array:
        """int32[W]: how many of the first units, the first of which begins at `begin`, are done at `end float[W]`."""

        def is_done(num_units: jax.Array) -> jax.Array:
            """bool[W]: whether that many are."""
            elapsed = self.seconds_of_first(num_units)
            return (begin + elapsed <= end) & jnp.isfinite(elapsed)

        return _largest_fitting(is_done, self.num_units, jnp.zeros(end.shape, jnp.int32))

    def num_done(self, first_unit: jax.Array, end: jax.Array, begin: jax.Array | float = 0.0) -> jax.Array:
        """int32[W]: how many units from the first one on, which begins at `begin`, are done at `end`."""
        return self._max_num_units(first_unit, lambda elapsed: (begin + elapsed <= end) & jnp.isfinite(elapsed))

    def num_to_fill(self, first_unit: jax.Array, seconds: jax.Array) -> jax.Array:
        """int32[W]: how many units from the first one on it takes, one at least, to fill so many seconds."""
        num_too_few = self._max_num_units(first_unit, lambda elapsed: (elapsed < seconds) & jnp.isfinite(elapsed))
        return num_too_few + 1

    def _max_num_units(self, first_unit: jax.Array, seconds_fit: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """int32[W]: the most units from unit `first_unit int32[W]` on whose seconds fit.

        `seconds_fit`: from the seconds float[W] that units take to bool[W]; if some units fit, so do fewer.
        """
        return _largest_fitting(
            lambda num_units: seconds_fit(self.seconds(first_unit, num_units)),
            self.num_units,
            jnp.zeros_like(first_unit),
        )


def _largest_fitting(fits: Callable[[jax.Array], jax.Array], max_number: int, zeros: jax.Array) -> jax.Array:
    """int32[W]: for each worker the largest number, 0, ..., max_number, that fits; 0 always does.

    It is found digit by digit, of two bits each, from the highest on: at a place the digits 1 to 3 are tried at once.
    The places are no loop of the program, so that this can be a part of a loop that is one kernel.

    Args:
      fits: from numbers int32[W] to bool[W]; a number above `max_number` does not fit, and below one that fits all do.
        If rounding breaks that, what comes back still fits.
      max_number: T.
      zeros: int32[W].
    """
    numbers, digits = zeros, jnp.arange(1, 4, dtype=jnp.int32)
    for exponent in reversed(range(0, max_number.bit_length(), 2)):
        place_value = 2**exponent
        digit_fits = jax.vmap(lambda digit, numbers, value=place_value: fits(numbers + digit * value), (0, None))
        largest_digit = jnp.where(digit_fits(digits, numbers), digits[:, None], 0).max(axis=0)
        numbers += largest_digit * place_value
    return numbers


def turns_record(
    turns: Turns,
    work: Work,
    *,
    time: jax.Array,
    horizon: jax.Array,
    weight: jax.Array | float,
    num_contributions: int,
    splits_by_version: bool,
    one_contribution_per_worker: bool,
) -> Schedule:
    """The record of turns: all units that are in one commit at the same place are one contribution.

    The place is that of the message among those of its commit, or that of the worker.

    Args:
      turns: [J, W], the J turns of each worker in order.
      work: the sampled units.
      time: float[E] seconds, when the commits happen; inf for those that do not.
      horizon: float[] seconds, when the first worker would begin a unit that was not sampled.
      weight: of a contribution, a number or float[E, 1].
      num_contributions: C, the places that there are.
      splits_by_version: whether units on the version before the one just read are a contribution of their own; those
        on the new one are then C / 2 places further on.
      one_contribution_per_worker: whether all messages of a worker to a commit are one contribution for each stretch of
        units that are based on one version, at the places w, W + w, ...
    """
    timeline, version_read, turn = units_of(turns, work, horizon)
    unit = jnp.arange(work.num_units, dtype=jnp.int32)[:, None]
    worker = jnp.broadcast_to(jnp.arange(work.num_workers, dtype=jnp.int32), version_read.shape)
    num_commits = time.shape[0]
    # bool[T, W]: whether a unit is in a message, and this in a commit that happens (-1, none, stays -1 in any case).
    is_sent = (unit >= turn.first_unit) & (unit < turn.first_unit + turn.num_sent_units)
    is_in_commit = is_sent & jnp.isfinite(jnp.append(time, jnp.inf)[turn.commit.clip(0, num_commits)])
    commit = jnp.where(is_in_commit, turn.commit, -1)
    if one_contribution_per_worker:
        max_stretches = num_contributions // work.num_workers
        column = jnp.minimum(_stretch_in_commit(commit, version_read), max_stretches - 1) * work.num_workers + worker
    elif splits_by_version:
        column = turn.position + jnp.where(unit < turn.first_unit_on_version, 0, num_contributions // 2)
    else:
        column = turn.position
    shape = num_commits, num_contributions
    contribution = jnp.where(commit >= 0, commit, num_commits), column  # of each unit; out of bounds: dropped
    first_unit = jnp.full(shape, work.num_units, jnp.int32)  # T where there is none: above all units
    return record(
        timeline,
        time=time,
        worker=jnp.full(shape, -1, jnp.int32).at[contribution].set(worker, mode="drop"),
        unit=first_unit.at[contribution].min(jnp.broadcast_to(unit, version_read.shape), mode="drop"),
        work=jnp.zeros(shape, jnp.int32).at[contribution].add(1, mode="drop"),
        weight=weight,
        read=version_read,
    )


def units_of(turns: Turns, work: Work, horizon: jax.Array) -> tuple[Timeline, jax.Array, Turns]:
    """The times of every unit, the version that was read for it, and the turn that it belongs to; arrays [T, W].

    The turns `[J, W]`, J of each worker, are in order; turns that do not exist come last, with T as first unit. A unit
    that no turn has begun gets the turn before it, version -1, and times inf.
    """
    all_units = jnp.arange(work.num_units, dtype=jnp.int32)

    def turn_of_units(turns_of_worker: Turns) -> tuple[Turns, jax.Array]:
        """The turn of each unit of one worker, arrays [T], and the version read in the turn before it.

        `turns_of_worker` are those of the worker, arrays [J]; `all_units` are the numbers of all units, [T].
        """
        num_begun_turns = jnp.searchsorted(turns_of_worker.first_unit, all_units, side="right").astype(jnp.int32)
        turn_index = (num_begun_turns - 1).clip(0)
        turn = Turns(*(x[turn_index] for x in turns_of_worker))
        index_before = (turn_index - 1).clip(0)
        return turn, turns_of_worker.version[index_before]

    turn, version_before = jax.vmap(turn_of_units, in_axes=1, out_axes=1)(turns)  # arrays [T, W], from [J, W]
    offset_in_turn = all_units[:, None] - turn.first_unit
    is_begun = (offset_in_turn >= 0) & (offset_in_turn < turn.num_begun)
    is_last_begun, is_last_sent = offset_in_turn == turn.num_begun - 1, offset_in_turn == turn.num_sent_units - 1
    compute_start = turn.compute_start + work.seconds(turn.first_unit, offset_in_turn)
    compute_end = jnp.where(is_last_begun, turn.stop, jnp.minimum(compute_start + work.durations, turn.stop))
    send_start = jnp.where(is_last_sent, turn.send_start, jnp.inf)
    finish = jnp.where(is_last_sent, turn.arrive, jnp.where(offset_in_turn < turn.num_sent_units, compute_end, jnp.inf))
    start = jnp.where(offset_in_turn == 0, turn.begin, compute_start)
    timeline = Timeline(start, compute_start, compute_end, send_start, finish, horizon)
    timeline = jax.tree.map(lambda x: jnp.where(is_begun, x, jnp.inf), timeline)._replace(horizon=horizon)
    version_read = jnp.where(
        is_begun, jnp.where(all_units[:, None] < turn.first_unit_on_version, version_before, turn.version), -1
    )
    return timeline, version_read, turn


def _stretch_in_commit(commit: jax.Array, version_read: jax.Array) -> jax.Array:
    """int32[T, W]: the number of the stretch that a unit is in, 0, 1, ..., among its worker's units in the same commit.

    A stretch has units that follow each other and are based on one version. Between two of them can be a unit that was
    lost. The commits of a worker's units are in order.

    Args:
      commit: int32[T, W], that each unit is in; -1 for none.
      version_read: int32[T, W], the version that each is based on.
    """
    # [T, W], each of the row of the unit before; of unit 0 there is none.
    previous_commit, previous_version_read, newest_commit_before = (
        jnp.roll(x, 1, axis=0).at[0].set(_NO_NUMBER) for x in (commit, version_read, jax.lax.cummax(commit, axis=0))
    )
    begins_stretch = (commit >= 0) & ((commit != previous_commit) | (version_read != previous_version_read))
    stretch_of_worker = jnp.cumsum(begins_stretch, axis=0, dtype=jnp.int32)  # since the first unit
    is_first_of_commit = (commit >= 0) & (commit > newest_commit_before)
    first_stretch_of_commit = jax.lax.cummax(jnp.where(is_first_of_commit, stretch_of_worker, 0), axis=0)
    return stretch_of_worker - first_stretch_of_commit
