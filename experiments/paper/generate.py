"""Writes `paper/generated`: the numbers, tables and figures of the manuscript, and where they come from."""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from experiments.paper import checked, coded, figures, live, live_tables, macros, provenance, runs, trained
from gcjax import files

OF_RUNS = {
    "quickstart": trained.quickstart,
    "codes": coded.codes,
    "approximate": coded.approximate,
    "exact": coded.exact,
    "worker_busy": trained.worker_busy,
    "delays": trained.delays,
    "two_stragglers": trained.two_stragglers,
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
      only: names of `OF_RUNS` and `OF_COMPUTED`; all by default.
      docs: the folder of the documentation, whose table of the live runs is written, too; None for none.

    Raises:
      ValueError: if the others are not there, or are of the other mode.
    """
    out.mkdir(parents=True, exist_ok=True)
    new_names = list(only or [*OF_RUNS, *OF_COMPUTED])
    kept_content = kept(out, new_names, mode)
    sources = kept_content["sources"] | _sources_of_results(folder, mode, new_names)
    macros_of_experiment, table_files = kept_content["groups"], {}
    for name in new_names:
        macros_of_experiment[name], tables = _macros_and_tables(name, folder, mode)
        for table, text in tables.items():
            files.write_text(out / f"table_{table}.tex", f"% {_source_line(sources[name])}\n{text}")
            table_files[f"table_{table}.tex"] = name
    _write_numbers(out / "numbers.tex", macros_of_experiment, sources, mode)
    figure_files = _draw_figures(folder, mode, out, new_names, timelines=not only)
    source_of_file = kept_content["files"] | table_files | figure_files | {"numbers.tex": "all"}
    record = {"mode": mode, "sources": sources, "files": source_of_file}
    files.write_text(out / "provenance.json", json.dumps(record, indent=2, sort_keys=True) + "\n")
    if docs is not None and "live" in new_names:
        live_tables.write_page(runs.folder_of("live", folder, mode), sources["live"], docs)


def kept(out: Path, new_names: Collection[str], mode: str) -> dict[str, Any]:
    """What stays of the generated files: `sources`, `files`, and `groups` of macros, without those of `new_names`.

    Raises:
      ValueError: if it is not there, or is of the other mode.
    """
    kept_names = [name for name in (*OF_RUNS, *OF_COMPUTED) if name not in new_names]
    if not kept_names:
        return {"sources": {}, "files": {}, "groups": {}}
    path = out / "provenance.json"
    record: dict[str, Any] = {"mode": mode, "sources": {}, "files": {}}
    if path.exists():
        record = json.loads(path.read_text())
    is_of_other_mode = record["mode"] != mode
    missing = [name for name in kept_names if is_of_other_mode or name not in record["sources"]]
    if missing:
        raise ValueError(
            f"what is not written anew must be there, of {mode} runs; {out} has none of {', '.join(missing)}. Name "
            "these after --only, too, or leave --only away."
        )
    macros_of_experiment = macros.groups_of((out / "numbers.tex").read_text())
    return {
        "sources": {name: record["sources"][name] for name in kept_names},
        "files": {file: source for file, source in record["files"].items() if source not in new_names},
        "groups": {name: macros_of_experiment[name] for name in kept_names},
    }


def _macros_and_tables(name: str, folder: Path, mode: str) -> tuple[macros.Macros, trained.Tables]:
    """The macros and tables of an experiment."""
    if name in OF_RUNS:
        return OF_RUNS[name](runs.folder_of(name, folder, mode))
    path = folder / mode / f"{name}.result.json"
    return OF_COMPUTED[name](json.loads(path.read_text())["result"])


def _write_numbers(
    path: Path, macros_of_experiment: dict[str, macros.Macros], sources: dict[str, dict[str, Any]], mode: str
) -> None:
    """Writes all macros, those on the setup and on the schemes first, which are counted now."""
    ordered_macros = {"setup": _setup(sources, mode), "schemes": checked.registered()}
    ordered_macros |= {name: macros_of_experiment[name] for name in (*OF_RUNS, *OF_COMPUTED)}
    source_lines = {"setup": f"{mode} mode", "schemes": f"{mode} mode, commit {provenance.commit()}"}
    source_lines |= {name: _source_line(sources[name]) for name in macros_of_experiment}
    files.write_text(path, macros.text_of(ordered_macros, source_lines))


def _sources_of_results(folder: Path, mode: str, names: Collection[str]) -> dict[str, dict[str, Any]]:
    """Experiment -> where its results come from."""
    sources = {name: json.loads((folder / mode / f"{name}.json").read_text()) for name in names if name in OF_RUNS}
    for name in names:
        if name in OF_COMPUTED:
            sources[name] = json.loads((folder / mode / f"{name}.result.json").read_text())["provenance"]
    return {
        name: {fact: value for fact, value in source.items() if fact not in _HIDDEN} for name, source in sources.items()
    }


def _source_line(facts: dict[str, Any]) -> str:
    """Where results come from, in a line."""
    versions = facts["versions"]
    return (
        f"{facts['mode']} mode; {facts['command']}; seed {facts['seed']}; gcjax {versions['gcjax']}, commit "
        f"{facts['commit']}; jax {versions['jax']}; Python {versions['python']}; {facts['date']}; "
        f"{facts['cores']} cores, {facts['processor']}"
    )


def _setup(sources: dict[str, dict[str, Any]], mode: str) -> macros.Macros:
    """Versions, machine, dates, and the mark of quick mode."""
    all_facts = list(sources.values())
    commits = sorted({str(facts["commit"]) for facts in all_facts})
    processor_seconds = sum(facts["processor_seconds"] for facts in all_facts)
    loads = [load for facts in all_facts for load in facts["load_average"]]
    dates = sorted(str(facts["date"])[:10] for facts in all_facts)
    first_and_last_date = dict.fromkeys((dates[0], dates[-1]))  # once if they are the same
    quick_banner = (
        r"\begin{center}\fbox{Quick mode: the numbers are of small runs, for trying the manuscript out.}\end{center}"
    )
    return {
        "GenBanner": quick_banner if mode == "quick" else "",
        "GenVersion": _distinct_values_text(facts["versions"]["gcjax"] for facts in all_facts),
        "GenCommit": ", ".join(rf"\texttt{{{commit}}}" for commit in commits),
        "GenJax": _distinct_values_text(facts["versions"]["jax"] for facts in all_facts),
        "GenPython": _distinct_values_text(facts["versions"]["python"] for facts in all_facts),
        "GenDate": " to ".join(first_and_last_date),
        "GenProcessor": _distinct_values_text(facts["processor"] for facts in all_facts),
        "GenCores": _distinct_values_text(facts["cores"] for facts in all_facts),
        "GenMinutes": macros.fixed(processor_seconds / 60),
        "GenLowLoad": f"{min(loads):.1f}",
        "GenHighLoad": f"{max(loads):.1f}",
    }


def _distinct_values_text(values: Iterable[Any]) -> str:
    """The values, each once: one if all results are of the same machine."""
    return " and ".join(sorted(set(map(str, values))))


def _draw_figures(folder: Path, mode: str, out: Path, names: Collection[str], *, timelines: bool) -> dict[str, Any]:
    """Draws the figures of experiments, and the timelines, which are of none; returns file -> where it comes from."""
    source_of_file: dict[str, Any] = {}
    for figure, (draw, experiment) in _FIGURES.items():
        if experiment in names:
            draw(runs.folder_of(experiment, folder, mode), out / f"figure_{figure}.pdf")
            source_of_file[f"figure_{figure}.pdf"] = experiment
    if timelines:
        figures.timelines(out / "figure_timelines.pdf")
        source = {"command": "python -m experiments.paper", "seed": 5, "commit": provenance.commit()}
        source_of_file["figure_timelines.pdf"] = source
    return source_of_file
