"""The summary table of a comparison: one row a scheme."""

from typing import NamedTuple

import numpy as np

from gcjax.analysis import table_cells
from gcjax.analysis.metrics import time_to_target
from gcjax.analysis.store import Columns, Results
from gcjax.tables import RichTable, markdown_table, rich_table

NOTES = """\
- Time is virtual: seconds of the simulated workers, not of the machine that ran the simulation.
- ± is the standard deviation over seeds. *Never* means that the scheme came to a halt, because it waits for a
  worker that has failed; *not reached* means that it ran to the end without getting there.
- Computing, communicating and waiting are shares of the workers' time up to the end of the run. Chunks that
  were cut off or not used count as computing; a failed worker counts as waiting.
- Staleness is the number of commits between the parameters that a gradient was computed on and those that it
  was applied to: the mean, and the largest in brackets.
- Chunks and numbers sent are per worker, up to the moment at which the target was reached; where it was not,
  up to the end of the run and marked with >. A redundant chunk costs as much as any other.
"""


class Row(NamedTuple):
    """The cells of one scheme, as text."""

    scheme: str
    time: str
    final: str
    computing: str
    communicating: str
    waiting: str
    staleness: str
    chunks: str
    numbers: str


def table(results: Results) -> RichTable:
    """The summary for the terminal."""
    title = "Mean ± standard deviation over seeds; time is virtual"
    return rich_table(title, heads(results), rows(results), caption=same_durations(results))


def markdown(results: Results) -> str:
    """The summary as a Markdown page, with what its columns mean."""
    same = same_durations(results)
    notes = NOTES if same is None else f"{NOTES}- {same}\n"
    return "\n".join(["# Summary", "", markdown_table(heads(results), rows(results)), "", notes])


def same_durations(results: Results) -> str | None:
    """A sentence, if seeds had the same durations: then ± is not, or not only, over stragglers."""
    number, distinct = (results.facts.get(name) for name in ("num_seeds", "distinct_durations"))
    if distinct is None or distinct == number:
        return None
    if distinct == 1:
        return f"All {number} seeds had the same durations: ± is over parameters and batches, not over stragglers."
    return f"{number} seeds had only {distinct} different durations: ± over stragglers is too small."


def rows(results: Results) -> list[Row]:
    """One row a scheme, those that reach the target for most seeds, and soonest, first."""
    return [_row(results, scheme) for scheme in sorted(results.schemes, key=lambda s: _rank(results, s))]


def reach_times(results: Results, scheme: str) -> np.ndarray:
    """float[S]: virtual seconds to the target for each of S seeds; inf where it was not reached."""
    target = results.facts["target"]
    name, value, rising = target["metric"], target["value"], target["higher_is_better"]
    seeds = results.seeds(scheme)
    return np.array([time_to_target(s["time"], s[name], value, higher_is_better=rising) for s in seeds])


def best_value(results: Results) -> tuple[float, str]:
    """The best value of the target's metric that any scheme ever had, and which scheme that was."""
    target = results.facts["target"]
    sign = 1 if target["higher_is_better"] else -1
    values = sign * results.metrics[target["metric"]]
    best = int(np.nanargmax(values))
    return float(sign * values[best]), str(results.metrics["scheme"][best])


def heads(results: Results) -> Row:
    """The heads of the columns of `rows`."""
    target = results.facts["target"]
    metric = target["metric"].replace("_", " ")
    relation = "" if target["higher_is_better"] else "≤ "
    return Row(
        scheme="Scheme",
        time=f"Time to {relation}{target['value']:g} {metric} (s)",
        final=f"Final {metric}",
        computing="Computing",
        communicating="Communicating",
        waiting="Waiting",
        staleness="Staleness",
        chunks="Chunks per worker",
        numbers="Numbers sent per worker",
    )


def _rank(results: Results, scheme: str) -> tuple[float, float]:
    times = reach_times(results, scheme)
    reached = np.isfinite(times)
    return -reached.sum(), times[reached].mean() if reached.any() else 0.0


def _row(results: Results, scheme: str) -> Row:
    seeds, times = results.seeds(scheme), reach_times(results, scheme)
    last = {name: [seed[name][-1] for seed in seeds] for name in results.metrics}
    stalled = results.facts["schemes"][scheme]["stalled"]
    return Row(
        scheme=scheme,
        time=table_cells.time_to_target(times, np.array(last["time"]), stalled),
        final=table_cells.mean_spread(last[results.facts["target"]["metric"]], 3),
        computing=table_cells.percent(last["computing"]),
        communicating=table_cells.percent(last["communicating"]),
        waiting=table_cells.percent(last["waiting"]),
        staleness=table_cells.staleness(last["mean_staleness"], last["max_staleness"]),
        chunks=_spent(seeds, times, "chunks"),
        numbers=_spent(seeds, times, "numbers"),
    )


def _spent(seeds: list[Columns], times: np.ndarray, name: str) -> str:
    """What was spent to reach the target; by the end of the run, and marked, where no seed reached it."""
    reached = np.isfinite(times)
    if not reached.any():
        return "> " + table_cells.short(float(np.mean([seed[name][-1] for seed in seeds])))
    pairs = zip(seeds, times, strict=True)
    spent = [seed[name][seed["time"] == time][0] for seed, time in pairs if np.isfinite(time)]
    return table_cells.short(float(np.mean(spent)))
