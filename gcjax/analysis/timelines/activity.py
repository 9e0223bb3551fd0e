"""Who did what in a window of time, for some of the workers: what a timeline shows.

Letters: T units sampled per worker, W workers, E commits.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from gcjax import _validate
from gcjax.analysis.collect import commit_columns, timeline_columns
from gcjax.analysis.store import Columns, select
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
      words: which part of the record this is.
      without: what is not known, as the end of a sentence.
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
    words: str
    without: str = ""
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
    """What a record says, in a window of time and of some workers.

    Args:
      schedule: of one run.
      name: of the run.
      durations: float[T, W] seconds, those that it was made of: inf marks the units of failed workers. If None, a unit
        that never ends is one that the end of the run cuts off.
      loss: float[E], that of each commit.
      window: seconds, from when to when.
      workers: how many, evenly spaced, or which.

    Raises:
      ValueError: if the record is of a batch or damaged, or the other arguments do not fit to it.
    """
    host: Any = on_host(jax.device_get(schedule))
    seconds, num_workers = _last_moment(host), host.start.shape[1]
    never_ending = np.zeros(host.start.shape) if durations is None else _fitting("durations", durations, host.start)
    curve = None if loss is None else _loss_curve(host.time, _fitting("loss", loss, host.time))
    whole = Activity(name, {}, None, curve, 0.0, seconds, np.arange(num_workers), num_workers, "")
    is_large = np.isfinite(host.start).sum() > MAX_UNITS
    shown = _spread(num_workers, MAX_WORKERS) if is_large and workers is None else _checked_workers(workers, whole)
    of_shown = jax.tree.map(lambda x: x[:, shown] if x.shape == host.start.shape else x, host)
    units = timeline_columns(name, of_shown, never_ending[:, shown], np.inf)
    whole = whole._replace(units=units | {"worker": shown[units["worker"]]})
    shown_part = part(whole, window=window, workers=shown.tolist())
    num_commits = int(np.searchsorted(host.time, shown_part.end, side="right"))
    commits = {field: getattr(host, field)[:num_commits] for field in ("time", "worker", "unit", "work", "weight")}
    return _with_fewer_commits(
        shown_part._replace(contributions=commit_columns(name, host._replace(**commits), np.inf))
    )


def part(
    whole: Activity,
    *,
    window: tuple[float, float] | None = None,
    workers: int | Sequence[int] | None = None,
    max_units: int = MAX_UNITS,
) -> Activity:
    """A part of an activity; where neither window nor workers are given, so much that it has at most `max_units` units.

    Raises:
      ValueError: if the window is empty, or there is no such worker.
    """
    begin, end = _checked_window(window, whole)
    shown = _checked_workers(workers, whole)
    is_large = len(whole.units["unit"]) > max_units
    if is_large and workers is None and len(shown) > MAX_WORKERS:
        shown = _spread(whole.num_workers, MAX_WORKERS)
    units = select(whole.units, _is_shown(whole.units, shown, begin, end))
    if is_large and window is None and len(units["start"]) > max_units:
        end = float(np.sort(units["start"])[max_units])
        units = select(units, units["start"] < end)
    words = _words(shown, whole.num_workers, begin, end, whole.end) + whole.without
    return _with_fewer_commits(whole._replace(units=units, begin=begin, end=end, workers=shown, words=words))


def _with_fewer_commits(activity: Activity) -> Activity:
    """Without the commits of other workers only, if there are more than MAX_COMMITS in the window of some workers."""
    if activity.contributions is None or len(activity.workers) == activity.num_workers:
        return activity
    times, commit = activity.contributions["time"], activity.contributions["commit"]
    is_inside = (times >= activity.begin) & (times <= activity.end)
    count = np.unique(commit[is_inside]).size
    if count <= MAX_COMMITS:
        return activity
    own = np.unique(commit[is_inside & np.isin(activity.contributions["worker"], activity.workers)])
    loss = activity.loss
    if loss is not None:
        points = np.unique(np.linspace(0, len(loss["time"]) - 1, MAX_COMMITS).round().astype(int))
        loss = select(loss, points)
    return activity._replace(
        contributions=select(activity.contributions, np.isin(commit, own)), loss=loss, has_all_commits=False,
        words=f"{activity.words}, and the {own.size} of {count} commits that took a push of them",
    )  # fmt: skip


def _fitting(name: str, values: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The values as an array; a `ValueError` unless they have the shape of `like`, a part of the record."""
    array = np.asarray(values)
    if array.shape != like.shape:
        raise ValueError(f"{name} must have the shape {like.shape} as the record has; got {array.shape}. Pass its own.")
    return array


def _loss_curve(times: np.ndarray, loss: np.ndarray) -> Columns:
    """The loss [E] of the commits that are made, at their times [E]."""
    is_made = np.isfinite(times)
    return {"time": times[is_made].astype(np.float64), "value": loss[is_made].astype(np.float64)}


def _last_moment(host: Schedule) -> float:
    """Seconds, when all is over that has a time; a little later if somebody is waited for for ever."""
    times = [host.time, host.start, host.compute_start, host.compute_end, host.finish]
    last = max((float(x[np.isfinite(x)].max()) for x in times if np.isfinite(x).any()), default=1.0)
    return min(1.05 * last, float(host.horizon)) if np.isinf(host.horizon) else last


def _checked_window(window: tuple[float, float] | None, whole: Activity) -> tuple[float, float]:
    """The window, or all of the time; a `ValueError` if it has no length, or none of it is known."""
    begin, end = (whole.begin, whole.end) if window is None else (float(window[0]), min(float(window[1]), whole.end))
    if not whole.begin <= begin < end:
        raise ValueError(
            f"window must be from one second to a later one, within the {whole.begin:.4g} to {whole.end:.4g} s that "
            f"are known; got {window}. Choose another one."
        )
    return begin, end


def _checked_workers(workers: int | Sequence[int] | None, whole: Activity) -> np.ndarray:
    """int[shown]: the workers, sorted; a `ValueError` if one is none of the run."""
    if workers is None:
        return whole.workers
    if isinstance(workers, int):
        return _spread(whole.num_workers, _validate.integer("workers", workers, minimum=1))
    chosen = np.unique(np.asarray(list(workers), int))
    if not chosen.size or chosen[0] < 0 or chosen[-1] >= whole.num_workers:
        raise ValueError(f"workers must be among 0 to {whole.num_workers - 1}, and one at least; got {list(workers)}.")
    return chosen


def _spread(num_workers: int, count: int) -> np.ndarray:
    """int[at most count]: workers, evenly spaced, the first one among them."""
    return np.unique(np.arange(min(count, num_workers)) * num_workers // min(count, num_workers))


def _is_shown(units: Columns, workers: np.ndarray, begin: float, end: float) -> np.ndarray:
    """bool[units]: whether a unit is one of these workers and may be under way in the window."""
    last = np.where(np.isfinite(units["finish"]), units["finish"], units["compute_end"])  # inf if it never ends
    return np.isin(units["worker"], workers) & (units["start"] < end) & (last > begin)


def _words(workers: np.ndarray, num_workers: int, begin: float, end: float, last: float) -> str:
    """Which part is shown, for a person."""
    who = f"all {num_workers} workers" if len(workers) == num_workers else f"{len(workers)} of {num_workers} workers"
    until = f" of the {last:.4g} s that are known" if end < last else ""
    return f"{who}, from {begin:.4g} to {end:.4g} s{until}"
