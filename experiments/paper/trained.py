"""Numbers and tables of the runs that train: the demo, worker-busy, groups. Letters: S seeds."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.paper.macros import ROOT, Macros, binding, fixed, percent
from gcjax import analysis, tex
from gcjax.analysis.store import Columns, table_columns
from gcjax.study import seed_values

Tables = dict[str, str]
"""Name of a file -> its LaTeX."""

NEVER = "never"


def quickstart(folder: Path) -> tuple[Macros, Tables]:
    """The macros and the table of the comparison of eight schemes on the same workers."""
    results = analysis.load(folder)
    reach_times = {scheme: analysis.reach_times(results, scheme) for scheme in results.schemes}
    macros = {
        "DemoWorkers": fixed(int(results.facts["num_workers"])),
        "DemoSeeds": fixed(len(reach_times["ASP"])),
        "DemoTarget": percent(results.facts["target"]["value"]),
        "DemoSlowPercent": percent(float(_demo_binding("markov.probability"))),
        "DemoSlowFactor": fixed(float(_demo_binding("markov.slowdown"))),
        "DemoFailures": _demo_binding("failed_count.max_count"),
        "DemoBackward": _demo_binding("num_stragglers"),
        "DemoCrcReached": fixed(int(np.isfinite(reach_times["CRC"]).sum())),
        "DemoBatch": _demo_binding("digits.batch_size"),
        "DemoRate": _demo_binding("sgd.learning_rate"),
    }
    for name, scheme in {"Asp": "ASP", "PartialOne": "partial L=1", "PartialTwo": "partial L=2", "Frc": "FRC"}.items():
        macros[f"Demo{name}Time"] = fixed(float(reach_times[scheme].mean()))
    best_schemes_first = sorted(reach_times, key=lambda scheme: _reach_order(reach_times[scheme]))
    lines = [_demo_cells(results, scheme, reach_times[scheme]) for scheme in best_schemes_first]
    heads = ["Scheme", "Time (s)", "Reached", r"Computing (\%)", r"Waiting (\%)", "Chunks", r"Sent ($10^3$)"]
    return macros, {"demo": tex.tabular("@{}lrrrrrr@{}", heads, lines)}


def _demo_binding(name: str) -> str:
    """What the config of the demo says."""
    return binding(ROOT / "configs" / "quickstart.gin", name)


def _reach_order(reach_times: np.ndarray) -> tuple[int, float]:
    """Sorts schemes: first those that most often reached the target, then the fastest; `reach_times float[S]`."""
    finite_times = reach_times[np.isfinite(reach_times)]
    return -finite_times.size, float(finite_times.mean()) if finite_times.size else 0.0


def _demo_cells(results: analysis.Results, scheme: str, reach_times: np.ndarray) -> list[str]:
    """The cells of one scheme: time, how many seeds reached the target, shares, costs up to the target or the end.

    Time and costs are means over the seeds that reached it (`reach_times float[S]` seconds, inf: not); costs over all
    seeds if none did. Shares are those at the end, in percent; numbers sent are in thousands.
    """
    finite_times = reach_times[np.isfinite(reach_times)]
    spread = rf" $\pm$ {finite_times.std(ddof=1):.0f}" if finite_times.size > 1 else ""
    time_text = f"{finite_times.mean():.0f}{spread}" if finite_times.size else NEVER
    seeds = results.seeds(scheme)
    time_percents = [100 * np.mean([seed[share][-1] for seed in seeds]) for share in ("computing", "waiting")]
    has_any_reached = finite_times.size > 0
    last_evaluations = [
        (seed, _evaluation_at(seed, reach_time))
        for seed, reach_time in zip(seeds, reach_times, strict=True)
        if np.isfinite(reach_time) or not has_any_reached
    ]
    mean_chunks, mean_numbers_sent = (
        np.mean([seed[cost][i] for seed, i in last_evaluations]) for cost in ("chunks", "numbers")
    )
    cost_cells = [f"{mean_chunks:.0f}", f"{mean_numbers_sent / 1000:.0f}"]
    reached_text = f"{finite_times.size} of {reach_times.size}"
    return [
        tex.escape(scheme),
        time_text,
        reached_text,
        *(f"{time_percent:.0f}" for time_percent in time_percents),
        *cost_cells,
    ]


def _evaluation_at(seed: Columns, reach_time: float) -> int:
    """The position of the evaluation at which a seed reached the target, or of its last one if it did not (inf)."""
    end_time = seed["time"][-1]
    return int(np.searchsorted(seed["time"], min(reach_time, end_time)))


def worker_busy(folder: Path) -> tuple[Macros, Tables]:
    """The macros and the table of worker-busy against four other protocols: times, what is saved, shares of computing.

    Saved is 1 less the seconds to the target over those of the fastest other method of the same seed, float[S]; against
    BSP alone, of their means. In names, m is a method and s a setting.
    """
    rows = table_columns(folder / "results.parquet")
    methods, settings = list(dict.fromkeys(rows["scheme"])), list(dict.fromkeys(rows["condition"]))
    worker_busy_methods = [m for m in methods if m.startswith("WBSP")]
    other_methods = [m for m in methods if m not in worker_busy_methods]
    reach = {(m, s): seed_values(rows, m, s, "reach") for m in methods for s in settings}
    computing = {(m, s): seed_values(rows, m, s, "computing").mean() for m in methods for s in settings}
    fastest_other_seconds = {s: np.min([reach[other, s] for other in other_methods], axis=0) for s in settings}
    saved_shares = {(m, s): 1 - reach[m, s] / fastest_other_seconds[s] for m in worker_busy_methods for s in settings}
    saved_against_bsp = [1 - reach[m, s].mean() / reach["BSP", s].mean() for m in worker_busy_methods for s in settings]
    mean_savings = [savings.mean() for savings in saved_shares.values()]
    plain_computing = [computing["WBSP", s] for s in settings]
    asp_staleness = [seed_values(rows, "ASP", s, "mean_staleness").mean() for s in settings]
    macros = {
        "BusyWorkers": binding(ROOT / "configs/worker_busy/base.gin", "study.num_workers"),
        "BusySeeds": fixed(len(reach[methods[0], settings[0]])),
        "BusySettings": fixed(len(settings)),
        "BusyClaimedSaving": "60",
        "BusyClaimedShare": "91",
        "BusyClaimedLowShare": "55",
        "BusyClaimedHighShare": "72",
        "BusyPaperParameters": r"148\,298",
        "BusyStaleness": binding(ROOT / "configs/worker_busy/base.gin", "ssp.staleness"),
        "BusyWindow": fixed(float(binding(ROOT / "configs/worker_busy/base.gin", "adsp.seconds"))),
        "BusyLeastSaving": percent(min(mean_savings)),
        "BusyMostSaving": percent(max(mean_savings)),
        "BusyLeastSavingBsp": percent(min(saved_against_bsp)),
        "BusyMostSavingBsp": percent(max(saved_against_bsp)),
        "BusyPlainLowShare": percent(min(plain_computing)),
        "BusyPlainHighShare": percent(max(plain_computing)),
        "BusyOverlapShare": percent(min(computing["WBSP overlap", s] for s in settings)),
        "BusyAspLowShare": percent(min(computing["ASP", s] for s in settings)),
        "BusyAspHighShare": percent(max(computing["ASP", s] for s in settings)),
        "BusyBspLowShare": percent(min(computing["BSP", s] for s in settings)),
        "BusyBspHighShare": percent(max(computing["BSP", s] for s in settings)),
        "BusyAspStaleness": fixed(float(np.mean(asp_staleness)), 1),
    }
    lines = [
        [tex.escape(m), *(rf"{reach[m, s].mean():.0f} $\pm$ {reach[m, s].std(ddof=1):.0f}" for s in settings),
         *(_percent_saved_text(saved_shares[m, s]) if m in worker_busy_methods else "" for s in settings)]
        for m in methods
    ]  # fmt: skip
    group_heads = [
        rf" & \multicolumn{{{len(settings)}}}{{c}}{{time to the target (s)}}"
        rf" & \multicolumn{{{len(settings)}}}{{c}}{{saved (\%)}} \\"
    ]
    columns = "@{}l" + "r" * 2 * len(settings) + "@{}"
    return macros, {"worker_busy": tex.tabular(columns, ["Method", *settings, *settings], lines, above=group_heads)}


def _percent_saved_text(savings: np.ndarray) -> str:
    """The mean share of the time that is saved, in percent, with a minus sign that is one."""
    return rf"{100 * savings.mean():.0f}".replace("-", r"$-$")


class GroupCase(NamedTuple):
    """How many groups (0 is progressive grouping), which workers are delayed, and by how many percent."""

    groups: int
    delayed: str
    delay: float


class End(NamedTuple):
    """Time and accuracy at the end of the runs of a case, float[S] each."""

    time: np.ndarray
    accuracy: np.ndarray


def _ends_of_cases(folder: Path) -> dict[GroupCase, End]:
    """Case -> time (seconds) and accuracy at the last evaluation of each seed."""
    evaluations = table_columns(folder / "results.parquet")
    ends: dict[GroupCase, End] = {}
    for case in map(
        GroupCase._make, zip(evaluations["groups"].tolist(), evaluations["delayed"], evaluations["delay"], strict=True)
    ):
        if case in ends:
            continue
        is_of_case = np.logical_and.reduce(
            [evaluations[name] == value_of_case for name, value_of_case in case._asdict().items()]
        )
        masks_of_seeds = [is_of_case & (evaluations["seed"] == seed) for seed in np.unique(evaluations["seed"])]
        last_time = np.array([evaluations["time"][mask][-1] for mask in masks_of_seeds])
        last_accuracy = np.array([evaluations["accuracy"][mask][-1] for mask in masks_of_seeds])
        ends[case] = End(last_time, last_accuracy)
    return ends


def delays(folder: Path) -> tuple[Macros, Tables]:
    """The macros and the table of one delayed node and growing numbers of groups, relative to one without delay.

    A case with 0 groups is that of progressive grouping.
    """
    ends = _ends_of_cases(folder)
    base = ends[GroupCase(1, "none", 0.0)]
    relative_time = {case: end.time / base.time for case, end in ends.items()}  # float[S] each
    # In percentage points.
    mean_loss = {case: (100 * (base.accuracy - end.accuracy)).mean() for case, end in ends.items()}
    largest_delay, most_groups = max(case.delay for case in ends), max(case.groups for case in ends)
    losses_of_fixed = [loss for case, loss in mean_loss.items() if case.groups]
    losses_of_most = [float(loss) for case, loss in mean_loss.items() if case.groups == most_groups]
    progressive_time = relative_time[GroupCase(0, "one node", largest_delay)]
    one_group_time = relative_time[GroupCase(1, "one node", largest_delay)]
    config = ROOT / "configs/grouped/delays.gin"
    macros = {
        "GroupWorkers": binding(config, "study.num_workers"),
        "GroupSeeds": fixed(len(base.time)),
        "GroupClaimedDelay": "300",
        "GroupClaimedPercent": fixed(100 * (float(binding(config, "group_delays.factor")) - 1)),
        "GroupClaimedPoints": binding(config, "group_delays.points"),
        "GroupLargestDelay": fixed(largest_delay),
        "GroupMost": fixed(most_groups),
        "GroupProgressiveTime": f"{progressive_time.mean():.2f}",
        "GroupProgressiveSpread": f"{progressive_time.std(ddof=1):.2f}",
        "GroupWorstLost": fixed(float(max(losses_of_fixed)), 2),
        "GroupMostLost": fixed(max(losses_of_most), 2),
        "GroupOneTime": f"{one_group_time.mean():.2f}",
        "GroupTrialRounds": binding(config, "progressive_groups.num_rounds"),
    }
    numbers_of_groups = sorted({case.groups for case in ends} - {0})
    lines = []
    for delayed, delay in dict.fromkeys((case.delayed, case.delay) for case in ends):
        cases_of_line = [GroupCase(groups, delayed, delay) for groups in (*numbers_of_groups, 0)]
        time_cells = [f"{relative_time[case].mean():.2f}" for case in cases_of_line]
        largest_loss = max(float(mean_loss[case]) for case in cases_of_line)
        lines.append([f"{delay:.0f}", *time_cells, fixed(largest_loss, 2)])
    heads = [r"Delay (\%)", *map(str, numbers_of_groups), "progressive", "Largest loss (points)"]
    return macros, {"groups": tex.tabular("@{}" + "r" * len(heads) + "@{}", heads, lines)}


def two_stragglers(folder: Path) -> tuple[Macros, Tables]:
    """The macros of two delayed nodes in one group or in two, relative to one group without delay; no table.

    Cases of 0 groups are those of progressive grouping, which chooses how many.
    """
    ends = _ends_of_cases(folder)
    base_time = ends[GroupCase(1, "none", 0.0)].time
    largest_delay = max(case.delay for case in ends)

    def mean_relative_time(groups: int, delayed: str) -> str:
        """The mean relative time under the largest delay."""
        return f"{(ends[GroupCase(groups, delayed, largest_delay)].time / base_time).mean():.2f}"

    return {
        "TwoGroups": "4",
        "TwoMoreGroups": "8",
        "TwoSameTime": mean_relative_time(4, "two in one group"),
        "TwoSeparateTime": mean_relative_time(4, "two in separate groups"),
        "TwoSeparateEightTime": mean_relative_time(8, "two in separate groups"),
        "TwoProgressiveTime": mean_relative_time(0, "two in separate groups"),
    }, {}
