"""How the curve of each scheme is drawn: in a colour of its own, and so that none hides another."""

import itertools
from typing import Any

import numpy as np

from gcjax.analysis.store import Results

# Okabe and Ito's colours, which colour-blind readers can tell apart, and a brown.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")

_DASHES = ("-", (0, (6, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))  # of schemes that share a colour
_DASH = 3.0  # widths of a line
_NEAR, _OFTEN = 0.01, 0.3  # of the height of a panel, of the time that two curves have in common
_MOMENTS = 200


def styles(results: Results, name: str) -> dict[str, dict[str, Any]]:
    """Scheme -> colour, width and dashes of its curve.

    Of g curves that coincide, the k-th (from 0) is drawn for (g - k)/g of its length, with gaps for those before it.

    Args:
      results: of the run.
      name: of the metric by which curves coincide.
    """
    by_scheme = {}
    for i, scheme in enumerate(results.schemes):
        dashes = _DASHES[i // len(COLOURS) % len(_DASHES)]
        by_scheme[scheme] = {"color": COLOURS[i % len(COLOURS)], "linewidth": 1.8, "linestyle": dashes}
    for group in coinciding(results, name):
        for k, scheme in enumerate(group[1:], start=1):
            by_scheme[scheme]["linestyle"] = (0, ((len(group) - k) * _DASH, k * _DASH))
    return by_scheme


def seed_curves(results: Results, scheme: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """float[V] times and float[S, V] values of all seeds; one that ended before the others keeps its last value."""
    seeds = results.seeds(scheme)
    grid = np.unique(np.concatenate([seed["time"] for seed in seeds]))
    return grid, np.stack([np.interp(grid, seed["time"], seed[name]) for seed in seeds])


def coinciding(results: Results, name: str) -> list[list[str]]:
    """Groups of schemes whose curves lie on one another for much of the time."""
    curves = {scheme: seed_curves(results, scheme, name) for scheme in results.schemes}
    scale = np.log if name.endswith("loss") else np.asarray
    means = {scheme: (grid, scale(values.mean(axis=0))) for scheme, (grid, values) in curves.items()}
    every = np.concatenate([values[np.isfinite(values)] for _, values in means.values()])
    height = float(np.ptp(every)) if every.size else 0.0
    groups: list[list[str]] = []
    for scheme, curve in means.items():
        near = [group for group in groups if any(_coincide(curve, means[other], height) for other in group)]
        groups = [group for group in groups if group not in near] + [[*itertools.chain(*near), scheme]]
    return [group for group in groups if len(group) > 1]


def _coincide(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray], height: float) -> bool:
    end = min(one[0][-1], other[0][-1])
    moments = np.linspace(0, end, _MOMENTS)
    apart = np.abs(np.interp(moments, *one) - np.interp(moments, *other))
    return bool((apart <= _NEAR * height).mean() >= _OFTEN)
