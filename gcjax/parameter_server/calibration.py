"""What a live run took, as the input of the simulator: the seconds of units, of messages and of the server.

The simulator then says when commits of another protocol would happen on the same machines.

Letters: T units of a worker, W workers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.parameter_server.server import LiveRun
from gcjax.protocols.base import Protocol
from gcjax.stragglers.network import Links, Network


class Calibration(NamedTuple):
    """What was measured in a live run.

    Attributes:
      durations: float64[T, W] seconds of the units, in order; NaN where a worker has not ended one. By how much a
        message took longer than the median counts to its unit, if that is more than a unit takes: its worker was
        held up, for example suspended.
      send_seconds: float64[W], the median from the end of a worker's last unit to the arrival of its push.
      receive_seconds: float64[W], the median from the server's order, when it has dealt with what led to it, to the
        worker's first unit.
      service_seconds: for which the server is busy with a push, the median.
    """

    durations: np.ndarray
    send_seconds: np.ndarray
    receive_seconds: np.ndarray
    service_seconds: float

    @property
    def network(self) -> Network:
        """The network for messages of this size; where latency ends and transfer begins is not known."""
        dtype = jnp.result_type(float)
        return Network(
            upload=jnp.asarray(self.send_seconds, dtype),
            download=jnp.asarray(self.receive_seconds, dtype),
            service=self.service_seconds,
        )


def calibration(run: LiveRun) -> Calibration:
    """What a live run took.

    A message that has waited for the server while that was busy has taken that much longer, so a run in which the
    server is mostly idle says most. Of a protocol that exchanges parameters at the end of a turn nothing can be said,
    or of one whose workers compute while they send and receive.

    Raises:
      ValueError: if a worker has not pushed at all, or parameters were exchanged.
    """
    schedule = jax.device_get(run.schedule)
    with np.errstate(invalid="ignore"):
        durations = schedule.compute_end - schedule.compute_start
        send_seconds = schedule.finish - schedule.compute_end
        receive_seconds = schedule.compute_start - schedule.start
    is_sent = np.isfinite(schedule.send_start) & np.isfinite(schedule.finish)
    is_first = np.isfinite(schedule.compute_start) & (np.roll(is_sent, 1, axis=0) | _is_row_0(is_sent))
    silent = np.flatnonzero(~is_sent.any(axis=0))
    if silent.size:
        raise ValueError(f"each worker must have pushed once at least; worker {silent[0]} has not. Let it run longer.")
    service = float(np.median(run.service_seconds))
    receive = _medians(receive_seconds, is_first) - service
    durations = np.where(np.isfinite(schedule.compute_end) & np.isfinite(durations), durations, np.nan)
    for seconds, is_message in ((send_seconds, is_sent), (receive_seconds, is_first)):
        excess = np.where(is_message, seconds, 0) - _medians(seconds, is_message)
        durations += np.where(excess > np.nanmedian(durations, axis=0), excess, 0)
    return Calibration(
        durations=durations,
        send_seconds=_medians(send_seconds, is_sent).clip(0),
        receive_seconds=receive.clip(0),
        service_seconds=service,
    )


def fitted_links(calibrations: Sequence[Calibration], num_bytes: Sequence[int]) -> Links:
    """Latency and bandwidths, by the line of least squares through runs with models of several sizes.

    The seconds of a message are the latency and its bytes over the bandwidth. A fit that would be negative is 0, or
    infinitely fast. The latency is the mean of both directions, as `Links` has one only.

    Args:
      calibrations: of runs on the same machines.
      num_bytes: of the parameters in each.

    Raises:
      ValueError: unless there are two different sizes, and a size for each run.
    """
    if len(calibrations) != len(num_bytes) or len(set(num_bytes)) < 2:
        raise ValueError(
            f"there must be runs with two different sizes, and a size for each; got {len(calibrations)} runs and the "
            f"sizes {tuple(num_bytes)}."
        )
    sizes = np.asarray(num_bytes, np.float64)
    lines = [
        np.polyfit(sizes, [getattr(c, name) for c in calibrations], 1) for name in ("send_seconds", "receive_seconds")
    ]
    slope, latency = (np.stack(values).clip(0) for values in zip(*lines, strict=True))  # [direction, W] each
    with np.errstate(divide="ignore"):
        upload, download = 1 / slope
    dtype = jnp.result_type(float)
    return Links(
        latency=jnp.asarray(latency.mean(axis=0), dtype),
        upload=jnp.asarray(upload, dtype),
        download=jnp.asarray(download, dtype),
        service=float(np.median([c.service_seconds for c in calibrations])),
    )


def sampled_durations(measured: Calibration, rng_key: jax.Array, num_units: int) -> jax.Array:
    """float[num_units, W] seconds: the measured units in their order, and then ones drawn from the worker's own.

    Raises:
      ValueError: if a worker has no measured unit.
    """
    _validate.integer("num_units", num_units, minimum=1)
    num_workers = measured.durations.shape[1]
    columns = []
    for worker, key in enumerate(jax.random.split(rng_key, num_workers)):
        seconds = measured.durations[:, worker]
        known = seconds[np.isfinite(seconds)]
        if not known.size:
            raise ValueError(f"each worker must have a measured unit; worker {worker} has none.")
        drawn = np.asarray(jax.random.choice(key, known, (num_units,)))
        in_order = np.full(num_units, np.nan)
        in_order[: min(num_units, seconds.size)] = seconds[:num_units]
        columns.append(np.where(np.isfinite(in_order), in_order, drawn))
    return jnp.asarray(np.stack(columns, axis=1), jnp.result_type(float))


def predicted_times(protocol: Protocol, measured: Calibration, rng_key: jax.Array, num_units: int) -> np.ndarray:
    """float[E] seconds of the commits that the protocol would make on the machines of a measured run.

    Args:
      protocol: any; one with a rule is simulated by the event queue, with a server that is busy with each message.
      measured: the run's calibration.
      rng_key: draws the units beyond the measured ones.
      num_units: T, of each worker.
    """
    times = np.asarray(protocol(sampled_durations(measured, rng_key, num_units), measured.network).time)
    return times[np.isfinite(times)]


def time_errors(measured: np.ndarray, predicted: np.ndarray, *, skip: int = 5) -> np.ndarray:
    """float64[E]: by how much of the measured time each predicted commit is later; negative if it is earlier.

    Args:
      measured: float[E1] seconds.
      predicted: float[E2] seconds; the commits that both have are compared.
      skip: the first commits, which are left out, since their times are short.
    """
    num_commits = min(len(measured), len(predicted))
    one, other = (np.asarray(times, np.float64)[skip:num_commits] for times in (measured, predicted))
    return other / one - 1


def _is_row_0(values: np.ndarray) -> np.ndarray:
    """bool[T, W]: true in the first row."""
    return np.broadcast_to((np.arange(values.shape[0]) == 0)[:, None], values.shape)


def _medians(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """float64[W]: the median of each column where the mask `bool[T, W]` is true."""
    return np.array([np.median(values[mask[:, w], w]) for w in range(values.shape[1])], np.float64)
