"""How the curve of each scheme is drawn: in a colour of its own, and so that none hides another."""

import itertools
from typing import Any

import numpy as np

from gcjax.analysis.store import Results

# Okabe and Ito's colours, which colour-blind readers can tell apart, and a brown.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")

_DASHES = ("-", (0, (6, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))  # of schemes that share a colour
_DASH_LENGTH = 3.0  # widths of a line
_MAX_DISTANCE = 0.01  # of curves that lie on one another, as a share of the height of the panel
_MIN_TIME_SHARE = 0.3  # for which they do, of the time that they have in common
_NUM_MOMENTS = 200


def styles(results: Results, metric: str) -> dict[str, dict[str, Any]]:
    """Scheme -> colour, width and dashes of its curve.

    Of some curves that coincide, each is drawn with gaps that show the ones drawn before it, the longer the more.

    Args:
      results: of the run.
      metric: its name; whose curves may coincide.
    """
    style_of_scheme = {}
    for index, scheme in enumerate(results.schemes):
        dashes = _DASHES[index // len(COLOURS) % len(_DASHES)]
        style_of_scheme[scheme] = {"color": COLOURS[index % len(COLOURS)], "linewidth": 1.8, "linestyle": dashes}
    for group in coinciding_schemes(results, metric):
        for num_curves_below, scheme in enumerate(group[1:], start=1):  # the first is drawn as it is
            dash = (len(group) - num_curves_below) * _DASH_LENGTH
            gap_for_curves_below = num_curves_below * _DASH_LENGTH
            offset_and_dashes = (0, (dash, gap_for_curves_below))  # of matplotlib, in widths of the line
            style_of_scheme[scheme]["linestyle"] = offset_and_dashes
    return style_of_scheme


def seed_curves(results: Results, scheme: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """The curve of a metric for each seed, all at the same times: those of any evaluation of any seed.

    Args:
      results: of a run, as `gcjax.analysis.load` reads it.
      scheme: one of `results.schemes`.
      metric: a column of `results.metrics`.

    Returns:
      float[V] virtual seconds, and float[S, V] interpolated values of S seeds; one that ended early keeps its last one.
    """
    seeds = results.seeds(scheme)
    times = np.unique(np.concatenate([seed["time"] for seed in seeds]))
    return times, np.stack([np.interp(times, seed["time"], seed[metric]) for seed in seeds])


def coinciding_schemes(results: Results, metric: str) -> list[list[str]]:
    """Groups of two or more schemes whose mean curves of the metric lie, each on another one's, for much of the time.

    A loss is compared by its logarithm, as it is drawn.
    """
    curves = {scheme: seed_curves(results, scheme, metric) for scheme in results.schemes}
    # Losses of runs that diverge are inf or NaN, and near nothing.
    with np.errstate(divide="ignore", invalid="ignore"):
        return _coinciding_groups(curves, metric)


def _coinciding_groups(curves: dict[str, tuple[np.ndarray, np.ndarray]], metric: str) -> list[list[str]]:
    """`coinciding_schemes` of these curves, scheme -> (times float[V], values float[S, V])."""
    scale = np.log if metric.endswith("loss") else np.asarray
    mean_curves = {scheme: (times, scale(values.mean(axis=0))) for scheme, (times, values) in curves.items()}
    finite_values = np.concatenate([values[np.isfinite(values)] for _, values in mean_curves.values()])
    panel_height = float(np.ptp(finite_values)) if finite_values.size else 0.0  # in the unit of the curves
    # A scheme joins all groups with a curve that coincides with its own, and makes them one.
    groups: list[list[str]] = []
    for scheme, curve in mean_curves.items():
        groups_on_this_curve = [
            group for group in groups if any(_do_coincide(curve, mean_curves[other], panel_height) for other in group)
        ]
        other_groups = [group for group in groups if group not in groups_on_this_curve]
        groups = [*other_groups, [*itertools.chain(*groups_on_this_curve), scheme]]
    return [group for group in groups if len(group) > 1]


def _do_coincide(
    curve: tuple[np.ndarray, np.ndarray], other_curve: tuple[np.ndarray, np.ndarray], panel_height: float
) -> bool:
    """Whether two curves, (times, values) each, are near one another for much of the time that they have in common.

    Both are float[V], V points, each at increasing times of its own; `panel_height` is the range of all curves. A value
    that is NaN is near nothing.
    """
    (times, _), (other_times, _) = curve, other_curve
    common_end = min(times[-1], other_times[-1])
    moments = np.linspace(0, common_end, _NUM_MOMENTS)
    distance = np.abs(np.interp(moments, *curve) - np.interp(moments, *other_curve))
    is_near = distance <= _MAX_DISTANCE * panel_height
    return bool(is_near.mean() >= _MIN_TIME_SHARE)
