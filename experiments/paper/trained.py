"""Numbers and tables of the runs that train: the demo, worker-busy, groups. Letters: S seeds."""

from pathlib import Path

import numpy as np

from experiments.paper import tex
from experiments.paper.macros import ROOT, Macros, binding, fixed, percent
from gcjax import analysis, files
from gcjax.analysis.store import Columns

Table = dict[str, str]
"""Name of a file -> its LaTeX."""

NEVER = "never"


def quickstart(folder: Path) -> tuple[Macros, Table]:
    """Of the comparison of eight schemes on the same workers."""
    results = analysis.load(folder)
    reach = {scheme: analysis.reach_times(results, scheme) for scheme in results.schemes}
    macros = {
        "DemoWorkers": fixed(int(results.facts["num_workers"])),
        "DemoSeeds": fixed(len(reach["ASP"])),
        "DemoTarget": percent(results.facts["target"]["value"]),
        "DemoSlowPercent": percent(float(_demo("markov.probability"))),
        "DemoSlowFactor": fixed(float(_demo("markov.slowdown"))),
        "DemoFailures": _demo("failed_count.max_count"),
        "DemoBackward": _demo("num_stragglers"),
        "DemoCrcReached": fixed(int(np.isfinite(reach["CRC"]).sum())),
        "DemoBatch": _demo("digits.batch_size"),
        "DemoRate": _demo("sgd.learning_rate"),
    }
    for name, scheme in {"Asp": "ASP", "PartialOne": "partial L=1", "PartialTwo": "partial L=2", "Frc": "FRC"}.items():
        macros[f"Demo{name}Time"] = fixed(float(reach[scheme].mean()))
    lines = [_demo_row(results, scheme, reach[scheme]) for scheme in sorted(reach, key=lambda s: _order(reach[s]))]
    heads = ["Scheme", "Time (s)", "Reached", r"Computing (\%)", r"Waiting (\%)", "Chunks", r"Sent ($10^3$)"]
    return macros, {"demo": tex.tabular("@{}lrrrrrr@{}", heads, lines)}


def _demo(name: str) -> str:
    """What the config of the demo says."""
    return binding(ROOT / "configs" / "quickstart.gin", name)


def _order(reach: np.ndarray) -> tuple[int, float]:
    """Sorts schemes: first those that reached the target most often, of these the fastest."""
    ended = reach[np.isfinite(reach)]
    return -ended.size, float(ended.mean()) if ended.size else 0.0


def _demo_row(results: analysis.Results, scheme: str, reach: np.ndarray) -> list[str]:
    """The cells of one scheme: time, how many seeds reached the target, shares, costs up to the target or the end."""
    ended = reach[np.isfinite(reach)]
    spread = rf" $\pm$ {ended.std(ddof=1):.0f}" if ended.size > 1 else ""
    time = f"{ended.mean():.0f}{spread}" if ended.size else NEVER
    seeds = results.seeds(scheme)
    at = [
        int(np.searchsorted(seed["time"], min(moment, seed["time"][-1])))
        for seed, moment in zip(seeds, reach, strict=True)
    ]
    shares = [100 * np.mean([seed[name][-1] for seed in seeds]) for name in ("computing", "waiting")]
    counted = [
        (seed, i) for seed, i, moment in zip(seeds, at, reach, strict=True) if np.isfinite(moment) or not ended.size
    ]
    chunks, sent = (np.mean([seed[name][i] for seed, i in counted]) for name in ("chunks", "numbers"))
    cells = [f"{share:.0f}" for share in shares] + [f"{chunks:.0f}", f"{sent / 1000:.0f}"]
    return [tex.escape(scheme), time, f"{ended.size} of {reach.size}", *cells]


def worker_busy(folder: Path) -> tuple[Macros, Table]:
    """Of worker-busy against four other protocols: times, what is saved, shares of computing."""
    rows = _columns(folder)
    methods, settings = list(dict.fromkeys(rows["scheme"])), list(dict.fromkeys(rows["condition"]))
    ours, others = [m for m in methods if m.startswith("WBSP")], [m for m in methods if not m.startswith("WBSP")]
    value = {(m, s): _of(rows, m, s, "reach") for m in methods for s in settings}
    share = {(m, s): _of(rows, m, s, "computing").mean() for m in methods for s in settings}
    saved = {
        (m, s): 1 - value[m, s] / np.min([value[other, s] for other in others], axis=0) for m in ours for s in settings
    }
    slow = [1 - value[m, s].mean() / value["BSP", s].mean() for m in ours for s in settings]
    means = [each.mean() for each in saved.values()]
    plain = [share["WBSP", s] for s in settings]
    macros = {
        "BusyWorkers": binding(ROOT / "configs/worker_busy/base.gin", "study.num_workers"),
        "BusySeeds": fixed(len(value[methods[0], settings[0]])),
        "BusySettings": fixed(len(settings)),
        "BusyClaimedSaving": "60",
        "BusyClaimedShare": "91",
        "BusyClaimedLowShare": "55",
        "BusyClaimedHighShare": "72",
        "BusyPaperParameters": r"148\,298",
        "BusyStaleness": binding(ROOT / "configs/worker_busy/base.gin", "ssp.staleness"),
        "BusyWindow": fixed(float(binding(ROOT / "configs/worker_busy/base.gin", "adsp.seconds"))),
        "BusyLeastSaving": percent(min(means)),
        "BusyMostSaving": percent(max(means)),
        "BusyLeastSavingBsp": percent(min(slow)),
        "BusyMostSavingBsp": percent(max(slow)),
        "BusyPlainLowShare": percent(min(plain)),
        "BusyPlainHighShare": percent(max(plain)),
        "BusyOverlapShare": percent(min(share["WBSP overlap", s] for s in settings)),
        "BusyAspLowShare": percent(min(share["ASP", s] for s in settings)),
        "BusyAspHighShare": percent(max(share["ASP", s] for s in settings)),
        "BusyBspLowShare": percent(min(share["BSP", s] for s in settings)),
        "BusyBspHighShare": percent(max(share["BSP", s] for s in settings)),
        "BusyAspStaleness": fixed(float(np.mean([_of(rows, "ASP", s, "mean_staleness").mean() for s in settings])), 1),
    }
    lines = [
        [tex.escape(m), *(rf"{value[m, s].mean():.0f} $\pm$ {value[m, s].std(ddof=1):.0f}" for s in settings),
         *(rf"{100 * saved[m, s].mean():.0f}".replace("-", r"$-$") if m in ours else "" for s in settings)]
        for m in methods
    ]  # fmt: skip
    above = [rf" & \multicolumn{{{len(settings)}}}{{c}}{{time to the target (s)}}"
             rf" & \multicolumn{{{len(settings)}}}{{c}}{{saved (\%)}} \\"]  # fmt: skip
    columns = "@{}l" + "r" * 2 * len(settings) + "@{}"
    return macros, {"worker_busy": tex.tabular(columns, ["Method", *settings, *settings], lines, above=above)}


def _columns(folder: Path) -> Columns:
    """The columns of a folder's `results.parquet`."""
    table = files.read_table(folder / "results.parquet")
    return {name: table[name].to_numpy() for name in table.column_names}


def _of(rows: Columns, scheme: str, condition: str, column: str) -> np.ndarray:
    """A column [S] of one scheme under one condition."""
    return rows[column][(rows["scheme"] == scheme) & (rows["condition"] == condition)]


Ends = dict[tuple[int, str, float], tuple[np.ndarray, np.ndarray]]
"""(groups, who is delayed, delay) -> time and accuracy at the end, [S] each; 0 groups is progressive grouping."""


def _ends(folder: Path) -> Ends:
    """The last evaluation of every run."""
    rows = _columns(folder)
    ends: Ends = {}
    for key in dict.fromkeys(zip(rows["groups"].tolist(), rows["delayed"], rows["delay"], strict=True)):
        of_case = np.logical_and.reduce(
            [rows[n] == v for n, v in zip(("groups", "delayed", "delay"), key, strict=True)]
        )
        seeds = [of_case & (rows["seed"] == seed) for seed in np.unique(rows["seed"])]
        time, accuracy = (np.array([rows[name][of_seed][-1] for of_seed in seeds]) for name in ("time", "accuracy"))
        ends[key] = time, accuracy
    return ends


def delays(folder: Path) -> tuple[Macros, Table]:
    """Of one delayed node and growing numbers of groups, relative to one group without delay."""
    ends = _ends(folder)
    base_time, base_accuracy = ends[1, "none", 0.0]
    relative = {key: (time / base_time, 100 * (base_accuracy - last)) for key, (time, last) in ends.items()}
    largest, most = max(key[2] for key in ends), max(key[0] for key in ends)
    fixed_losses = [lost.mean() for (groups, *_), (_, lost) in relative.items() if groups]
    time, _ = relative[0, "one node", largest]
    config = ROOT / "configs/grouped/delays.gin"
    macros = {
        "GroupWorkers": binding(config, "study.num_workers"),
        "GroupSeeds": fixed(len(base_time)),
        "GroupClaimedDelay": "300",
        "GroupClaimedPercent": fixed(100 * (float(binding(config, "group_delays.factor")) - 1)),
        "GroupClaimedPoints": binding(config, "group_delays.points"),
        "GroupLargestDelay": fixed(largest),
        "GroupMost": fixed(most),
        "GroupProgressiveTime": f"{time.mean():.2f}",
        "GroupProgressiveSpread": f"{time.std(ddof=1):.2f}",
        "GroupWorstLost": fixed(float(max(fixed_losses)), 2),
        "GroupMostLost": fixed(float(max(v[1].mean() for k, v in relative.items() if k[0] == most)), 2),
        "GroupOneTime": f"{relative[1, 'one node', largest][0].mean():.2f}",
        "GroupTrialRounds": binding(config, "progressive_groups.num_rounds"),
    }
    numbers = sorted({key[0] for key in ends} - {0})
    cases = list(dict.fromkeys((key[1], key[2]) for key in ends))
    lines = [
        [rf"{delay:.0f}", *(f"{relative[n, who, delay][0].mean():.2f}" for n in (*numbers, 0)),
         fixed(max(float(relative[n, who, delay][1].mean()) for n in (*numbers, 0)), 2)]
        for who, delay in cases
    ]  # fmt: skip
    heads = [r"Delay (\%)", *map(str, numbers), "progressive", "Largest loss (points)"]
    return macros, {"groups": tex.tabular("@{}" + "r" * len(heads) + "@{}", heads, lines)}


def two_stragglers(folder: Path) -> tuple[Macros, Table]:
    """Of two delayed nodes in one group or in two."""
    ends = _ends(folder)
    base_time, _ = ends[1, "none", 0.0]
    largest = max(key[2] for key in ends)

    def time(groups: int, who: str) -> str:
        """The mean relative time."""
        return f"{(ends[groups, who, largest][0] / base_time).mean():.2f}"

    return {
        "TwoGroups": "4",
        "TwoMoreGroups": "8",
        "TwoSameTime": time(4, "two in one group"),
        "TwoSeparateTime": time(4, "two in separate groups"),
        "TwoSeparateEightTime": time(8, "two in separate groups"),
        "TwoProgressiveTime": time(0, "two in separate groups"),
    }, {}
