"""What protocols that look at the loss have in common. Letters: E commits."""

import jax
import jax.numpy as jnp

from gcjax.protocols.base import Observed


def window_of(time: jax.Array, window_seconds: float, num_windows: int) -> jax.Array:
    """int32, like `time`: the window, of so many `window_seconds`, that a time lies in; the last one has no end.

    Windows are 0, ..., num_windows - 1; a time of inf counts as 0 s.
    """
    window = jnp.floor(jnp.where(jnp.isfinite(time), time, 0) / window_seconds)
    return window.astype(jnp.int32).clip(0, num_windows - 1)


def in_window(observed: Observed, window: jax.Array | int, window_seconds: float) -> jax.Array:
    """bool[E]: the commits with a finite loss in a window, its end included, not its begin; window 0 begins at 0 s."""
    window_begin = jnp.asarray(window, jnp.int32).astype(observed.time.dtype) * window_seconds
    return (
        (observed.time > window_begin) & (observed.time <= window_begin + window_seconds) & jnp.isfinite(observed.loss)
    )


def mean_loss(observed: Observed, window: jax.Array | int, window_seconds: float) -> jax.Array:
    """float[]: the mean training loss of the commits of a window; NaN if there are none."""
    in_this_window = in_window(observed, window, window_seconds)
    num_commits = in_this_window.sum()
    loss_sum = jnp.where(in_this_window, observed.loss, 0).sum()
    return jnp.where(num_commits > 0, loss_sum / jnp.maximum(num_commits, 1).astype(loss_sum.dtype), jnp.nan)
