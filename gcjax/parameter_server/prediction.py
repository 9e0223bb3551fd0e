"""When commits of a protocol would happen on the machines of a measured run.

Letters: T units of a worker, W workers, E commits.
"""

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import _validate
from gcjax.parameter_server.calibration import Calibration
from gcjax.parameter_server.virtual_run import Delays, virtual_schedule
from gcjax.protocols.base import Protocol
from gcjax.protocols.schedule import Schedule
from gcjax.stragglers.absences import Absences


def sampled_durations(measured: Calibration, rng_key: jax.Array, num_units: int) -> jax.Array:
    """float[num_units, W] seconds: the measured units in their order, and then ones drawn from the worker's own.

    What is drawn is a unit in which the worker was not held up: that has happened when it did, and not more often.

    Raises:
      ValueError: if a worker has no measured unit.
    """
    num_units = _validate.integer("num_units", num_units, minimum=1)
    num_workers = measured.durations.shape[1]
    is_held_up = (
        np.zeros(measured.durations.shape, bool) if measured.held_up_seconds is None else measured.held_up_seconds > 0
    )
    columns_by_worker = []
    for worker, key in enumerate(jax.random.split(rng_key, num_workers)):
        seconds = measured.durations[:, worker]
        undisturbed_seconds = seconds[np.isfinite(seconds) & ~is_held_up[:, worker]]
        if not undisturbed_seconds.size:
            raise ValueError(f"each worker must have a measured unit; worker {worker} has none.")
        drawn_seconds = np.asarray(jax.random.choice(key, undisturbed_seconds, (num_units,)))
        measured_seconds = np.full(num_units, np.nan)  # NaN where none was measured: what is drawn comes there
        measured_seconds[: min(num_units, seconds.size)] = seconds[:num_units]
        columns_by_worker.append(np.where(np.isfinite(measured_seconds), measured_seconds, drawn_seconds))
    return jnp.asarray(np.stack(columns_by_worker, axis=1), jnp.result_type(float))


def predicted_schedule(
    protocol: Protocol, measured: Calibration, rng_key: jax.Array, num_units: int, absences: Absences | None = None
) -> Schedule:
    """What the protocol would do on the machines of a measured run.

    Rounds of a code whose turns the server stops are simulated by the server itself in virtual time: each report
    of a unit and each stop takes the latency, the server deals with one message after the other, and a worker that is
    held up hears of a stop later. Another one with a rule is simulated by the event queue, with a server that is busy
    with each message.

    Args:
      protocol: any; of one that looks at the loss, a run in which that never changes its mind.
      measured: the run's calibration.
      rng_key: draws the units beyond the measured ones.
      num_units: T, of each worker.
      absences: when workers are away, for example `measured_absences(run)`; never if None.

    Raises:
      ValueError: if there are absences, and they are not simulated under this protocol (`Protocol.__call__`).
    """
    durations = sampled_durations(measured, rng_key, num_units)
    if protocol.code is None or not _has_stopped_turns(protocol, durations.shape[1]):
        return protocol(durations, measured.network, absences)
    held_up_seconds = np.zeros(durations.shape)  # [T, W]; 0 for units that are drawn
    if measured.held_up_seconds is not None:
        measured_held_up_seconds = measured.held_up_seconds[:num_units]
        held_up_seconds[: len(measured_held_up_seconds)] = measured_held_up_seconds
    return virtual_schedule(protocol, np.asarray(durations), held_up_seconds, _delays(measured), absences)


def predicted_times(
    protocol: Protocol, measured: Calibration, rng_key: jax.Array, num_units: int, absences: Absences | None = None
) -> np.ndarray:
    """float[E] seconds of the commits that the protocol would make; arguments as of `predicted_schedule`."""
    times = np.asarray(predicted_schedule(protocol, measured, rng_key, num_units, absences).time)
    return times[np.isfinite(times)]


def _has_stopped_turns(protocol: Protocol, num_workers: int) -> bool:
    """Whether a server would stop the turns of this protocol, by its rule; no if it cannot be served."""
    if protocol.rule is None:
        return False
    try:
        return protocol.rule(num_workers).stop is not None
    except ValueError:  # it is not served
        return False


def _delays(calibration: Calibration) -> Delays:
    """The seconds of messages and of the server, as measured; what was not measured takes no time.

    A message without parameters takes no longer than one with them, whatever the few signs of life say.
    """
    latency = 0.0 if calibration.latency is None else calibration.latency
    return Delays(
        send=calibration.send_seconds,
        receive=calibration.receive_seconds,
        latency=np.minimum(np.minimum(latency, calibration.send_seconds), calibration.receive_seconds),
        report=calibration.report_seconds,
        push=calibration.service_seconds if calibration.push_seconds is None else calibration.push_seconds,
        commit=calibration.commit_seconds or 0.0,
    )


_NUM_SHORT_COMMITS = 5
"""The first commits, whose times are too short to be compared."""


def time_errors(measured: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """float64[E]: predicted over measured time, less 1, of each commit compared; 0.1 for one predicted 10 % too late.

    Args:
      measured: float[commits] seconds of each commit in a live run.
      predicted: float[commits] seconds; there may be more or fewer. Those that both have are compared, but for the
        first five, whose times are short.
    """
    num_commits = min(len(measured), len(predicted))
    compared = slice(_NUM_SHORT_COMMITS, num_commits)
    return np.asarray(predicted, np.float64)[compared] / np.asarray(measured, np.float64)[compared] - 1
