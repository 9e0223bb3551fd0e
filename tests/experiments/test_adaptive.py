"""The experiment of codes that change, small and end to end."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.adaptive.rounds import HEADS, adaptive_codes
from gcjax import codes, progress, stragglers
from gcjax.codes import assignments

CODES = {
    "uncoded": codes.uncoded(4),
    "L=1": codes.partial(assignments.cyclic(4, load=2)),
    "L=2": codes.partial(assignments.cyclic(4, load=2), num_blocks=2, rows="harmonic"),
}
CALM = stragglers.constant()


def found(tmp_path, **options):
    arguments = {"num_rounds": 6, "num_seeds": 2, "windows": (2,), "network": stragglers.Network(upload=0.5)}
    return adaptive_codes(CODES, out=tmp_path, progress=progress.silent(), **{**arguments, **options})


def test_times_are_those_of_the_rounds_and_written(tmp_path):
    slow = stragglers.scaled(CALM, factor=9.0, workers=(0,))
    calm, changed = found(tmp_path, stragglers={"calm": (CALM,), "changes": (CALM, slow)})
    # A round takes 1.5, 1.5, 2.25 s; nobody is slow, and nothing is better than the first.
    assert [calm[head] for head in HEADS] == [
        "calm", "2", "uncoded", "1.500", "1.000", "0.000", "1.000", "0.0", "L=2", "1.50", "1.000",
    ]  # fmt: skip
    # With worker 0 nine times as slow they take 9.5, 2.5 (chunk 0 is the second of worker 3), 18.25 s.
    assert changed["Best fixed"] == "L=1" and changed["Worst fixed"] == "L=2"
    best, own = 3 * (1.5 + 2.5), 3 * 1.5 + 9.5 + 2 * 2.5  # seen once, worker 0 is worth a change
    np.testing.assert_allclose(float(changed["Ratio"]), own / best, atol=6e-4)
    np.testing.assert_allclose(float(changed["Its seconds a round"]), best / 6, atol=6e-4)
    assert changed["Changes"] == "1.0" and changed["Every round at its best"] == "1.000"
    table = pq.read_table(tmp_path / "adaptive.parquet")
    assert table["Stragglers"].to_pylist() == ["calm", "changes"]
    assert "| calm | 2 | uncoded |" in (tmp_path / "summary.md").read_text()
    assert json.loads((tmp_path / "run.json").read_text())["num_rounds"] == 6


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="needs codes, stragglers with a model each"):
        found(tmp_path, stragglers={"none": ()})
    with pytest.raises(ValueError, match="num_rounds must be a whole number at least 2; got 1"):
        found(tmp_path, stragglers={"two": (CALM, CALM)}, num_rounds=1)
    with pytest.raises(ValueError, match="num_seeds must be a whole number at least 2; got 1"):
        found(tmp_path, stragglers={"one": (CALM,)}, num_seeds=1)
