"""Which moments of a block's schedule count."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.schedule import Schedule


class Ramp(NamedTuple):
    """What is 0 up to `begin`, 1 from `end` on, and rises linearly in between.

    Attributes:
      begin: seconds.
      end: seconds.
    """

    begin: jax.Array
    end: jax.Array

    @property
    def middle(self) -> jax.Array:
        """The moment, in seconds, at which a step from 0 to 1 would have the same integral."""
        return (self.begin + self.end) / 2

    def height(self, time: jax.Array) -> jax.Array:
        """The value, from 0 to 1, at each moment (seconds)."""
        return jnp.where(time >= self.end, 1, (time - self.begin).clip(0) / self._divisor)

    def integral(self, time: jax.Array) -> jax.Array:
        """The integral up to each moment, in seconds."""
        since_begin = (time - self.begin).clip(0)
        return jnp.where(time >= self.end, time - self.middle, since_begin**2 / (2 * self._divisor))

    @property
    def _divisor(self) -> jax.Array:
        """The length in seconds; 1 if that is 0, where nothing lies in between."""
        length = self.end - self.begin
        return jnp.where(length > 0, length, 1)


class Window(NamedTuple):
    """How much moments count: up the one ramp, and down the other.

    Attributes:
      rise: to the weight of 1.
      fall: to 0 again.
    """

    rise: Ramp
    fall: Ramp

    @property
    def seconds(self) -> jax.Array:
        """float[]: the integral of the weight over all time."""
        return self.fall.middle - self.rise.middle

    def weight(self, time: jax.Array) -> jax.Array:
        """The weight, from 0 to 1, of each moment (seconds); 0 of inf."""
        return jnp.where(jnp.isfinite(time), self.rise.height(time) - self.fall.height(time), 0)

    def weighted_seconds(self, start: jax.Array, stop: jax.Array) -> jax.Array:
        """The integral of the weight from each start to its stop; 0 where one of them is inf."""
        is_known = jnp.isfinite(start) & jnp.isfinite(stop)
        return jnp.where(is_known, self._until(stop) - self._until(start), 0)

    def _until(self, time: jax.Array) -> jax.Array:
        """The integral of the weight up to each moment, in seconds."""
        return self.rise.integral(time) - self.fall.integral(time)


class WholeRounds(NamedTuple):
    """Moments from 0 to the end of the last round count fully, all others not at all.

    Attributes:
      seconds: float[], the end.
    """

    seconds: jax.Array

    def weight(self, time: jax.Array) -> jax.Array:
        """The weight, 0 or 1, of each moment (seconds); 0 of inf."""
        return (time <= self.seconds).astype(self.seconds.dtype)

    def weighted_seconds(self, start: jax.Array, stop: jax.Array) -> jax.Array:
        """The integral of the weight from each start to its stop; 0 where one of them is inf."""
        is_known = jnp.isfinite(start) & jnp.isfinite(stop)
        return jnp.where(is_known, stop.clip(0, self.seconds) - start.clip(0, self.seconds), 0)


def whole_rounds(schedule: Schedule) -> WholeRounds:
    """From the begin to the last commit before units run out: where each commit begins anew, these are whole rounds.

    Units run out at `schedule.horizon`; the time of a commit that never happens is inf.
    """
    return WholeRounds(jnp.max(jnp.where(schedule.time <= schedule.horizon, schedule.time, 0)))


def ramp_units(block_units: int, round_units: int) -> int:
    """The units of a ramp: about a quarter of the block, and a whole number of rounds of `round_units`.

    So it does not matter where in a unit, or a round, of a worker a block begins.
    """
    return max(1, block_units // 4 // round_units) * round_units


def smooth_window(schedule: Schedule, *, warmup_units: int, block_units: int, round_units: int) -> Window:
    """The window of the block that follows a warm-up, as the worker that is first through its units comes to it.

    Half of each ramp lies outside of the block. So where blocks lie side by side, or overlap evenly, each step of that
    worker counts as much as any other, however long it takes.

    Args:
      schedule: of the warm-up, the block, and what comes behind it, half a ramp at least.
      warmup_units: units of a worker before the block.
      block_units: units of a worker in the block.
      round_units: units of a worker in a round.
    """
    has_ended = schedule.compute_end <= schedule.horizon  # bool[T, W]
    first_worker = jnp.argmax(has_ended.sum(axis=0))
    begin_of_unit = schedule.start[:, first_worker]  # seconds
    length = ramp_units(block_units, round_units)

    def ramp_around(unit: int) -> Ramp:
        """Half of it before the unit begins."""
        first_unit = unit - length // 2
        return Ramp(begin_of_unit[first_unit], begin_of_unit[first_unit + length])

    return Window(ramp_around(warmup_units), ramp_around(warmup_units + block_units))
