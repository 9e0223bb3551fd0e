"""The page as a file: what is in it, that nothing of it comes from elsewhere, and that all text is escaped."""

import dataclasses
import html.parser
import json
import re

import numpy as np
import pytest

from gcjax import analysis
from gcjax.analysis import paired, summary
from gcjax.analysis.html_report import blocks, figures, sections
from gcjax.analysis.html_report.page import asset, page
from gcjax.analysis.html_report.verdict import verdict
from gcjax.analysis.timelines import activity, folder
from tests.analysis.results import SCHEMES, S, W, renamed, results

EVIL = "<script>alert('x')</script> & \"q\""


@dataclasses.dataclass
class Reader(html.parser.HTMLParser):
    """The elements of a page that close as they should, the text of its cells, and its data."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.cells, self.data = [], [], [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append(tag)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values[name] for name in ("href", "src") if name in values]
        if tag in ("td", "th"):
            self.cells.append("")
        if tag not in ("meta", "link", "img"):
            self.open.append((tag, values))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open and self.open[-1][0] in ("td", "th"):
            self.cells[-1] += data
        if self.open and self.open[-1][1].get("id") == "data":
            self.data += data


def written(found, folder):
    folder.mkdir(exist_ok=True)
    (folder / "operative.gin").write_text(f"# {EVIL}\n")
    analysis.save(found, folder)
    return analysis.write_html(folder).read_text()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return written(renamed(results(failed=[0]), "ASP", EVIL), tmp_path_factory.mktemp("pages") / f"run {EVIL[:8]}")


def test_it_has_all_sections_and_the_cells_of_the_table(text):
    reader, found = Reader(text), renamed(results(failed=[0]), "ASP", EVIL)
    assert {"verdict", "results", "curves", "timeline", "run", "config", "data"} <= set(reader.ids)
    assert {link for link in reader.links if link.startswith("#")} <= {f"#{name}" for name in reader.ids}
    for row in summary.rows(found):
        assert set(row) <= set(reader.cells)


def test_schemes_without_units_have_no_timeline(tmp_path):
    found = results()
    is_asp = found.timeline["scheme"] == "ASP"
    without_asp = {name: column[~is_asp] for name, column in found.timeline.items()}
    data = json.loads(Reader(written(found._replace(timeline=without_asp), tmp_path / "some")).data)
    assert sorted(run["name"] for run in data["timelines"]["runs"]) == ["BSP", "FRC"]
    none = {name: column[:0] for name, column in found.timeline.items()}
    assert "timeline" in written(found._replace(timeline=none), tmp_path / "none")


def test_nothing_comes_from_elsewhere(text):
    links = Reader(text).links
    assert all(link.startswith(("#", "data:")) for link in links)
    without_names = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|@import|url\((?!#)|fetch\(|XMLHttpRequest", without_names)
    assert "default-src 'none'" in text


def test_text_of_users_is_escaped_everywhere(text):
    assert "alert('x')</script>" not in text and EVIL not in text
    data = json.loads(Reader(text).data)
    assert EVIL in {curve["name"] for curve in data["charts"][0]["curves"]}
    assert EVIL in {run["name"] for run in data["timelines"]["runs"]}
    assert Reader(text).tags.count("script") == 2


def test_the_curves_are_the_means_over_seeds(text):
    found, data = results(failed=[0]), json.loads(Reader(text).data)
    curve = next(curve for curve in data["charts"][1]["curves"] if curve["name"] == "FRC")
    for i in (0, len(curve["time"]) // 2, -1):
        values = [np.interp(curve["time"][i], seed["time"], seed["accuracy"]) for seed in found.seeds("FRC")]
        assert curve["mean"][i] == pytest.approx(np.mean(values), rel=1e-3)
        assert [curve["low"][i], curve["high"][i]] == pytest.approx([min(values), max(values)], rel=1e-3)
    assert data["charts"][1]["target"] == 0.9 and data["charts"][0]["target"] is None


def test_the_bars_are_those_of_the_timeline(text):
    found, data = results(failed=[0]), json.loads(Reader(text).data)["timelines"]
    names = [state for state, *_ in data["states"]]
    run = next(run for run in data["runs"] if run["name"] == "BSP")
    units = analysis.select_rows(found.timeline, found.timeline["scheme"] == "BSP")
    computed = [(w, u) for w, u, s in zip(run["row"], run["unit"], run["state"], strict=True) if names[s] == "failed"]
    assert computed == [
        (int(w), int(u))
        for w, u, f in zip(*(units[n] for n in ("worker", "unit", "failed")), strict=True)
        if f and u == 2
    ]
    begin = units["compute_start"][units["failed"]].min()
    first = min(b for b, s in zip(run["begin"], run["state"], strict=True) if names[s] == "failed")
    assert first * data["seconds"] / data["steps"] == pytest.approx(begin, abs=1e-4)
    assert run["workers"] == list(range(W)) and len(run["commits"]) > 0


def test_curves_and_timelines_are_thinned(monkeypatch):
    found = results()
    assert [figures.points_a_curve(count) for count in (2, 100, 10**6)] == [400, 100, 20]
    monkeypatch.setattr(figures, "MAX_POINTS", 5)
    assert {len(curve["time"]) for curve in figures.charts(found)[0]["curves"]} == {5}
    assert "at most 5 points a curve" in sections.curves_section(found).body


def test_a_large_run_has_a_page_of_bounded_size():
    rng, count = np.random.default_rng(0), 40_000
    start = np.sort(rng.uniform(0, 90, count))
    units = {
        "worker": rng.integers(0, 1000, count),
        "unit": np.arange(count),
        "start": start,
        "compute_start": start,
        "compute_end": start + 1,
        "send_start": start + 1,
        "finish": start + 2,
        "failed": np.zeros(count, bool),
    }
    commits = {"commit": np.arange(count), "time": start + 2, "worker": units["worker"], "unit": units["unit"],
               "work": np.ones(count, int), "version": np.arange(count)}  # fmt: skip
    large = activity.Activity("ASP", units, commits, None, 0.0, 92.0, np.arange(1000), 1000, "")
    data = figures.timelines([large] * 20)
    assert len(data["runs"]) == figures.MAX_TIMELINES and len(json.dumps(data)) < 1_000_000
    assert all(len(run["commits"]) <= figures.MAX_TICKS and len(run["workers"]) <= 64 for run in data["runs"])
    assert "64 of 1000 workers" in data["runs"][0]["words"]


def test_of_too_many_timelines_the_first_are_shown(tmp_path, monkeypatch):
    analysis.save(results(), tmp_path)
    activities = folder.activities(tmp_path)
    monkeypatch.setattr(figures, "MAX_TIMELINES", 2)
    monkeypatch.setattr(figures, "MAX_UNITS", 20)
    data = figures.timelines(activities)
    assert [run["name"] for run in data["runs"]] == list(SCHEMES)[:2]
    assert all(len(set(zip(run["row"], run["unit"], strict=True))) <= 10 for run in data["runs"])
    assert "2 of 3 timelines" in sections.timelines_section(activities).body


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {},
            r"^ASP and FRC cannot be told apart: 17.9 ± 2.1 s and 1.* s to 0.9 accuracy \(ASP is 1.01 times",
        ),
        ({"final": 0.5}, r"^No scheme reached 0.9 accuracy; the best value was 0.5, by"),
        ({"failed": [0], "value": 0.985}, r"BSP came to a halt, waiting for a worker that has failed\.$"),
    ],
)
def test_the_verdict(change, said):
    assert re.search(said, verdict(results(**change))), verdict(results(**change))


def with_times(times):
    """Results in which each scheme reaches the target at given times, one a seed; inf: never."""
    rows = [(name, seed, t, a) for name, seeds in times.items() for seed, at in enumerate(seeds)
            for t, a in ((0.0, 0.0), (min(at, 99.0), float(at < 99)))]  # fmt: skip
    columns = dict(zip(("scheme", "seed", "time", "accuracy"), map(np.array, zip(*rows, strict=True)), strict=True))
    zeros = {name: np.zeros(len(rows)) for name in ("computing", "communicating", "waiting", "mean_staleness",
             "max_staleness", "chunks", "numbers", "commit")}  # fmt: skip
    facts = {**results().facts, "schemes": {name: {"stalled": [False]} for name in times}}
    return analysis.Results({**columns, **zeros}, {}, facts)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (
            {"A": [10, 12, 11], "B": [11, 11, 11.5]},
            "A and B cannot be told apart: 11.0 ± 1.0 s and 11.2 ± 0.3 s to 0.9 accuracy (A is 1.02 times",
        ),
        (
            {"A": [10, 12, 11], "B": [20, 24, 22]},
            "2.00 times as fast as B (geometric mean over 3 seeds, 95 % interval 2.00 to 2.00)",
        ),
        ({"A": [10, 10], "B": [12.7, 13.3]}, "A and B cannot be told apart"),  # told apart by 90 % intervals
        ({"A": [10], "B": [20]}, "first, after 10.0 s, before B (20.0 s); 1 seed does not tell this from chance"),
        ({"A": [10, np.inf], "B": [np.inf, 20]}, "(20.0 (1 of 2 seeds) s); both did for no seed."),
        (
            {"A": [10, 12], "B": [20, np.inf]},
            "A reached 0.9 accuracy most reliably, after 11.0 ± 1.4 s; B did for 1 of 2",
        ),
        (
            {"A": [1.0] * 19 + [60], "B": [0.9] * 19 + [70]},
            "first, after 3.95 ± 13.19 s on average, and B (4.35 ± 15.45 s) for most seeds: A is 0.91 times as fast",
        ),
        ({"A": [10, 12], "B": [np.inf, np.inf]}, "Only A reached 0.9 accuracy, after 11.0 ± 1.4 s. Not reached by B."),
    ],
)
def test_the_verdict_says_what_cannot_be_told(times, said):
    assert said in verdict(with_times(times))


@pytest.mark.parametrize("slower", [[12.7, 13.3], [12.9, 13.1]])
def test_the_summary_judges_as_the_verdict_does(slower):
    results = with_times({"A": [10, 10], "B": slower})
    ratio = paired.times_as_long(*(analysis.reach_times(results, scheme) for scheme in "AB"))
    said, row = verdict(results), summary.markdown(results).partition("seed by seed")[2]
    assert f"{ratio.mean:.2f} times as fast" in said and f"interval {ratio.low:.2f} to {ratio.high:.2f})" in said
    assert f"| {ratio.mean:.2f} | [{ratio.low:.2f}, {ratio.high:.2f}] | 2 of 2 |" in row
    assert ("cannot be told apart" in said) == (ratio.low <= 1 <= ratio.high) == (slower[0] == 12.7)


def test_a_page_of_a_live_run(tmp_path):
    measured = {"unit_seconds": [0.02, 0.0612], "send_seconds": [1e-3] * 2, "receive_seconds": [2e-3] * 2,
                "service_seconds": 5e-4}  # fmt: skip
    body = Reader(page("t", "v", [sections.calibration_section({"one slow": measured})]))
    assert body.cells[6:] == ["one slow", "0", "20", "1", "2", "0.5", "one slow", "1", "61.2", "1", "2", "0.5"]


def test_all_blocks_escape():
    pieces = [blocks.paragraph(EVIL), blocks.preformatted(EVIL), blocks.folded(EVIL, ""), blocks.inline_html(EVIL),
              blocks.table([EVIL], [[EVIL]]), blocks.markdown(f"# {EVIL}\n\n- {EVIL}\n"),
              sections.run_section({EVIL: EVIL, "versions": {EVIL: EVIL}, "schemes": {EVIL: {}}}).body]  # fmt: skip
    assert not [piece for piece in pieces if "<script>" in piece or "alert(" not in piece]


def test_columns_of_a_markdown_table_may_have_the_same_head():
    reader = Reader(blocks.markdown("| a | b | b |\n|---|---:|---:|\n| 1 | 2 | **3** |\n"))
    assert reader.cells == ["a", "b", "b", "1", "2", "3"]


def test_markdown():
    body = blocks.markdown(
        "## Head\n\nOne `a*b` *two*\nlines with ` one.\n\n- first\n  goes on\n- second <i>\n\n"
        "| a | b | c |\n|---|---|---:|\n| 1 | **2** | 3 |\n"
    )
    assert body.startswith("<h3>Head</h3><p>One <code>a*b</code> <em>two</em> lines with ` one.</p>")
    assert (
        "<ul><li>first goes on</li><li>second &lt;i&gt;</li></ul>" in body
        and '<td>2</td><td class="number">3</td>' in body
    )


def test_the_assets_are_there():
    for name in ("page.html", "page.css", "zoom.js", "chart.js", "timeline.js", "start.js"):
        assert asset(name)
    assert S == 2
