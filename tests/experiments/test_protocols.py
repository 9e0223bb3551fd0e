"""The map of protocols: its figure."""

import numpy as np
import pytest

from experiments import protocols
from gcjax import files


@pytest.mark.parametrize("count", [1, 3, 28])
def test_the_label_of_the_colours_is_within_the_figure(count, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(files, "write_figure", lambda path, figure: drawn.append(figure))
    monkeypatch.setattr(protocols, "_mean_times", lambda rows, schemes, conditions: np.arange(1.0, count + 1)[:, None])
    protocols._figure({}, [f"scheme {i}" for i in range(count)], ["bursty"], ["free"], tmp_path / "map.png")
    figure = drawn[0]
    figure.canvas.draw()
    label = figure.axes[-1].yaxis.label.get_window_extent()
    assert label.y0 >= 0 and label.y1 <= figure.bbox.height
