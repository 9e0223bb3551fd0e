"""Who did what in a window of time, for some of the workers: what a timeline shows.

Letters: T units sampled per worker, W workers, E commits.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax import _validate
from gcjax.analysis.collect import commit_columns, timeline_columns
from gcjax.analysis.store import Columns, select_rows
from gcjax.protocols.conformance.committed_units import on_host
from gcjax.protocols.schedule import Schedule

MAX_UNITS = 50_000
"""Units of a timeline for which nobody says which part is to be shown."""
MAX_WORKERS = 64
"""Workers of a timeline that would have more units than that."""
MAX_COMMITS = 20_000
"""Commits of a timeline of some of the workers; of more, those that took a push of these workers are shown."""


class Activity(NamedTuple):
    """What happened in a window of time.

    Attributes:
      name: of the scheme or the run.
      units: a row for each unit of a worker that is shown, with the columns of `gcjax.analysis.Results.timeline`.
      contributions: a row for each contribution to a commit of any worker, with the columns of
        `gcjax.analysis.Results.commits`; None if they are not known.
      loss: `time` (seconds) and `value`; None if it is not known.
      begin: seconds, of the window.
      end: seconds, of the window.
      workers: int[shown], those that are shown.
      num_workers: W.
      shown_part_text: which part of the record this is, in words.
      missing_data_note: what is not known, as the end of a sentence.
      has_all_commits: whether all commits within the window are among `contributions`.
    """

    name: str
    units: Columns
    contributions: Columns | None
    loss: Columns | None
    begin: float
    end: float
    workers: np.ndarray
    num_workers: int
    shown_part_text: str
    missing_data_note: str = ""
    has_all_commits: bool = True


def of_schedule(
    schedule: Schedule,
    *,
    name: str = "run",
    durations: np.ndarray | None = None,
    loss: np.ndarray | None = None,
    window: tuple[float, float] | None = None,
    workers: int | Sequence[int] | None = None,
) -> Activity:
    """What workers and server did by a record, in a window of time and of some workers; arguments: `write_timeline`.

    Raises:
      ValueError: if the record is of a batch or damaged, or the other arguments do not fit to it.
    """
    record: Any = on_host(jax.device_get(schedule))  # in NumPy; its times are [T, W]
    last_moment, num_workers = _last_moment(record), record.start.shape[1]
    durations_without_failure = np.zeros(record.start.shape)
    unit_durations = (
        durations_without_failure if durations is None else _array_of_shape("durations", durations, record.start.shape)
    )
    loss_curve = None if loss is None else _loss_curve(record.time, _array_of_shape("loss", loss, record.time.shape))
    whole = Activity(
        name, units={}, contributions=None, loss=loss_curve, begin=0.0, end=last_moment, workers=np.arange(num_workers),
        num_workers=num_workers, shown_part_text="",
    )  # fmt: skip
    is_large = np.isfinite(record.start).sum() > MAX_UNITS
    shown_workers = (
        _evenly_spaced(whole.workers, MAX_WORKERS) if is_large and workers is None else _worker_indices(workers, whole)
    )
    units = _units_of_workers(name, record, unit_durations, shown_workers)
    shown_activity = limited_activity(whole._replace(units=units), window=window, workers=shown_workers.tolist())
    return _without_commits_of_others_if_too_many(
        shown_activity._replace(contributions=_contributions_until(name, record, shown_activity.end))
    )


def _units_of_workers(name: str, record: Schedule, durations: np.ndarray, workers: np.ndarray) -> Columns:
    """The columns `units` of an `Activity`, of these workers int[shown] of a record; durations float[T, W] of all."""
    record_of_workers = jax.tree.map(
        lambda field: field[:, workers] if field.shape == record.start.shape else field, record
    )
    units = timeline_columns(name, record_of_workers, durations[:, workers], np.inf)
    return units | {"worker": workers[units["worker"]]}  # the numbers that they have among all workers


def _contributions_until(name: str, record: Schedule, seconds: float) -> Columns:
    """The columns `contributions` of an `Activity`, of all commits until `seconds`; `name` is the run's."""
    num_commits = int(np.searchsorted(record.time, seconds, side="right"))  # times increase; inf at the end
    fields_by_commit: Any = {
        field: getattr(record, field)[:num_commits] for field in ("time", "worker", "unit", "work", "weight")
    }
    return commit_columns(name, record._replace(**fields_by_commit), np.inf)


def limited_activity(
    whole: Activity,
    *,
    window: tuple[float, float] | None = None,
    workers: int | Sequence[int] | None = None,
    max_units: int = MAX_UNITS,
) -> Activity:
    """A part of an activity: the window (seconds, from when to when) and the workers given (how many, or which).

    Where neither is given, so few workers and seconds that there are at most `max_units` units.

    Raises:
      ValueError: if the window is empty, or there is no such worker.
    """
    begin, end = _window_within(window, whole)
    shown_workers = _worker_indices(workers, whole)
    is_large = len(whole.units["unit"]) > max_units
    if is_large and workers is None and len(shown_workers) > MAX_WORKERS:
        shown_workers = _evenly_spaced(shown_workers, MAX_WORKERS)
    units = select_rows(whole.units, _is_shown(whole.units, shown_workers, begin, end))
    if is_large and window is None and len(units["start"]) > max_units:
        start_of_first_unit_too_many = float(np.sort(units["start"])[max_units])
        end, units = start_of_first_unit_too_many, select_rows(units, units["start"] < start_of_first_unit_too_many)
    shown_part_text = (
        _shown_part_text(shown_workers, whole.num_workers, begin, end, whole.end) + whole.missing_data_note
    )
    return _without_commits_of_others_if_too_many(
        whole._replace(units=units, begin=begin, end=end, workers=shown_workers, shown_part_text=shown_part_text)
    )


def _without_commits_of_others_if_too_many(activity: Activity) -> Activity:
    """The activity; if not all workers are shown, and more than MAX_COMMITS commits, only commits that these are in."""
    if activity.contributions is None or len(activity.workers) == activity.num_workers:
        return activity
    commits, times = activity.contributions["commit"], activity.contributions["time"]
    is_in_window = (times >= activity.begin) & (times <= activity.end)
    num_commits_in_window = np.unique(commits[is_in_window]).size
    if num_commits_in_window <= MAX_COMMITS:
        return activity
    is_of_shown_worker = np.isin(activity.contributions["worker"], activity.workers)
    shown_commits = np.unique(commits[is_in_window & is_of_shown_worker])
    loss = activity.loss
    shown_commits_text = f"the {shown_commits.size} of {num_commits_in_window} commits that took a push of them"
    return activity._replace(
        contributions=select_rows(activity.contributions, np.isin(commits, shown_commits)),
        loss=None if loss is None else select_rows(loss, thinned_indices(len(loss["time"]), MAX_COMMITS)),
        has_all_commits=False,
        shown_part_text=f"{activity.shown_part_text}, and {shown_commits_text}",
    )


def thinned_indices(num_points: int, max_points: int) -> np.ndarray:
    """The indices of the points that are drawn: all, or `max_points` evenly spaced ones, the last among them."""
    return np.unique(np.linspace(0, num_points - 1, min(num_points, max_points)).round().astype(int))


def _array_of_shape(name: str, array_like: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The values as an array; a `ValueError` unless they have this shape, that of the record."""
    array = np.asarray(array_like)
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape} as the record has; got {array.shape}. Pass its own.")
    return array


def _loss_curve(times: np.ndarray, loss: np.ndarray) -> Columns:
    """The loss float[E] of the commits that are made, at their times float[E] seconds, which are inf for the others."""
    is_made = np.isfinite(times)
    return {"time": times[is_made].astype(np.float64), "value": loss[is_made].astype(np.float64)}


def _last_moment(record: Schedule) -> float:
    """Seconds, when all is over that has a time; 5 % later if somebody is waited for for ever (the horizon is inf)."""
    times_of_events = [record.time, record.start, record.compute_start, record.compute_end, record.finish]
    last_finite_time = max(
        (float(moments[np.isfinite(moments)].max()) for moments in times_of_events if np.isfinite(moments).any()),
        default=0.0,
    )
    last_finite_time = last_finite_time or 1.0  # also where no time passes
    waits_for_ever = np.isinf(record.horizon)
    return min(1.05 * last_finite_time, float(record.horizon)) if waits_for_ever else last_finite_time


def _window_within(window: tuple[float, float] | None, activity: Activity) -> tuple[float, float]:
    """From when to when, in seconds: the window, cut at the activity's end, or all of the time if None.

    A `ValueError` if it has no length, or begins before the activity does.
    """
    begin, end = (
        (activity.begin, activity.end) if window is None else (float(window[0]), min(float(window[1]), activity.end))
    )
    if not activity.begin <= begin < end:
        raise ValueError(
            f"window must be from one second to a later one, within the {activity.begin:.4g} to {activity.end:.4g} s "
            f"that are known; got {window}. Choose another one."
        )
    return begin, end


def _worker_indices(workers: int | Sequence[int] | None, activity: Activity) -> np.ndarray:
    """int[shown]: the workers (how many, evenly spaced, or which), sorted; a `ValueError` if one is none of the run."""
    if workers is None:
        return activity.workers
    if isinstance(workers, (int, np.integer)):
        return _evenly_spaced(activity.workers, _validate.integer("workers", workers, minimum=1))
    sorted_workers = np.unique(np.asarray(list(workers), int))
    if not sorted_workers.size or sorted_workers[0] < 0 or sorted_workers[-1] >= activity.num_workers:
        raise ValueError(
            f"workers must be among 0 to {activity.num_workers - 1}, and one at least; got {list(workers)}."
        )
    return sorted_workers


def _evenly_spaced(workers: np.ndarray, count: int) -> np.ndarray:
    """int[at most count]: of the workers int[shown], sorted, some that are evenly spaced, the first one among them."""
    num_chosen = min(count, len(workers))
    return workers[np.unique(np.arange(num_chosen) * len(workers) // num_chosen)]


def _is_shown(units: Columns, workers: np.ndarray, begin: float, end: float) -> np.ndarray:
    """bool[units]: whether a unit is one of these workers and may be under way in the window."""
    unit_end = np.where(np.isfinite(units["finish"]), units["finish"], units["compute_end"])  # inf if it never ends
    return np.isin(units["worker"], workers) & (units["start"] < end) & (unit_end > begin)


def _shown_part_text(workers: np.ndarray, num_workers: int, begin: float, end: float, last_moment: float) -> str:
    """Which part is shown, for a person."""
    workers_text = (
        f"all {num_workers} workers" if len(workers) == num_workers else f"{len(workers)} of {num_workers} workers"
    )
    known_time_text = f" of the {last_moment:.4g} s that are known" if end < last_moment else ""
    return f"{workers_text}, from {begin:.4g} to {end:.4g} s{known_time_text}"
