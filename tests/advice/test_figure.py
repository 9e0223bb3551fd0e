"""The figure of an advice has the order and the numbers of its table, and room for all values."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from gcjax import files
from gcjax.advice import write_figure
from gcjax.advice.base import APPROXIMATE, CLASSES, CODED, EXACT, STALE
from tests.advice.by_hand import advice_of, scheme_advice

NAN = float("nan")


@pytest.fixture
def panels_of(monkeypatch, tmp_path):
    """A function that draws an advice, and gives the panels of its figure."""
    figures = []
    monkeypatch.setattr(files, "write_figure", lambda path, figure: figures.append(figure))

    def draw(advice, **options):
        write_figure(advice, tmp_path / "advice.png", **options)
        figures[-1].canvas.draw()
        return figures[-1].axes

    return draw


def names(panel):
    return [label.get_text() for label in panel.get_yticklabels()]


def numbers(panel):
    return [label.get_text() for label in panel.child_axes[0].get_yticklabels()]


def drawn_at(panel, height):
    """(marker, x, colour) of all markers, and the ends of the line, at a height of the panel."""
    lines = [line for line in panel.lines if len(line.get_ydata()) and set(line.get_ydata()) == {height}]
    markers = [(line.get_marker(), line.get_xdata()[0], to_hex(line.get_color())) for line in lines[1:]]
    return markers, list(lines[0].get_xdata())


def test_schemes_stand_in_the_order_of_the_table_with_its_numbers(panels_of):
    rows = [scheme_advice("fast", STALE, (0.8, 0.7, 0.85), is_best=True), scheme_advice("bsp", EXACT, (0, 0, 0))]
    (panel,) = panels_of(advice_of(*rows))
    assert panel.get_figure().get_suptitle() == "Stragglers cost 50 % [40, 60] of BSP's time."
    assert names(panel) == ["fast", "bsp"] and numbers(panel) == ["80 % [70, 85]", "0.0 % [0.0, 0.0]"]
    assert panel.get_ylim()[0] > panel.get_ylim()[1]  # the first at the top
    assert [label.get_fontweight() for label in panel.get_yticklabels()] == ["bold", "normal"]
    markers, interval = drawn_at(panel, 0)
    assert [x for _, x, _ in markers] == pytest.approx([80]) and interval == pytest.approx([70, 85])
    left, right = panel.get_xlim()
    assert left < 0 and 100 < right < 110  # BSP and all at the median are always there
    assert {line.get_xdata()[0] for line in panel.lines if list(line.get_ydata()) == [0, 1]} == {0, 100}


def test_each_kind_of_gradient_has_a_colour_and_a_marker(panels_of):
    rows = [scheme_advice(name, name, (0.5, 0.4, 0.6)) for name in CLASSES]
    (panel,) = panels_of(advice_of(*rows))
    drawn = [drawn_at(panel, height)[0][0] for height in range(len(CLASSES))]
    assert len({marker for marker, _, _ in drawn}) == len({colour for _, _, colour in drawn}) == len(CLASSES)
    (legend,) = panel.get_figure().legends
    assert [text.get_text() for text in legend.get_texts()] == list(CLASSES)
    assert [to_hex(handle.get_color()) for handle in legend.legend_handles] == [colour for _, _, colour in drawn]


def test_what_is_far_off_is_an_arrow_at_the_edge_and_its_number_is_written(panels_of):
    rows = [
        scheme_advice("wide", STALE, (0.9, 0.5, 7.0)),
        scheme_advice("half", APPROXIMATE, (-0.5, -3.0, 0.5)),
        scheme_advice("far", CODED, (-6.5, -9.0, -5.0)),
        scheme_advice("none", CODED, (NAN, NAN, NAN)),
        scheme_advice("no interval", CODED, (-6.5, NAN, NAN)),
    ]
    (panel,) = panels_of(advice_of(*rows))
    drawn = [[(marker, x) for marker, x, _ in drawn_at(panel, height)[0]] for height in (0, 1, 2, 4)]
    assert drawn[0][-1] == (">", 200)
    assert [len(markers) for markers in drawn] == [2, 2, 1, 1]
    assert drawn[1][-1] == drawn[2][-1] == drawn[3][-1] == ("<", -100)
    assert drawn_at(panel, 0)[1] == pytest.approx([50, 200]) and drawn_at(panel, 1)[1] == pytest.approx([-100, 50])
    assert numbers(panel)[2:] == ["-650 % [-900, -500]", "- % [-, -]", "-650 % [-, -]"]
    assert panel.get_xlim()[0] > -110 and panel.get_xlim()[1] < 210


def test_many_schemes_stand_in_two_columns_and_the_fastest_alone_in_one(panels_of):
    rows = [scheme_advice(f"scheme {index}", EXACT, (0.5, 0.4, 0.6)) for index in range(45)]
    panels = panels_of(advice_of(*rows))
    assert len(panels) == 2 and [*names(panels[0]), *names(panels[1])] == [row.scheme.name for row in rows]
    assert panels[0].get_xlim() == panels[1].get_xlim() and panels[0].get_ylim() == panels[1].get_ylim()
    width, height = panels[0].get_figure().get_size_inches()
    assert height < width
    (panel,) = panels_of(advice_of(*rows), top=3)
    assert names(panel) == ["scheme 0", "scheme 1", "scheme 2"]


def test_no_two_texts_of_many_schemes_overlap(panels_of):
    rows = [scheme_advice(f"a name of some length {index}", EXACT, (-6.5, -9, -5)) for index in range(45)]
    panels = panels_of(advice_of(*rows))
    labels = [label for panel in panels for axis in (panel, *panel.child_axes) for label in axis.get_yticklabels()]
    boxes = np.array([label.get_window_extent().extents for label in labels])  # x0, y0, x1, y1
    does_overlap = (boxes[:, None, :2] < boxes[None, :, 2:]).all(axis=2)
    does_overlap &= does_overlap.T & ~np.eye(len(boxes), dtype=bool)
    assert not does_overlap.any()


@pytest.mark.filterwarnings("error")
def test_names_are_no_formulas_and_long_ones_are_cut(panels_of):
    rows = [scheme_advice(name, EXACT, (0.5, 0.4, 0.6)) for name in ("$\\x$", "a" * 300, "two\nlines")]
    (panel,) = panels_of(advice_of(*rows))
    assert names(panel) == ["\\$\\x\\$", "a" * 43 + "…", "two lines"]


@pytest.mark.parametrize(("ending", "begin"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("SVG", b"<?xml")])
def test_the_ending_says_the_format(tmp_path, ending, begin):
    file = tmp_path / f"advice.{ending}"
    write_figure(advice_of(scheme_advice("bsp", EXACT, (0, 0, 0))), file)
    assert file.read_bytes().startswith(begin)


def test_other_formats_and_numbers_are_refused(tmp_path):
    advice = advice_of(scheme_advice("bsp", EXACT, (0, 0, 0)))
    with pytest.raises(ValueError, match=r"must end in \.png, \.pdf or \.svg; got .*advice\.xyz"):
        write_figure(advice, tmp_path / "advice.xyz")
    with pytest.raises(ValueError, match="top must be .*; got 0"):
        write_figure(advice, tmp_path / "advice.png", top=0)
