"""The figures of the docs: where each comes from, and that it is drawn in all its colours."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from experiments import figures
from gcjax.analysis import styles
from tests.docs import pages

DOCS = figures.ROOT / "docs"


def test_every_figure_of_the_docs_has_a_source():
    assert {file.stem for file in DOCS.glob("*.png")} == set(figures.FIGURES)
    texts = "".join(page.read_text() for page in pages.PAGES.values())
    assert set(re.findall(r"(\w+)\.png\)", texts)) == set(figures.FIGURES)


def test_every_source_is_a_config():
    for source in figures.FIGURES.values():
        assert (figures.ROOT / "configs" / source.config).is_file()


def test_a_config_runs_once_for_all_of_its_figures(tmp_path, monkeypatch):
    runs = []

    def finished(config, out):
        runs.append(config)
        out.mkdir(parents=True)
        for source in figures.FIGURES.values():
            (out / source.picture).write_text(f"{config} {source.picture}")
        return out

    monkeypatch.setattr(figures, "_run_config", finished)
    figures.draw(["loss_vs_time", "codes", "timeline"], docs=tmp_path)
    assert runs == ["quickstart.gin", "codes.gin"]
    drawn = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert drawn["timeline.png"] == "quickstart.gin timeline.png" and len(drawn) == 3


def test_a_run_without_the_picture_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must have the picture codes.png"):
        figures.draw(["codes"], docs=tmp_path, run=tmp_path)


def test_every_scheme_has_its_own_colour_in_the_readme():
    image = imread(DOCS / "loss_vs_time.png")[..., :3]
    for colour in styles.COLOURS:
        same = np.abs(image - np.array(to_rgb(colour))).max(axis=-1) < 1.5 / 255
        assert same.sum() > 200, colour


def test_the_figures_stay_small():
    assert sum(Path(file).stat().st_size for file in DOCS.glob("*.png")) < 1_500_000
