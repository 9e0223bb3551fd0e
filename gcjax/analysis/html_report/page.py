"""The whole page: a title, a verdict, sections, and the scripts that draw its figures."""

import html
import json
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any

import gcjax
from gcjax.analysis.html_report.blocks import Section

_SCRIPTS = ("zoom.js", "chart.js", "timeline.js", "start.js")


def page(title: str, verdict: str, sections: Sequence[Section], *, figures: dict[str, Any] | None = None) -> str:
    """A page in HTML that needs no other file and no network.

    Args:
      title: text.
      verdict: what a reader should know first; text.
      sections: in their order.
      figures: what the scripts draw, as JSON: `charts` and `timelines`; nothing if None.
    """
    links = "".join(f'<a href="#{section.name}">{html.escape(section.title)}</a>' for section in sections)
    body = "".join(
        f'<section id="{section.name}"><h2>{html.escape(section.title)}</h2>{section.body}</section>'
        for section in sections
    )
    return Template(asset("page.html")).substitute(
        title=html.escape(title),
        verdict=html.escape(verdict),
        links=links,
        body=body,
        style=asset("page.css"),
        script="\n".join(map(asset, _SCRIPTS)),
        data=_script_json(figures or {}),
        version=html.escape(gcjax.__version__),
    )


def asset(name: str) -> str:
    """The text of a file that comes with the package."""
    return resources.files(__package__).joinpath("assets", name).read_text()


def _script_json(value: Any) -> str:
    """JSON that cannot end the element of the page that it stands in; numbers that are none are null."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
