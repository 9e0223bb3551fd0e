"""Timelines of three workers, worked out by hand: `tests/golden/protocols.json`, with the reasoning.

The protocols are those of `table`, without a network. The others of the package are in `tests/golden/schedules.json`.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from gcjax import protocols
from tests.protocols import table

FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = json.loads((FOLDER / "protocols.json").read_text())
# A steady worker, one that is slow once, one that is always slow.
DURATIONS = np.array([[1.0, 1.5, 3.0], [1.0, 4.0, 3.0]] + [[1.0, 1.5, 3.0]] * 6)


@pytest.mark.parametrize("name", GOLDEN)
def test_timelines(name, x64):
    units = table.shape_of(name)[0] // len(DURATIONS)  # a code's round has several
    commits, weights = table.commits_of(table.schedule(name, np.repeat(DURATIONS, units, axis=0)))
    golden = GOLDEN[name]["commits"]
    assert [time for time, _ in commits] == [time for time, _ in golden]
    assert [parts for _, parts in commits] == [[tuple(row[:4]) for row in rows] for _, rows in golden]
    for found, (_, rows) in zip(weights, golden, strict=True):
        np.testing.assert_allclose(found, [row[4] for row in rows], rtol=1e-6)


def test_every_protocol_has_a_timeline():
    others = {name.split()[0] for name in json.loads((FOLDER / "schedules.json").read_text())}
    assert set(GOLDEN) | others == set(protocols.TABLE)
    assert all(len(entry["reasoning"]) > 20 for entry in GOLDEN.values())
