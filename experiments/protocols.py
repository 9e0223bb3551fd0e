"""All protocols and some codes, each tuned, on the same durations: who wins where, and at what cost of messages.

gcjax run configs/protocols.gin
gcjax run configs/protocols_traces.gin --set "protocol_map.traces = {'job': 'FILE'}"    # regimes of measured times
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from experiments import protocol_claims, protocol_tables
from experiments.tuned_schemes import Setting, TunedSchemes, tuned_schemes
from gcjax import _validate, analysis, files, processes, register
from gcjax.analysis.store import Columns
from gcjax.progress import Progress
from gcjax.protocols import Protocol
from gcjax.stragglers import Links, Network, StragglerModel, read_trace, replay
from gcjax.study import Condition, Study, Tuning


@register("experiment")
def protocol_map(
    schemes: dict[str, Protocol],
    *,
    study: Study,
    tuning: Tuning,
    regimes: dict[str, StragglerModel],
    networks: dict[str, Network | Links],
    traces: Mapping[str, str] | None = None,
    out: Path,
    progress: Progress,
) -> Columns:
    """Tunes every scheme for each cost of messages, and runs it under every regime of stragglers at every cost.

    The names of schemes are as in `experiments.tuned_schemes`: 'SSP, s=3' and 'SSP, s=10' are two variants of SSP. The
    hyperparameters of a scheme are chosen for each cost of messages, over all regimes: by how many runs reach the
    target, then by their mean seconds. Whoever trains knows what messages cost, and not who will be slow. All rates,
    regimes, costs and seeds of a variant go through one program.

    The folder: `results.parquet` (a row for each scheme, condition and seed, with time, staleness, waiting and
    communication), `trials.parquet` (a row for each trial, condition and seed), `claims.md`, `summary.md`, `map.png`,
    `run.json`, `operative.gin`.

    Args:
      schemes: name -> protocol.
      study: what all schemes share, with a target and 2 seeds or more, and optimizers whose learning rate is 1.
      tuning: how hyperparameters are chosen.
      regimes: name -> who is slow; may be empty if there are traces.
      networks: name -> the time of messages.
      traces: name -> file, as for `gcjax trace describe`: more regimes, of measured times, scaled to a mean of a second
        a unit. Workers are its columns, drawn by the seed; each begins at a row that the seed draws.
      out: the folder to write.
      progress: tells a person how far it is.

    Returns:
      The rows of `results.parquet`, by column.

    Raises:
      ValueError: if no scheme, no network, or neither a regime nor a trace is named, or a regime and a trace have one
        name, or there is no target or only one seed, or a trace is none.
    """
    _validate.integer("num_seeds", study.num_seeds, minimum=2)
    for name, named_entries in {"schemes": schemes, "networks": networks}.items():
        if not named_entries:
            raise ValueError(f"{name} must name one at least; got {named_entries!r}.")
    goal = study.goal
    all_regimes = _all_regimes(regimes, traces or {})
    conditions = {
        f"{regime}, {network}": Condition(all_regimes[regime], networks[network])
        for regime in all_regimes
        for network in networks
    }
    groups = [[f"{regime}, {network}" for regime in all_regimes] for network in networks]
    tuned = tuned_schemes(schemes, Setting(study, tuning, conditions, groups), out=out, progress=progress)
    if processes.is_first():
        words = protocol_tables.Words(
            regimes=list(all_regimes), networks=list(networks), goal=goal, study=study, tuning=tuning
        )
        _write(tuned, words, out, progress)
    return tuned.rows


def _all_regimes(regimes: Mapping[str, StragglerModel], traces: Mapping[str, str]) -> dict[str, StragglerModel]:
    """The models by name: the regimes that are given, then one that replays each trace, at a second a unit."""
    if not regimes and not traces:
        raise ValueError(
            "regimes or traces must name one at least; got neither. Name a file of measured times, as in "
            "protocol_map.traces = {'job': 'FILE'}, or a straggler model in protocol_map.regimes."
        )
    if common_names := sorted(set(traces) & set(regimes)):
        raise ValueError(f"a trace and a regime must have different names; got {common_names[0]!r} for both.")
    models = dict(regimes)
    for name, path in traces.items():
        trace = read_trace(path)
        mean_seconds = float(np.mean(trace.compute[np.isfinite(trace.compute)]))  # NaN: not measured, inf: failed
        models[name] = replay(trace=trace, workers="drawn", slope=1 / mean_seconds)
    return models


def _write(tuned: TunedSchemes, words: protocol_tables.Words, out: Path, progress: Progress) -> None:
    """Writes the pages, the tables of rows and the figure; shows the claims."""
    rows = tuned.rows
    claims = [protocol_claims.claim(rows, regime, network) for regime in words.regimes for network in words.networks]
    claims_page = protocol_claims.page(claims)
    files.write_text(out / "claims.md", claims_page)
    analysis.write_page(out, protocol_tables.page(tuned, words, claims_page), words.facts())
    files.write_table(out / "results.parquet", rows)
    files.write_table(out / "trials.parquet", tuned.trials)
    protocol_tables.figure(rows, words.regimes, words.networks, out / "map.png")
    analysis.drop_checkpoints(out)
    progress.show(analysis.RichTable("Who wins where", protocol_claims.HEADS, protocol_claims.cells(claims)))
