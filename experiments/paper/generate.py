"""Writes `paper/generated`: the numbers, tables and figures of the manuscript, and where they come from."""

import json
from pathlib import Path
from typing import Any

from experiments.paper import checked, coded, figures, macros, provenance, runs, trained
from gcjax import files

OF_RUNS = {
    "quickstart": trained.quickstart,
    "codes": coded.codes,
    "approximate": coded.approximate,
    "exact": coded.exact,
    "worker_busy": trained.worker_busy,
    "delays": trained.delays,
    "two_stragglers": trained.two_stragglers,
}
OF_COMPUTED = {
    "identities": checked.identities,
    "wavefronts": checked.wavefronts,
    "specifications": checked.specifications,
    "laws": checked.laws,
    "validation": checked.validation,
    "speed": checked.speed,
    "schedule_speed": checked.schedule_speed,
    "validation_speed": checked.validation_speed,
}
_FIGURES = {
    "loss": (figures.loss, "quickstart"),
    "codes": (figures.code_comparison, "codes"),
    "errors": (figures.errors_against_deadline, "approximate"),
}
"""Name -> what draws it from the folder of which run."""

_HIDDEN = ("platform", "device", "num_devices")


def write(folder: Path, mode: str, out: Path) -> None:
    """Writes all generated files.

    Args:
      folder: of the runs.
      mode: full or quick.
      out: the folder to write.
    """
    out.mkdir(parents=True, exist_ok=True)
    sources = _sources(folder, mode)
    groups = {"setup": _setup(sources, mode), "schemes": checked.registered()}
    tables: dict[str, tuple[str, str]] = {}
    for name, numbers_of in OF_RUNS.items():
        groups[name], own = numbers_of(runs.folder_of(name, folder, mode))
        tables |= {table: (text, name) for table, text in own.items()}
    for name, numbers_of_result in OF_COMPUTED.items():
        path = folder / mode / f"{name}.result.json"
        groups[name], own = numbers_of_result(json.loads(path.read_text())["result"])
        tables |= {table: (text, name) for table, text in own.items()}
    heads = {name: _head(sources[name]) if name in sources else f"{mode} mode" for name in groups}
    files.write_text(out / "numbers.tex", macros.text_of(groups, heads))
    for table, (text, name) in tables.items():
        files.write_text(out / f"table_{table}.tex", f"% {_head(sources[name])}\n{text}")
    drawn = _draw(folder, mode, out)
    products = {f"table_{table}.tex": name for table, (_, name) in tables.items()} | drawn
    page = {"mode": mode, "sources": sources, "files": products | {"numbers.tex": "all"}}
    files.write_text(out / "provenance.json", json.dumps(page, indent=2, sort_keys=True) + "\n")


def _sources(folder: Path, mode: str) -> dict[str, dict[str, Any]]:
    """Experiment -> where its results come from."""
    said = {name: json.loads((folder / mode / f"{name}.json").read_text()) for name in OF_RUNS}
    for name in OF_COMPUTED:
        said[name] = json.loads((folder / mode / f"{name}.result.json").read_text())["provenance"]
    return {name: {k: v for k, v in facts.items() if k not in _HIDDEN} for name, facts in said.items()}


def _head(facts: dict[str, Any]) -> str:
    """Where results come from, in a line."""
    versions = facts["versions"]
    return (
        f"{facts['mode']} mode; {facts['command']}; seed {facts['seed']}; gcjax {versions['gcjax']}, commit "
        f"{facts['commit']}; jax {versions['jax']}; Python {versions['python']}; {facts['date']}; "
        f"{facts['cores']} cores, {facts['processor']}"
    )


def _setup(sources: dict[str, dict[str, Any]], mode: str) -> macros.Macros:
    """Versions, machine, dates, and the mark of quick mode."""
    newest = max(sources.values(), key=lambda facts: str(facts["date"]))
    commits = sorted({str(facts["commit"]) for facts in sources.values()})
    seconds = sum(facts["processor_seconds"] for facts in sources.values())
    loads = [load for facts in sources.values() for load in facts["load_average"]]
    quick = (
        r"\begin{center}\fbox{Quick mode: the numbers are of small runs, for trying the manuscript out.}\end{center}"
    )
    return {
        "GenBanner": quick if mode == "quick" else "",
        "GenVersion": newest["versions"]["gcjax"],
        "GenCommit": ", ".join(rf"\texttt{{{commit}}}" for commit in commits),
        "GenJax": newest["versions"]["jax"],
        "GenPython": newest["versions"]["python"],
        "GenDate": str(newest["date"])[:10],
        "GenProcessor": str(newest["processor"]),
        "GenCores": macros.fixed(newest["cores"]),
        "GenMinutes": macros.fixed(seconds / 60),
        "GenLowLoad": f"{min(loads):.1f}",
        "GenHighLoad": f"{max(loads):.1f}",
    }


def _draw(folder: Path, mode: str, out: Path) -> dict[str, Any]:
    """Draws all figures; returns file -> where it comes from."""
    for name, (draw, run) in _FIGURES.items():
        draw(runs.folder_of(run, folder, mode), out / f"figure_{name}.pdf")
    figures.timelines(out / "figure_timelines.pdf")
    drawn: dict[str, Any] = {f"figure_{name}.pdf": run for name, (_, run) in _FIGURES.items()}
    own = {"command": "python -m experiments.paper", "seed": 5, "commit": provenance.commit()}
    return drawn | {"figure_timelines.pdf": own}
