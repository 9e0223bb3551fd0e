"""The figure of a trace: a cell of many stands for the largest of them, and any trace can be drawn."""

import matplotlib.image
import numpy as np
import pytest

from gcjax.analysis import heat_map
from gcjax.stragglers.traces.base import trace_of_array


def test_many_cells_are_pooled_by_their_largest():
    values = np.ones((3, 2500))
    values[1, 1234] = 7.0
    values[2, 600:610] = np.nan
    pooled = heat_map._max_pooled(values, axis=1)
    assert pooled.shape == (3, 1000)
    assert pooled[1].max() == 7.0 and (pooled[1] == 7).sum() == 1
    assert np.isnan(pooled[2]).sum() == 4 and not np.isnan(pooled[:2]).any()
    assert heat_map._max_pooled(values, axis=0) is values


def test_a_slow_worker_is_a_red_row(tmp_path):
    """Of a column of pixels in the middle of the panel: red for worker 1, grey for a gap, nearly white for others."""
    seconds = np.ones((60, 4))
    seconds[:, 1] = 3.0
    seconds[20:40, 2] = np.nan
    heat_map.write_heat_map(trace_of_array(seconds), tmp_path / "map.png")
    column = matplotlib.image.imread(tmp_path / "map.png")[:, 500, :3]
    is_red = (column[:, 0] > 0.4) & (column[:, 1] < 0.4) & (column[:, 2] < 0.4)
    is_grey = np.isclose(column, 0xBB / 0xFF, atol=0.01).all(axis=1)
    is_median = np.isclose(column, 0xF7 / 0xFF, atol=0.01).all(axis=1)
    assert is_red.sum() == pytest.approx(is_grey.sum(), abs=3) == pytest.approx(is_median.sum() / 2, abs=3)
    assert np.flatnonzero(is_red).max() < np.flatnonzero(is_grey).min()


def test_names_of_workers_are_no_formulas(tmp_path):
    trace = trace_of_array(np.ones((3, 2)))._replace(workers=("$\\gpu$", "_b"))
    heat_map.write_heat_map(trace, tmp_path / "map.svg")
    assert (tmp_path / "map.svg").stat().st_size > 1000


@pytest.mark.slow("shape3")
@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (3000, 2), (2, 3000)])
def test_any_shape_is_drawn(tmp_path, shape):
    heat_map.write_heat_map(trace_of_array(np.random.default_rng(0).exponential(size=shape)), tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000
