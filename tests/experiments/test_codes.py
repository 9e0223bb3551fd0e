"""The comparison of codes and the conditioning study, small and end to end."""

import json

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
from matplotlib.colors import to_rgb

from experiments import codes as experiment
from experiments.codes import _round_completion_times, compare_codes
from experiments.conditioning import conditioning, interpolation_errors
from gcjax import codes, files, progress, stragglers


def test_codes_are_measured_and_written(tmp_path):
    found = compare_codes(
        {
            "FRC": codes.fractional_repetition(4, num_stragglers=1),
            "uncoded": codes.uncoded(4, load=2),
            "none": codes.partial(codes.assignments.bernoulli(4, num_chunks=9, load=1, rng_key=jax.random.key(0))),
        },
        stragglers={"constant": stragglers.constant(), "exponential": stragglers.exponential()},
        num_stragglers=1,
        num_trials=20,
        out=tmp_path,
        progress=progress.silent(),
    )
    frc, uncoded, none = found
    assert (frc.load, frc.sent, frc.mean_error) == (2.0, 1.0, 0.0)
    np.testing.assert_allclose(frc.times[0], 2.0)  # two chunks of a quarter of the data
    np.testing.assert_allclose(uncoded.times[0], 1.0)  # two chunks of an eighth
    np.testing.assert_allclose([uncoded.mean_error, uncoded.worst_error], 0.5)
    assert (none.never == 1).all() and np.isnan(none.times).all()
    table = pq.read_table(tmp_path / "codes.parquet")
    assert table["code"].to_pylist() == ["FRC", "uncoded", "none"]
    np.testing.assert_allclose(table["constant time"][0].as_py(), 2.0)
    summary = (tmp_path / "summary.md").read_text()
    assert "| FRC | 2 | 1 | exact |" in summary and "never" in summary
    assert json.loads((tmp_path / "run.json").read_text())["num_stragglers"] == 1
    assert (tmp_path / "codes.png").stat().st_size > 1000


def test_chunks_take_their_share_of_units():
    durations = np.array([[[1.0, 2.0], [10.0, 20.0]]], np.float32)  # one round, two units, two workers
    ends = _round_completion_times(codes.uncoded(2, load=4), jax.numpy.asarray(durations))  # four chunks of half a unit
    np.testing.assert_allclose(ends, 2.0)
    whole = codes.partial(codes.assignments.cyclic(2, load=2))
    np.testing.assert_allclose(_round_completion_times(whole, jax.numpy.asarray(durations)), 2.0)


def test_codes_of_different_sizes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"same number of workers; got \[3, 4\]"):
        compare_codes(
            {"a": codes.uncoded(3), "b": codes.uncoded(4)},
            stragglers={},
            num_stragglers=1,
            out=tmp_path,
            progress=progress.silent(),
        )


@pytest.mark.slow
def test_conditioning_study(tmp_path):
    rows = conditioning(
        num_workers=(4,), num_stragglers=(1,), num_blocks=(2,), max_masks=4, degrees=(5,), num_polynomials=4,
        out=tmp_path, progress=progress.silent(),
    )  # fmt: skip
    with_two_blocks = ["Ye-Abbe, polynomial", "Ye-Abbe, random", "partial", "partial, harmonic"]  # others have L = 1
    assert [row.code for row in rows] == with_two_blocks
    assert all(1 < row.typical <= row.worst < 1e3 and row.float64 < 1e-12 < row.float32 < 1e-4 for row in rows)
    assert pq.read_table(tmp_path / "conditioning.parquet").num_rows == 4
    assert "| Ye-Abbe, random | 4 | 1 | 2 |" in (tmp_path / "summary.md").read_text()
    for name in ("conditioning.png", "interpolation.png", "interpolation.parquet", "run.json"):
        assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"num_workers": (8, 1)}, "num_workers must be a whole number at least 2; got 1"),
        ({"num_workers": ()}, "num_workers must have a value at least"),
        ({"degrees": ()}, "degrees must have a value at least"),
        ({"num_polynomials": 0}, "num_polynomials must be a whole number at least 1; got 0"),
        ({"safe": -1}, "safe must be at least 0; got -1"),
        ({"num_workers": (2,), "num_stragglers": (5,)}, "there must be a code of some n, s and L"),
    ],
)
def test_a_conditioning_study_of_nothing_is_refused(changes, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        conditioning(**changes, out=tmp_path, progress=progress.silent())
    assert not list(tmp_path.iterdir())


def test_interpolation_loses_digits_with_the_degree_and_adding_does_not():
    digits, errors = interpolation_errors((3, 20, 30), 100, 0)
    three, twenty, thirty, added = errors.values()
    at = list(digits).index(8)
    assert 1e-9 < added[at] < 1e-7 and 1e-9 < three[at] < 1e-6
    assert twenty[at] > 10 * three[at] and thirty[at] > 30 * twenty[at]
    assert thirty[0] > 1 > added[0]


def test_typical_and_worst_condition_are_both_seen_where_they_are_equal(monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr(files, "write_figure", lambda path, figure: figures.append(figure))
    nothing, one = np.zeros(1), np.ones(1)
    code = experiment.Measurement("FRC", 3.0, 1.0, 0.1, 0.2, one, nothing, nothing, 1e-3, 100.0, 100.0, 1e-7, 1e-2)
    experiment._figure([code], ["exponential"], tmp_path / "unused.png")
    panel = figures[0].axes[2]
    panel.get_legend().remove()
    figures[0].canvas.draw()
    image, box = np.asarray(figures[0].canvas.buffer_rgba())[::-1, :, :3] / 255, panel.get_window_extent()
    part = image[int(box.y0) : int(box.y1), int(box.x0) : int(box.x1)]
    for colour in ("C0", "C1"):
        assert (np.abs(part - np.array(to_rgb(colour))).max(axis=-1) < 0.1).sum() > 10
