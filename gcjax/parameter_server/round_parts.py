"""Where the time of a round goes that the server stops.

Letters: W workers, E commits.
"""

from typing import NamedTuple

import jax
import numpy as np

from gcjax.parameter_server.live_run import LiveRun
from gcjax.parameter_server.message_times import PUSH, REPORT, STOP, MessageTimes
from gcjax.protocols.schedule import Schedule


class RoundParts(NamedTuple):
    """The parts of each round, one after the other; float64[E] seconds each, NaN for a round of which it is not known.

    Until the stop they are those of the worker whose report is the last that the server dealt with before; afterwards
    those of the worker whose push is the last.

    Attributes:
      receive: from the last commit to the worker's first unit: the update, the order, and the parameters.
      compute: its units.
      report: from the end of its last unit to the server's dealing with the report.
      decision: from there to the sending of the stop.
      stop: from there to the worker's hearing of it, in its unit.
      answer: until its push is made.
      push: until the server deals with it, after the others' pushes; that is the commit.
    """

    receive: np.ndarray
    compute: np.ndarray
    report: np.ndarray
    decision: np.ndarray
    stop: np.ndarray
    answer: np.ndarray
    push: np.ndarray


def round_parts(run: LiveRun) -> RoundParts:
    """Where the time of each round went in a live run.

    Raises:
      ValueError: if nobody was stopped in it.
    """
    messages = run.messages
    if messages is None or not (messages.kind == STOP).any():
        raise ValueError(
            "the parts of rounds are those of a run in which the server stops turns; in this one it does not."
        )
    schedule = jax.device_get(run.schedule)
    times = schedule.time[np.isfinite(schedule.time)]
    begins = np.concatenate([[0.0], times[:-1]])  # float64[E]: of each round, when the commit before it was
    rows = [_parts(messages, schedule, e, begin, end) for e, (begin, end) in enumerate(zip(begins, times, strict=True))]
    return RoundParts(*np.array(rows, np.float64).T)  # a field each, [E]


def _parts(messages: MessageTimes, schedule: Schedule, commit: int, begin: float, end: float) -> list[float]:
    """Seconds of each field of `RoundParts`, for the round of number `commit`, from `begin` to `end` seconds.

    NaN where the server stopped nobody, or who reported or pushed last is not in the commit. If it stopped twice, the
    last stop counts.
    """
    stops = _between(messages.of(STOP), "sent", begin, end)
    if not stops.kind.size:
        return [np.nan] * len(RoundParts._fields)
    stop_time = stops.sent.max()
    reports = _between(messages.of(REPORT), "handle_start", begin, stop_time)
    # The time of the commit is rounded to the type of the record's times, which can be before its last push.
    pushes = _between(messages.of(PUSH), "handle_start", stop_time, float(end) + float(np.spacing(end)))
    if not reports.kind.size or not pushes.kind.size:
        return [np.nan] * len(RoundParts._fields)
    # The workers whose report, and whose push, was the last that the server dealt with.
    last_reporter, last_pusher = (
        int(messages_of_kind.worker[np.argmax(messages_of_kind.handle_start)]) for messages_of_kind in (reports, pushes)
    )
    stops_of_pusher = np.flatnonzero((stops.sent == stop_time) & (stops.worker == last_pusher))
    columns = np.flatnonzero(schedule.worker[commit] == last_reporter)  # among the contributions of the commit
    if not stops_of_pusher.size or not columns.size:
        return [np.nan] * len(RoundParts._fields)
    last_stop, column = stops_of_pusher[0], columns[0]
    compute_start = schedule.compute_start[schedule.unit[commit, column], last_reporter]
    last_report = np.argmax(reports.handle_start)
    # Seconds, at which one part ends and the next begins, in the order of the fields.
    moments = [
        begin,
        compute_start,
        reports.sent[last_report],
        reports.handle_start[last_report],
        stop_time,
        stops.handle_start[last_stop],
        stops.handle_end[last_stop],
    ]
    return np.diff([*moments, end]).tolist()


def _between(messages: MessageTimes, field: str, begin: float, end: float) -> MessageTimes:
    """The messages for which a time is from `begin` to `end` seconds."""
    seconds = getattr(messages, field)
    return messages.where((seconds >= begin) & (seconds <= end))
