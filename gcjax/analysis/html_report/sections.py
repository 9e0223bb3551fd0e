"""The sections of a page: of a comparison, of any other experiment, of a live run's calibration, of a trace."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gcjax.analysis import summary
from gcjax.analysis.html_report import blocks, figures
from gcjax.analysis.html_report.blocks import Section
from gcjax.analysis.store import Results
from gcjax.analysis.timelines.activity import Activity

_MAX_CONFIG = 200_000  # characters
_MAX_IMAGES = 3_000_000  # bytes
_PLACES = ("platform", "device", "num_devices", "cores")
_LEFT_OUT = (*_PLACES, "versions", "schemes", "target", "verdict", "calibrations", "files", "sha256")


def results_section(results: Results) -> Section:
    """The summary table, and what its columns mean."""
    warning = summary.same_durations(results)
    note = "" if warning is None else blocks.paragraph(warning, "note")
    notes = blocks.folded("What the columns mean", blocks.markdown(summary.NOTES))
    return Section("Results", blocks.table(summary.heads(results), summary.rows(results)) + note + notes, "results")


def curves_section(results: Results) -> Section:
    """The place of the charts of a comparison."""
    has_band = any(len(results.seeds(scheme)) > 1 for scheme in results.schemes)
    return _charts(
        f"Mean over seeds{', and a band from the lowest to the highest' if has_band else ''}", len(results.schemes)
    )


def loss_section(num_runs: int) -> Section:
    """The place of the chart of live runs."""
    return _charts("The training loss of each commit, on the batches of its pushes", num_runs)


def _charts(note: str, num_curves: int) -> Section:
    """The place of charts, with a note."""
    said = blocks.paragraph(f"{note}; at most {figures.points_a_curve(num_curves)} points a curve.", "note")
    return Section("Loss against time", f'<div id="charts-here"></div>{said}', "curves")


def timelines_section(activities: Sequence[Activity]) -> Section:
    """The place of the timelines."""
    notes = [
        f"The first seed or run. A row is a worker; the ticks above are commits, {figures.MAX_TICKS} at most; "
        f"{figures.MAX_UNITS} units of work at most. For all of them, write a timeline for Perfetto: gcjax report "
        "RUN_DIR --timeline FILE."
    ]
    if len(activities) > figures.MAX_TIMELINES:
        notes.append(f"{figures.MAX_TIMELINES} of {len(activities)} timelines.")
    body = '<div id="timelines-here"></div>' + blocks.paragraph(" ".join(notes), "note")
    return Section("Timeline", body, "timeline")


def page_section(markdown: str) -> Section:
    """The summary of an experiment that is no comparison."""
    return Section("Results", blocks.markdown(markdown), "results")


def images_section(folder: Path) -> Section | None:
    """The figures of a folder, as far as they are not too large; None if there are none."""
    images, num_bytes = [], 0
    for file in sorted(folder.glob("*.png")):
        num_bytes += file.stat().st_size
        if num_bytes <= _MAX_IMAGES:
            images.append(blocks.image(file))
    return Section("Figures", "".join(images), "figures") if images else None


def calibration_section(calibrations: Mapping[str, Mapping[str, Any]]) -> Section:
    """What was measured of workers, messages and server in live runs.

    Args:
      calibrations: run -> `unit_seconds`, `send_seconds`, `receive_seconds`, float[W] each, and `service_seconds`.
    """
    heads = ("Run", "Worker", "Unit (ms)", "Send (ms)", "Receive (ms)", "Service (ms)")
    rows = []
    for run, measured in calibrations.items():
        columns = zip(*(measured[f"{name}_seconds"] for name in ("unit", "send", "receive")), strict=True)
        for worker, seconds in enumerate(columns):
            cells = [_milliseconds(value) for value in (*seconds, measured["service_seconds"])]
            rows.append([run, str(worker), *cells])
    note = blocks.paragraph("Medians on the real clock: the simulator's input for its predictions.", "note")
    return Section("Calibration", blocks.table(heads, rows, keys=2) + note, "calibration")


def trace_section(
    text: str, tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = (), *, title: str = "Trace"
) -> Section:
    """The description of a trace.

    Args:
      text: Markdown, or plain lines.
      tables: (title, heads, rows) each.
      title: of the section.
    """
    parts = [f"<h3>{blocks.inline(name)}</h3>{blocks.table(heads, rows)}" for name, heads, rows in tables]
    return Section(title, blocks.markdown(text) + "".join(parts), "trace")


def run_section(facts: Mapping[str, Any]) -> Section:
    """What ran where: the machine, the versions, the numbers of the run, the seconds of each scheme."""
    plain = {
        name: value for name, value in facts.items() if name not in _LEFT_OUT and not isinstance(value, dict | list)
    }
    places = {name: facts[name] for name in _PLACES if name in facts}
    parts = [_pairs("Ran on", places), _pairs("Versions", facts.get("versions", {})), _pairs("Numbers", plain)]
    schemes = facts.get("schemes", {})
    if schemes:
        rows = [
            [name, *(str(facts_of.get(f"{kind}_seconds", "-")) for kind in ("compile", "run"))]
            for name, facts_of in schemes.items()
        ]
        parts.append(blocks.table(("Scheme", "Compiling (s)", "Training (s)"), rows))
    return Section("Run", f'<div class="pairs">{"".join(parts)}</div>', "run")


def config_section(text: str) -> Section:
    """The config in all its parts."""
    shown = text[:_MAX_CONFIG]
    cut = blocks.paragraph(f"The first {_MAX_CONFIG} of {len(text)} characters.", "note") if shown != text else ""
    return Section("Config", blocks.folded("operative.gin: all parameters", blocks.preformatted(shown)) + cut, "config")


def _pairs(title: str, values: Mapping[str, Any]) -> str:
    """A small table of names and values; nothing if there are none."""
    if not values:
        return ""
    rows = [[name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value)]
            for name, value in values.items()]  # fmt: skip
    return blocks.table((title, ""), rows, left=("",))


def _milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds with three digits; a dash if there are none."""
    return "-" if seconds is None or seconds != seconds else f"{1000 * seconds:.3g}"
