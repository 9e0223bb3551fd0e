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

GROUPS_FROM_RUNS = {
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
GROUPS_FROM_COMPUTATIONS = {
    "identities": checked.identities,
    "wavefronts": checked.wavefronts,
    "specifications": checked.specifications,
    "laws": checked.laws,
    "validation": checked.validation,
    "speed": checked.speed,
    "schedule_speed": checked.schedule_speed,
    "validation_speed": checked.validation_speed,
}
GROUPS_FROM_TRACES = {"traces": traces.traces}
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
      only: names of `GROUPS_FROM_RUNS`, `GROUPS_FROM_COMPUTATIONS` and `GROUPS_FROM_TRACES`; all of
        the first two by default.
      docs: the folder of the documentation, whose table of the live runs is written, too; None for none.

    Raises:
      ValueError: if the others are not there, or are of the other mode.
    """
    out.mkdir(parents=True, exist_ok=True)
    groups_to_write = list(only or [*GROUPS_FROM_RUNS, *GROUPS_FROM_COMPUTATIONS])
    kept_results = results_to_keep(out, groups_to_write, mode)
    sources = kept_results["sources"] | _sources(folder, mode, groups_to_write)
    source_of_table: dict[str, str] = {}
    for name in groups_to_write:
        kept_results["groups"][name], tables_of_group = _numbers(name, folder, mode)
        for table, table_text in tables_of_group.items():
            files.write_text(out / f"table_{table}.tex", f"% {_provenance_comment(sources[name])}\n{table_text}")
            source_of_table[f"table_{table}.tex"] = name
    _write_numbers(out / "numbers.tex", kept_results["groups"], sources, mode)
    source_of_figure = _draw(
        folder,
        mode,
        out,
        groups_to_write,
        timelines={*GROUPS_FROM_RUNS, *GROUPS_FROM_COMPUTATIONS} <= set(groups_to_write),
    )
    source_of_file = kept_results["files"] | source_of_table | source_of_figure | {"numbers.tex": "all"}
    provenance_of_all = {"mode": mode, "sources": sources, "files": source_of_file}
    files.write_text(out / "provenance.json", json.dumps(provenance_of_all, indent=2, sort_keys=True) + "\n")
    if docs is not None and "live" in groups_to_write:
        live_tables.write_page(runs.folder_of("live", folder, mode), sources["live"], docs)


def results_to_keep(out: Path, groups_to_write: Collection[str], mode: str) -> dict[str, Any]:
    """What stays of the generated files: `sources`, `files`, and `groups` of macros, without `groups_to_write`.

    `sources` and `groups` are by experiment, `files` by name, each with what it comes from.

    Raises:
      ValueError: if it is not there, or is of the other mode.
    """
    path = out / "provenance.json"
    old_provenance: dict[str, Any] = (
        json.loads(path.read_text()) if path.exists() else {"mode": mode, "sources": {}, "files": {}}
    )
    kept_groups = [name for name in (*GROUPS_FROM_RUNS, *GROUPS_FROM_COMPUTATIONS) if name not in groups_to_write]
    missing_groups = (
        kept_groups
        if old_provenance["mode"] != mode
        else [name for name in kept_groups if name not in old_provenance["sources"]]
    )
    if missing_groups:
        raise ValueError(
            f"what is not written anew must be there, of {mode} runs; {out} has none of {', '.join(missing_groups)}. "
            "Name these after --only, too, or leave --only away."
        )
    kept_groups += [
        name for name in GROUPS_FROM_TRACES if name not in groups_to_write and name in old_provenance["sources"]
    ]
    groups = macros.groups_of((out / "numbers.tex").read_text()) if kept_groups else {}
    return {
        "sources": {name: old_provenance["sources"][name] for name in kept_groups},
        "files": {name: source for name, source in old_provenance["files"].items() if source not in groups_to_write},
        "groups": {name: groups[name] for name in kept_groups},
    }


def _numbers(name: str, folder: Path, mode: str) -> tuple[macros.Macros, trained.Tables]:
    """The macros and tables of an experiment, from its run or its result in `folder`."""
    if name in GROUPS_FROM_RUNS:
        return GROUPS_FROM_RUNS[name](runs.folder_of(name, folder, mode))
    path = folder / mode / f"{name}.result.json"
    return (GROUPS_FROM_COMPUTATIONS | GROUPS_FROM_TRACES)[name](json.loads(path.read_text())["result"])


def _write_numbers(path: Path, groups: dict[str, macros.Macros], sources: dict[str, dict[str, Any]], mode: str) -> None:
    """Writes all macros, those on the setup and on the schemes first, which are counted now."""
    groups_in_order = {"setup": _setup(sources, mode), "schemes": checked.registered()}
    groups_in_order |= {
        name: groups[name]
        for name in (*GROUPS_FROM_RUNS, *GROUPS_FROM_COMPUTATIONS, *GROUPS_FROM_TRACES)
        if name in groups
    }
    source_comments = {"setup": f"{mode} mode", "schemes": f"{mode} mode, commit {provenance.commit()}"}
    source_comments |= {name: _provenance_comment(sources[name]) for name in groups}
    files.write_text(path, macros.text_of(groups_in_order, source_comments))


def _sources(folder: Path, mode: str, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Experiment -> where its results come from: command, versions, machine, date, ...; without `_HIDDEN`.

    It stands beside the folder of a run, and in the file of what was computed.
    """
    provenance_of_group = {
        name: json.loads((folder / mode / f"{name}.json").read_text()) for name in names if name in GROUPS_FROM_RUNS
    }
    for name in names:
        if name not in GROUPS_FROM_RUNS:
            provenance_of_group[name] = json.loads((folder / mode / f"{name}.result.json").read_text())["provenance"]
    return {
        name: {k: v for k, v in group_provenance.items() if k not in _HIDDEN}
        for name, group_provenance in provenance_of_group.items()
    }


def _provenance_comment(source: dict[str, Any]) -> str:
    """Where results come from, in a line: command, seed, versions, moment and machine of their provenance `source`."""
    versions = source["versions"]
    return (
        f"{source['mode']} mode; {source['command']}; seed {source['seed']}; gcjax {versions['gcjax']}, commit "
        f"{source['commit']}; jax {versions['jax']}; Python {versions['python']}; {source['date']}; "
        f"{source['cores']} cores, {source['processor']}"
    )


def _setup(sources: dict[str, dict[str, Any]], mode: str) -> macros.Macros:
    """Versions, machine, dates, and the mark of quick mode."""
    commits = sorted({str(source["commit"]) for source in sources.values()})
    processor_seconds = sum(source["processor_seconds"] for source in sources.values())
    loads = [load for source in sources.values() for load in source["load_average"]]
    dates = sorted(str(source["date"])[:10] for source in sources.values())
    quick_banner = (
        r"\begin{center}\fbox{Quick mode: the numbers are of small runs, for trying the manuscript out.}\end{center}"
    )
    return {
        "GenBanner": quick_banner if mode == "quick" else "",
        "GenVersion": _each(source["versions"]["gcjax"] for source in sources.values()),
        "GenCommit": ", ".join(rf"\texttt{{{commit}}}" for commit in commits),
        "GenJax": _each(source["versions"]["jax"] for source in sources.values()),
        "GenPython": _each(source["versions"]["python"] for source in sources.values()),
        "GenDate": " to ".join(dict.fromkeys((dates[0], dates[-1]))),
        "GenProcessor": _each(source["processor"] for source in sources.values()),
        "GenCores": _each(source["cores"] for source in sources.values()),
        "GenMinutes": macros.fixed(processor_seconds / 60),
        "GenLowLoad": f"{min(loads):.1f}",
        "GenHighLoad": f"{max(loads):.1f}",
    }


def _each(values: Iterable[Any]) -> str:
    """The values, each once: one if all results are of the same machine."""
    return " and ".join(sorted(set(map(str, values))))


def _draw(folder: Path, mode: str, out: Path, names: Collection[str], *, timelines: bool) -> dict[str, Any]:
    """Draws the figures of experiments, and the timelines, which are of none; returns file -> where it comes from."""
    source_of_figure: dict[str, Any] = {}
    for name, (draw, run) in _FIGURES.items():
        if run in names:
            draw(runs.folder_of(run, folder, mode), out / f"figure_{name}.pdf")
            source_of_figure[f"figure_{name}.pdf"] = run
    if timelines:
        figures.timelines(out / "figure_timelines.pdf")
        source_of_timelines = {"command": "python -m experiments.paper", "seed": 5, "commit": provenance.commit()}
        source_of_figure["figure_timelines.pdf"] = source_of_timelines
    return source_of_figure
