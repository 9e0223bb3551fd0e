"""The page of the folder of a run."""

import contextlib
from pathlib import Path
from typing import Any

from gcjax import files
from gcjax.analysis import seal, summary
from gcjax.analysis.html_report import figures, sections
from gcjax.analysis.html_report.blocks import Section
from gcjax.analysis.html_report.page import page
from gcjax.analysis.html_report.verdict import verdict
from gcjax.analysis.store import PAGE_FILE, TIMELINE_FILE, is_comparison, load
from gcjax.analysis.timelines import folder as timelines


def write_html(folder: str | Path, path: str | Path | None = None) -> Path:
    """Writes a page about a run as one file, which needs no network and can be read on any screen.

    It has the verdict, the table, loss against time, a timeline that can be zoomed, for a live run the calibration,
    what the run ran on, and the config.

    Args:
      folder: of a run.
      path: of the file, none of the run but its page; `report.html` in the folder if None.

    Returns:
      The path of the file.

    Raises:
      ValueError: if the folder is not that of a finished run, or a file of it is damaged, or the path is of one of its
        other files.
    """
    folder = Path(folder)
    page_path = folder / PAGE_FILE if path is None else Path(path)
    belongs_to_run = page_path.resolve() == (folder / PAGE_FILE).resolve()
    if not belongs_to_run:
        seal.check_not_of_run(folder, page_path)
    page_html = _comparison_page(folder) if is_comparison(folder) else _summary_page(folder)
    with seal.rewriting(folder, (PAGE_FILE,)) if belongs_to_run else contextlib.nullcontext():
        files.write_text(page_path, page_html)
    return page_path


def _comparison_page(folder: Path) -> str:
    """The page of a comparison; schemes of which no unit was done have no timeline."""
    results = load(folder)
    schemes = [row.scheme for row in summary.rows(results)]
    activity_of_scheme = {activity.name: activity for activity in timelines.activities(folder)}  # of those with units
    activities = [activity_of_scheme[scheme] for scheme in schemes if scheme in activity_of_scheme]
    page_sections = [
        sections.results_section(results),
        sections.curves_section(results),
        sections.timelines_section(activities),
        *_sections_of_any_run(folder, results.facts),
    ]
    figures_data = {"charts": figures.charts(results), "timelines": figures.timelines(activities)}
    return page(f"Comparison: {folder.resolve().name}", verdict(results), page_sections, figures=figures_data)


def _summary_page(folder: Path) -> str:
    """The page of an experiment that is no comparison: its summary, its timelines if it has some, its figures."""
    if not (folder / "summary.md").is_file():
        raise ValueError(f"A folder written by 'gcjax run' is needed; {folder} has no summary.md. Choose another one.")
    run_facts = seal.read(folder, rebuilt_files=(PAGE_FILE,))
    heading, _, summary_text = (folder / "summary.md").read_text().strip().removeprefix("# ").partition("\n")
    activities = timelines.activities(folder) if (folder / TIMELINE_FILE).is_file() else []
    images_section = sections.images_section(folder)
    charts, calibrations = figures.loss_charts(activities), run_facts.get("calibrations")
    page_sections = [
        sections.page_section(summary_text),
        *([sections.loss_section(len(activities))] if charts else []),
        *([sections.timelines_section(activities)] if activities else []),
        *([sections.calibration_section(calibrations)] if calibrations else []),
        *([images_section] if images_section else []),
        *_sections_of_any_run(folder, run_facts),
    ]
    figures_data: dict[str, Any] = {"timelines": figures.timelines(activities)} if activities else {}
    figures_data |= {"charts": charts} if charts else {}
    verdict_text = run_facts.get("verdict", _first_paragraph(summary_text))
    return page(f"{heading}: {folder.resolve().name}", verdict_text, page_sections, figures=figures_data)


def _sections_of_any_run(folder: Path, run_facts: dict[str, Any]) -> list[Section]:
    """The sections of any run."""
    config = folder / "operative.gin"
    return [
        sections.run_section(run_facts),
        *([sections.config_section(config.read_text())] if config.is_file() else []),
    ]


def _first_paragraph(markdown: str) -> str:
    """The first paragraph of text."""
    paragraphs = [block for block in markdown.split("\n\n") if block.strip() and block.strip()[0] not in "|#-"]
    return " ".join(paragraphs[0].split()) if paragraphs else ""
