"""Which moments of a block's schedule count."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from gcjax.protocols.schedule import Schedule


class Window(NamedTuple):
    """How much moments count: not before `begin`, fully from `begin + ramp` to `end`, not after `end + ramp`.

    In between the weight rises and falls linearly, so that it matters little where in a unit the window begins.

    Attributes:
      begin: seconds.
      end: seconds.
      ramp: seconds; None for a window from `begin`, excluded, to `end`.
    """

    begin: jax.Array
    end: jax.Array
    ramp: jax.Array | None

    @property
    def seconds(self) -> jax.Array:
        """float[]: the integral of the weight over all time."""
        return self.end - self.begin

    def ramped_weight(self, time: jax.Array) -> jax.Array:
        """The weight, from 0 to 1, of each moment (seconds); 0 of inf."""
        if self.ramp is None:
            return ((time > self.begin) & (time <= self.end)).astype(self.end.dtype)
        risen, fallen = (((time - edge) / self.ramp).clip(0, 1) for edge in (self.begin, self.end))
        return jnp.where(jnp.isfinite(time), risen - fallen, 0)

    def weighted_seconds(self, start: jax.Array, stop: jax.Array) -> jax.Array:
        """The integral of the weight from each start to its stop; 0 where one of them is inf."""
        is_known = jnp.isfinite(start) & jnp.isfinite(stop)
        return jnp.where(is_known, self._until(stop) - self._until(start), 0)

    def _until(self, time: jax.Array) -> jax.Array:
        """The integral of the weight up to each moment, in seconds; without a ramp plus `begin`.

        Only differences of it are used. The weight is a ramp that rises from `begin` on, less one that does from `end`.
        """
        if self.ramp is None:
            return time.clip(self.begin, self.end)
        since_begin, since_end = (_ramp_integral((time - edge) / self.ramp) for edge in (self.begin, self.end))
        return self.ramp * (since_begin - since_end)


def _ramp_integral(ramp_position: jax.Array) -> jax.Array:
    """The integral up to `ramp_position` of what is 0 up to 0, 1 from 1 on, and rises linearly in between."""
    return jnp.where(ramp_position < 1, ramp_position.clip(0) ** 2 / 2, ramp_position - 0.5)


def whole_rounds_window(schedule: Schedule) -> Window:
    """From the begin to the last commit before units run out: where each commit begins anew, these are whole rounds.

    Units run out at `schedule.horizon`; the time of a commit that never happens is inf.
    """
    last_commit_time = jnp.max(jnp.where(schedule.time <= schedule.horizon, schedule.time, 0))
    return Window(jnp.zeros_like(last_commit_time), last_commit_time, ramp=None)


def smooth_window(
    schedule: Schedule, *, warmup_units: int, block_units: int, num_units: int, round_units: int
) -> Window:
    """The window of the block that follows a warm-up.

    Time is measured in units of the fastest worker, whose units run out at the horizon. Moments count from the begin of
    the block to its end, where the weight is 0 again. A ramp is about a quarter of the block and a whole number of
    rounds, so that it does not matter when the rounds of the fastest worker begin.

    Args:
      schedule: of the warm-up, the block, and what comes behind it.
      warmup_units: units of a worker before the block.
      block_units: units of a worker in the block.
      num_units: units of a worker in all.
      round_units: units of a worker in a round.
    """
    unit_seconds = schedule.horizon / num_units  # of the worker that is first through its units, at the horizon
    ramp_units = max(1, block_units // 4 // round_units) * round_units
    end_unit = warmup_units + block_units - ramp_units
    return Window(warmup_units * unit_seconds, end_unit * unit_seconds, ramp_units * unit_seconds)
