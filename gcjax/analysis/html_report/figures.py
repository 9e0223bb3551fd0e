"""What the scripts of a page draw, as JSON, thinned so that the page stays small."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gcjax.analysis.curves import drawn_metrics, linear_axis_seconds, lowest_value_shown
from gcjax.analysis.store import Columns, Results
from gcjax.analysis.styles import COLOURS, seed_curves, styles
from gcjax.analysis.timelines.activity import Activity, limited_activity, thinned_indices
from gcjax.analysis.timelines.intervals import STATE_COLOURS
from gcjax.analysis.timelines.slices import SERVER, Slices, slices

MAX_POINTS = 400
"""Points of a curve."""
MAX_POINTS_OF_CHART = 10_000
"""Points of all curves of a chart together; each has 20 at least."""
MAX_TICKS = 1_000
"""Commits of a timeline that have a tick."""
MAX_UNITS = 6_000
"""Units of all timelines of a page together."""
MAX_TIMELINES = 12
"""Schemes whose timelines are on a page."""

_DASHES: tuple[list[int], ...] = ([], [6, 3], [2, 2], [8, 2, 2, 2])  # of runs that share a colour, in pixels
_DARK_PAGE_COLOURS = {"waiting": "#3A3D42", "failed": "#D8D8D8"}  # of the states that are grey, on a dark page
_NUM_TIME_STEPS = 1_000_000  # into which the time of a timeline is divided


def charts(results: Results) -> list[dict[str, Any]]:
    """The loss, and the target's metric, against virtual time: a chart each, with a curve a scheme, for the script."""
    target = results.facts["target"]
    metrics = drawn_metrics(results)
    scheme_styles = styles(results, metrics[0])
    return [
        {
            "title": f"{metric.replace('_', ' ')} against virtual time",
            "metric": metric.replace("_", " "),
            "clock": "virtual time (s)",
            "logarithmic": metric.endswith("loss"),
            "linearUntil": linear_axis_seconds(results),
            "target": target["value"] if metric == target["metric"] else None,
            "from": lowest_value_shown(target) if metric == target["metric"] else None,
            "curves": [_seeds_curve(results, scheme, metric, style) for scheme, style in scheme_styles.items()],
        }
        for metric in metrics
    ]


def loss_charts(activities: Sequence[Activity]) -> list[dict[str, Any]]:
    """The loss of the commits of live runs against time, a list of one chart; empty if no run has losses."""
    losses = [(activity.name, activity.loss) for activity in activities if activity.loss and len(activity.loss["time"])]
    curves = [_run_curve(name, loss, index=i, num_curves=len(losses)) for i, (name, loss) in enumerate(losses)]
    chart = {"title": "loss of the commits against time", "metric": "loss", "clock": "time (s)", "logarithmic": True,
             "linearUntil": None, "target": None, "from": None, "curves": curves}  # fmt: skip
    return [chart] if curves else []


def _run_curve(name: str, loss: Columns, *, index: int, num_curves: int) -> dict[str, Any]:
    """The curve of one run's loss, in the colour and the dashes of its index; `loss` has columns `time` and `value`."""
    shown_points = thinned_indices(len(loss["time"]), points_a_curve(num_curves))
    times, losses = ([_five_digits(number) for number in loss[column][shown_points]] for column in ("time", "value"))
    colour, dashes = COLOURS[index % len(COLOURS)], _DASHES[index // len(COLOURS) % len(_DASHES)]
    return {"name": name, "colour": colour, "dashes": dashes, "halted": False, "band": False,
            "time": times, "mean": losses, "low": losses, "high": losses}  # fmt: skip


def points_a_curve(num_curves: int) -> int:
    """How many points a curve has at most, if a chart has so many curves."""
    return min(MAX_POINTS, max(20, MAX_POINTS_OF_CHART // max(1, num_curves)))


def _seeds_curve(results: Results, scheme: str, metric: str, style: dict[str, Any]) -> dict[str, Any]:
    """The curve of a metric for one scheme: the mean over seeds, and their range as a band."""
    times, values_of_seeds = seed_curves(results, scheme, metric)  # [V], [S, V]
    shown_points = thinned_indices(times.size, points_a_curve(len(results.schemes)))
    columns = {
        "time": times,
        "mean": values_of_seeds.mean(axis=0),
        "low": values_of_seeds.min(axis=0),
        "high": values_of_seeds.max(axis=0),
    }
    # Of matplotlib: "-" for a whole line, or (offset, lengths of dashes and gaps in widths of the line).
    dash_lengths = style["linestyle"][1] if isinstance(style["linestyle"], tuple) else []
    return {
        "name": scheme,
        "colour": style["color"],
        "dashes": [round(style["linewidth"] * length, 2) for length in dash_lengths],
        "halted": all(results.facts["schemes"][scheme]["stalled"]),
        "band": len(values_of_seeds) > 1,
        **{name: [_five_digits(number) for number in column[shown_points]] for name, column in columns.items()},
    }


def _five_digits(value: float) -> float | None:
    """A number with five digits; None if it is none."""
    return float(f"{value:.5g}") if np.isfinite(value) else None


def timelines(activities: Sequence[Activity]) -> dict[str, Any]:
    """Who did what when: for each scheme the bars of its workers, for the script.

    Times are in steps, `_NUM_TIME_STEPS` of the longest timeline; each state has two colours, one for a dark page.
    """
    shown_activities = activities[:MAX_TIMELINES]
    max_units = max(1, MAX_UNITS // max(1, len(shown_activities)))
    limited_activities = [limited_activity(activity, max_units=max_units) for activity in shown_activities]
    seconds = max((activity.end for activity in limited_activities), default=1.0)
    return {
        "states": [[state, colour, _DARK_PAGE_COLOURS.get(state, colour)] for state, colour in STATE_COLOURS.items()],
        "seconds": seconds,
        "steps": _NUM_TIME_STEPS,
        "runs": [_bars(activity, seconds) for activity in limited_activities],
    }


def _bars(activity: Activity, seconds: float) -> dict[str, Any]:
    """The bars of one scheme: columns `row`, `lane`, `state`, `begin`, `end`, `unit`; and the times of its commits.

    `seconds`: the length of the timeline, which times are counted by, in `_NUM_TIME_STEPS` steps. A row is a shown
    worker, lane 0 its own track, others those of its messages; there is no bar where it waits.
    """
    track_slices = slices(activity)
    is_server = track_slices.worker == SERVER
    is_bar = ~is_server & (track_slices.name != "waiting")
    bars = Slices(*(column[is_bar] for column in track_slices))
    state_index = {state: index for index, state in enumerate(STATE_COLOURS)}
    commit_times = track_slices.begin[is_server & (track_slices.unit_or_commit >= 0)]
    return {
        "name": activity.name,
        "words": activity.shown_part_text,
        "seconds": activity.end,
        "workers": activity.workers.tolist(),
        "row": np.searchsorted(activity.workers, bars.worker).tolist(),
        "lane": bars.lane.tolist(),
        "state": [state_index[state] for state in bars.name],
        "begin": _time_steps(bars.begin, seconds),
        "end": _time_steps(bars.end, seconds),
        "unit": bars.unit_or_commit.tolist(),
        "commits": _time_steps(commit_times[thinned_indices(commit_times.size, MAX_TICKS)], seconds),
    }


def _time_steps(nanoseconds: np.ndarray, timeline_seconds: float) -> list[int]:
    """Times in steps of the timeline, whole numbers from 0 to `_NUM_TIME_STEPS`."""
    share_of_timeline = nanoseconds / 1e9 / timeline_seconds
    time_steps: list[int] = np.rint(share_of_timeline * _NUM_TIME_STEPS).astype(int).tolist()
    return time_steps
