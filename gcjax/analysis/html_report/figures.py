"""What the scripts of a page draw, as JSON, thinned so that the page stays small."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gcjax.analysis.curves import linear_time
from gcjax.analysis.store import Columns, Results
from gcjax.analysis.styles import COLOURS, seed_curves, styles
from gcjax.analysis.timelines.activity import Activity, part
from gcjax.analysis.timelines.intervals import STATE_COLOURS
from gcjax.analysis.timelines.slices import SERVER, slices

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

_DARK = {"waiting": "#3A3D42", "failed": "#D8D8D8"}  # of the states that are grey, on a dark page
_STEPS = 1_000_000  # into which the time of a timeline is divided


def charts(results: Results) -> list[dict[str, Any]]:
    """The loss, and the target's metric, against virtual time: a chart each, with a curve a scheme."""
    goal = results.facts["target"]
    losses = [name for name in ("train_loss", "loss", "test_loss") if name in results.metrics]
    metrics = list(dict.fromkeys([*losses[:1], goal["metric"]]))
    scheme_styles = styles(results, metrics[0])
    return [
        {
            "title": f"{metric.replace('_', ' ')} against virtual time",
            "metric": metric.replace("_", " "),
            "clock": "virtual time (s)",
            "logarithmic": metric.endswith("loss"),
            "linearUntil": linear_time(results),
            "target": goal["value"] if metric == goal["metric"] else None,
            "from": _lowest_shown(goal) if metric == goal["metric"] else None,
            "curves": [_curve(results, scheme, metric, style) for scheme, style in scheme_styles.items()],
        }
        for metric in metrics
    ]


def loss_charts(activities: Sequence[Activity]) -> list[dict[str, Any]]:
    """The loss of the commits of live runs against time, a chart; none if no run has one."""
    known = [(activity.name, activity.loss) for activity in activities if activity.loss and len(activity.loss["time"])]
    curves = [_single_curve(name, loss, i, len(known)) for i, (name, loss) in enumerate(known)]
    chart = {"title": "loss of the commits against time", "metric": "loss", "clock": "time (s)", "logarithmic": True,
             "linearUntil": None, "target": None, "from": None, "curves": curves}  # fmt: skip
    return [chart] if curves else []


def _single_curve(name: str, loss: Columns, number: int, count: int) -> dict[str, Any]:
    """The curve of one run of `count`, in the colour and the dashes of its number."""
    shown = _thinned(len(loss["time"]), points_a_curve(count))
    times, values = ([_rounded(x) for x in loss[column][shown]] for column in ("time", "value"))
    dashes = [[], [6, 3], [2, 2], [8, 2, 2, 2]][number // len(COLOURS) % 4]
    return {"name": name, "colour": COLOURS[number % len(COLOURS)], "dashes": dashes, "halted": False, "band": False,
            "time": times, "mean": values, "low": values, "high": values}  # fmt: skip


def points_a_curve(num_curves: int) -> int:
    """How many points a curve has at most, if a chart has so many curves."""
    return min(MAX_POINTS, max(20, MAX_POINTS_OF_CHART // max(1, num_curves)))


def _thinned(count: int, most: int) -> np.ndarray:
    """The indices of the points that are drawn: all, or `most` evenly spaced ones, the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def _lowest_shown(goal: dict[str, Any]) -> float | None:
    """Where the axis of a metric that is to rise to a target of at most 1 begins; None if it shows all values."""
    return max(0.0, 1 - max(6 * (1 - goal["value"]), 0.2)) if goal["higher_is_better"] else None


def _curve(results: Results, scheme: str, metric: str, style: dict[str, Any]) -> dict[str, Any]:
    """The mean over seeds, and their range."""
    times, values = seed_curves(results, scheme, metric)  # [V], [S, V]
    shown = _thinned(times.size, points_a_curve(len(results.schemes)))
    columns = {"time": times, "mean": values.mean(axis=0), "low": values.min(axis=0), "high": values.max(axis=0)}
    dashes = style["linestyle"][1] if isinstance(style["linestyle"], tuple) else []
    return {
        "name": scheme,
        "colour": style["color"],
        "dashes": [round(style["linewidth"] * length, 2) for length in dashes],
        "halted": all(results.facts["schemes"][scheme]["stalled"]),
        "band": len(values) > 1,
        **{name: [_rounded(x) for x in column[shown]] for name, column in columns.items()},
    }


def _rounded(value: float) -> float | None:
    """A number with five digits; None if it is none."""
    return float(f"{value:.5g}") if np.isfinite(value) else None


def timelines(activities: Sequence[Activity]) -> dict[str, Any]:
    """Who did what when: for each scheme the bars of its workers, in steps of a millionth of the time."""
    shown = activities[:MAX_TIMELINES]
    parts = [part(activity, max_units=max(1, MAX_UNITS // len(shown))) for activity in shown]
    seconds = max((activity.end for activity in parts), default=1.0)
    return {
        "states": [[state, colour, _DARK.get(state, colour)] for state, colour in STATE_COLOURS.items()],
        "seconds": seconds,
        "steps": _STEPS,
        "runs": [_bars(activity, seconds) for activity in parts],
    }


def _bars(activity: Activity, seconds: float) -> dict[str, Any]:
    """The bars of one scheme: columns `row`, `lane`, `state`, `begin`, `end`, `unit`; and the times of its commits."""
    drawn = slices(activity)
    is_server = drawn.worker == SERVER
    is_bar = ~is_server & (drawn.name != "waiting")
    place = {state: i for i, state in enumerate(STATE_COLOURS)}
    commits = drawn.begin[is_server & (drawn.unit >= 0)]
    return {
        "name": activity.name,
        "words": activity.words,
        "seconds": activity.end,
        "workers": activity.workers.tolist(),
        "row": np.searchsorted(activity.workers, drawn.worker[is_bar]).tolist(),
        "lane": drawn.lane[is_bar].tolist(),
        "state": [place[name] for name in drawn.name[is_bar]],
        "begin": _steps(drawn.begin[is_bar], seconds),
        "end": _steps(drawn.end[is_bar], seconds),
        "unit": drawn.unit[is_bar].tolist(),
        "commits": _steps(commits[_thinned(commits.size, MAX_TICKS)], seconds),
    }


def _steps(nanoseconds: np.ndarray, seconds: float) -> list[int]:
    """Times in steps."""
    steps: list[int] = np.rint(nanoseconds / 1e9 / seconds * _STEPS).astype(int).tolist()
    return steps
