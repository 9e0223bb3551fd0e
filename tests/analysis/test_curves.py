"""The figure of metrics against time: where curves begin, that none hides another, and what the legend explains."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from gcjax import analysis, files
from gcjax.analysis import curves, styles
from tests.analysis.results import renamed, results


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draws results and returns the figure, laid out."""
    figures = []
    monkeypatch.setattr(files, "write_figure", lambda path, figure: figures.append(figure))

    def draw(found):
        curves.loss_vs_time(found, tmp_path / "unused.png")
        figures[-1].canvas.draw()
        return figures[-1]

    return draw


def number_of_pixels(figure, panel, colour):
    """How much of a panel has a colour."""
    image = np.asarray(figure.canvas.buffer_rgba())[::-1, :, :3] / 255
    box = panel.get_window_extent()
    part = image[int(box.y0) : int(box.y1), int(box.x0) : int(box.x1)]
    return (np.abs(part - np.array(to_rgb(colour))).max(axis=-1) < 1.5 / 255).sum()


@pytest.mark.slow("False")
@pytest.mark.parametrize("wide", [False, True])
def test_every_curve_begins_at_time_zero_with_its_first_value(drawn, monkeypatch, wide):
    monkeypatch.setattr(curves, "_needs_logarithmic_time", lambda results: wide)
    found = results()
    panel = drawn(found).axes[0]
    assert panel.get_xscale() == ("symlog" if wide else "linear")
    box = panel.get_window_extent()
    lines = [line for line in panel.get_lines() if line.get_label() in found.schemes]
    assert len(lines) == 3
    for line in lines:
        first, second = panel.transData.transform(line.get_xydata()[:2])
        assert first[0] == pytest.approx(box.x0) and box.y0 < first[1] < box.y1
        assert second[0] - first[0] > 0.01 * box.width  # so that the way from the one to the other is seen
        assert line.get_xydata()[0][1] == pytest.approx(2.01)  # the loss of `trajectory` before the first step


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 8, 12])
def test_curves_that_coincide_are_all_seen(drawn, number):
    found = results()
    rows = found.metrics["scheme"] == "ASP"
    names = [f"scheme {i}" for i in range(number)]
    same = {name: np.concatenate([column[rows]] * number) for name, column in found.metrics.items()}
    same["scheme"] = np.repeat(names, rows.sum())
    facts = {**found.facts, "schemes": dict.fromkeys(names, found.facts["schemes"]["ASP"])}
    found = found._replace(metrics=same, facts=facts)
    figure, each = drawn(found), styles.styles(found, "train_loss")
    assert len({str(style) for style in each.values()}) == number
    for collection in figure.axes[0].collections:  # without the bands, which tint the colours
        collection.set_visible(False)
    figure.canvas.draw()
    shown = {style["color"]: number_of_pixels(figure, figure.axes[0], style["color"]) for style in each.values()}
    assert min(shown.values()) > 50, shown


@pytest.mark.parametrize(("metric", "value", "higher"), [("score", 25.0, True), ("reward", -3.0, True)])
def test_a_metric_that_rises_and_is_no_share_is_seen(drawn, metric, value, higher):
    found = results()
    scores = (value - 1) + 2 * found.metrics["accuracy"]  # from below the target to above it
    target = analysis.target(metric, value, [metric], higher_is_better=higher)
    found = found._replace(metrics={**found.metrics, metric: scores}, facts={**found.facts, "target": target._asdict()})
    (panel,) = (axes for axes in drawn(found).axes if metric in axes.get_ylabel() + axes.get_title())
    low, high = panel.get_ylim()
    assert low <= scores.min() and high >= scores.max()
    assert curves.lowest_value_shown(target._asdict()) is None


@pytest.mark.parametrize(("failed", "halts"), [((), False), ((0,), True)])
def test_the_legend_names_bands_and_crosses(drawn, failed, halts):
    (legend,) = drawn(results(failed=failed)).legends
    names = {text.get_text() for text in legend.get_texts()}
    assert {"ASP", "BSP", "FRC", "line: mean of seeds; band: lowest to highest"} <= names
    assert ("came to a halt" in names) == halts


def test_a_legend_of_long_names_is_in_the_figure(drawn):
    found = results()
    for name in tuple(found.schemes):
        found = renamed(found, name, f"{name}, with a long explanation of what is wrong with its messages")
    figure = drawn(found)
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width


@pytest.mark.parametrize("name", ["_hidden", "$\\foo$", "a $ b $ c"])
def test_any_name_of_a_scheme_is_in_the_legend_as_it_is(drawn, name):
    found = renamed(results(), "ASP", name)
    legend, as_it_is = drawn(found).legends[0], Text(0, 0, name, parse_math=False)
    (entry,) = (text for text in legend.get_texts() if text.get_text() == files.figure_text(name))
    parsed, is_math = entry._preprocess_math(entry.get_text())
    assert not is_math and parsed.lstrip("\u200b") == as_it_is.get_text()


def test_a_loss_of_zero_is_nowhere_on_a_logarithmic_axis(drawn):
    target = analysis.target("train_loss", 0.0, ["train_loss"])
    found = results()
    figure = drawn(found._replace(facts={**found.facts, "target": target._asdict()}))
    assert not any(text.get_text() == "target" for text in figure.axes[0].texts)


def test_only_curves_that_coincide_have_gaps():
    found = results(failed=[0])
    late = found.metrics["time"] > 0.8 * found.metrics["time"].max()
    loss, asp = found.metrics["train_loss"], found.metrics["scheme"] == "ASP"
    loss[found.metrics["scheme"] == "FRC"] *= 3
    assert styles.coinciding_schemes(found, "train_loss") == []
    extra = {name: np.concatenate([column, column[asp]]) for name, column in found.metrics.items()}
    extra["scheme"] = np.append(found.metrics["scheme"], np.full(asp.sum(), "twin"))
    extra["train_loss"] = np.append(loss, np.where(late[asp], 2.0, 1.001) * loss[asp])
    facts = {**found.facts, "schemes": {**found.facts["schemes"], "twin": found.facts["schemes"]["ASP"]}}
    twins = found._replace(metrics=extra, facts=facts)
    assert styles.coinciding_schemes(twins, "train_loss") == [["ASP", "twin"]]
    lines = {scheme: style["linestyle"] for scheme, style in styles.styles(twins, "train_loss").items()}
    assert lines.pop("twin") == (0, (3.0, 3.0)) and set(lines.values()) == {"-"}
