"""The page in Chromium: it draws, zooms and hovers without an error; skipped where there is no Chromium."""

import re

import pytest

from gcjax import analysis
from tests.analysis.html_report.browser import opened
from tests.analysis.results import results

USE = """<script>
addEventListener("load", () => {
  const svg = document.querySelector("#charts-here figure svg"), box = svg.getBoundingClientRect();
  const canvas = document.querySelector("#timelines-here canvas");
  const ticks = () => [...svg.querySelectorAll("text[text-anchor=middle]")].map((text) => text.textContent).join(",");
  const points = () => svg.querySelectorAll("polyline.curve")[1].getAttribute("points").split(" ").at(-1);
  const picture = () => canvas.toDataURL(), said = [];
  const note = (name, value) => said.push(`${name}=${value}`);
  const before = [ticks(), points(), picture()];
  svg.dispatchEvent(new KeyboardEvent("keydown", {key: "+"}));
  note("keys", ticks() !== before[0] && points() !== before[1]);
  svg.dispatchEvent(new KeyboardEvent("keydown", {key: "0"}));
  note("reset", ticks() === before[0] && points() === before[1]);
  const at = {clientX: box.left + 200, clientY: box.top + 90, bubbles: true, cancelable: true};
  svg.dispatchEvent(new WheelEvent("wheel", {...at, deltaY: -300}));
  note("plainWheel", points() === before[1]);
  svg.dispatchEvent(new WheelEvent("wheel", {...at, deltaY: -300, ctrlKey: true}));
  note("wheel", points() !== before[1]);
  svg.dispatchEvent(new MouseEvent("dblclick"));
  svg.setPointerCapture = canvas.setPointerCapture = () => {};
  const touch = (target, kind, id, x) => target.dispatchEvent(
    new PointerEvent(kind, {pointerId: id, clientX: x, clientY: at.clientY, pointerType: "touch"}));
  const canvasLeft = canvas.getBoundingClientRect().left;
  touch(canvas, "pointerdown", 1, canvasLeft + 100);
  touch(canvas, "pointerdown", 2, canvasLeft + 150);
  touch(canvas, "pointermove", 2, canvasLeft + 250);
  note("pinch", picture() !== before[2]);
  touch(canvas, "pointerup", 1, canvasLeft + 100);
  touch(canvas, "pointerup", 2, canvasLeft + 250);
  const pinched = picture();
  touch(canvas, "pointerdown", 3, canvasLeft + 150);
  touch(canvas, "pointermove", 3, canvasLeft + 90);
  note("drag", picture() !== pinched);
  touch(canvas, "pointerup", 3, canvasLeft + 90);
  document.querySelector("#timelines-here .tools button:last-of-type").click();
  note("all", picture() === before[2]);
  svg.dispatchEvent(new PointerEvent("pointermove", at));
  note("hover", document.getElementById("tip").textContent.includes("ASP"));
  const place = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: place.left + 100, clientY: place.top + 20}));
  note("state", /worker 0.*(computing|receiving|sending|waiting)/.test(document.getElementById("tip").textContent));
  document.querySelector("#charts-here .legend button").click();
  note("hidden", svg.querySelectorAll("polyline.curve").length);
  note("width", document.documentElement.scrollWidth <= innerWidth);
  document.title = said.join(" ");
});
</script></body>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    analysis.save(results(failed=[0]), folder)
    return analysis.write_html(folder)


def test_it_draws_without_an_error(page, tmp_path):
    content, console = opened(page, tmp_path, "--dump-dom", "--window-size=1200,900")
    assert console == []
    assert 'data-drawn="yes"' in content
    assert len(re.findall(r'<polyline [^>]*class="curve"', content)) == 6  # two charts of three schemes
    assert content.count("<canvas") == 3 and content.count("<figcaption>") == 5


@pytest.mark.parametrize("width", [1200, pytest.param(500, marks=pytest.mark.slow)])
def test_it_zooms_moves_hovers_and_hides(page, tmp_path, width):
    used = tmp_path / "used.html"
    used.write_text(page.read_text().replace("</body>", USE))
    content, console = opened(used, tmp_path, "--dump-dom", f"--window-size={width},900")
    title = re.search(r"<title>(.*?)</title>", content)[1]
    assert console == []
    assert title == (
        "keys=true reset=true plainWheel=true wheel=true pinch=true drag=true all=true hover=true state=true hidden=2 "
        "width=true"
    )


@pytest.mark.slow
def test_an_error_would_be_seen(page, tmp_path):
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text().replace("startTimelines(timelines", "startTimelinez(timelines"))
    content, console = opened(broken, tmp_path, "--dump-dom")
    assert len(console) == 1 and "startTimelinez is not defined" in console[0] and "data-drawn" not in content


@pytest.mark.slow
def test_a_picture_of_it_shows_something(page, tmp_path):
    from matplotlib.image import imread

    for width in (1200, 500):
        opened(page, tmp_path, f"--window-size={width},1500", f"--screenshot={tmp_path / 'page.png'}")
        picture = imread(tmp_path / "page.png")[..., :3]
        assert picture.shape[:2] == (1500, width) and 0.02 < picture.std() < 0.5
