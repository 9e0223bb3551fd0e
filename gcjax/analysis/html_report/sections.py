"""The sections of a page: of a comparison, of any other experiment, of a live run's calibration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gcjax.analysis import summary
from gcjax.analysis.html_report import blocks, figures
from gcjax.analysis.html_report.blocks import Section
from gcjax.analysis.store import Results
from gcjax.analysis.timelines.activity import Activity

_MAX_CONFIG_CHARACTERS = 200_000
_MAX_IMAGE_BYTES = 3_000_000
_MACHINE_FACTS = ("platform", "device", "num_devices", "cores")
_FACTS_SHOWN_ELSEWHERE = ("versions", "schemes", "target", "verdict", "calibrations")
_DIGESTS = ("files", "sha256", "delays_sha256", "config_sha256")


def results_section(results: Results) -> Section:
    """The summary table, and what its columns mean."""
    warning = summary.same_durations(results)
    warning_paragraph = "" if warning is None else blocks.paragraph(warning, kind="note")
    column_notes = blocks.folded("What the columns mean", blocks.markdown(summary.column_notes(results)))
    table = blocks.table(summary.heads(results), summary.rows(results))
    return Section("Results", table + warning_paragraph + column_notes, name="results")


def curves_section(results: Results) -> Section:
    """The place of the charts of a comparison."""
    has_band = any(len(results.seeds(scheme)) > 1 for scheme in results.schemes)
    band_note = ", and a band from the lowest to the highest" if has_band else ""
    return _charts_section(f"Mean over seeds{band_note}", num_curves=len(results.schemes))


def loss_section(num_runs: int) -> Section:
    """The place of the chart of live runs."""
    return _charts_section("The training loss of each commit, on the batches of its pushes", num_curves=num_runs)


def _charts_section(note: str, *, num_curves: int) -> Section:
    """The place where the page's script draws charts of `num_curves` curves, with a note."""
    note_paragraph = blocks.paragraph(
        f"{note}; at most {figures.points_a_curve(num_curves)} points a curve.", kind="note"
    )
    return Section("Loss against time", f'<div id="charts-here"></div>{note_paragraph}', name="curves")


def timelines_section(activities: Sequence[Activity]) -> Section:
    """The place where the page's script draws the timelines, with a note on what is shown."""
    notes = [
        f"The first seed or run. A row is a worker; the ticks above are commits, {figures.MAX_TICKS} at most; "
        f"{figures.MAX_UNITS} units of work at most. For all of them, write a timeline for Perfetto: gcjax report "
        "RUN_DIR --timeline FILE."
    ]
    if len(activities) > figures.MAX_TIMELINES:
        notes.append(f"{figures.MAX_TIMELINES} of {len(activities)} timelines.")
    body = '<div id="timelines-here"></div>' + blocks.paragraph(" ".join(notes), kind="note")
    return Section("Timeline", body, name="timeline")


def page_section(markdown: str) -> Section:
    """The summary of an experiment that is no comparison."""
    return Section("Results", blocks.markdown(markdown), name="results")


def images_section(folder: Path) -> Section | None:
    """The `.png` figures of a folder, as many as take `_MAX_IMAGE_BYTES` together; None if there are none."""
    images, total_bytes = [], 0
    for file in sorted(folder.glob("*.png")):
        total_bytes += file.stat().st_size
        if total_bytes <= _MAX_IMAGE_BYTES:
            images.append(blocks.image(file))
    return Section("Figures", "".join(images), name="figures") if images else None


def calibration_section(calibrations: Mapping[str, Mapping[str, Any]]) -> Section:
    """What was measured of workers, messages and server in live runs.

    Args:
      calibrations: run -> `unit_seconds`, `send_seconds`, `receive_seconds`, float[W] each, and `service_seconds`, one
        number of the server; None or NaN for what is not known.
    """
    heads = ("Run", "Worker", "Unit (ms)", "Send (ms)", "Receive (ms)", "Service (ms)")
    rows = []
    for run, calibration in calibrations.items():
        seconds_of_workers = zip(
            calibration["unit_seconds"], calibration["send_seconds"], calibration["receive_seconds"], strict=True
        )
        for worker, unit_send_receive in enumerate(seconds_of_workers):
            cells = [_milliseconds(seconds) for seconds in (*unit_send_receive, calibration["service_seconds"])]
            rows.append([run, str(worker), *cells])
    note = blocks.paragraph("Medians on the real clock: the simulator's input for its predictions.", kind="note")
    return Section("Calibration", blocks.table(heads, rows, num_key_columns=2) + note, name="calibration")


def run_section(facts: Mapping[str, Any]) -> Section:
    """What ran where, by the facts of `run.json`: the machine, versions, the run's numbers, each scheme's seconds."""
    machine = {name: facts[name] for name in _MACHINE_FACTS if name in facts}
    numbers = {
        name: value
        for name, value in facts.items()
        if name not in (*_MACHINE_FACTS, *_FACTS_SHOWN_ELSEWHERE, *_DIGESTS) and not isinstance(value, dict | list)
    }
    tables = [
        _name_value_table("Ran on", machine),
        _name_value_table("Versions", facts.get("versions", {})),
        _name_value_table("Numbers", numbers),
        _scheme_seconds_table(facts.get("schemes") or {}),
    ]
    return Section("Run", f'<div class="pairs">{"".join(tables)}</div>', name="run")


def _scheme_seconds_table(facts_of_schemes: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of the seconds that each scheme took; nothing if there are no schemes."""
    rows = [
        [scheme, str(scheme_facts.get("compile_seconds", "-")), str(scheme_facts.get("run_seconds", "-"))]
        for scheme, scheme_facts in facts_of_schemes.items()
    ]
    return blocks.table(("Scheme", "Compiling (s)", "Training (s)"), rows) if rows else ""


def config_section(text: str) -> Section:
    """The text of the config, folded away; a very long one is cut."""
    shown_text = text[:_MAX_CONFIG_CHARACTERS]
    cut_note = (
        blocks.paragraph(f"The first {_MAX_CONFIG_CHARACTERS} of {len(text)} characters.", kind="note")
        if shown_text != text
        else ""
    )
    return Section(
        "Config",
        blocks.folded("operative.gin: all parameters", blocks.preformatted(shown_text)) + cut_note,
        name="config",
    )


def _name_value_table(title: str, value_of_name: Mapping[str, Any]) -> str:
    """A small table of names and values; nothing if there are none."""
    if not value_of_name:
        return ""
    rows = [[name.replace("_", " "), f"{value:.6g}" if isinstance(value, float) else str(value)]
            for name, value in value_of_name.items()]  # fmt: skip
    return blocks.table((title, ""), rows, left_heads=("",))


def _milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds with three digits; a dash if there are none."""
    return "-" if seconds is None or seconds != seconds else f"{1000 * seconds:.3g}"
