"""What a live run took, as the input of the simulator: the seconds of units, of messages and of the server.

The simulator then says when commits of another protocol would happen on the same machines
(`gcjax.parameter_server.prediction`).

Letters: T units of a worker, W workers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from gcjax import short_repr
from gcjax.parameter_server import holdups
from gcjax.parameter_server.live_run import LiveRun
from gcjax.parameter_server.message_times import PUSH, REPORT, SIGN, STOP, MessageTimes
from gcjax.stragglers.absences import Absences, absences
from gcjax.stragglers.network import Links, Network


class Calibration(NamedTuple):
    """What was measured in a live run.

    Attributes:
      durations: float64[T, W] seconds of the units, in order; NaN where a worker has not ended one. By how much a
        message took longer than the median counts to its unit, if that is more than a unit takes: its worker was
        held up, for example suspended.
      send_seconds: float64[W], the median from the end of a worker's last unit, or from when it heard that it was to
        stop, to the arrival of its push.
      receive_seconds: float64[W], the median from the server's order, when it has dealt with what led to it, to the
        worker's first unit.
      service_seconds: for which the server is busy with a push, the median.
      latency: float64[W] seconds, the median from the moment at which a worker sends a message without parameters, a
        sign of life or a report, to that at which the server deals with it; None if no such one was written down.
      report_seconds: for which the server is busy with the report of a unit; in a run without reports, as with a push
        that brings no commit.
      push_seconds: for which it is busy with a push that brings no commit; None if nobody has looked.
      commit_seconds: for which it is busy with a commit besides; None if nobody has looked.
      held_up_seconds: float64[T, W] seconds of the units in which their worker was held up as a whole, as if
        suspended: no sign of life came, and nothing ends this early. None if no sign of life was written down.
    """

    durations: np.ndarray
    send_seconds: np.ndarray
    receive_seconds: np.ndarray
    service_seconds: float
    latency: np.ndarray | None = None
    report_seconds: float = 0.0
    push_seconds: float | None = None
    commit_seconds: float | None = None
    held_up_seconds: np.ndarray | None = None

    def __repr__(self) -> str:
        """The types and shapes of the arrays, and the single numbers."""
        return short_repr.named_tuple_text(self)

    @property
    def network(self) -> Network:
        """The network in which messages take the seconds measured here, all of them as transfer and none as latency."""
        dtype = jnp.result_type(float)
        return Network(
            upload=jnp.asarray(self.send_seconds, dtype),
            download=jnp.asarray(self.receive_seconds, dtype),
            service=self.service_seconds,
        )


def calibration(run: LiveRun) -> Calibration:
    """What a live run took.

    A message that has waited for the server while that was busy has taken that much longer, so a run in which the
    server is mostly idle says most. Workers may have left and come back: what was cut off is not measured.

    Raises:
      ValueError: if a worker has not pushed at all; if the run does not say what the server took for pushes, as one
        that was loaded before its end; or if parameters were exchanged, or workers computed while they sent and
        received, so that the record does not say how long they have waited for what.
    """
    _check_one_thing_at_a_time(run)
    schedule, messages = jax.device_get(run.schedule), run.messages or _NO_MESSAGES
    stops = messages.of(STOP)
    with np.errstate(invalid="ignore"):  # inf less inf, of what did not happen, is NaN
        durations = schedule.compute_end - schedule.compute_start
        send_seconds = schedule.finish - schedule.compute_end
        if stops.kind.size:  # who had ended a unit before has waited for the stop
            send_seconds = schedule.finish - schedule.send_start + np.median(stops.handle_end - stops.handle_start)
        receive_seconds = schedule.compute_start - schedule.start
    # These are float[T, W]. A unit's `start` is when the server began to deal with what led to it, a push as a rule.
    # bool[T, W]: units after which a push was sent, and those before which parameters or an order were received.
    precedes_send = np.isfinite(schedule.send_start) & np.isfinite(schedule.finish)
    follows_push = np.pad(precedes_send[:-1], ((1, 0), (0, 0)), constant_values=True)  # a first unit has nothing before
    follows_receive = np.isfinite(schedule.compute_start) & follows_push
    if stops.kind.size:  # a turn can go on after its push
        follows_receive = np.isfinite(schedule.compute_start) & (schedule.start < schedule.compute_start)
    without_push = np.flatnonzero(~precedes_send.any(axis=0))
    if without_push.size:
        raise ValueError(
            f"each worker must have pushed once at least; worker {without_push[0]} has not. Let it run longer."
        )
    service_seconds = _median_service_seconds(run)
    # float64[W]
    receive_medians = _medians(receive_seconds, follows_receive) - service_seconds
    durations = np.where(np.isfinite(schedule.finish) & np.isfinite(durations), durations, np.nan)
    for seconds, has_message in ((send_seconds, precedes_send), (receive_seconds, follows_receive)):
        excess = np.where(has_message, seconds, 0) - _medians(seconds, has_message)  # [T, W]
        durations += np.where(excess > np.nanmedian(durations, axis=0), excess, 0)
    pushes, reports, small_messages = messages.of(PUSH), messages.of(REPORT), messages.of(SIGN, REPORT)
    reports = reports.where(reports.rule_seconds > 0)  # the others were of no turn any more
    push_seconds = _median(pushes.handle_end - pushes.handle_start - pushes.commit_seconds)
    report_seconds = _median(reports.handle_end - reports.handle_start)
    return Calibration(
        durations=durations,
        send_seconds=_medians(send_seconds, precedes_send).clip(0),
        receive_seconds=receive_medians.clip(0),
        service_seconds=service_seconds,
        latency=_latency(small_messages, durations.shape[1]),
        report_seconds=report_seconds or push_seconds or 0.0,
        push_seconds=push_seconds,
        commit_seconds=_median(pushes.commit_seconds[pushes.commit_seconds > 0]),
        held_up_seconds=holdups.held_up_seconds_of_units(durations, schedule, messages.of(SIGN)),
    )


def measured_absences(run: LiveRun) -> Absences | None:
    """When workers were away in a live run, as the simulator takes it; None if all were there all the time.

    A worker that was not there when the first one began is away from 0 s on; one that left for good joins at inf.
    """
    if not run.memberships:
        return None
    is_present, times_away = dict.fromkeys(range(run.schedule.start.shape[1]), False), []
    away_since = dict.fromkeys(is_present, 0.0)  # `times_away`: of each absence (worker, leave, join)
    for membership in run.memberships:  # in the order of their times, in seconds
        if membership.change == "left":
            is_present[membership.worker], away_since[membership.worker] = False, membership.time
        elif membership.change in ("joined", "came back"):
            if membership.time > 0:
                times_away.append((membership.worker, away_since[membership.worker], membership.time))
            is_present[membership.worker] = True
    times_away += [(worker, away_since[worker], np.inf) for worker, present in is_present.items() if not present]
    if not times_away:
        return None
    workers, leave, join = zip(*sorted(times_away), strict=True)
    return absences(workers=workers, leave=leave, join=join)


def fitted_links(calibrations: Sequence[Calibration], num_bytes: Sequence[int]) -> Links:
    """Latency in seconds and bandwidths in bytes a second, by least squares through runs with models of several sizes.

    The seconds of a message are the latency and its bytes over the bandwidth. A fit that would be negative is 0, or
    infinitely fast. The latency is the mean of both directions, as `Links` has one only.

    Args:
      calibrations: of runs of the same W workers on the same machines.
      num_bytes: of the parameters in each run.

    Raises:
      ValueError: unless there are two different sizes, and a size for each run.
    """
    if len(calibrations) != len(num_bytes) or len(set(num_bytes)) < 2:
        raise ValueError(
            f"there must be runs with two different sizes, and a size for each; got {len(calibrations)} runs and the "
            f"sizes {tuple(num_bytes)}."
        )
    sizes = np.asarray(num_bytes, np.float64)
    # Of each direction, the slope and the intercept of W lines through the runs, float64[2, W].
    lines = [
        np.polyfit(sizes, [getattr(c, name) for c in calibrations], 1) for name in ("send_seconds", "receive_seconds")
    ]
    # [2 directions, W] each: seconds a byte, and seconds.
    slope, latency = (np.stack(values).clip(0) for values in zip(*lines, strict=True))
    with np.errstate(divide="ignore"):
        upload, download = 1 / slope
    dtype = jnp.result_type(float)
    return Links(
        latency=jnp.asarray(latency.mean(axis=0), dtype),
        upload=jnp.asarray(upload, dtype),
        download=jnp.asarray(download, dtype),
        service=float(np.median([c.service_seconds for c in calibrations])),
    )


_NO_MESSAGES = MessageTimes(np.zeros(0, str), np.zeros(0, np.int32), *np.zeros((5, 0)))


def _check_one_thing_at_a_time(run: LiveRun) -> None:
    """Raises an error unless workers received, computed and sent one after the other: else messages have no times."""
    if not run.pulls_before_push and not run.computes_while_sending:
        return
    why = (
        "workers have computed while they sent and received, so that nobody waited for a message"
        if run.computes_while_sending
        else "parameters were exchanged between computing and sending, so that a push has waited for them"
    )
    raise ValueError(
        "a calibration needs a run in which each worker receives parameters, computes and pushes, one after the "
        f"other; in this one {why}. Calibrate by a run of gcjax.protocols.asp() on the same machines."
    )


def _median_service_seconds(run: LiveRun) -> float:
    """The median of what the server took for a push; an error if the run does not say."""
    if not run.service_seconds.size:
        raise ValueError(
            "a run must say what the server took for each push; this one does not. A run that is loaded says so if it "
            "has ended: this one has not ended, or no push has come since its server was started again."
        )
    return float(np.median(run.service_seconds))


def _latency(small_messages: MessageTimes, num_workers: int) -> np.ndarray | None:
    """float64[W]: the median seconds from when a message without parameters was sent to when the server dealt with it.

    None if there is no message. A worker without messages gets the median of all; none is below 0, as the difference of
    two clocks can be.
    """
    seconds = small_messages.handle_start - small_messages.sent
    if (median_of_all := _median(seconds)) is None:
        return None
    medians = [_median(seconds[small_messages.worker == worker]) for worker in range(num_workers)]
    return np.array([median_of_all if median is None else median for median in medians]).clip(0)


def _median(values: np.ndarray) -> float | None:
    """The median; None of nothing."""
    return float(np.median(values)) if values.size else None


def _medians(values: np.ndarray, is_counted: np.ndarray) -> np.ndarray:
    """float64[W]: the median of each column where `is_counted bool[T, W]`."""
    return np.array([np.median(values[is_counted[:, w], w]) for w in range(values.shape[1])], np.float64)
