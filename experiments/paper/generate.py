"""Writes `paper/generated`: the numbers, tables and figures of the manuscript, and where they come from."""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from experiments.paper import (
    checked,
    coded,
    figures,
    live,
    live_tables,
    macros,
    provenance,
    runs,
    scheme_map,
    traces,
    trained,
)
from gcjax import files

OF_RUNS = {
    "quickstart": trained.quickstart,
    "codes": coded.codes,
    "approximate": coded.approximate,
    "exact": coded.exact,
    "worker_busy": trained.worker_busy,
    "delays": trained.delays,
    "two_stragglers": trained.two_stragglers,
    "scheme_map": scheme_map.scheme_map,
    "live": live.live,
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
OF_MEASURED = {"traces": traces.traces}
"""What needs files that are not in the repository: without them it stays as it is, whatever the mode."""
_FIGURES = {
    "loss": (figures.loss, "quickstart"),
    "codes": (figures.code_comparison, "codes"),
    "errors": (figures.errors_against_deadline, "approximate"),
}
"""Name -> what draws it from the folder of which run."""

_HIDDEN = ("platform", "device", "num_devices")


def write(folder: Path, mode: str, out: Path, *, only: Collection[str] = (), docs: Path | None = None) -> None:
    """Writes all generated files, or those of some experiments.

    What is of other experiments stays as it is in `out`, and so does what is said about where it comes from; the
    macros on the setup are of all.

    Args:
      folder: of the runs.
      mode: full or quick.
      out: the folder to write.
      only: names of `OF_RUNS`, `OF_COMPUTED` and `OF_MEASURED`; all of the first two by default.
      docs: the folder of the documentation, whose table of the live runs is written, too; None for none.

    Raises:
      ValueError: if the others are not there, or are of the other mode.
    """
    out.mkdir(parents=True, exist_ok=True)
    new = list(only or [*OF_RUNS, *OF_COMPUTED])
    page = kept(out, new, mode)
    sources = page["sources"] | _sources(folder, mode, new)
    tables: dict[str, str] = {}
    for name in new:
        page["groups"][name], own = _numbers(name, folder, mode)
        for table, text in own.items():
            files.write_text(out / f"table_{table}.tex", f"% {_head(sources[name])}\n{text}")
            tables[f"table_{table}.tex"] = name
    _write_numbers(out / "numbers.tex", page["groups"], sources, mode)
    drawn = _draw(folder, mode, out, new, timelines={*OF_RUNS, *OF_COMPUTED} <= set(new))
    products = page["files"] | tables | drawn | {"numbers.tex": "all"}
    said = {"mode": mode, "sources": sources, "files": products}
    files.write_text(out / "provenance.json", json.dumps(said, indent=2, sort_keys=True) + "\n")
    if docs is not None and "live" in new:
        live_tables.write_page(runs.folder_of("live", folder, mode), sources["live"], docs)


def kept(out: Path, new: Collection[str], mode: str) -> dict[str, Any]:
    """What stays of the generated files: `sources`, `files`, and `groups` of macros, each without those of `new`.

    `sources` and `groups` are by experiment, `files` by name, each with what it comes from.

    Raises:
      ValueError: if it is not there, or is of the other mode.
    """
    path = out / "provenance.json"
    said: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"mode": mode, "sources": {}, "files": {}}
    others = [name for name in (*OF_RUNS, *OF_COMPUTED) if name not in new]
    missing = others if said["mode"] != mode else [name for name in others if name not in said["sources"]]
    if missing:
        raise ValueError(
            f"what is not written anew must be there, of {mode} runs; {out} has none of {', '.join(missing)}. Name "
            "these after --only, too, or leave --only away."
        )
    others += [name for name in OF_MEASURED if name not in new and name in said["sources"]]
    groups = macros.groups_of((out / "numbers.tex").read_text()) if others else {}
    return {
        "sources": {name: said["sources"][name] for name in others},
        "files": {name: source for name, source in said["files"].items() if source not in new},
        "groups": {name: groups[name] for name in others},
    }


def _numbers(name: str, folder: Path, mode: str) -> tuple[macros.Macros, trained.Tables]:
    """The macros and tables of an experiment, from its run or its result in `folder`."""
    if name in OF_RUNS:
        return OF_RUNS[name](runs.folder_of(name, folder, mode))
    path = folder / mode / f"{name}.result.json"
    return (OF_COMPUTED | OF_MEASURED)[name](json.loads(path.read_text())["result"])


def _write_numbers(path: Path, groups: dict[str, macros.Macros], sources: dict[str, dict[str, Any]], mode: str) -> None:
    """Writes all macros, those on the setup and on the schemes first, which are counted now."""
    ordered = {"setup": _setup(sources, mode), "schemes": checked.registered()}
    ordered |= {name: groups[name] for name in (*OF_RUNS, *OF_COMPUTED, *OF_MEASURED) if name in groups}
    heads = {"setup": f"{mode} mode", "schemes": f"{mode} mode, commit {provenance.commit()}"}
    heads |= {name: _head(sources[name]) for name in groups}
    files.write_text(path, macros.text_of(ordered, heads))


def _sources(folder: Path, mode: str, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Experiment -> where its results come from: command, versions, machine, date, ...; without `_HIDDEN`.

    It stands beside the folder of a run, and in the file of what was computed.
    """
    said = {name: json.loads((folder / mode / f"{name}.json").read_text()) for name in names if name in OF_RUNS}
    for name in names:
        if name not in OF_RUNS:
            said[name] = json.loads((folder / mode / f"{name}.result.json").read_text())["provenance"]
    return {name: {k: v for k, v in facts.items() if k not in _HIDDEN} for name, facts in said.items()}


def _head(facts: dict[str, Any]) -> str:
    """Where results come from, in a line: command, seed, versions, moment and machine of their provenance `facts`."""
    versions = facts["versions"]
    return (
        f"{facts['mode']} mode; {facts['command']}; seed {facts['seed']}; gcjax {versions['gcjax']}, commit "
        f"{facts['commit']}; jax {versions['jax']}; Python {versions['python']}; {facts['date']}; "
        f"{facts['cores']} cores, {facts['processor']}"
    )


def _setup(sources: dict[str, dict[str, Any]], mode: str) -> macros.Macros:
    """Versions, machine, dates, and the mark of quick mode."""
    commits = sorted({str(facts["commit"]) for facts in sources.values()})
    seconds = sum(facts["processor_seconds"] for facts in sources.values())
    loads = [load for facts in sources.values() for load in facts["load_average"]]
    dates = sorted(str(facts["date"])[:10] for facts in sources.values())
    quick = (
        r"\begin{center}\fbox{Quick mode: the numbers are of small runs, for trying the manuscript out.}\end{center}"
    )
    return {
        "GenBanner": quick if mode == "quick" else "",
        "GenVersion": _each(facts["versions"]["gcjax"] for facts in sources.values()),
        "GenCommit": ", ".join(rf"\texttt{{{commit}}}" for commit in commits),
        "GenJax": _each(facts["versions"]["jax"] for facts in sources.values()),
        "GenPython": _each(facts["versions"]["python"] for facts in sources.values()),
        "GenDate": " to ".join(dict.fromkeys((dates[0], dates[-1]))),
        "GenProcessor": _each(facts["processor"] for facts in sources.values()),
        "GenCores": _each(facts["cores"] for facts in sources.values()),
        "GenMinutes": macros.fixed(seconds / 60),
        "GenLowLoad": f"{min(loads):.1f}",
        "GenHighLoad": f"{max(loads):.1f}",
    }


def _each(values: Iterable[Any]) -> str:
    """The values, each once: one if all results are of the same machine."""
    return " and ".join(sorted(set(map(str, values))))


def _draw(folder: Path, mode: str, out: Path, names: Collection[str], *, timelines: bool) -> dict[str, Any]:
    """Draws the figures of experiments, and the timelines, which are of none; returns file -> where it comes from."""
    drawn: dict[str, Any] = {}
    for name, (draw, run) in _FIGURES.items():
        if run in names:
            draw(runs.folder_of(run, folder, mode), out / f"figure_{name}.pdf")
            drawn[f"figure_{name}.pdf"] = run
    if timelines:
        figures.timelines(out / "figure_timelines.pdf")
        own = {"command": "python -m experiments.paper", "seed": 5, "commit": provenance.commit()}
        drawn["figure_timelines.pdf"] = own
    return drawn
