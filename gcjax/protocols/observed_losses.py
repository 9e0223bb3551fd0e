"""What protocols that look at the loss have in common. Letters: E commits."""

from typing import Any

import jax
import jax.numpy as jnp

from gcjax.protocols.base import Observed


def window_begin(window: jax.Array | int, window_seconds: float, dtype: Any) -> jax.Array:
    """Seconds, like `window`, at which a window begins: a moment at which one ends is in the next one."""
    return jnp.asarray(window, jnp.int32).astype(dtype) * window_seconds


def window_of(time: jax.Array, window_seconds: float, num_windows: int) -> jax.Array:
    """int32, like `time`: the window, of so many `window_seconds`, that a time lies in; the last one has no end.

    Windows are 0, ..., num_windows - 1; a time of inf counts as 0 s.
    """
    finite_time = jnp.where(jnp.isfinite(time), time, 0)
    window = jnp.floor(finite_time / window_seconds).clip(0, num_windows - 1).astype(jnp.int32)
    # The quotient is rounded, so that it may be in the window beside.
    is_before = finite_time < window_begin(window, window_seconds, finite_time.dtype)
    is_behind = finite_time >= window_begin(window + 1, window_seconds, finite_time.dtype)
    window += is_behind.astype(jnp.int32) - is_before.astype(jnp.int32)
    return window.clip(0, num_windows - 1)


def in_window(observed: Observed, window: jax.Array | int, window_seconds: float) -> jax.Array:
    """bool[E]: the commits with a finite loss in a window, its begin included, not its end."""
    begin, end = (
        window_begin(number, window_seconds, observed.time.dtype) for number in (window, jnp.asarray(window) + 1)
    )
    return (observed.time >= begin) & (observed.time < end) & jnp.isfinite(observed.loss)


def mean_loss(observed: Observed, window: jax.Array | int, window_seconds: float) -> jax.Array:
    """float[]: the mean training loss of the commits of a window; NaN if there are none."""
    in_this_window = in_window(observed, window, window_seconds)
    num_commits = in_this_window.sum()
    loss_sum = jnp.where(in_this_window, observed.loss, 0).sum()
    return jnp.where(num_commits > 0, loss_sum / jnp.maximum(num_commits, 1).astype(loss_sum.dtype), jnp.nan)
